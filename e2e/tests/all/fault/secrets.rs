//! Secrets: no output holds one, at any verbosity. (What every other scenario prints is searched as well.)

use anyhow::{Result, ensure};
use e2e::cloud::MACHINES;
use e2e::runner::Layer;
use e2e::service::Wanted;
use e2e::world::{SOON, World};

use crate::expect;

e2e::scenarios![Layer::Fault;
    at_the_highest_verbosity_no_key_secret_or_signature_is_printed,
];

async fn at_the_highest_verbosity_no_key_secret_or_signature_is_printed(world: &World) -> Result<()> {
    let mut broker = world.broker_plan(world.config()?)?;
    let mut agent = world.agent_plan(&broker.joint, None).await?;
    broker.more.push("--v=10".into());
    agent.more.push("--v=10".into());
    let pair = world.pair_of(broker, agent).await?;
    world.nodes().await?;
    let service = world.service(Wanted::new("web").port(80)).await?;
    expect::served(world, &service, &MACHINES).await?;
    service.delete(SOON).await?;
    ensure!(
        !world.api.signatures().is_empty(),
        "no signature went through the proxy: nothing to search for"
    );
    let lines = pair.broker.log().lines().len();
    ensure!(lines > 20, "the broker printed only {lines} lines");
    world.no_secrets_printed()
}
