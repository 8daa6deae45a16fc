//! Clusters that share keys: the fence of each decides which rules without a mark it may take over.

use std::time::Duration;

use cloud_broker::load_balancer::{Demand, Outcome};
use cloud_broker::tenant::{Machines, NameOrId, Pattern, Scope};
use cloudstack_simulator::{Handle, Seed};

use super::load_balancer_others::{NAME, by_hand};
use super::load_balancer_support::{
    Always, Broker, cloud, cluster, farewell, isolated, picture, service, wish,
};

/// Another cluster's broker process, with this fence.
fn fenced(cloud: &Handle, uid: &str, network: &str, machines: Machines) -> Broker {
    let mut broker = Broker::new(cloud);
    broker.uids = cluster(uid);
    broker.scope = Scope {
        networks: vec![NameOrId::new(network)],
        machines,
        ..Scope::default()
    };
    broker
}

fn named(pattern: &str) -> Machines {
    Machines::Named(Pattern::new(pattern))
}

/// Asks for everything that can be asked for a balancer: to serve it, and to end it.
async fn tries_to_take_it(broker: &Broker, cloud: &Handle) {
    let before = picture(&cloud.dump());
    let mut wanted = wish(cloud, &[(80, 30080)]);
    wanted.members.clear();
    // Whatever it answers: without a node nothing of its own can be made.
    drop(broker.ensure_once(&service(1), &wanted, &[]).await);
    broker.delete(&service(1), farewell()).await.unwrap();
    assert_eq!(picture(&cloud.dump()), before);
}

#[tokio::test]
async fn a_cluster_takes_over_no_balancer_in_a_network_of_another_cluster() {
    let seed = Seed::builder()
        .account("demo")
        .network("demo", "k8s", "127.101.0.0/24")
        .machines("k8s", "node-", 3)
        .network("demo", "green", "127.101.1.0/24")
        .build();
    let cloud = cloud(seed).await;
    let name = format!("{NAME}-tcp-80");
    let made = by_hand(
        &Broker::new(&cloud),
        &cloud,
        "127.100.0.50",
        &[(&name, 80, 30080)],
    )
    .await;
    let green = fenced(&cloud, "green-uid", "green", Machines::Any);
    tries_to_take_it(&green, &cloud).await;
    let blue = fenced(&cloud, "blue-uid", "k8s", Machines::Any);
    let (served, changes) = blue
        .ensure(&service(1), &wish(&cloud, &[(80, 30080)]), &[made.ip])
        .await
        .unwrap();
    assert_eq!((served.ingress.ip, changes), (made.ip, 1));
}

#[tokio::test]
async fn in_a_shared_network_a_cluster_takes_over_only_balancers_of_its_own_machines() {
    let cloud = cloud(isolated()).await;
    let name = format!("{NAME}-tcp-80");
    let made = by_hand(
        &Broker::new(&cloud),
        &cloud,
        "127.100.0.50",
        &[(&name, 80, 30080)],
    )
    .await;
    let green = fenced(&cloud, "green-uid", "k8s", named("green-*"));
    tries_to_take_it(&green, &cloud).await;
    let blue = || fenced(&cloud, "blue-uid", "k8s", named("node-*"));
    let (served, changes) = blue()
        .ensure(&service(1), &wish(&cloud, &[(80, 30080)]), &[made.ip])
        .await
        .unwrap();
    assert_eq!((served.ingress.ip, changes), (made.ip, 1));
    blue().delete(&service(1), farewell()).await.unwrap();
    assert_eq!(picture(&cloud.dump()), Vec::<String>::new());
}

#[tokio::test]
async fn a_balancer_of_its_own_machines_can_end_before_it_was_taken_over() {
    let cloud = cloud(isolated()).await;
    let name = format!("{NAME}-tcp-80");
    by_hand(
        &Broker::new(&cloud),
        &cloud,
        "127.100.0.50",
        &[(&name, 80, 30080)],
    )
    .await;
    // A process that has just begun has seen no machine yet.
    let blue = fenced(&cloud, "blue-uid", "k8s", named("node-*"));
    blue.delete(&service(1), farewell()).await.unwrap();
    assert_eq!(picture(&cloud.dump()), Vec::<String>::new());
}

#[rstest::rstest]
#[case::a_network_that_is_another_one("green", Machines::Any)]
#[case::machines_that_do_not_fit("k8s", named("nodes-*"))]
#[tokio::test]
async fn a_service_whose_balancer_the_fence_leaves_out_keeps_its_address_and_gets_no_other(
    #[case] network: &str,
    #[case] machines: Machines,
) {
    let seed = Seed::builder()
        .account("demo")
        .network("demo", "k8s", "127.101.0.0/24")
        .machines("k8s", "node-", 3)
        .network("demo", "green", "127.101.1.0/24")
        .build();
    let cloud = cloud(seed).await;
    let name = format!("{NAME}-tcp-80");
    let made = by_hand(
        &Broker::new(&cloud),
        &cloud,
        "127.100.0.50",
        &[(&name, 80, 30080)],
    )
    .await;
    let before = picture(&cloud.dump());
    let broker = fenced(&cloud, "blue-uid", network, machines);
    let mut wanted = wish(&cloud, &[(80, 30080)]);
    wanted.network = network.to_owned();
    let answer = broker
        .ensure_once(&service(1), &wanted, &[made.ip])
        .await
        .unwrap();
    assert!(
        matches!(&answer.outcome, Outcome::Pending(wait) if wait.reason == "OUTSIDE_FENCE"),
        "{answer:?}"
    );
    assert!(
        answer
            .notes
            .iter()
            .any(|note| note.reason == "OutsideFence" && note.text.contains(&name)),
        "{answer:?}"
    );
    let demand = Demand {
        service: service(1),
        published: vec![made.ip],
        goal: farewell(),
    };
    let soon = runtime::clock::now() + Duration::from_secs(20);
    let answer = broker
        .balancers
        .delete(&broker.tenancy(), &demand, &Always, soon)
        .await
        .unwrap();
    assert!(matches!(&answer.outcome, Outcome::Settled(departed) if departed.kept == [made.ip]));
    assert!(answer.notes.iter().any(|note| note.reason == "AddressKept"));
    assert_eq!(picture(&cloud.dump()), before);
}
