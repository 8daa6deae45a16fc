//! Ports, protocols, sources and balancing of a Service that is already served.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use e2e::cloud::MACHINES;
use e2e::cluster::ANNOTATION;
use e2e::runner::Layer;
use e2e::service::Wanted;
use e2e::wait;
use e2e::world::{SOON, World};
use serde_json::json;

use crate::expect;

e2e::scenarios![Layer::Control;
    a_port_that_is_added_and_one_that_is_removed_leave_the_others_alone,
    a_port_that_changes_its_node_port_is_moved,
    source_ranges_are_kept_by_the_firewall_and_followed_when_they_change,
    proxy_protocol_is_switched_without_losing_rule_or_address,
    session_affinity_becomes_the_source_algorithm,
    a_hostname_is_published_instead_of_the_address,
];

async fn a_port_that_is_added_and_one_that_is_removed_leave_the_others_alone(world: &World) -> Result<()> {
    let _pair = world.pair().await?;
    world.nodes().await?;
    let service = world.service(Wanted::new("web").port(80).port(443)).await?;
    let (ip, before) = expect::served(world, &service, &MACHINES).await?;
    service.set_ports(Wanted::new("web").port(443).port(8443)).await?;
    let (same, after) = expect::served(world, &service, &MACHINES).await?;
    ensure!(same == ip, "the address changed from {ip} to {same}");
    let (old, new) = (&before.rules_on(&ip)["443"], &after.rules_on(&ip)["443"]);
    ensure!(old.id == new.id, "the rule of the port that stayed was replaced");
    service.delete(SOON).await
}

async fn a_port_that_changes_its_node_port_is_moved(world: &World) -> Result<()> {
    let _pair = world.pair().await?;
    world.nodes().await?;
    let service = world
        .service(Wanted::new("web").port_with(80, json!({"nodePort": 31080})))
        .await?;
    let (ip, _) = expect::served(world, &service, &MACHINES).await?;
    service
        .set_ports(Wanted::new("web").port_with(80, json!({"nodePort": 31081})))
        .await?;
    let (same, found) = expect::served(world, &service, &MACHINES).await?;
    ensure!(same == ip, "the address changed from {ip} to {same}");
    ensure!(
        found.rules_on(&ip)["80"].private_port == "31081",
        "the rule still goes to the old port"
    );
    service.delete(SOON).await
}

async fn source_ranges_are_kept_by_the_firewall_and_followed_when_they_change(world: &World) -> Result<()> {
    let _pair = world.pair().await?;
    world.nodes().await?;
    let ranges = |list: &[&str]| json!({"loadBalancerSourceRanges": list});
    let service = Wanted::new("web")
        .port(80)
        .spec(ranges(&["10.0.0.0/8", "192.0.2.0/24"]));
    let service = world.service(service).await?;
    let (ip, _) = expect::served(world, &service, &MACHINES).await?;
    sources(world, &ip, &["10.0.0.0/8", "192.0.2.0/24"]).await?;
    service
        .patch(json!({"spec": ranges(&["10.0.0.0/8", "198.51.100.7/32"])}))
        .await?;
    sources(world, &ip, &["10.0.0.0/8", "198.51.100.7/32"]).await?;
    service
        .patch(json!({"spec": {"loadBalancerSourceRanges": null}}))
        .await?;
    sources(world, &ip, &["0.0.0.0/0"]).await?;
    ensure!(service.address(SOON).await? == ip, "the address changed");
    service.delete(SOON).await
}

/// The networks that these spellings stand for: 10.0.0.1/8 is 10.0.0.0/8. While a list is replaced the same network may
/// have to be spelled in two ways, because CloudStack takes equal spellings for a conflict.
fn networks(spellings: BTreeSet<String>) -> BTreeSet<String> {
    let network = |spelling: String| {
        let (address, length) = spelling.split_once('/').unwrap_or((&spelling, "32"));
        let parsed = (address.parse::<std::net::Ipv4Addr>(), length.parse::<u32>());
        let (Ok(address), Ok(length)) = parsed else {
            return spelling;
        };
        let mask = u32::MAX.checked_shl(32 - length.min(32)).unwrap_or(0);
        format!("{}/{length}", std::net::Ipv4Addr::from(u32::from(address) & mask))
    };
    spellings.into_iter().map(network).collect()
}

/// Waits until firewall and rule let exactly these sources in.
async fn sources(world: &World, ip: &str, wanted: &[&str]) -> Result<()> {
    let wanted = expect::members(wanted);
    wait::until_holds(SOON, format!("{ip} is open to {wanted:?}"), || async {
        let found = world.cloud.inventory().await?;
        let open: Vec<_> = found
            .firewall_on(ip)
            .into_values()
            .map(|rule| rule.cidrs)
            .collect();
        let rule: Vec<_> = found.rules_on(ip).into_values().map(|rule| rule.cidrs).collect();
        let listed = rule
            .iter()
            .map(|list| list.split([',', ' ']).filter(|cidr| !cidr.is_empty()));
        let listed = listed.map(|list| list.map(str::to_owned).collect());
        let all: Vec<BTreeSet<String>> = open.iter().cloned().chain(listed).map(networks).collect();
        let fits = all.len() == 2 && all.iter().all(|set| *set == wanted);
        Ok((!fits).then(|| format!("firewall {open:?}, rule {rule:?}")))
    })
    .await
}

async fn proxy_protocol_is_switched_without_losing_rule_or_address(world: &World) -> Result<()> {
    let _pair = world.pair().await?;
    world.nodes().await?;
    let service = world.service(Wanted::new("web").port(80)).await?;
    let (ip, before) = expect::served(world, &service, &MACHINES).await?;
    let switch = |on: &str| json!({"metadata": {"annotations": {format!("{ANNOTATION}proxy-protocol"): on}}});
    for (on, protocol) in [("true", "tcp-proxy"), ("false", "tcp")] {
        service.patch(switch(on)).await?;
        wait::until_holds(SOON, format!("the rule speaks {protocol}"), || async {
            let found = world.cloud.inventory().await?;
            let Some(rule) = found.rules_on(&ip).remove("80") else {
                return Ok(Some("no rule".into()));
            };
            let name = format!("{}-{protocol}-80", service.load_balancer_name());
            let fits =
                rule.protocol == protocol && rule.name == name && rule.id == before.rules_on(&ip)["80"].id;
            Ok((!fits).then(|| format!("{rule:?}")))
        })
        .await?;
    }
    service.delete(SOON).await
}

async fn session_affinity_becomes_the_source_algorithm(world: &World) -> Result<()> {
    let _pair = world.pair().await?;
    world.nodes().await?;
    let service = Wanted::new("web")
        .port(80)
        .spec(json!({"sessionAffinity": "ClientIP"}));
    let service = world.service(service).await?;
    let (ip, found) = expect::served(world, &service, &MACHINES).await?;
    let algorithm = &found.rules_on(&ip)["80"].algorithm;
    ensure!(algorithm == "source", "algorithm {algorithm}");
    service
        .patch(json!({"spec": {"sessionAffinity": "None", "sessionAffinityConfig": null}}))
        .await?;
    wait::until_holds(SOON, "the rule is round robin", || async {
        let rule = world.cloud.inventory().await?.rules_on(&ip).remove("80");
        Ok(match rule {
            Some(rule) if rule.algorithm == "roundrobin" => None,
            other => Some(format!("{other:?}")),
        })
    })
    .await?;
    service.delete(SOON).await
}

async fn a_hostname_is_published_instead_of_the_address(world: &World) -> Result<()> {
    let _pair = world.pair().await?;
    world.nodes().await?;
    let service = Wanted::new("web")
        .port(80)
        .annotation(&format!("{ANNOTATION}hostname"), "web.example.org");
    let service = world.service(service).await?;
    let shown = service.address(SOON).await?;
    ensure!(shown == "web.example.org", "published: {shown}");
    let found = world.cloud.inventory().await?;
    ensure!(
        found.rules_of(&service.load_balancer_name()).len() == 1,
        "no rule behind the name"
    );
    service.delete(SOON).await
}
