//! Clusters that share keys: the fence of each decides which rules without a mark it may take over.

use std::time::Duration;

use cloud_broker::load_balancer::{Demand, Outcome};
use cloud_broker::tenant::{AddressSharing, ClusterUid, ClusterUids, Machines, NameOrId, Pattern, Scope};
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
    let cloud = cloud(two_networks()).await;
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
    let cloud = cloud(two_networks()).await;
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

#[rstest::rstest]
#[case::nobody_says_it_any_more(None)]
#[case::it_is_another_one_now(Some("new-uid"))]
#[tokio::test]
async fn a_cluster_that_lost_its_uid_takes_no_other_addresses_and_goes_on_once_it_has_it_again(
    #[case] said: Option<&str>,
) {
    let cloud = cloud(isolated()).await;
    let before = fenced(&cloud, "old-uid", "k8s", Machines::Any);
    let wanted = wish(&cloud, &[(80, 30080)]);
    let (made, _) = before.ensure(&service(1), &wanted, &[]).await.unwrap();
    let there = picture(&cloud.dump());
    let mut lost = nameless(&cloud, Machines::Any);
    lost.uids = lost.uids.for_caller(said.and_then(ClusterUid::new)).unwrap();
    let published = [made.ingress.ip];
    let answer = lost.ensure_once(&service(1), &wanted, &published).await.unwrap();
    assert!(
        matches!(&answer.outcome, Outcome::Pending(wait) if wait.reason == "OTHER_CLUSTER_MARK"),
        "{answer:?}"
    );
    assert_eq!(picture(&cloud.dump()), there);
    let again = fenced(&cloud, "old-uid", "k8s", Machines::Any);
    let (served, changes) = again.ensure(&service(1), &wanted, &published).await.unwrap();
    assert_eq!((served.ingress.ip, changes), (made.ingress.ip, 0));
}

/// The network of one cluster with its machines, and an empty one beside it.
fn two_networks() -> Seed {
    Seed::builder()
        .account("demo")
        .network("demo", "k8s", "127.101.0.0/24")
        .machines("k8s", "node-", 3)
        .network("demo", "green", "127.101.1.0/24")
        .build()
}

/// A broker of the time when nobody said the UID of the cluster.
fn nameless(cloud: &Handle, machines: Machines) -> Broker {
    let mut broker = fenced(cloud, "u", "k8s", machines);
    broker.uids = ClusterUids::default();
    broker
}

#[rstest::rstest]
#[case::by_their_networks("green", Machines::Any, Machines::Any)]
#[case::by_their_machines("k8s", named("green-*"), named("node-*"))]
#[tokio::test]
async fn what_a_cluster_made_before_its_uid_was_known_is_its_own_and_no_other_ones(
    #[case] network: &str,
    #[case] of_green: Machines,
    #[case] of_blue: Machines,
) {
    let cloud = cloud(two_networks()).await;
    let wanted = wish(&cloud, &[(80, 30080), (443, 30443)]);
    let (made, _) = nameless(&cloud, of_blue.clone())
        .ensure(&service(1), &wanted, &[])
        .await
        .unwrap();
    assert!(cloud.dump().rules.iter().all(|rule| {
        let mark = rule.description.as_deref().unwrap_or_default();
        mark.starts_with("kcs1 cluster=- ") && mark.contains("address=own")
    }));
    // Somebody else whose agent says the UID of the Service.
    let green = fenced(&cloud, "green-uid", network, of_green);
    tries_to_take_it(&green, &cloud).await;
    let blue = fenced(&cloud, "blue-uid", "k8s", of_blue);
    let (served, changes) = blue
        .ensure(&service(1), &wanted, &[made.ingress.ip])
        .await
        .unwrap();
    assert_eq!((served.ingress.ip, changes), (made.ingress.ip, 2));
    let departed = blue.delete(&service(1), farewell()).await.unwrap();
    assert_eq!(departed.released, [made.ingress.ip]);
    assert_eq!(picture(&cloud.dump()), Vec::<String>::new());
}

#[rstest::rstest]
#[case::nobody_says_its_uid(None)]
#[case::its_agent_says_it_by_now(Some("u"))]
#[tokio::test]
async fn a_cluster_that_has_its_keys_for_itself_knows_its_balancers_without_machines_again(
    #[case] said: Option<&str>,
) {
    let cloud = cloud(isolated()).await;
    let mut wanted = wish(&cloud, &[(80, 30080)]);
    let all = std::mem::take(&mut wanted.members);
    wanted.network = "k8s".to_owned();
    let first = nameless(&cloud, named("node-*"));
    let (made, _) = first.ensure(&service(1), &wanted, &[]).await.unwrap();
    wanted.members = all;
    let mut next = nameless(&cloud, named("node-*"));
    next.uids = next.uids.for_caller(said.and_then(ClusterUid::new)).unwrap();
    let (served, _) = next.ensure(&service(1), &wanted, &[]).await.unwrap();
    assert_eq!(served.ingress.ip, made.ingress.ip);
    assert_eq!(cloud.dump().rules.len(), 1);
    next.delete(&service(1), farewell()).await.unwrap();
    assert_eq!(picture(&cloud.dump()), Vec::<String>::new());
}

#[rstest::rstest]
#[case::in_one_namespace(AddressSharing::Namespace)]
#[case::not_at_all(AddressSharing::None)]
#[tokio::test]
async fn services_of_a_cluster_without_a_uid_share_addresses_as_the_policy_says(
    #[case] sharing: AddressSharing,
) {
    let cloud = cloud(isolated()).await;
    let mut broker = nameless(&cloud, Machines::Any);
    let (made, _) = broker
        .ensure(&service(1), &wish(&cloud, &[(80, 30080)]), &[])
        .await
        .unwrap();
    broker.policy.address_sharing = sharing;
    let mut wanted = wish(&cloud, &[(81, 30081)]);
    wanted.requested_address = made.ingress.ip.to_string();
    let mut other = service(2);
    "attic".clone_into(&mut other.namespace);
    let fault = broker.ensure(&other, &wanted, &[]).await.unwrap_err();
    assert_eq!(fault.reason, "ADDRESS_NOT_SHARED");
}

#[tokio::test]
async fn a_cluster_without_a_uid_has_no_more_addresses_than_it_may() {
    let cloud = cloud(isolated()).await;
    let mut broker = nameless(&cloud, Machines::Any);
    broker.policy.max_public_ips = Some(1);
    let wanted = wish(&cloud, &[(80, 30080)]);
    broker.ensure(&service(1), &wanted, &[]).await.unwrap();
    let used = broker
        .balancers
        .owned_addresses(&broker.api, &broker.uids, &broker.scope);
    assert_eq!(used, Some(1));
    let fault = broker.ensure(&service(2), &wanted, &[]).await.unwrap_err();
    assert_eq!(fault.reason, "MAX_PUBLIC_IPS");
}
