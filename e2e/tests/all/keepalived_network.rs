//! Two real keepalived in network namespaces announce what the agent wrote, as kube-keepalived-vip would make them.

use anyhow::{Result, ensure};
use e2e::lab::{Lab, render};
use e2e::pool::{self, Map};
use e2e::runner::{Layer, Skip};
use e2e::service::Wanted;
use e2e::settings::on_path;
use e2e::wait;
use e2e::world::{SOON, World};
use serde_json::json;

use crate::pool::plan;

e2e::scenarios![Layer::Pool;
    two_keepalived_announce_an_address_and_one_takes_over_when_the_other_dies,
];

async fn two_keepalived_announce_an_address_and_one_takes_over_when_the_other_dies(
    world: &World,
) -> Result<()> {
    let keepalived = on_path("keepalived").ok_or_else(|| Skip::missing("keepalived is not installed"))?;
    let lab = Lab::build(&world.dir).await?;
    let map = Map::fresh(&world.cluster, json!({})).await?;
    let _agent = world.start_agent(&plan(world, "198.51.100.0/28").await?).await?;
    // No pod runs here: an address that is announced only needs no endpoints.
    let announced = |name: &str| Wanted::new(name).port(80).annotation(pool::METHOD, "VIP");
    let first = world.service(announced("first")).await?;
    let address = first.address(SOON).await?;
    let file = world.dir.join("keepalived-nodes.conf");
    render(&map, &file).await?;
    let one = lab.station("a", &keepalived, &file).await?;
    let other = lab.station("b", &keepalived, &file).await?;
    let (mut dying, survivor) = lab.holder(&address, one, other).await?;
    lab.answers(&dying, &address).await?;
    lab.die(&mut dying).await?;
    lab.answers(&survivor, &address).await?;
    let second = world.service(announced("second")).await?;
    let another = second.address(SOON).await?;
    ensure!(another != address, "{address} is given out twice");
    render(&map, &file).await?;
    survivor.reload().await?;
    lab.answers(&survivor, &another).await?;
    lab.answers(&survivor, &address).await?;
    first.delete(SOON).await?;
    render(&map, &file).await?;
    survivor.reload().await?;
    wait::until_holds(SOON, format!("{address} is withdrawn"), || async {
        Ok(lab
            .carries(&survivor, &address)
            .await?
            .then(|| "it is still there".to_owned()))
    })
    .await?;
    lab.answers(&survivor, &another).await?;
    second.delete(SOON).await
}
