//! The agent is killed at every write that can be seen from outside: of the ConfigMap and of the Services.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use e2e::pool::Map;
use e2e::product::Agent;
use e2e::runner::Layer;
use e2e::service::{Handle, Wanted, ingress};
use e2e::wait;
use e2e::world::{SOON, World};
use serde_json::json;

use crate::pool::plan;

e2e::scenarios![Layer::Pool;
    an_agent_killed_at_every_write_changes_no_address_and_leaves_nothing_behind,
];

const SERVICES: usize = 6;

/// Everything that the agent may have written, with the versions of the objects.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    records: BTreeMap<String, String>,
    statuses: BTreeMap<String, Vec<String>>,
    versions: Vec<String>,
}

async fn seen(map: &Map, any: &Handle<'_>) -> Result<Seen> {
    let mut versions = vec![map.version().await?];
    let mut statuses = BTreeMap::new();
    for service in any.siblings().await? {
        versions.extend(service.metadata.resource_version.clone());
        statuses.insert(
            service.metadata.uid.clone().unwrap_or_default(),
            ingress(&service),
        );
    }
    Ok(Seen {
        records: map.records().await?,
        statuses,
        versions,
    })
}

/// Waits for a write, or for the end.
async fn written(
    map: &Map,
    any: &Handle<'_>,
    before: &Seen,
    is_done: impl Fn(&Seen) -> bool,
) -> Result<Seen> {
    wait::until(SOON, "the agent writes something", || async {
        let now = seen(map, any).await?;
        if now.versions != before.versions || is_done(&now) {
            Ok(Some(now))
        } else {
            Err(anyhow!("{before:?}"))
        }
    })
    .await
}

/// Kills the agent at every write until it is done; no address may ever change. Says how often it died.
async fn harass(
    world: &World,
    map: &Map,
    agent: &Agent,
    any: &Handle<'_>,
    is_done: impl Fn(&Seen) -> bool + Copy,
) -> Result<usize> {
    let mut known: BTreeMap<String, String> = map.records().await?;
    let mut deaths = 0;
    let mut state = seen(map, any).await?;
    while !is_done(&state) {
        let mut process = world.start_agent(agent).await?;
        written(map, any, &state, is_done).await?;
        process.kill().await?;
        deaths += 1;
        // What was on its way when the process died.
        state = seen(map, any).await?;
        for (uid, address) in &state.records {
            let first = known.entry(uid.clone()).or_insert_with(|| address.clone());
            ensure!(
                first == address,
                "the address of {uid} changed from {first} to {address}"
            );
        }
        for (uid, shown) in &state.statuses {
            ensure!(
                shown.iter().all(|address| known.get(uid) == Some(address)),
                "{uid} shows {shown:?}, recorded was {:?}",
                known.get(uid)
            );
        }
        ensure!(deaths < 200, "it does not come to an end: {state:?}");
    }
    Ok(deaths)
}

async fn an_agent_killed_at_every_write_changes_no_address_and_leaves_nothing_behind(
    world: &World,
) -> Result<()> {
    let map = Map::fresh(&world.cluster, json!({})).await?;
    let mut agent = plan(world, "198.51.100.0/28").await?;
    // One at a time and slowly, so that every write is seen before the next one.
    let slowly = [
        "--concurrent-service-syncs=1",
        "--kube-api-qps=5",
        "--kube-api-burst=1",
    ];
    agent.more.extend(slowly.map(ToOwned::to_owned));
    let mut services = Vec::new();
    for number in 0..SERVICES {
        services.push(
            world
                .service(Wanted::new(&format!("web-{number}")).port(80))
                .await?,
        );
    }
    let all_served = |seen: &Seen| seen.statuses.values().all(|shown| !shown.is_empty());
    let deaths = harass(world, &map, &agent, &services[0], all_served).await?;
    ensure!(deaths >= SERVICES, "it died only {deaths} times");
    let distinct: std::collections::BTreeSet<String> = map.records().await?.into_values().collect();
    ensure!(distinct.len() == SERVICES, "{distinct:?}");
    for service in services.iter().skip(1) {
        service.ask_delete().await?;
    }
    let one_left = |seen: &Seen| seen.statuses.len() == 1 && seen.records.len() == 1;
    let deaths = harass(world, &map, &agent, &services[0], one_left).await?;
    // One write gives up all addresses at once, then the Services are let go.
    ensure!(deaths > 2, "it died only {deaths} times");
    ensure!(map.entries().await?.len() == 1, "{:?}", map.entries().await?);
    let _last = world.start_agent(&agent).await?;
    services[0].delete(SOON).await?;
    wait::stays(Duration::from_secs(1), "the ConfigMap is empty", || async {
        Ok(map.entries().await?.is_empty() && map.records().await?.is_empty())
    })
    .await
}
