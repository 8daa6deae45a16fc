//! Taking over from the Go controllers: what they built keeps serving, and nothing of it is made again.

use anyhow::{Context as _, Result, ensure};
use e2e::cloud::{Inventory, MACHINES};
use e2e::peers::{Peer, Place};
use e2e::processes::Process;
use e2e::runner::{Layer, Skip};
use e2e::service::{Handle, Wanted};
use e2e::wait;
use e2e::world::{SOON, World};
use serde_json::json;

use crate::expect;

e2e::scenarios![Layer::Control;
    what_the_apache_controller_built_is_taken_over_by_marks_alone,
    what_the_leaseweb_controller_built_is_taken_over_by_marks_alone,
    an_address_given_to_the_apache_controller_is_kept_after_the_take_over,
];

/// Starts a Go controller on this world, or skips the scenario.
pub(crate) async fn start(world: &World, peer: Peer, more: &[&str]) -> Result<Process> {
    let config = world.config_with("old-cloud-config", "")?;
    let kubeconfig = &world.cluster.plane.kubeconfig;
    let place = Place {
        dir: &world.dir,
        config: &config,
        kubeconfig,
        proxy: &world.api,
        more,
    };
    let process = peer.start(&world.settings, place).await?;
    let process = process.ok_or_else(|| {
        Skip::missing(format!(
            "{} is not in the folder peers of E2E_SHARED",
            peer.name()
        ))
    })?;
    Ok(world.watched(process))
}

/// What a Go controller left: CloudStack's objects and a Service with its address.
async fn built(world: &World, peer: Peer, service: &Handle<'_>) -> Result<(String, Inventory)> {
    let mut process = start(world, peer, &[]).await?;
    world.nodes().await?;
    let served = expect::served(world, service, &MACHINES).await?;
    process.stop(SOON).await.ok(); // how the old one ends is not the question
    Ok(served)
}

async fn taken_over(world: &World, peer: Peer) -> Result<()> {
    let service = world.service(Wanted::new("web").ports(80, 3)).await?;
    let (ip, before) = built(world, peer, &service).await?;
    let mark = world.api.mark();
    let broker = world.broker_plan(world.config()?)?;
    let mut agent = world.agent_plan(&broker.joint, None).await?;
    agent.provider = peer.provider().into();
    let _pair = world.pair_of(broker, agent).await?;
    wait::until_holds(SOON, "all rules are marked", || async {
        let found = world.cloud.inventory().await?;
        let unmarked: Vec<_> = found
            .rules_on(&ip)
            .into_values()
            .filter(|rule| !rule.description.contains(&service.uid))
            .collect();
        Ok((!unmarked.is_empty()).then(|| format!("{unmarked:?}")))
    })
    .await?;
    expect::quiet(world).await?;
    let calls = world.api.since(mark);
    for (command, _) in calls.written() {
        ensure!(
            ["updateLoadBalancerRule", "createTags"].contains(&command),
            "the take-over wrote: {calls}"
        );
    }
    let after = world.cloud.inventory().await?;
    ensure!(before.addresses == after.addresses, "addresses changed");
    ensure!(before.firewall == after.firewall, "firewall rules changed");
    ensure!(before.rules.keys().eq(after.rules.keys()), "rules were replaced");
    for (id, old) in &before.rules {
        let new = &after.rules[id];
        let same = e2e::cloud::Rule {
            description: old.description.clone(),
            state: old.state.clone(),
            ..new.clone()
        };
        ensure!(same == *old, "a rule changed: {old:?} -> {new:?}");
    }
    ensure!(service.address(SOON).await? == ip, "the address changed");
    // A change after the take-over continues in the names the Service already has.
    service.set_ports(Wanted::new("web").ports(80, 4)).await?;
    let (same, found) = expect::served(world, &service, &MACHINES).await?;
    ensure!(same == ip, "the address changed from {ip} to {same}");
    let stem = |name: &str| name.rsplit_once('-').map(|(stem, _)| stem.to_owned());
    let rules = found.rules_on(&ip);
    let (old, new) = (stem(&rules["80"].name), stem(&rules["83"].name));
    ensure!(old == new, "old rules are named {old:?}, the new one {new:?}");
    service.delete(SOON).await?;
    world.nothing_left().await
}

async fn what_the_apache_controller_built_is_taken_over_by_marks_alone(world: &World) -> Result<()> {
    taken_over(world, Peer::Apache).await
}

async fn what_the_leaseweb_controller_built_is_taken_over_by_marks_alone(world: &World) -> Result<()> {
    taken_over(world, Peer::Leaseweb).await
}

async fn an_address_given_to_the_apache_controller_is_kept_after_the_take_over(world: &World) -> Result<()> {
    let held = world.cloud.take_address().await?;
    let wanted = Wanted::new("web")
        .port(80)
        .spec(json!({"loadBalancerIP": held.ip}));
    let service = world.service(wanted).await?;
    let (ip, _) = built(world, Peer::Apache, &service).await?;
    ensure!(ip == held.ip, "the Go controller used {ip}");
    let _pair = world.pair().await?;
    wait::until_holds(SOON, "the rule says that the address was given", || async {
        let rule = world
            .cloud
            .inventory()
            .await?
            .rules_on(&ip)
            .remove("80")
            .context("the rule is gone")?;
        Ok((!rule.description.contains("address=given")).then_some(rule.description))
    })
    .await?;
    service.delete(SOON).await?;
    let found = world.cloud.inventory().await?;
    ensure!(
        found.addresses.contains_key(&held.ip),
        "the given address was released"
    );
    ensure!(found.rules_on(&held.ip).is_empty(), "rules are left on it");
    world.cloud.release_address(&held.id).await
}
