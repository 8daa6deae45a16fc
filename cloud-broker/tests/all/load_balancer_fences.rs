//! Clusters that share keys: the fence of each decides which rules without a mark it may take over.

use cloud_broker::tenant::{Machines, NameOrId, Pattern, Scope};
use cloudstack_simulator::{Handle, Seed};

use super::load_balancer_others::{NAME, by_hand};
use super::load_balancer_support::{Broker, cloud, cluster, farewell, isolated, picture, service, wish};

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
