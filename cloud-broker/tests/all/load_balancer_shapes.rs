//! Load balancers on a simulated cloud: what is made, changed and released, and how many calls it takes.

use std::net::IpAddr;

use cloud_broker::cloudstack::types::Version;
use cloud_broker::load_balancer::{Outcome, ServerVersion};
use cloudstack_simulator::Handle;
use proto::{FaultKind, v1};

use super::load_balancer_support::{
    Broker, Endpoint, calls, cloud, farewell, isolated, picture, port_of, service, wish,
};

fn published(served: &cloud_broker::load_balancer::Served) -> Vec<IpAddr> {
    vec![served.ingress.ip]
}

#[tokio::test]
async fn a_service_gets_an_address_rules_members_and_an_open_firewall_and_leaves_nothing() {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    let wish = wish(&cloud, &[(80, 30080), (443, 30443)]);
    let (served, _) = broker.ensure(&service(1), &wish, &[]).await.unwrap();
    let ip = served.ingress.ip;
    let uid = "00000001-1111-4111-8111-111111111111";
    let mark = format!("kcs1 cluster=c1c1c1c1-0000-4000-8000-000000000001 service={uid} address=own src=");
    let dump = cloud.dump();
    let name = "a0000000111114111811111111111111";
    let members = r#"["node-1", "node-2", "node-3"]"#;
    let expected = [
        format!("address {ip} Allocated"),
        format!("firewall {ip} tcp Some((443, 443)) [\"0.0.0.0/0\"] Active"),
        format!("firewall {ip} tcp Some((80, 80)) [\"0.0.0.0/0\"] Active"),
        format!("rule {name}-tcp-443 {ip}:443 -> 30443 tcp roundrobin [0.0.0.0/0] Active {members} {mark}"),
        format!("rule {name}-tcp-80 {ip}:80 -> 30080 tcp roundrobin [0.0.0.0/0] Active {members} {mark}"),
    ];
    let seen = picture(&dump);
    assert_eq!(seen.len(), expected.len(), "{seen:#?}");
    for (seen, expected) in seen.iter().zip(&expected) {
        assert!(seen.starts_with(expected.as_str()), "{seen}\n{expected}");
    }
    assert!(served.outputs.address_owned);
    let departed = broker.delete(&service(1), farewell()).await.unwrap();
    assert_eq!(departed.released, [ip]);
    assert_eq!(picture(&cloud.dump()), Vec::<String>::new());
}

#[tokio::test]
async fn a_second_ensure_changes_nothing_and_reads_next_to_nothing() {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    let wish = wish(&cloud, &[(80, 30080), (443, 30443), (8443, 31443)]);
    let (served, _) = broker.ensure(&service(1), &wish, &[]).await.unwrap();
    cloud.reset_calls();
    let (again, changes) = broker
        .ensure(&service(1), &wish, &published(&served))
        .await
        .unwrap();
    assert_eq!((again, changes), (served, 0));
    let (reads, writes, polls) = calls(&cloud);
    assert!(
        reads <= 3 && writes == 0 && polls == 0,
        "{reads} {writes} {polls}"
    );
}

/// A broker whose waits are long beside what a call takes, even where many tests run: polls are counted.
fn unhurried(cloud: &Handle) -> Broker {
    Broker::at(&Endpoint {
        pace: 0.2,
        ..Endpoint::of(cloud, "demo")
    })
}

#[rstest::rstest]
#[case::one_port(1, (5, 4, 4))]
#[case::five_ports(5, (6, 16, 16))]
#[tokio::test]
async fn making_a_balancer_takes_few_calls(#[case] ports: u32, #[case] most: (u64, u64, u64)) {
    let cloud = cloud(isolated()).await;
    let broker = unhurried(&cloud);
    // Another service came first, so that networks and machines are known.
    broker
        .ensure(&service(9), &wish(&cloud, &[(22, 30022)]), &[])
        .await
        .unwrap();
    cloud.reset_calls();
    let ports: Vec<(u32, u32)> = (0..ports).map(|n| (80 + n, 30080 + n)).collect();
    broker
        .ensure(&service(1), &wish(&cloud, &ports), &[])
        .await
        .unwrap();
    let (reads, writes, polls) = calls(&cloud);
    assert!(
        reads <= most.0 && writes <= most.1 && polls <= most.2,
        "{reads} {writes} {polls}\n{:?}",
        cloud.calls().sequence
    );
}

#[tokio::test]
async fn a_node_that_comes_and_goes_takes_one_change_per_rule() {
    let cloud = cloud(isolated()).await;
    let broker = unhurried(&cloud);
    let ports = [(80, 30080), (443, 30443)];
    let before = wish(&cloud, &ports);
    let mut served = Vec::new();
    for number in 1..=5 {
        served.push(broker.ensure(&service(number), &before, &[]).await.unwrap().0);
    }
    cloud.add_machine("node-4", "k8s", None).unwrap();
    let after = wish(&cloud, &ports);
    cloud.reset_calls();
    for (number, served) in (1..=5).zip(&served) {
        broker
            .ensure(&service(number), &after, &published(served))
            .await
            .unwrap();
    }
    assert!(cloud.dump().rules.iter().all(|rule| rule.members.len() == 4));
    for (number, served) in (1..=5).zip(&served) {
        broker
            .ensure(&service(number), &before, &published(served))
            .await
            .unwrap();
    }
    assert!(cloud.dump().rules.iter().all(|rule| rule.members.len() == 3));
    let (reads, writes, polls) = calls(&cloud);
    assert!(
        reads <= 25 && writes <= 20 && polls <= 20,
        "{reads} {writes} {polls}"
    );
}

#[tokio::test]
async fn a_restart_reads_each_list_once_and_each_rule_once() {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    let wish = wish(&cloud, &[(80, 30080)]);
    for number in 1..=10 {
        broker.ensure(&service(number), &wish, &[]).await.unwrap();
    }
    drop(broker);
    cloud.reset_calls();
    let broker = Broker::new(&cloud);
    let mut changes = 0;
    for number in 1..=10 {
        let ip = broker.ensure(&service(number), &wish, &[]).await.unwrap();
        changes += ip.1;
    }
    let (reads, writes, polls) = calls(&cloud);
    assert_eq!((changes, writes, polls), (0, 0, 0));
    assert!(reads <= 15, "{reads} {:?}", cloud.calls().by_command);
}

#[tokio::test]
async fn a_wish_that_can_not_be_met_changes_nothing() {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    let mut udp = wish(&cloud, &[(53, 30053)]);
    udp.ports[0].protocol = v1::wish_port::Protocol::Udp.into();
    let fault = broker.ensure_once(&service(1), &udp, &[]).await.unwrap_err();
    assert_eq!(
        (fault.kind, fault.field.as_deref()),
        (FaultKind::Invalid, Some("ports[p53].protocol"))
    );
    let mut elsewhere = wish(&cloud, &[(80, 30080)]);
    elsewhere.network = "no-such-network".to_owned();
    let fault = broker
        .ensure_once(&service(1), &elsewhere, &[])
        .await
        .unwrap_err();
    assert_eq!(
        (fault.kind, fault.field.as_deref()),
        (FaultKind::NotFound, Some("network"))
    );
    assert_eq!(calls(&cloud).1, 0);
}

#[tokio::test]
async fn a_requested_address_is_taken_exactly_or_waited_for() {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    let mut wanted = wish(&cloud, &[(80, 30080)]);
    wanted.requested_address = "127.100.0.77".to_owned();
    let (served, _) = broker.ensure(&service(1), &wanted, &[]).await.unwrap();
    assert_eq!(served.ingress.ip.to_string(), "127.100.0.77");
    assert!(served.outputs.address_owned);
    // Somebody else wants the same one with another port: it is shared, and stays the cluster's own.
    let mut other = wish(&cloud, &[(81, 30081)]);
    other.requested_address = "127.100.0.77".to_owned();
    let (shared, _) = broker.ensure(&service(2), &other, &[]).await.unwrap();
    assert_eq!(shared.ingress.ip, served.ingress.ip);
    assert!(shared.outputs.address_owned);
    // The same port is taken.
    let mut same = wish(&cloud, &[(80, 30090)]);
    same.requested_address = "127.100.0.77".to_owned();
    let fault = broker.ensure_once(&service(3), &same, &[]).await.unwrap_err();
    assert_eq!(&*fault.reason, "PORT_TAKEN");
    // One that is no address of the cloud is waited for, and nothing else is taken.
    let mut unknown = wish(&cloud, &[(80, 30090)]);
    unknown.requested_address = "127.100.9.9".to_owned();
    let answer = broker.ensure_once(&service(3), &unknown, &[]).await.unwrap();
    assert!(matches!(answer.outcome, Outcome::Pending(wait) if wait.reason == "ADDRESS_UNAVAILABLE"));
    assert_eq!(cloud.dump().acquired().count(), 1);
    // The first to leave leaves the address, the last one releases it.
    let first = broker.delete(&service(1), farewell()).await.unwrap();
    assert_eq!(first.released, Vec::<IpAddr>::new());
    assert_eq!(cloud.dump().rules.len(), 1);
    assert_eq!(cloud.dump().firewall_rules.len(), 1);
    let last = broker.delete(&service(2), farewell()).await.unwrap();
    assert_eq!(last.released, [served.ingress.ip]);
    assert_eq!(picture(&cloud.dump()), Vec::<String>::new());
}

#[tokio::test]
async fn another_address_is_complete_before_the_old_one_goes() {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    let mut wanted = wish(&cloud, &[(80, 30080)]);
    let (old, _) = broker.ensure(&service(1), &wanted, &[]).await.unwrap();
    wanted.requested_address = "127.100.0.77".to_owned();
    let (new, _) = broker
        .ensure(&service(1), &wanted, &published(&old))
        .await
        .unwrap();
    assert_eq!(new.ingress.ip.to_string(), "127.100.0.77");
    assert_eq!(new.leaving, [old.ingress.ip]);
    assert_eq!(cloud.dump().acquired().count(), 2);
    assert!(cloud.dump().rules.iter().all(|rule| rule.members.len() == 3));
    // Told that the new one is published, the old one goes.
    let (settled, _) = broker
        .ensure(&service(1), &wanted, &published(&new))
        .await
        .unwrap();
    assert_eq!(settled.leaving, Vec::<IpAddr>::new());
    let addresses: Vec<String> = cloud.dump().acquired().map(|row| row.address.clone()).collect();
    assert_eq!(addresses, ["127.100.0.77"]);
    // Without the wish the present one stays.
    wanted.requested_address.clear();
    let (still, changes) = broker
        .ensure(&service(1), &wanted, &published(&new))
        .await
        .unwrap();
    assert_eq!(
        (still.ingress.ip.to_string().as_str(), changes),
        ("127.100.0.77", 0)
    );
}

#[tokio::test]
async fn the_proxy_header_is_switched_in_place_and_a_refused_switch_is_sent_again() {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    let mut wanted = wish(&cloud, &[(80, 30080)]);
    let (served, _) = broker.ensure(&service(1), &wanted, &[]).await.unwrap();
    let rule = cloud.dump().rules[0].clone();
    wanted.ports[0].proxy_protocol = true;
    cloud.refuse_in_router("LoadBalancerConfigCommand", true);
    let refused = broker
        .ensure_once(&service(1), &wanted, &published(&served))
        .await;
    assert!(refused.is_err(), "{refused:?}");
    cloud.refuse_in_router("LoadBalancerConfigCommand", false);
    let (now, _) = broker
        .ensure(&service(1), &wanted, &published(&served))
        .await
        .unwrap();
    assert!(now.ingress.proxy);
    let after = cloud.dump().rules[0].clone();
    assert_eq!(
        (after.id, after.protocol.as_deref()),
        (rule.id, Some("tcp-proxy"))
    );
    assert!(after.name.ends_with("-tcp-proxy-80"), "{}", after.name);
    let routers = cloud.routers();
    let at_router = routers
        .values()
        .flat_map(|router| router.balancers.values().flatten())
        .find(|rule| rule.port == 80);
    assert_eq!(
        at_router.and_then(|rule| rule.protocol.as_deref()),
        Some("tcp-proxy"),
        "{at_router:?}"
    );
    assert_eq!(cloud.dump().firewall_rules.len(), 1);
}

#[tokio::test]
async fn source_ranges_change_on_both_layers_and_the_mark_follows() {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    let mut wanted = wish(&cloud, &[(80, 30080)]);
    let (served, _) = broker.ensure(&service(1), &wanted, &[]).await.unwrap();
    for ranges in [
        vec!["10.0.0.0/8", "192.0.2.0/24"],
        vec!["10.0.0.0/8", "198.51.100.0/24"],
        vec!["10.0.0.0/8", "192.0.2.7/32"],
        vec!["192.0.2.7/32"],
        vec![],
    ] {
        wanted.sources = ranges.iter().map(|range| (*range).to_owned()).collect();
        broker
            .ensure(&service(1), &wanted, &published(&served))
            .await
            .unwrap();
        let dump = cloud.dump();
        assert_eq!(dump.firewall_rules.len(), 1, "{:?}", dump.firewall_rules);
        let mark = dump.rules[0].description.clone().unwrap();
        assert!(
            !mark.contains(','),
            "only the new set is left in the mark: {mark}"
        );
        let expected = if ranges.is_empty() {
            "0.0.0.0/0".to_owned()
        } else {
            ranges.join(",")
        };
        assert_eq!(dump.rules[0].sources.clone().unwrap().replace(' ', ","), expected);
        let (_, changes) = broker
            .ensure(&service(1), &wanted, &published(&served))
            .await
            .unwrap();
        assert_eq!(changes, 0);
    }
}

#[tokio::test]
async fn ports_come_go_and_change_and_what_is_shared_stays() {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    let mut wanted = wish(&cloud, &[(80, 30080)]);
    let (served, _) = broker.ensure(&service(1), &wanted, &[]).await.unwrap();
    for ports in [
        vec![(80, 31080)],
        vec![(80, 31080), (443, 30443)],
        vec![(443, 30443)],
        vec![(443, 30444), (80, 30080)],
        vec![(8080, 30444)],
    ] {
        wanted.ports = ports
            .iter()
            .map(|(port, node_port)| port_of(*port, *node_port))
            .collect();
        let (now, _) = broker
            .ensure(&service(1), &wanted, &published(&served))
            .await
            .unwrap();
        assert_eq!(now.ingress.ip, served.ingress.ip);
        let dump = cloud.dump();
        let mut rules: Vec<(u32, u32)> = dump
            .rules
            .iter()
            .map(|rule| (rule.public_port.into(), rule.private_port.into()))
            .collect();
        let mut firewall: Vec<u16> = dump
            .firewall_rules
            .iter()
            .map(|rule| rule.ports.unwrap().0)
            .collect();
        let mut expected = ports.clone();
        expected.sort_unstable();
        rules.sort_unstable();
        firewall.sort_unstable();
        assert_eq!(rules, expected);
        assert_eq!(
            firewall.iter().map(|port| u32::from(*port)).collect::<Vec<_>>(),
            expected.iter().map(|port| port.0).collect::<Vec<_>>()
        );
        assert!(dump.rules.iter().all(|rule| rule.members.len() == 3));
    }
}

#[tokio::test]
async fn a_dry_run_shows_every_step_and_does_none() {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    let preview = broker
        .preview(&service(1), &wish(&cloud, &[(80, 30080)]), &[])
        .await
        .unwrap();
    let actions: Vec<&str> = preview.steps.iter().map(|step| step.action).collect();
    assert_eq!(
        actions,
        [
            "associate address",
            "create rule",
            "open firewall",
            "assign members"
        ]
    );
    assert_eq!(calls(&cloud).1, 0);
    assert_eq!(preview.refused, "");
}

#[rstest::rstest]
#[case::without_source_lists(17, None, 2)]
#[case::with_lists_only_for_new_rules(19, Some("10.0.0.0/8"), 2)]
#[case::new(22, Some("10.0.0.0/8"), 1)]
#[tokio::test]
async fn older_servers_get_what_they_understand(
    #[case] minor: u32,
    #[case] list: Option<&str>,
    #[case] updates: u64,
) {
    let cloud = cloud(isolated()).await;
    let mut broker = Broker::new(&cloud);
    broker.version = ServerVersion::Is(Version::new(4, minor, 0));
    let mut wanted = wish(&cloud, &[(80, 30080)]);
    wanted.sources = vec!["10.0.0.0/8".to_owned()];
    let (served, _) = broker.ensure(&service(1), &wanted, &[]).await.unwrap();
    assert_eq!(cloud.dump().rules[0].sources.as_deref(), list);
    assert_eq!(cloud.dump().firewall_rules[0].sources, ["10.0.0.0/8"]);
    // Such a server tells its router only of another algorithm, so the switch takes two updates.
    cloud.reset_calls();
    wanted.ports[0].proxy_protocol = true;
    broker
        .ensure(&service(1), &wanted, &published(&served))
        .await
        .unwrap();
    assert_eq!(
        cloud.calls().by_command.get("updateLoadBalancerRule"),
        Some(&updates)
    );
    let rule = cloud.dump().rules[0].clone();
    assert_eq!(
        (rule.protocol.as_deref(), rule.algorithm.as_str()),
        (Some("tcp-proxy"), "roundrobin")
    );
    // Other ranges reach every layer that such a server filters on.
    wanted.sources = vec!["192.0.2.0/24".to_owned()];
    broker
        .ensure(&service(1), &wanted, &published(&served))
        .await
        .unwrap();
    let dump = cloud.dump();
    assert_eq!(dump.rules[0].sources.as_deref(), list.map(|_| "192.0.2.0/24"));
    assert_eq!((dump.rules.len(), dump.firewall_rules.len()), (1, 1));
    assert_eq!(dump.firewall_rules[0].sources, ["192.0.2.0/24"]);
    broker.delete(&service(1), farewell()).await.unwrap();
    assert_eq!(picture(&cloud.dump()), Vec::<String>::new());
}

#[tokio::test]
async fn a_report_names_what_the_cluster_owns_and_who_asks_for_it_no_more() {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    let (served, _) = broker
        .ensure(&service(1), &wish(&cloud, &[(80, 30080)]), &[])
        .await
        .unwrap();
    broker
        .ensure(&service(2), &wish(&cloud, &[(81, 30081)]), &[])
        .await
        .unwrap();
    let live = [service(1).uid.to_string()].into();
    let list = broker.balancers.list(&broker.tenancy(), &live).await.unwrap();
    let short: Vec<(&str, bool, Option<bool>)> = list
        .iter()
        .map(|one| (one.service_uid.as_str(), one.address_owned, one.orphan))
        .collect();
    let uids = [service(1).uid.to_string(), service(2).uid.to_string()];
    assert_eq!(
        short,
        [
            (uids[0].as_str(), true, Some(false)),
            (uids[1].as_str(), true, Some(true))
        ]
    );
    assert_eq!(list[0].addresses, [served.ingress.ip].into());
    assert!(list.iter().all(|one| one.drift.is_empty()), "{list:#?}");
}

#[tokio::test]
async fn a_port_that_the_router_refuses_does_not_hold_up_the_others() {
    let cloud = cloud(isolated()).await;
    let broker = Broker::new(&cloud);
    // An operator has moved the port of the router's statistics.
    cloud.set("network.loadbalancer.haproxy.stats.port", "9091");
    let wanted = wish(&cloud, &[(9091, 30081), (80, 30080)]);
    let fault = broker.ensure_once(&service(1), &wanted, &[]).await.unwrap_err();
    assert!(fault.text.contains("9091"), "{fault:?}");
    for _ in 0..5 {
        broker.ensure_once(&service(1), &wanted, &[]).await.unwrap_err();
    }
    let dump = cloud.dump();
    assert_eq!(dump.acquired().count(), 1);
    assert_eq!(
        (
            dump.rules.len(),
            dump.rules[0].public_port,
            dump.rules[0].members.len()
        ),
        (1, 80, 3)
    );
    broker.delete(&service(1), farewell()).await.unwrap();
    assert_eq!(picture(&cloud.dump()), Vec::<String>::new());
}
