//! Death at every single CloudStack call, as real processes: whoever is killed, and whether the call was executed or
//! not, afterwards exactly the wanted objects are there.

use anyhow::{Context as _, Result};
use e2e::cloud::MACHINES;
use e2e::cluster::ANNOTATION;
use e2e::proxy::Hold;
use e2e::runner::Layer;
use e2e::service::{Handle, Wanted};
use e2e::world::{Pairing, SOON, World};
use serde_json::json;

use crate::control::nodes;
use crate::expect;

e2e::scenarios![Layer::Fault;
    after_a_kill_at_any_call_of_a_create_exactly_the_wanted_objects_are_there,
    after_a_kill_at_any_call_of_a_delete_nothing_is_left,
];

/// Who dies.
#[derive(Debug, Clone, Copy)]
enum Victim {
    Broker,
    Agent,
    Both,
}

/// Which call, who dies at it, and where in the call's life: every call once, or in every way where everything is wanted.
fn deaths(full: bool) -> Vec<(usize, Victim, Hold)> {
    let victims = [Victim::Broker, Victim::Both, Victim::Agent];
    let ways = [Hold::After, Hold::Before]
        .map(|hold| victims.map(|victim| (victim, hold)))
        .concat();
    let at = |n: usize| {
        let ways = if full {
            ways.clone()
        } else {
            vec![ways[n % ways.len()]]
        };
        ways.into_iter().map(move |(victim, hold)| (n, victim, hold))
    };
    (1..=ENOUGH).flat_map(at).collect()
}

/// More calls than creating or deleting a Service of two ports can take.
const ENOUGH: usize = 80;

async fn pair(world: &World) -> Result<Pairing> {
    let broker = world.broker_plan(world.config()?)?;
    let mut agent = world.agent_plan(&broker.joint, None).await?;
    // Who is killed keeps the lease; waiting for it to run out is not what is tested here.
    agent.more.push("--leader-elect=false".into());
    let pair = world.pair_of(broker, agent).await?;
    world.nodes().await?;
    expect::quiet(world).await?;
    Ok(pair)
}

/// Who dies when this call comes.
struct Death {
    victim: Victim,
    trap: tokio::sync::oneshot::Receiver<e2e::proxy::Held>,
}

/// Kills at the held call, starts again; false when all was done before that call came.
async fn strike(
    world: &World,
    pair: &mut Pairing,
    Death { victim, trap }: Death,
    service: &Handle<'_>,
    done: impl Future<Output = Result<()>>,
) -> Result<bool> {
    let held = tokio::select! {
        held = trap => held?,
        done = done => { done?; world.api.let_pass(); return Ok(false) }
    };
    if matches!(victim, Victim::Broker | Victim::Both) {
        pair.broker.kill().await?;
    }
    if matches!(victim, Victim::Agent | Victim::Both) {
        pair.agent.kill().await?;
    }
    held.release();
    forge(service).await?;
    if matches!(victim, Victim::Broker | Victim::Both) {
        pair.broker = world.start_broker(&pair.broker_plan).await?;
    }
    if matches!(victim, Victim::Agent | Victim::Both) {
        pair.agent = world.start_agent(&pair.agent_plan).await?;
    }
    Ok(true)
}

/// What a namespace user may write while nobody looks: outputs of the controller, pointing elsewhere.
async fn forge(service: &Handle<'_>) -> Result<()> {
    let nobody = "00000000-0000-4000-8000-000000000000";
    let forged = json!({"metadata": {"annotations": {
        format!("{ANNOTATION}id"): nobody, format!("{ANNOTATION}network-id"): nobody,
        format!("{ANNOTATION}ip-associated-by-controller"): "false"}}});
    // A Service that is gone already can't be forged.
    service.patch(forged).await.ok();
    Ok(())
}

async fn after_a_kill_at_any_call_of_a_create_exactly_the_wanted_objects_are_there(
    world: &World,
) -> Result<()> {
    let mut pair = pair(world).await?;
    for (n, victim, hold) in deaths(world.settings.is_full()) {
        let round = format!("{victim:?} killed at call {n}, {hold:?} it was executed");
        let trap = world.api.hold(n, hold);
        let service = world
            .service(Wanted::new(&nodes::fresh_name("web")).ports(80, 2))
            .await?;
        let done = async { expect::served(world, &service, &MACHINES).await.map(drop) };
        let struck = strike(world, &mut pair, Death { victim, trap }, &service, done)
            .await
            .context(round.clone())?;
        let (ip, found) = expect::served(world, &service, &MACHINES)
            .await
            .context(round.clone())?;
        only(world, &found, &ip).context(round.clone())?;
        service.delete(SOON).await.context(round.clone())?;
        world.nothing_left().await.context(round)?;
        if !struck {
            return enough(n);
        }
        expect::quiet(world).await?;
    }
    anyhow::bail!("a create took more than {ENOUGH} calls")
}

async fn after_a_kill_at_any_call_of_a_delete_nothing_is_left(world: &World) -> Result<()> {
    let mut pair = pair(world).await?;
    for (n, victim, hold) in deaths(world.settings.is_full()) {
        let round = format!("{victim:?} killed at call {n}, {hold:?} it was executed");
        let service = world
            .service(Wanted::new(&nodes::fresh_name("web")).ports(80, 2))
            .await?;
        expect::served(world, &service, &MACHINES)
            .await
            .context(round.clone())?;
        service.event("EnsuredLoadBalancer", SOON).await?;
        expect::quiet(world).await?;
        let trap = world.api.hold(n, hold);
        service.ask_delete().await?;
        let done = service.gone(SOON);
        let struck = strike(world, &mut pair, Death { victim, trap }, &service, done)
            .await
            .context(round.clone())?;
        service.gone(SOON).await.context(round.clone())?;
        world.nothing_left().await.context(round)?;
        if !struck {
            return enough(n);
        }
    }
    anyhow::bail!("a delete took more than {ENOUGH} calls")
}

/// One address more than before, and nothing on any other.
fn only(world: &World, found: &e2e::cloud::Inventory, ip: &str) -> Result<()> {
    let elsewhere = found.rules.values().filter(|rule| rule.ip != ip).count();
    anyhow::ensure!(
        elsewhere == 0,
        "{elsewhere} rules are on other addresses: {}",
        world.report()
    );
    Ok(())
}

/// A walk that ended after a few calls has not seen what it is for.
fn enough(n: usize) -> Result<()> {
    anyhow::ensure!(n > 3, "the whole took only {n} calls");
    Ok(())
}
