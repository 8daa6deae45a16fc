//! Which machines a load balancer sends to.

use anyhow::{Result, ensure};
use e2e::runner::Layer;
use e2e::service::Wanted;
use e2e::world::{SOON, World};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use super::nodes::fresh_name;
use crate::expect;

e2e::scenarios![Layer::Control;
    members_follow_the_nodes,
    a_node_with_the_exclude_label_is_no_member,
    a_destroyed_machine_leaves_the_load_balancers_with_its_node,
    a_node_without_a_machine_neither_serves_nor_hinders,
];

async fn members_follow_the_nodes(world: &World) -> Result<()> {
    let _pair = world.pair().await?;
    for name in ["node-1", "node-2"] {
        world.cluster.register(name).await?;
        world.cluster.initialised(name, SOON).await?;
    }
    let service = world.service(Wanted::new("web").ports(80, 2)).await?;
    let (ip, before) = expect::served(world, &service, &["node-1", "node-2"]).await?;
    world.cluster.register("node-3").await?;
    expect::served(world, &service, &["node-1", "node-2", "node-3"]).await?;
    world
        .cluster
        .nodes()
        .delete("node-1", &DeleteParams::default())
        .await?;
    let (same, after) = expect::served(world, &service, &["node-2", "node-3"]).await?;
    ensure!(same == ip, "the address changed from {ip} to {same}");
    for (port, rule) in before.rules_on(&ip) {
        ensure!(
            after.rules_on(&ip)[&port].id == rule.id,
            "the rule of port {port} was replaced"
        );
    }
    service.delete(SOON).await
}

async fn a_node_with_the_exclude_label_is_no_member(world: &World) -> Result<()> {
    let _pair = world.pair().await?;
    world.nodes().await?;
    let service = world.service(Wanted::new("web").port(80)).await?;
    expect::served(world, &service, &["node-1", "node-2", "node-3"]).await?;
    let label = |value: serde_json::Value| json!({"metadata": {"labels": {"node.kubernetes.io/exclude-from-external-load-balancers": value}}});
    let how = PatchParams::default();
    world
        .cluster
        .nodes()
        .patch("node-2", &how, &Patch::Merge(label("".into())))
        .await?;
    expect::served(world, &service, &["node-1", "node-3"]).await?;
    world
        .cluster
        .nodes()
        .patch("node-2", &how, &Patch::Merge(label(serde_json::Value::Null)))
        .await?;
    expect::served(world, &service, &["node-1", "node-2", "node-3"]).await?;
    service.delete(SOON).await
}

async fn a_destroyed_machine_leaves_the_load_balancers_with_its_node(world: &World) -> Result<()> {
    let _pair = world.pair().await?;
    world.nodes().await?;
    let name = fresh_name("worker");
    let machine = world.cloud.add_machine(&name).await?;
    world.cluster.register(&name).await?;
    let service = world.service(Wanted::new("web").port(80)).await?;
    expect::served(world, &service, &["node-1", "node-2", "node-3", &name]).await?;
    world.cloud.destroy_machine(&machine).await?;
    world.cluster.set_ready(&name, false).await?;
    expect::served(world, &service, &["node-1", "node-2", "node-3"]).await?;
    service.delete(SOON).await
}

async fn a_node_without_a_machine_neither_serves_nor_hinders(world: &World) -> Result<()> {
    let _pair = world.pair().await?;
    world.cluster.register("nobodys-machine").await?;
    world.nodes().await?;
    let service = world.service(Wanted::new("web").port(80)).await?;
    expect::served(world, &service, &["node-1", "node-2", "node-3"]).await?;
    service.delete(SOON).await
}
