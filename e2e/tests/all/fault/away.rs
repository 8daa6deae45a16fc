//! Somebody is away: broker, kube-apiserver, CloudStack.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::cloud::MACHINES;
use e2e::link::Link;
use e2e::proxy::Weather;
use e2e::runner::Layer;
use e2e::service::Wanted;
use e2e::wait;
use e2e::world::{SOON, World};
use serde_json::json;

use crate::expect;

e2e::scenarios![Layer::Fault;
    while_the_broker_is_away_services_wait_and_say_so,
    while_cloudstack_is_away_everything_stays_and_new_services_wait,
    while_cloudstack_answers_with_a_gateways_page_everything_stays,
    while_the_api_server_is_away_nothing_is_lost,
    while_cloudstack_is_away_no_node_is_deleted,
];

async fn while_the_broker_is_away_services_wait_and_say_so(world: &World) -> Result<()> {
    let mut pair = world.pair().await?;
    world.nodes().await?;
    let old = world.service(Wanted::new("old").port(80)).await?;
    let (ip, _) = expect::served(world, &old, &MACHINES).await?;
    pair.broker.kill().await?;
    let new = world.service(Wanted::new("new").port(81)).await?;
    new.warning(&["broker"], SOON).await?;
    old.ask_delete().await?;
    wait::stays(
        Duration::from_secs(3),
        "the deleted Service keeps its finalizer and address",
        || async { Ok(old.is_protected().await? && old.ingress().await? == [ip.clone()]) },
    )
    .await?;
    ensure!(
        pair.agent.ended()?.is_none(),
        "the agent ended without its broker"
    );
    pair.broker = world.start_broker(&pair.broker_plan).await?;
    old.gone(SOON).await?;
    expect::served(world, &new, &MACHINES).await?;
    new.delete(SOON).await
}

async fn while_cloudstack_is_away_everything_stays_and_new_services_wait(world: &World) -> Result<()> {
    away(world, Weather::Away).await
}

async fn while_cloudstack_answers_with_a_gateways_page_everything_stays(world: &World) -> Result<()> {
    away(world, Weather::Unavailable).await
}

async fn away(world: &World, weather: Weather) -> Result<()> {
    let mut pair = world.pair().await?;
    world.nodes().await?;
    let old = world.service(Wanted::new("old").port(80)).await?;
    let (ip, _) = expect::served(world, &old, &MACHINES).await?;
    world.api.weather(weather);
    let new = world.service(Wanted::new("new").port(81)).await?;
    new.warning(&["no answer from the API"], SOON).await?;
    old.patch(json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}}))
        .await?;
    wait::stays(
        Duration::from_secs(3),
        "the served Service keeps its address",
        || async { Ok(old.ingress().await? == [ip.clone()]) },
    )
    .await?;
    ensure!(
        pair.broker.ended()?.is_none(),
        "the broker ended without CloudStack"
    );
    world.api.weather(Weather::Fine);
    expect::served(world, &new, &MACHINES).await?;
    new.delete(SOON).await?;
    old.delete(SOON).await
}

async fn while_the_api_server_is_away_nothing_is_lost(world: &World) -> Result<()> {
    let link = Link::to(world.cluster.plane.port()?).await?;
    let broker = world.broker_plan(world.config()?)?;
    let mut agent = world.agent_plan(&broker.joint, None).await?;
    agent.kubeconfig = world.kubeconfig_over(&link).await?;
    let mut pair = world.pair_of(broker, agent).await?;
    world.nodes().await?;
    let service = world.service(Wanted::new("web").port(80)).await?;
    let (_, before) = expect::served(world, &service, &MACHINES).await?;
    link.cut();
    let second = world.service(Wanted::new("second").port(81)).await?;
    // Longer than the lease: the agent may end, as every holder of a lost lease may; kubelet starts it again.
    wait::stays(
        Duration::from_secs(7),
        "nothing changes in CloudStack",
        || async { Ok(world.cloud.inventory().await?.changes_since(&before).is_empty()) },
    )
    .await?;
    link.mend();
    if pair.agent.ended()?.is_some() {
        pair.agent = world.start_agent(&pair.agent_plan).await?;
    }
    expect::served(world, &second, &MACHINES).await?;
    expect::served(world, &service, &MACHINES).await?;
    for name in MACHINES {
        ensure!(world.cluster.node(name).await?.is_some(), "{name} was deleted");
    }
    second.delete(SOON).await?;
    service.delete(SOON).await
}

async fn while_cloudstack_is_away_no_node_is_deleted(world: &World) -> Result<()> {
    let _pair = world.pair().await?;
    world.nodes().await?;
    world.api.weather(Weather::Away);
    world.cluster.set_ready("node-2", false).await?;
    wait::stays(Duration::from_secs(10), "node-2 is there", || async {
        Ok(world.cluster.node("node-2").await?.is_some())
    })
    .await
}
