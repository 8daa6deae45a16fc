//! Restarts of either half: nothing is done twice, nothing is forgotten.

use anyhow::{Result, ensure};
use e2e::cloud::MACHINES;
use e2e::runner::Layer;
use e2e::service::Wanted;
use e2e::world::{SOON, World};

use crate::expect;

e2e::scenarios![Layer::Control;
    an_agent_that_starts_again_writes_nothing,
    a_broker_that_starts_again_writes_nothing,
    both_may_be_killed_while_a_service_is_made,
    both_may_be_killed_while_a_service_is_deleted,
    a_stop_by_sigterm_ends_cleanly,
];

async fn an_agent_that_starts_again_writes_nothing(world: &World) -> Result<()> {
    let mut pair = world.pair().await?;
    world.nodes().await?;
    let service = world.service(Wanted::new("web").ports(80, 3)).await?;
    let (_, before) = expect::served(world, &service, &MACHINES).await?;
    expect::quiet(world).await?;
    let mark = world.api.mark();
    pair.restart_agent(world).await?;
    // A second Service shows that the new agent works; only its own objects may be written.
    let second = world.service(Wanted::new("second").port(90)).await?;
    let (ip, after) = expect::served(world, &second, &MACHINES).await?;
    expect::quiet(world).await?;
    untouched(world, mark, &before, &after, &ip)?;
    second.delete(SOON).await?;
    service.delete(SOON).await
}

async fn a_broker_that_starts_again_writes_nothing(world: &World) -> Result<()> {
    let mut pair = world.pair().await?;
    world.nodes().await?;
    let service = world.service(Wanted::new("web").ports(80, 3)).await?;
    let (_, before) = expect::served(world, &service, &MACHINES).await?;
    expect::quiet(world).await?;
    let mark = world.api.mark();
    pair.restart_broker(world).await?;
    let second = world.service(Wanted::new("second").port(90)).await?;
    let (ip, after) = expect::served(world, &second, &MACHINES).await?;
    expect::quiet(world).await?;
    untouched(world, mark, &before, &after, &ip)?;
    second.delete(SOON).await?;
    service.delete(SOON).await
}

/// Nothing but the new Service's address was written.
fn untouched(
    world: &World,
    mark: usize,
    before: &e2e::cloud::Inventory,
    after: &e2e::cloud::Inventory,
    ip: &str,
) -> Result<()> {
    let changes = after.changes_since(before);
    let foreign: Vec<_> = changes
        .iter()
        .filter(|line| !line.contains(&format!("\"{ip}\"")))
        .collect();
    ensure!(foreign.is_empty(), "a restart changed: {foreign:?}");
    let writes = world.api.since(mark);
    // Address, rule, firewall rule, members, and a tag where the key may tag.
    let allowed = [
        "associateIpAddress",
        "createLoadBalancerRule",
        "createFirewallRule",
        "assignToLoadBalancerRule",
        "createTags",
    ];
    for (command, count) in writes.written() {
        ensure!(
            allowed.contains(&command) && count == 1,
            "{count} {command} after a restart: {writes}"
        );
    }
    Ok(())
}

async fn both_may_be_killed_while_a_service_is_made(world: &World) -> Result<()> {
    let mut pair = world.pair().await?;
    world.nodes().await?;
    expect::quiet(world).await?;
    let held = world.api.hold(6, e2e::proxy::Hold::After);
    let service = world.service(Wanted::new("web").ports(80, 3)).await?;
    let held = tokio::time::timeout(SOON, held).await??;
    pair.broker.kill().await?;
    pair.agent.kill().await?;
    held.release();
    pair.broker = world.start_broker(&pair.broker_plan).await?;
    pair.agent = world.start_agent(&pair.agent_plan).await?;
    expect::served(world, &service, &MACHINES).await?;
    service.delete(SOON).await
}

async fn both_may_be_killed_while_a_service_is_deleted(world: &World) -> Result<()> {
    let mut pair = world.pair().await?;
    world.nodes().await?;
    let service = world.service(Wanted::new("web").ports(80, 3)).await?;
    expect::served(world, &service, &MACHINES).await?;
    expect::quiet(world).await?;
    let held = world.api.hold(4, e2e::proxy::Hold::After);
    service.ask_delete().await?;
    let held = tokio::time::timeout(SOON, held).await??;
    pair.broker.kill().await?;
    pair.agent.kill().await?;
    held.release();
    pair.broker = world.start_broker(&pair.broker_plan).await?;
    pair.agent = world.start_agent(&pair.agent_plan).await?;
    service.gone(SOON).await
}

async fn a_stop_by_sigterm_ends_cleanly(world: &World) -> Result<()> {
    let mut pair = world.pair().await?;
    world.nodes().await?;
    let agent = pair.agent.stop(SOON).await?;
    ensure!(agent.success(), "the agent ended with {agent}");
    let broker = pair.broker.stop(SOON).await?;
    ensure!(broker.success(), "the broker ended with {broker}");
    Ok(())
}
