//! The controls that tests use.

use cloudstack_simulator::{Seed, Simulator};

#[tokio::test]
async fn machines_can_be_added_and_taken_away() {
    let seed = Seed::builder()
        .account("demo")
        .network("demo", "k8s", "127.101.0.0/24")
        .machines("k8s", "node-", 2)
        .build();
    let simulator = Simulator::start_with_seed(seed).await.unwrap();
    simulator.add_machine("node-3", "k8s", None).unwrap();
    simulator.stop_machine("node-1").unwrap();
    simulator.expunge_machine("node-2").unwrap();
    let machines: Vec<(String, String)> = simulator
        .dump()
        .machines
        .into_iter()
        .map(|row| (row.name, row.state))
        .collect();
    assert_eq!(
        machines,
        [
            ("node-1".to_owned(), "Stopped".to_owned()),
            ("node-3".to_owned(), "Running".to_owned())
        ]
    );
    assert!(simulator.stop_machine("node-2").is_err());
    simulator.stop().await;
}
