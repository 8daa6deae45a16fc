//! Services that can't be served: one event that names the field, and nothing is acquired.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::cluster::ANNOTATION;
use e2e::runner::Layer;
use e2e::service::Wanted;
use e2e::wait;
use e2e::world::{SOON, World};
use serde_json::json;

use crate::expect;

e2e::scenarios![Layer::Fault;
    a_service_with_sctp_is_refused_by_name,
    a_service_with_udp_is_refused_where_the_router_has_none,
    a_service_with_a_bad_source_range_is_refused_by_name,
    a_service_without_node_ports_is_refused_by_name,
    a_service_with_an_unknown_word_for_yes_is_refused_by_name,
    a_refused_change_leaves_the_working_ports_as_they_are,
];

/// A warning with one of the texts, once, and not a single write.
async fn refused(world: &World, wanted: Wanted, parts: &[&str]) -> Result<()> {
    let _pair = world.pair().await?;
    world.nodes().await?;
    let mark = world.api.mark();
    let service = world.service(wanted).await?;
    service.warning(parts, SOON).await?;
    expect::quiet(world).await?;
    let events = service.events().await?;
    let warnings: Vec<_> = events
        .iter()
        .filter(|event| event.type_.as_deref() == Some("Warning"))
        .collect();
    ensure!(
        warnings.len() == 1,
        "{} warnings: {}",
        warnings.len(),
        service.story().await?
    );
    let calls = world.api.since(mark);
    ensure!(calls.writes() == 0, "something was acquired: {calls}");
    service.delete(SOON).await
}

async fn a_service_with_sctp_is_refused_by_name(world: &World) -> Result<()> {
    refused(
        world,
        Wanted::new("web").port_with(80, json!({"protocol": "SCTP"})),
        &["SCTP", "ports"],
    )
    .await
}

async fn a_service_with_udp_is_refused_where_the_router_has_none(world: &World) -> Result<()> {
    refused(
        world,
        Wanted::new("web").port_with(5000, json!({"protocol": "UDP"})),
        &["UDP", "5000"],
    )
    .await
}

async fn a_service_with_a_bad_source_range_is_refused_by_name(world: &World) -> Result<()> {
    let name = format!("{ANNOTATION}source-cidrs");
    let wanted = Wanted::new("web")
        .port(80)
        .annotation(&name, "10.0.0.0/8,10.300.0.0/16");
    refused(world, wanted, &["source-cidrs", "10.300.0.0/16"]).await
}

async fn a_service_without_node_ports_is_refused_by_name(world: &World) -> Result<()> {
    let wanted = Wanted::new("web")
        .port(80)
        .spec(json!({"allocateLoadBalancerNodePorts": false}));
    refused(world, wanted, &["node port"]).await
}

async fn a_service_with_an_unknown_word_for_yes_is_refused_by_name(world: &World) -> Result<()> {
    let name = format!("{ANNOTATION}proxy-protocol");
    refused(
        world,
        Wanted::new("web").port(80).annotation(&name, "perhaps"),
        &["proxy-protocol", "perhaps"],
    )
    .await
}

async fn a_refused_change_leaves_the_working_ports_as_they_are(world: &World) -> Result<()> {
    let _pair = world.pair().await?;
    world.nodes().await?;
    let service = world.service(Wanted::new("web").port(80)).await?;
    let (ip, before) = expect::served(world, &service, &e2e::cloud::MACHINES).await?;
    service
        .set_ports(
            Wanted::new("web")
                .port(80)
                .port_with(90, json!({"protocol": "SCTP"})),
        )
        .await?;
    service.warning(&["SCTP"], SOON).await?;
    wait::stays(Duration::from_secs(2), "the working port is served", || async {
        let now = world.cloud.inventory().await?;
        Ok(now.changes_since(&before).is_empty() && service.ingress().await? == [ip.clone()])
    })
    .await?;
    service.delete(SOON).await
}
