//! Addresses from a pool, announced by keepalived: the agent alone, as keepalived-cloud-provider was.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use e2e::pool::{self, Map};
use e2e::product::Agent;
use e2e::runner::{Layer, Skip};
use e2e::service::{Handle, Wanted};
use e2e::settings::on_path;
use e2e::wait;
use e2e::world::{SOON, World};
use e2e::{peers, rbac};
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::json;

e2e::scenarios![Layer::Pool;
    a_service_gets_an_address_of_the_pool_and_gives_it_back,
    what_the_go_provider_wrote_is_taken_over_without_a_change,
    a_config_map_of_the_first_version_gets_its_names_and_keeps_its_addresses,
    entries_made_by_hand_are_kept_and_never_given_out,
    two_agents_at_once_give_no_address_twice,
    an_agent_killed_again_and_again_gives_no_address_twice,
    three_hundred_services_on_a_small_net_share_it_without_a_clash,
];

const POOL: &str = "198.51.100.0/24";

/// The agent with the environment of keepalived-cloud-provider and the rights of its manifest, not started.
pub(crate) async fn plan(world: &World, pool: &str) -> Result<Agent> {
    let account = rbac::apply_folder(&world.cluster, "deploy/keepalived").await?;
    let file = world.dir.join("agent.kubeconfig");
    let kubeconfig = account
        .kubeconfig(&world.cluster, &world.cluster.plane.url, &file)
        .await?;
    let env = [
        ("KEEPALIVED_NAMESPACE", pool::NAMESPACE),
        ("KEEPALIVED_CONFIG_MAP", pool::NAME),
        ("KEEPALIVED_SERVICE_CIDR", pool),
    ];
    Ok(Agent {
        name: "k8s-agent".into(),
        kubeconfig,
        broker: None,
        identity: None,
        provider: "keepalived".into(),
        quick: true,
        more: vec!["--leader-elect=false".into()],
        env: env
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
    })
}

/// Entries, records and statuses say the same, and no address is there twice.
async fn consistent(map: &Map, services: &[Handle<'_>]) -> Result<BTreeMap<String, String>> {
    let (entries, records) = (map.entries().await?, map.records().await?);
    let distinct: BTreeSet<_> = records.values().collect();
    ensure!(
        distinct.len() == records.len(),
        "an address stands twice in the records: {records:?}"
    );
    for service in services {
        let Some(shown) = service.ingress().await?.into_iter().next() else {
            continue;
        };
        ensure!(
            records.get(&service.uid) == Some(&shown),
            "{} shows {shown}, recorded {:?}",
            service.name,
            records.get(&service.uid)
        );
        let entry = entries
            .get(&shown)
            .with_context(|| format!("no entry for {shown}"))?;
        let named = format!("{}/{}", service.namespace, service.name);
        ensure!(
            entry.split(':').next() == Some(&named),
            "the entry of {shown} is {entry}"
        );
    }
    Ok(entries)
}

async fn a_service_gets_an_address_of_the_pool_and_gives_it_back(world: &World) -> Result<()> {
    let map = Map::fresh(&world.cluster, json!({})).await?;
    let _agent = world.start_agent(&plan(world, POOL).await?).await?;
    let nat = world.service(Wanted::new("nat").port(80)).await?;
    ensure!(
        nat.address(SOON).await? == "198.51.100.1",
        "the first address is not the lowest"
    );
    let direct = world
        .service(Wanted::new("direct").port(80).annotation(pool::METHOD, "DR"))
        .await?;
    let ip = direct.address(SOON).await?;
    let entries = consistent(&map, &[nat.clone(), direct.clone()]).await?;
    ensure!(
        entries[&ip].ends_with(":DR"),
        "the entry of {ip} is {}",
        entries[&ip]
    );
    if let Some(keepalived) = on_path("keepalived") {
        pool::checked(&keepalived, &world.dir, &entries).await?;
    }
    let refused = Wanted::new("refused")
        .port(80)
        .spec(json!({"loadBalancerIP": "not-an-address"}));
    let refused = world.service(refused).await?;
    refused.warning(&["not-an-address"], SOON).await?;
    for service in [&refused, &direct, &nat] {
        service.delete(SOON).await?;
    }
    ensure!(
        map.entries().await?.is_empty(),
        "entries are left: {:?}",
        map.entries().await?
    );
    ensure!(
        map.records().await?.is_empty(),
        "records are left: {:?}",
        map.records().await?
    );
    Ok(())
}

async fn what_the_go_provider_wrote_is_taken_over_without_a_change(world: &World) -> Result<()> {
    let map = Map::fresh(&world.cluster, json!({})).await?;
    let token = administrator(world).await?;
    let old = peers::keepalived(&world.settings, &world.cluster, &token, POOL, &world.dir).await?;
    let old = old
        .ok_or_else(|| Skip::missing("keepalived-cloud-provider is not in the folder peers of E2E_SHARED"))?;
    let mut old = world.watched(old);
    let mut services = Vec::new();
    for name in ["one", "two", "three"] {
        services.push(world.service(Wanted::new(name).port(80)).await?);
    }
    let pinned = Wanted::new("pinned")
        .port(80)
        .spec(json!({"loadBalancerIP": "198.51.100.77"}));
    services.push(world.service(pinned).await?);
    let mut shown = Vec::new();
    for service in &services {
        shown.push(service.address(SOON).await?);
    }
    old.kill().await?;
    let (entries, records) = (map.entries().await?, map.records().await?);
    let _agent = world.start_agent(&plan(world, POOL).await?).await?;
    let next = world.service(Wanted::new("next").port(80)).await?;
    let ip = next.address(SOON).await?;
    ensure!(!shown.contains(&ip), "{ip} is given out a second time");
    let (mut now, mut recorded) = (map.entries().await?, map.records().await?);
    now.remove(&ip);
    recorded.remove(&next.uid);
    ensure!(now == entries, "entries changed: {entries:?} -> {now:?}");
    ensure!(
        recorded == records,
        "records changed: {records:?} -> {recorded:?}"
    );
    for (service, before) in services.iter().zip(&shown) {
        ensure!(
            service.ingress().await? == [before.clone()],
            "{} lost {before}",
            service.name
        );
        service.delete(SOON).await?;
    }
    next.delete(SOON).await
}

/// A token with all rights, for a program that was never given narrower ones.
async fn administrator(world: &World) -> Result<String> {
    let make = [
        "create",
        "clusterrolebinding",
        "old-provider",
        "--clusterrole=cluster-admin",
        "--serviceaccount=kube-system:old-provider",
    ];
    let kubectl = || world.cluster.plane.kubectl();
    // A cluster is used by several scenarios: the second one finds both.
    kubectl()
        .args(["-n", "kube-system", "create", "serviceaccount", "old-provider"])
        .output()
        .await
        .ok();
    kubectl().args(make).output().await.ok();
    let token = kubectl()
        .args(["-n", "kube-system", "create", "token", "old-provider"])
        .output()
        .await?;
    Ok(token.trim().to_owned())
}

async fn a_config_map_of_the_first_version_gets_its_names_and_keeps_its_addresses(
    world: &World,
) -> Result<()> {
    let old = world.service(Wanted::new("old").port(80)).await?;
    let records = json!({"services": [{"uid": old.uid, "ip": "198.51.100.9"}]}).to_string();
    let entry = format!("{}/old", world.namespace);
    let content =
        json!({"metadata": {"annotations": {pool::RECORDS: records}}, "data": {"198.51.100.9": entry}});
    let map = Map::fresh(&world.cluster, content).await?;
    let _agent = world.start_agent(&plan(world, POOL).await?).await?;
    ensure!(
        old.address(SOON).await? == "198.51.100.9",
        "the old Service has another address"
    );
    let new = world.service(Wanted::new("new").port(80)).await?;
    new.address(SOON).await?;
    let entries = consistent(&map, &[old.clone(), new.clone()]).await?;
    ensure!(
        entries["198.51.100.9"] == entry,
        "the old entry is {}",
        entries["198.51.100.9"]
    );
    old.delete(SOON).await?;
    new.delete(SOON).await
}

async fn entries_made_by_hand_are_kept_and_never_given_out(world: &World) -> Result<()> {
    let by_hand = json!({"data": {"198.51.100.1": "infra/hand:DR", "198.51.100.2": ""}});
    let map = Map::fresh(&world.cluster, by_hand).await?;
    let _agent = world.start_agent(&plan(world, POOL).await?).await?;
    let service = world.service(Wanted::new("web").port(80)).await?;
    ensure!(
        service.address(SOON).await? == "198.51.100.3",
        "an address of somebody else was given out"
    );
    let ip = "198.51.100.3";
    map.patch(json!({"data": {ip: null}})).await?;
    wait::until_holds(SOON, "the damaged entry is repaired", || async {
        let entries = map.entries().await?;
        Ok((!entries.contains_key(ip)).then(|| format!("{entries:?}")))
    })
    .await?;
    service.delete(SOON).await?;
    let left = map.entries().await?;
    ensure!(
        left.len() == 2 && left["198.51.100.1"] == "infra/hand:DR",
        "entries by hand: {left:?}"
    );
    Ok(())
}

async fn two_agents_at_once_give_no_address_twice(world: &World) -> Result<()> {
    let map = Map::fresh(&world.cluster, json!({})).await?;
    let first = plan(world, POOL).await?;
    let second = Agent {
        name: "k8s-agent-second".into(),
        ..first.clone()
    };
    let _agents = [
        world.start_agent(&first).await?,
        world.start_agent(&second).await?,
    ];
    let services = many(world, 30).await?;
    all_served(&services).await?;
    consistent(&map, &services).await?;
    all_gone(&map, &services).await
}

async fn an_agent_killed_again_and_again_gives_no_address_twice(world: &World) -> Result<()> {
    let map = Map::fresh(&world.cluster, json!({})).await?;
    let plan = plan(world, POOL).await?;
    let mut agent = world.start_agent(&plan).await?;
    let services = many(world, 40).await?;
    for served in [1, 5, 12, 25] {
        wait::until(SOON, format!("{served} Services have an address"), || async {
            Ok((addresses(&services).await?.len() >= served).then_some(()))
        })
        .await?;
        agent.kill().await?;
        consistent_records(&map).await?;
        agent = world.start_agent(&plan).await?;
    }
    all_served(&services).await?;
    consistent(&map, &services).await?;
    all_gone(&map, &services).await
}

async fn three_hundred_services_on_a_small_net_share_it_without_a_clash(world: &World) -> Result<()> {
    let map = Map::fresh(&world.cluster, json!({})).await?;
    let mut plan = plan(world, POOL).await?;
    plan.more.push("--concurrent-service-syncs=8".into());
    let _agent = world.start_agent(&plan).await?;
    let services = many(world, 300).await?;
    let patience = Duration::from_mins(3);
    wait::until(patience, "all 254 addresses are given out", || async {
        let served = addresses(&services).await?.len();
        if served == 254 {
            Ok(Some(()))
        } else {
            Err(anyhow!("{served} are"))
        }
    })
    .await?;
    let shown = addresses(&services).await?;
    let distinct: BTreeSet<_> = shown.values().collect();
    ensure!(
        distinct.len() == 254,
        "{} Services share addresses",
        254 - distinct.len()
    );
    let entries = map.entries().await?;
    ensure!(entries.len() == 254, "{} entries", entries.len());
    let empty = services.iter().find(|service| !shown.contains_key(&service.name));
    let empty = empty.context("everybody has an address")?;
    empty.event("PoolExhausted", SOON).await?;
    if let Some(keepalived) = on_path("keepalived") {
        pool::checked(&keepalived, &world.dir, &entries).await?;
    }
    // Who leaves makes room for who waits.
    let leaver = services
        .iter()
        .find(|service| shown.contains_key(&service.name))
        .context("nobody has one")?;
    leaver.delete(SOON).await?;
    wait::until(SOON, "somebody who waited gets the free address", || async {
        Ok((addresses(&services).await?.len() == 254).then_some(()))
    })
    .await
}

/// Services, created side by side.
async fn many(world: &World, n: usize) -> Result<Vec<Handle<'_>>> {
    let make = (0..n).map(|number| world.service(Wanted::new(&format!("web-{number}")).port(80)));
    futures::stream::iter(make).buffered(20).try_collect().await
}

/// The addresses that are shown, by Service name.
async fn addresses(services: &[Handle<'_>]) -> Result<BTreeMap<String, String>> {
    let Some(first) = services.first() else {
        return Ok(BTreeMap::new());
    };
    let mut shown = BTreeMap::new();
    for service in first.siblings().await? {
        let ingress = e2e::service::ingress(&service);
        if let (Some(name), Some(ip)) = (service.metadata.name, ingress.into_iter().next()) {
            shown.insert(name, ip);
        }
    }
    Ok(shown)
}

async fn all_served(services: &[Handle<'_>]) -> Result<()> {
    wait::until(SOON * 2, "all Services have an address", || async {
        let served = addresses(services).await?.len();
        if served == services.len() {
            Ok(Some(()))
        } else {
            Err(anyhow!("{served} of {}", services.len()))
        }
    })
    .await
}

async fn consistent_records(map: &Map) -> Result<()> {
    consistent(map, &[]).await.map(drop)
}

async fn all_gone(map: &Map, services: &[Handle<'_>]) -> Result<()> {
    for service in services {
        service.ask_delete().await?;
    }
    for service in services {
        service.gone(SOON).await?;
    }
    ensure!(
        map.entries().await?.is_empty(),
        "entries are left: {:?}",
        map.entries().await?
    );
    Ok(())
}
