//! How balancers leave addresses and networks: together, with a refusal in between, and where somebody else was faster.

use std::net::IpAddr;
use std::time::Duration;

use cloud_broker::cloudstack::types::{AddressId, Tag, TaggedResource};
use cloud_broker::cloudstack::{AddressQuery, Associate, AssociateTarget, NetworkQuery};
use cloud_broker::load_balancer::{Answer, Demand, Departed, Farewell, Outcome, Wish};
use cloudstack_simulator::{Effect, Fault as Script, Handle, Hold, Seed};
use proto::Fault;

use super::client_support::until;
use super::load_balancer_support::{
    Always, Broker, CLUSTER, Endpoint, cloud, farewell, isolated, picture, service, wish,
};

const SHARED: &str = "127.100.0.77";

fn kept() -> Farewell {
    Farewell {
        keep_address: true,
        ..farewell()
    }
}

/// Two Services on one address that the cluster took.
async fn two_on_one_address(cloud: &Handle, broker: &Broker) {
    for (number, ports) in [(1, [(80, 30080)]), (2, [(81, 30081)])] {
        let mut wanted = wish(cloud, &ports);
        wanted.requested_address = SHARED.to_owned();
        let (served, _) = broker.ensure(&service(number), &wanted, &[]).await.unwrap();
        assert!(served.outputs.address_owned);
    }
}

fn lists_of_rules(cloud: &Handle) -> u64 {
    let calls = cloud.calls();
    calls
        .by_command
        .get("listLoadBalancerRules")
        .copied()
        .unwrap_or_default()
}

#[tokio::test]
async fn two_services_that_leave_their_address_together_release_it() {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    two_on_one_address(&cloud, &broker).await;
    // The second one looks while the rule of the first one is on its way out.
    cloud.hold_jobs(&[Hold::at_router("deleteLoadBalancerRule")]);
    let (one, two) = (service(1), service(2));
    let first = broker.delete(&one, farewell());
    let begins = tokio::sync::Notify::new();
    let second = async {
        until(|| cloud.dump().pending_jobs == 1).await;
        cloud.reset_calls();
        begins.notify_one();
        broker.delete(&two, farewell()).await
    };
    let go_on = async {
        begins.notified().await;
        until(|| lists_of_rules(&cloud) > 0).await;
        cloud.release_jobs().await;
        cloud.hold_jobs(&[]);
    };
    let (first, second, ()) = futures::join!(first, second, go_on);
    assert_eq!(first.unwrap().released, Vec::<IpAddr>::new());
    assert_eq!(second.unwrap().released, [SHARED.parse::<IpAddr>().unwrap()]);
    assert_eq!(picture(&cloud.dump()), Vec::<String>::new());
}

#[tokio::test]
async fn two_services_that_begin_to_leave_at_the_same_moment_release_their_address() {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    cloud.change_options(|options| options.delays.router = Duration::from_millis(20));
    for _ in 0..3 {
        two_on_one_address(&cloud, &broker).await;
        let (one, two) = (service(1), service(2));
        let (one, two) = futures::join!(broker.delete(&one, farewell()), broker.delete(&two, farewell()));
        let released = one.unwrap().released.len() + two.unwrap().released.len();
        assert_eq!((released, picture(&cloud.dump())), (1, Vec::<String>::new()));
    }
}

#[tokio::test]
async fn the_last_one_waits_for_a_rule_whose_caller_has_left() {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    two_on_one_address(&cloud, &broker).await;
    cloud.hold_jobs(&[Hold::at_start("deleteLoadBalancerRule")]);
    let demand = Demand {
        service: service(1),
        published: Vec::new(),
        goal: farewell(),
    };
    let soon = runtime::clock::now() + Duration::from_millis(500);
    let answer = broker
        .balancers
        .delete(&broker.tenancy(), &demand, &Always, soon)
        .await
        .unwrap();
    assert!(matches!(answer.outcome, Outcome::Pending(wait) if wait.reason == "JOB_RUNNING"));
    cloud.reset_calls();
    let two = service(2);
    let go_on = async {
        until(|| lists_of_rules(&cloud) > 0).await;
        cloud.release_jobs().await;
        cloud.hold_jobs(&[]);
    };
    let (last, ()) = futures::join!(broker.delete(&two, farewell()), go_on);
    assert_eq!(last.unwrap().released, [SHARED.parse::<IpAddr>().unwrap()]);
    broker.delete(&service(1), farewell()).await.unwrap();
    assert_eq!(picture(&cloud.dump()), Vec::<String>::new());
}

async fn address(broker: &Broker, ip: IpAddr) -> AddressId {
    let list = broker.api.addresses(&AddressQuery::Ip(ip)).await.unwrap();
    list.into_items()
        .into_iter()
        .find(|address| address.ip == ip)
        .unwrap()
        .id
}

/// A Service on an address that carries the cluster's tag.
async fn tagged(cloud: &Handle, broker: &Broker) -> IpAddr {
    let (served, _) = broker
        .ensure(&service(1), &wish(cloud, &[(80, 30080)]), &[])
        .await
        .unwrap();
    let resource = TaggedResource::Address(address(broker, served.ingress.ip).await);
    let tag = Tag::new("kcs-cluster", CLUSTER);
    let started = broker.api.create_tags(&resource, &[tag]).await.unwrap();
    started.finished().await.unwrap();
    served.ingress.ip
}

async fn the_next_one_is_given_it(cloud: &Handle, broker: &Broker, ip: IpAddr) -> bool {
    let mut wanted = wish(cloud, &[(81, 30081)]);
    wanted.requested_address = ip.to_string();
    let (served, _) = broker.ensure(&service(2), &wanted, &[]).await.unwrap();
    !served.outputs.address_owned
}

#[tokio::test]
async fn a_kept_address_is_not_the_clusters_any_more_although_the_tag_did_not_go_at_once() {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    let ip = tagged(&cloud, &broker).await;
    cloud.add_fault(Script::at("deleteTags", 1, Effect::error(530, "try again")));
    let departed = broker.delete(&service(1), kept()).await.unwrap();
    assert_eq!(departed.kept, [ip]);
    assert_eq!(cloud.dump().tags, []);
    assert!(the_next_one_is_given_it(&cloud, &broker, ip).await);
}

#[tokio::test]
async fn an_end_is_not_told_while_the_tag_of_a_kept_address_can_not_be_removed() {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    let ip = tagged(&cloud, &broker).await;
    cloud.add_fault(Script::always("deleteTags", Effect::error(530, "not now")));
    let fault: Fault = broker.delete_once(&service(1), kept()).await.unwrap_err();
    assert!(fault.text.contains("untag address"), "{fault:?}");
    cloud.clear_faults();
    broker.delete(&service(1), kept()).await.unwrap();
    assert!(the_next_one_is_given_it(&cloud, &broker, ip).await);
}

#[tokio::test]
async fn a_key_that_may_not_remove_the_tag_ends_the_balancer_and_says_so() {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    let ip = tagged(&cloud, &broker).await;
    let forbidden = "The API [deleteTags] does not exist or is not available for this account.";
    cloud.add_fault(Script::always("deleteTags", Effect::error(432, forbidden)));
    let answer: Answer<Departed> = broker.delete_once(&service(1), kept()).await.unwrap();
    assert!(matches!(answer.outcome, Outcome::Settled(departed) if departed.kept == [ip]));
    let said = |text: &str| text.contains(&ip.to_string()) && text.contains("kcs-cluster");
    assert!(
        answer.notes.iter().any(|note| said(&note.text)),
        "{:#?}",
        answer.notes
    );
    assert_eq!(cloud.dump().rules.len(), 0);
}

#[tokio::test]
async fn an_address_that_is_left_for_another_one_is_kept_if_that_is_asked_for() {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    let old = tagged(&cloud, &broker).await;
    let mut wanted = wish(&cloud, &[(80, 30080)]);
    wanted.requested_address = SHARED.to_owned();
    wanted.keep_address = true;
    let (moved, _) = broker.ensure(&service(1), &wanted, &[old]).await.unwrap();
    assert_eq!(moved.leaving, [old]);
    let answer = broker
        .ensure_once(&service(1), &wanted, &[moved.ingress.ip])
        .await
        .unwrap();
    assert!(matches!(answer.outcome, Outcome::Settled(_)));
    assert!(answer.notes.iter().any(|note| note.reason == "AddressKept"));
    let dump = cloud.dump();
    let addresses: Vec<&str> = dump.acquired().map(|row| row.address.as_str()).collect();
    assert!(addresses.contains(&old.to_string().as_str()), "{addresses:?}");
    assert_eq!(
        (dump.rules.len(), dump.firewall_rules.len(), dump.tags.len()),
        (1, 1, 0)
    );
    assert!(the_next_one_is_given_it(&cloud, &broker, old).await);
}

fn with_a_stranger() -> Seed {
    Seed::builder()
        .account("demo")
        .account("other")
        .network("demo", "k8s", "127.101.0.0/24")
        .network("other", "theirs", "127.102.0.0/24")
        .machines("k8s", "node-", 3)
        .build()
}

/// A free address is taken by another account.
async fn a_stranger_takes(cloud: &Handle, ip: IpAddr) {
    let stranger = Broker::at(&Endpoint::of(cloud, "other"));
    let theirs = stranger
        .api
        .networks(&NetworkQuery::default())
        .await
        .unwrap()
        .into_items();
    let request = Associate {
        target: AssociateTarget::Network(theirs[0].id.clone()),
        ip,
        job: uuid::Uuid::new_v4().into(),
    };
    let turn = stranger.api.turn_to_associate().await;
    let started = stranger.api.associate(&turn, &request).await.unwrap();
    started.finished().await.unwrap();
}

#[tokio::test]
async fn an_address_that_is_a_strangers_after_its_release_is_looked_for_once() {
    let cloud = cloud(with_a_stranger()).await;
    let broker = Broker::new(&cloud);
    let (old, _) = broker
        .ensure(&service(1), &wish(&cloud, &[(80, 30080)]), &[])
        .await
        .unwrap();
    let mut wanted = wish(&cloud, &[(80, 30080)]);
    wanted.requested_address = SHARED.to_owned();
    let (moved, _) = broker
        .ensure(&service(1), &wanted, &[old.ingress.ip])
        .await
        .unwrap();
    let published = [moved.ingress.ip];
    // The call ends before the release does.
    cloud.hold_jobs(&[Hold::at_start("disassociateIpAddress")]);
    let demand = Demand {
        service: service(1),
        published: published.to_vec(),
        goal: Wish::from_proto(Some(&wanted), &broker.policy).unwrap().0,
    };
    let soon = runtime::clock::now() + Duration::from_millis(500);
    let answer = broker
        .balancers
        .ensure(&broker.tenancy(), &demand, &Always, soon)
        .await
        .unwrap();
    assert!(matches!(answer.outcome, Outcome::Pending(wait) if wait.reason == "JOB_RUNNING"));
    cloud.hold_jobs(&[]);
    cloud.release_jobs().await;
    cloud.settled().await;
    a_stranger_takes(&cloud, old.ingress.ip).await;
    broker.ensure(&service(1), &wanted, &published).await.unwrap();
    cloud.reset_calls();
    broker.ensure(&service(1), &wanted, &published).await.unwrap();
    let calls = cloud.calls();
    assert_eq!(calls.by_command.get("listPublicIpAddresses"), None, "{calls:?}");
}

#[rstest::rstest]
#[case::the_nodes_are_visible(true)]
#[case::nothing_of_the_cluster_is_visible(false)]
#[tokio::test]
async fn the_last_balancer_ends_although_its_address_is_a_strangers_by_now(#[case] nodes_visible: bool) {
    let cloud = cloud(with_a_stranger()).await;
    let mut broker = Broker::new(&cloud);
    let (served, _) = broker
        .ensure(&service(1), &wish(&cloud, &[(80, 30080)]), &[])
        .await
        .unwrap();
    let ip = served.ingress.ip;
    let turn = broker.api.turn_to_release(&served.outputs.address_id).await;
    broker.api.release(&turn).await.unwrap().finished().await.unwrap();
    drop(turn);
    a_stranger_takes(&cloud, ip).await;
    broker.nodes_visible = nodes_visible;
    let demand = Demand {
        service: service(1),
        published: vec![ip],
        goal: farewell(),
    };
    let soon = runtime::clock::now() + Duration::from_secs(20);
    let answer = broker
        .balancers
        .delete(&broker.tenancy(), &demand, &Always, soon)
        .await
        .unwrap();
    match answer.outcome {
        Outcome::Settled(departed) => assert!(nodes_visible && departed.released.is_empty()),
        Outcome::Pending(wait) => assert!(!nodes_visible && wait.reason == "SCOPE_CHANGED", "{wait:?}"),
    }
    assert_eq!(cloud.dump().acquired().count(), 1);
}
