//! The controls that tests use.

use cloudstack_simulator::{AddressUse, Seed, Simulator};

use crate::client::{call, run};

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

#[tokio::test]
async fn addresses_can_be_used_for_something_else() {
    let simulator = Simulator::start_with_seed(Seed::demo()).await.unwrap();
    let networks = call(&simulator, "demo", "listNetworks", &[])
        .await
        .unwrap()
        .inner();
    let network = networks["network"][0]["id"].as_str().unwrap();
    let done = run(
        &simulator,
        "demo",
        "associateIpAddress",
        &[("networkid", network)],
    )
    .await;
    let address = &done["jobresult"]["ipaddress"];
    let (id, ip) = (
        address["id"].as_str().unwrap(),
        address["ipaddress"].as_str().unwrap(),
    );
    simulator
        .use_address(ip, &AddressUse::PortForwarding { port: 22 })
        .unwrap();
    simulator.use_address(ip, &AddressUse::Vpn).unwrap();
    let machine = "node-1".to_owned();
    simulator
        .use_address(ip, &AddressUse::StaticNat { machine })
        .unwrap();
    assert!(simulator.use_address("127.100.0.250", &AddressUse::Vpn).is_err());

    let list = async |command: &'static str, filter: &'static str| {
        call(&simulator, "demo", command, &[(filter, id)])
            .await
            .unwrap()
            .inner()
    };
    let forwarding = list("listPortForwardingRules", "ipaddressid").await;
    assert_eq!(forwarding["count"], 1);
    assert_eq!(forwarding["portforwardingrule"][0]["publicport"], "22");
    let vpns = list("listRemoteAccessVpns", "publicipid").await;
    assert_eq!(vpns["remoteaccessvpn"][0]["publicipid"], *id);
    let addresses = list("listPublicIpAddresses", "id").await;
    assert_eq!(addresses["publicipaddress"][0]["isstaticnat"], true);

    run(&simulator, "demo", "disassociateIpAddress", &[("id", id)]).await;
    let forwarding = call(&simulator, "demo", "listPortForwardingRules", &[]).await;
    assert_eq!(forwarding.unwrap().inner().get("count"), None);
    simulator.stop().await;
}
