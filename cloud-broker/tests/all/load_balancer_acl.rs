//! ACL items: where they go with a Service, and in which lists they are looked for.

use cloud_broker::cloudstack::types::{AclListId, CidrList, PortRange};
use cloud_broker::cloudstack::{CreateAclItem, FirewallProtocol};
use cloudstack_simulator::{Effect, Fault as Script, Handle, MachineSeed, NetworkSeed, Seed};

use super::client_support::network_named;
use super::load_balancer_support::{Broker, CLUSTER, cloud, farewell, service, tier, wish};

/// Two tiers with a list each, and machines in both.
fn tiers() -> Seed {
    let tier = |name: &str, cidr: &str| {
        NetworkSeed::tier(name, "vpc", cidr)
            .account("demo")
            .acl(&format!("list-{name}"))
    };
    let mut seed = Seed::builder()
        .account("demo")
        .vpc("demo", "vpc", "127.101.0.0/24")
        .network_seed(tier("web", "127.101.0.0/26"))
        .network_seed(tier("back", "127.101.0.64/26"))
        .machine(MachineSeed::new("node-1", "web", None).nic("back", None))
        .build();
    for name in ["list-web", "list-back"] {
        let list = serde_json::json!({ "name": name, "vpcname": "vpc" });
        seed.networkacllists.push(list.as_object().unwrap().clone());
    }
    seed
}

fn lists_with_items(cloud: &Handle) -> Vec<String> {
    let items = cloud.dump().acl_items.into_iter();
    items
        .filter(|item| item.reason.as_deref().unwrap_or_default().contains("kcs1 "))
        .map(|item| item.list)
        .collect()
}

async fn by_hand(broker: &Broker, list: AclListId, number: u32, reason: &str) {
    let item = CreateAclItem {
        list,
        number,
        protocol: FirewallProtocol::Tcp,
        ports: PortRange::single(80),
        sources: CidrList::parse("0.0.0.0/0"),
        reason: reason.to_owned(),
    };
    let started = broker.api.create_acl_item(&item).await.unwrap();
    started.finished().await.unwrap();
}

#[tokio::test]
async fn acl_items_go_with_the_network_and_with_the_service_wherever_they_are() {
    let cloud = cloud(tiers()).await;
    let broker = Broker::new(&cloud);
    let mut wanted = wish(&cloud, &[(80, 30080)]);
    wanted.network = "web".to_owned();
    let (old, _) = broker.ensure(&service(1), &wanted, &[]).await.unwrap();
    assert_eq!(lists_with_items(&cloud), ["list-web"]);
    wanted.network = "back".to_owned();
    let (new, _) = broker
        .ensure(&service(1), &wanted, &[old.ingress.ip])
        .await
        .unwrap();
    // Clients are still sent to the old one.
    assert_eq!(lists_with_items(&cloud).len(), 2);
    broker
        .ensure(&service(1), &wanted, &[new.ingress.ip])
        .await
        .unwrap();
    assert_eq!(lists_with_items(&cloud), ["list-back"]);
    assert_eq!(cloud.dump().rules.len(), 1);
    // One that was left behind once.
    let web = network_named(&broker.api, "web").await;
    let reason = format!("kcs1 cluster={CLUSTER} service={}", service(1).uid);
    by_hand(&broker, web.acl_id.unwrap(), 50, &reason).await;
    broker.delete(&service(1), farewell()).await.unwrap();
    assert_eq!(lists_with_items(&cloud), Vec::<String>::new());
    assert_eq!(cloud.dump().rules.len(), 0);
}

/// A tier with this list; of those made by hand at least one is no tier's.
fn replaced(list: &str) -> Seed {
    tier(list, &["old", "new"])
}

async fn list_named(broker: &Broker, name: &str) -> AclListId {
    let vpc = network_named(&broker.api, "web").await.vpc_id.unwrap();
    let lists = broker.api.acl_lists(&vpc).await.unwrap().into_items();
    lists.into_iter().find(|list| list.name == name).unwrap().id
}

#[rstest::rstest]
#[case::by_another_one("new")]
#[case::by_a_default_list("default_allow")]
#[tokio::test]
async fn acl_items_go_with_the_service_from_a_list_that_a_person_replaced(#[case] list: &str) {
    let cloud = cloud(replaced(list)).await;
    let broker = Broker::new(&cloud);
    let wanted = wish(&cloud, &[(80, 30080)]);
    broker.ensure(&service(1), &wanted, &[]).await.unwrap();
    let old = list_named(&broker, "old").await;
    let mark = |cluster: &str, number: u8| format!("kcs1 cluster={cluster} service={}", service(number).uid);
    by_hand(&broker, old.clone(), 50, &mark(CLUSTER, 1)).await;
    let others = [mark(CLUSTER, 2), mark("another", 1), "by hand".to_owned()];
    for (number, reason) in (51..).zip(&others) {
        by_hand(&broker, old.clone(), number, reason).await;
    }
    cloud.reset_calls();
    broker.delete(&service(1), farewell()).await.unwrap();
    // All lists are one read, however many there are.
    assert_eq!(cloud.calls().of_command("listNetworkACLs"), 1);
    let items = cloud.dump().acl_items.into_iter();
    let left: Vec<String> = items.filter_map(|item| item.reason).collect();
    assert_eq!(left.len(), others.len(), "{left:?}");
    assert!(others.iter().all(|reason| left.contains(reason)), "{left:?}");
}

#[rstest::rstest]
#[case::where_no_tier_has_a_list_for_them("default_allow", true)]
#[case::where_one_has("new", false)]
#[tokio::test]
async fn a_key_that_may_not_list_acl_items_ends_a_balancer_only(#[case] list: &str, #[case] ends: bool) {
    let cloud = cloud(replaced(list)).await;
    let broker = Broker::new(&cloud);
    broker
        .ensure(&service(1), &wish(&cloud, &[(80, 30080)]), &[])
        .await
        .unwrap();
    let forbidden = "The API [listNetworkACLs] does not exist or is not available for this account.";
    cloud.add_fault(Script::always("listNetworkACLs", Effect::error(432, forbidden)));
    // Another process, which has seen nothing yet.
    let broker = Broker::new(&cloud);
    let answer = broker.delete_once(&service(1), farewell()).await;
    assert_eq!(answer.is_ok(), ends, "{answer:?}");
    assert_eq!(cloud.dump().rules.is_empty(), ends);
}

#[tokio::test]
async fn where_no_vpc_is_no_acl_list_is_read() {
    let cloud = cloud(super::load_balancer_support::isolated()).await;
    let broker = Broker::new(&cloud);
    broker
        .ensure(&service(1), &wish(&cloud, &[(80, 30080)]), &[])
        .await
        .unwrap();
    broker.delete(&service(1), farewell()).await.unwrap();
    assert_eq!(cloud.calls().of_command("listNetworkACLs"), 0);
}
