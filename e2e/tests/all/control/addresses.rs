//! Which address a Service gets, and what becomes of it.

use anyhow::{Result, ensure};
use e2e::cloud::MACHINES;
use e2e::runner::Layer;
use e2e::service::Wanted;
use e2e::wait;
use e2e::world::{SOON, World};
use serde_json::json;

use crate::expect;

e2e::scenarios![Layer::Control;
    a_requested_free_address_is_taken_and_released_again,
    a_requested_address_that_was_there_before_is_used_and_kept,
    services_that_name_one_address_share_it_and_the_last_one_releases_it,
];

async fn a_requested_free_address_is_taken_and_released_again(world: &World) -> Result<()> {
    let _pair = world.pair().await?;
    world.nodes().await?;
    let wish = world.cloud.free_address().await?;
    let service = Wanted::new("web").port(80).spec(json!({"loadBalancerIP": wish}));
    let service = world.service(service).await?;
    let (ip, _) = expect::served(world, &service, &MACHINES).await?;
    ensure!(ip == wish, "asked for {wish}, got {ip}");
    service.delete(SOON).await
}

async fn a_requested_address_that_was_there_before_is_used_and_kept(world: &World) -> Result<()> {
    let _pair = world.pair().await?;
    world.nodes().await?;
    let held = world.cloud.take_address().await?;
    let service = Wanted::new("web")
        .port(80)
        .spec(json!({"loadBalancerIP": held.ip}));
    let service = world.service(service).await?;
    let (ip, _) = expect::served(world, &service, &MACHINES).await?;
    ensure!(ip == held.ip, "asked for {}, got {ip}", held.ip);
    service.delete(SOON).await?;
    let found = world.cloud.inventory().await?;
    ensure!(
        found.addresses.contains_key(&held.ip),
        "somebody else's address was released"
    );
    ensure!(found.rules_on(&held.ip).is_empty(), "rules are left on it");
    ensure!(
        found.firewall_on(&held.ip).is_empty(),
        "firewall rules are left on it"
    );
    world.cloud.release_address(&held.id).await
}

async fn services_that_name_one_address_share_it_and_the_last_one_releases_it(world: &World) -> Result<()> {
    let _pair = world.pair().await?;
    world.nodes().await?;
    let wish = world.cloud.free_address().await?;
    let plan = |name: &str, port: u16| Wanted::new(name).port(port).spec(json!({"loadBalancerIP": wish}));
    let one = world.service(plan("one", 80)).await?;
    ensure!(one.address(SOON).await? == wish, "the first got another address");
    let two = world.service(plan("two", 81)).await?;
    ensure!(two.address(SOON).await? == wish, "the second got another address");
    ports(world, &wish, &["80", "81"]).await?;
    one.delete(SOON).await?;
    ports(world, &wish, &["81"]).await?;
    two.delete(SOON).await?;
    world.nothing_left().await
}

/// Waits until exactly these ports are served and open on an address, by all machines.
async fn ports(world: &World, ip: &str, wanted: &[&str]) -> Result<()> {
    let wanted = expect::members(wanted);
    let machines = expect::members(&MACHINES);
    wait::until_holds(SOON, format!("{ip} serves {wanted:?}"), || async {
        let found = world.cloud.inventory().await?;
        let (rules, open) = (found.rules_on(ip), found.firewall_on(ip));
        let fits = rules.keys().eq(&wanted)
            && open.keys().eq(&wanted)
            && rules.values().all(|rule| rule.members == machines);
        Ok((!fits).then(|| format!("rules {rules:?}, firewall {:?}", open.keys())))
    })
    .await
}
