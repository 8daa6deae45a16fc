//! How much is read to find a free address that a cluster may use.

use cloud_broker::load_balancer::{Outcome, Served};
use cloud_broker::tenant::AllowedAddresses;
use cloudstack_simulator::{Effect, Fault, Handle, Seed};

use super::load_balancer_support::{Broker, cloud, farewell, service, wish};

/// A cloud with 241 public addresses, of which 240 are free, and pages of so many.
async fn with_pages_of(size: u32) -> Handle {
    let seed = Seed::builder()
        .account("demo")
        .network("demo", "k8s", "127.101.0.0/24")
        .machines("k8s", "node-", 1)
        .setting("default.page.size", &size.to_string())
        .build();
    cloud(seed).await
}

fn allowed(cloud: &Handle, networks: &[&str]) -> Broker {
    let mut broker = Broker::new(cloud);
    broker.policy.allowed_addresses =
        AllowedAddresses::of(networks.iter().map(|network| network.parse().unwrap()).collect());
    broker
}

/// Lists of addresses that were read to serve a new Service, and what it got.
async fn reads(cloud: &Handle, broker: &Broker, number: u8) -> (u64, Served) {
    cloud.reset_calls();
    let wanted = wish(cloud, &[(80, 30080)]);
    let (served, _) = broker.ensure(&service(number), &wanted, &[]).await.unwrap();
    let lists = cloud.calls().by_command["listPublicIpAddresses"];
    (lists, served)
}

#[tokio::test]
async fn no_page_is_read_after_one_with_enough_allowed_addresses() {
    let any = with_pages_of(50).await;
    let (of_any, _) = reads(&any, &Broker::new(&any), 1).await;
    let cloud = with_pages_of(50).await;
    let (lists, _) = reads(&cloud, &allowed(&cloud, &["127.100.0.0/27"]), 1).await;
    // Any page will do where every address does.
    assert_eq!(lists, of_any);
}

#[tokio::test]
async fn the_next_service_begins_at_the_page_where_allowed_addresses_were_found() {
    let cloud = with_pages_of(50).await;
    let broker = allowed(&cloud, &["127.100.0.224/27"]);
    let (first, served) = reads(&cloud, &broker, 1).await;
    assert!(broker.policy.allowed_addresses.admit(served.ingress.ip));
    let (second, served) = reads(&cloud, &broker, 2).await;
    assert!(broker.policy.allowed_addresses.admit(served.ingress.ip));
    assert!(second + 4 <= first, "{first} lists, then {second}");
}

#[tokio::test]
async fn one_look_has_an_end_and_the_next_call_goes_on_from_there() {
    let cloud = with_pages_of(10).await;
    let broker = allowed(&cloud, &["127.100.0.160/27"]);
    let wanted = wish(&cloud, &[(80, 30080)]);
    let answer = broker.ensure_once(&service(1), &wanted, &[]).await.unwrap();
    assert!(
        matches!(&answer.outcome, Outcome::Pending(wait) if wait.reason == "NO_FREE_ADDRESS"),
        "{answer:?}"
    );
    let (_, served) = reads(&cloud, &broker, 1).await;
    assert!(broker.policy.allowed_addresses.admit(served.ingress.ip));
}

#[tokio::test]
async fn addresses_before_the_page_where_looks_begin_are_found_again() {
    let cloud = with_pages_of(50).await;
    let broker = allowed(&cloud, &["127.100.0.240/32", "127.100.0.20/32", "10.9.9.0/27"]);
    let taken = wish(&cloud, &[(80, 30080)]);
    // The first address of a network hides its machines and is never given back.
    allowed(&cloud, &["127.100.0.30/32"])
        .ensure(&service(9), &taken, &[])
        .await
        .unwrap();
    // The one at the front is somebody's while the other one is found at the end.
    let other = allowed(&cloud, &["127.100.0.20/32"]);
    other.ensure(&service(1), &taken, &[]).await.unwrap();
    let (_, served) = reads(&cloud, &broker, 2).await;
    assert_eq!(served.ingress.ip.to_string(), "127.100.0.240");
    let gone = other.delete(&service(1), farewell()).await.unwrap();
    assert_eq!(gone.released.len(), 1);
    // Another broker did that, and lists of the last seconds don't show it.
    broker.balancers.forget("main");
    let (_, served) = reads(&cloud, &broker, 3).await;
    assert_eq!(served.ingress.ip.to_string(), "127.100.0.20");
}

#[tokio::test]
async fn a_call_that_lost_an_address_does_not_read_all_pages_again() {
    let networks = ["127.100.0.240/32", "10.9.9.0/27"];
    let smooth = with_pages_of(30).await;
    let (without, _) = reads(&smooth, &allowed(&smooth, &networks), 1).await;
    let cloud = with_pages_of(30).await;
    cloud.add_fault(Fault::at("associateIpAddress", 1, Effect::error(530, "no")));
    let (lists, served) = reads(&cloud, &allowed(&cloud, &networks), 1).await;
    assert_eq!(served.ingress.ip.to_string(), "127.100.0.240");
    assert!(
        lists < without + 8,
        "{without} lists without a failure, {lists} with one"
    );
}

#[tokio::test]
async fn few_allowed_addresses_are_asked_for_one_by_one() {
    let cloud = with_pages_of(10).await;
    let broker = allowed(&cloud, &["127.100.0.248/30"]);
    let (lists, served) = reads(&cloud, &broker, 1).await;
    assert!(broker.policy.allowed_addresses.admit(served.ingress.ip));
    // Twenty-four pages are before them.
    assert!(lists < 24, "{lists} lists");
    let wanted = wish(&cloud, &[(80, 30080)]);
    for number in 2..=3 {
        broker.ensure(&service(number), &wanted, &[]).await.unwrap();
    }
    let answer = broker.ensure_once(&service(4), &wanted, &[]).await.unwrap();
    assert!(
        matches!(&answer.outcome, Outcome::Pending(wait) if wait.reason == "NO_FREE_ADDRESS"),
        "{answer:?}"
    );
}
