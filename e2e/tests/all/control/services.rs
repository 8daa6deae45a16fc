//! Services of type LoadBalancer: from birth to death.

use std::time::Duration;

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
    a_service_with_one_port_is_served_on_every_node_and_leaves_nothing_behind,
    a_service_with_five_ports_is_served,
    a_service_with_twenty_ports_is_served,
    an_unrelated_change_writes_nothing,
    a_service_that_stops_being_a_load_balancer_gives_everything_back,
    a_service_of_another_class_is_left_alone,
    a_service_deleted_while_the_agent_was_down_is_cleaned_up,
    what_a_namespace_user_writes_into_our_annotations_moves_nothing,
    two_services_get_two_addresses_and_keep_apart,
];

async fn a_service_with_one_port_is_served_on_every_node_and_leaves_nothing_behind(
    world: &World,
) -> Result<()> {
    let _pair = world.pair().await?;
    world.nodes().await?;
    let service = world.service(Wanted::new("web").port(80)).await?;
    let (ip, found) = expect::served(world, &service, &MACHINES).await?;
    expect::marked(&found, &service)?;
    let rules = found.rules_on(&ip);
    let rule = &rules["80"];
    ensure!(
        rule.name == format!("{}-tcp-80", service.load_balancer_name()),
        "rule {}",
        rule.name
    );
    ensure!(rule.algorithm == "roundrobin", "algorithm {}", rule.algorithm);
    let open = &found.firewall_on(&ip)["80"];
    ensure!(
        open.cidrs.iter().eq(["0.0.0.0/0"]),
        "firewall open to {:?}",
        open.cidrs
    );
    let status = service.get().await?.status.unwrap_or_default();
    let ingress = status
        .load_balancer
        .and_then(|balancer| balancer.ingress)
        .unwrap_or_default();
    ensure!(ingress.len() == 1, "status {ingress:?}");
    ensure!(ingress[0].ip_mode.as_deref() == Some("VIP"), "status {ingress:?}");
    ensure!(service.is_protected().await?, "no finalizer");
    service.event("EnsuredLoadBalancer", SOON).await?;
    service.delete(SOON).await?;
    world.nothing_left().await
}

async fn a_service_with_five_ports_is_served(world: &World) -> Result<()> {
    ports(world, 5).await
}

async fn a_service_with_twenty_ports_is_served(world: &World) -> Result<()> {
    ports(world, 20).await
}

async fn ports(world: &World, n: u16) -> Result<()> {
    let _pair = world.pair().await?;
    world.nodes().await?;
    let service = world.service(Wanted::new("web").ports(8001, n)).await?;
    let (_, found) = expect::served(world, &service, &MACHINES).await?;
    expect::marked(&found, &service)?;
    service.delete(SOON).await
}

async fn an_unrelated_change_writes_nothing(world: &World) -> Result<()> {
    let _pair = world.pair().await?;
    world.nodes().await?;
    let service = world.service(Wanted::new("web").ports(80, 2)).await?;
    let (_, before) = expect::served(world, &service, &MACHINES).await?;
    service.event("EnsuredLoadBalancer", SOON).await?;
    expect::quiet(world).await?;
    let mark = world.api.mark();
    service
        .patch(
            json!({"metadata": {"labels": {"team": "blue"}, "annotations": {"example.org/note": "hello"}}}),
        )
        .await?;
    expect::quiet(world).await?;
    let calls = world.api.since(mark);
    ensure!(calls.writes() == 0, "it wrote: {calls}");
    ensure!(
        world.cloud.inventory().await?.changes_since(&before).is_empty(),
        "something changed"
    );
    service.delete(SOON).await
}

async fn a_service_that_stops_being_a_load_balancer_gives_everything_back(world: &World) -> Result<()> {
    let _pair = world.pair().await?;
    world.nodes().await?;
    let service = world.service(Wanted::new("web").ports(80, 2)).await?;
    expect::served(world, &service, &MACHINES).await?;
    service.patch(json!({"spec": {"type": "ClusterIP"}})).await?;
    service.no_address(SOON).await?;
    wait::until_holds(SOON, "nothing is left in CloudStack", || async {
        let left = world.cloud.leftovers().await?;
        Ok((!left.is_empty()).then(|| left.join("; ")))
    })
    .await?;
    wait::until(SOON, "the finalizer is gone", || async {
        Ok((!service.is_protected().await?).then_some(()))
    })
    .await?;
    let annotations = service.get().await?.metadata.annotations.unwrap_or_default();
    let outputs: Vec<_> = annotations
        .keys()
        .filter(|key| key.starts_with(ANNOTATION))
        .collect();
    ensure!(outputs.is_empty(), "outputs are left: {outputs:?}");
    service.delete(SOON).await
}

async fn a_service_of_another_class_is_left_alone(world: &World) -> Result<()> {
    let _pair = world.pair().await?;
    world.nodes().await?;
    let other = Wanted::new("other")
        .port(80)
        .spec(json!({"loadBalancerClass": "example.org/other"}));
    let other = world.service(other).await?;
    let ours = world.service(Wanted::new("ours").port(81)).await?;
    expect::served(world, &ours, &MACHINES).await?;
    wait::stays(
        Duration::from_secs(2),
        "the other class's Service is untouched",
        || async { Ok(other.ingress().await?.is_empty() && !other.is_protected().await?) },
    )
    .await?;
    ours.delete(SOON).await
}

async fn a_service_deleted_while_the_agent_was_down_is_cleaned_up(world: &World) -> Result<()> {
    let mut pair = world.pair().await?;
    world.nodes().await?;
    let service = world.service(Wanted::new("web").port(80)).await?;
    expect::served(world, &service, &MACHINES).await?;
    pair.agent.kill().await?;
    service.ask_delete().await?;
    ensure!(
        service.is_protected().await?,
        "the finalizer went without an agent"
    );
    pair.agent = world.start_agent(&pair.agent_plan).await?;
    service.gone(SOON).await
}

async fn what_a_namespace_user_writes_into_our_annotations_moves_nothing(world: &World) -> Result<()> {
    let mut pair = world.pair().await?;
    world.nodes().await?;
    let victim = world.service(Wanted::new("victim").port(80)).await?;
    let (taken, _) = expect::served(world, &victim, &MACHINES).await?;
    let address = world.cloud.inventory().await?.addresses[&taken].clone();
    // The outputs of the old controllers, pointing at somebody else's address.
    let forged = json!({"metadata": {"annotations": {
        format!("{ANNOTATION}id"): address.id, format!("{ANNOTATION}ip-associated-by-controller"): "true"}}});
    let thief = world.service(Wanted::new("forger").port(81).with(forged)).await?;
    let (own, _) = expect::served(world, &thief, &MACHINES).await?;
    ensure!(own != taken, "the forger got the victim's address");
    pair.restart_broker(world).await?;
    thief.delete(SOON).await?;
    let found = world.cloud.inventory().await?;
    ensure!(
        found.addresses.contains_key(&taken),
        "the victim's address is gone"
    );
    ensure!(found.rules_on(&taken).len() == 1, "the victim's rule is gone");
    ensure!(
        !found.addresses.contains_key(&own),
        "the forger's own address is left"
    );
    victim.delete(SOON).await
}

async fn two_services_get_two_addresses_and_keep_apart(world: &World) -> Result<()> {
    let _pair = world.pair().await?;
    world.nodes().await?;
    let one = world.service(Wanted::new("one").port(80)).await?;
    let two = world.service(Wanted::new("two").port(80)).await?;
    let (first, _) = expect::served(world, &one, &MACHINES).await?;
    let (second, _) = expect::served(world, &two, &MACHINES).await?;
    ensure!(first != second, "both are on {first}");
    one.delete(SOON).await?;
    expect::served(world, &two, &MACHINES).await?;
    two.delete(SOON).await
}
