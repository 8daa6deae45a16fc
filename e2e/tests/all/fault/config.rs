//! Broken configuration: it says all that is wrong, names the thing and the remedy, and does no harm.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::cloud::Keys;
use e2e::pki::Authority;
use e2e::product::cloud_config;
use e2e::proxy::Proxy;
use e2e::runner::Layer;
use e2e::service::Wanted;
use e2e::wait;
use e2e::world::{SOON, World};

use crate::expect;

e2e::scenarios![Layer::Fault;
    a_broken_file_says_all_its_faults_with_line_numbers,
    a_missing_file_is_named,
    wrong_keys_are_named_and_nothing_is_deleted,
    a_wrong_address_of_the_api_is_named,
    a_certificate_that_is_not_trusted_is_named_until_its_authority_is_given,
];

async fn a_broken_file_says_all_its_faults_with_line_numbers(world: &World) -> Result<()> {
    let text = "[Global]\napi-url = not a url\napi-key = somekey\nssl-no-verify = perhaps\nno-such-key = 1\n\n[Cluster \"blue\"]\nmember-ports = 70000-1\n";
    let config = world.file("broken", text)?;
    let mut broker = world.launch_broker(&world.broker_plan(config)?).await?;
    let status = broker.ends(Duration::from_secs(20)).await?;
    ensure!(!status.success(), "it ended with {status}");
    let said = broker.log().lines().join("\n");
    // The missing secret key has no line of its own.
    for part in [
        "2",
        "4",
        "5",
        "8",
        "api-url",
        "ssl-no-verify",
        "no-such-key",
        "member-ports",
        "secret-key",
    ] {
        ensure!(said.contains(part), "nothing about {part} in: {said}");
    }
    Ok(())
}

async fn a_missing_file_is_named(world: &World) -> Result<()> {
    let config = world.dir.join("there-is-no-such-file");
    let mut broker = world.launch_broker(&world.broker_plan(config)?).await?;
    let status = broker.ends(Duration::from_secs(20)).await?;
    ensure!(!status.success(), "it ended with {status}");
    let said = broker.log().lines().join("\n");
    ensure!(
        said.contains("there-is-no-such-file"),
        "the file is not named in: {said}"
    );
    Ok(())
}

/// Runs both halves on this configuration and expects a line with all `parts`, and that nothing is deleted.
async fn says(world: &World, config: &str, parts: &[&str]) -> Result<()> {
    let broker = world.broker_plan(world.file("cloud-config", config)?)?;
    let agent = world.agent_plan(&broker.joint, None).await?;
    let mut pair = world.pair_of(broker, agent).await?;
    world.initialised_nodes("external-cloudstack://").await?;
    world.cluster.set_ready("node-1", false).await?;
    let service = world.service(Wanted::new("web").port(80)).await?;
    let what = format!("a line of the broker with {parts:?}");
    wait::until(SOON, what, || async {
        let lines = pair.broker.log().lines();
        let fits = |line: &&String| parts.iter().all(|part| line.to_lowercase().contains(part));
        Ok(lines.iter().find(fits).cloned())
    })
    .await?;
    wait::until_holds(SOON, "the Service has a warning", || async {
        let events = service.events().await?;
        let warned = events
            .iter()
            .any(|event| event.type_.as_deref() == Some("Warning"));
        Ok((!warned).then(|| format!("{} events", events.len())))
    })
    .await?;
    wait::stays(
        Duration::from_secs(4),
        "the node is there and both halves run",
        || async { Ok(world.cluster.node("node-1").await?.is_some()) },
    )
    .await?;
    ensure!(pair.broker.ended()?.is_none(), "the broker ended");
    ensure!(pair.agent.ended()?.is_none(), "the agent ended");
    // Nothing was made, so a Service that is deleted may not wait for what can't be reached for ever; the next
    // scenario's cleaning takes it away.
    world.nothing_left().await
}

async fn wrong_keys_are_named_and_nothing_is_deleted(world: &World) -> Result<()> {
    let keys = world.cloud.client.keys();
    let wrong = Keys {
        api: keys.api.clone(),
        secret: "0123456789abcdefghijklmnopqrstuvwxyz".into(),
    };
    world.secret("the wrong secret key", &wrong.secret);
    says(
        world,
        &cloud_config(&world.api.url, &wrong, ""),
        &["401", "secret"],
    )
    .await
}

async fn a_wrong_address_of_the_api_is_named(world: &World) -> Result<()> {
    let url = world.api.url.replace("/client/api", "/somewhere/else");
    // The proxy forwards every path to the API; an address where nobody listens is a wrong one as well.
    let nobody = format!("http://127.0.0.1:{}/client/api", e2e::processes::free_port()?);
    ensure!(url != nobody, "two addresses are one");
    says(
        world,
        &cloud_config(&nobody, world.cloud.client.keys(), ""),
        &["127.0.0.1", "api-url"],
    )
    .await
}

async fn a_certificate_that_is_not_trusted_is_named_until_its_authority_is_given(
    world: &World,
) -> Result<()> {
    let authority = Authority::found(&world.subdir("pki"), "unknown-to-all")?;
    let secure = Proxy::before(&world.cloud.url, Some(&authority.server("api")?)).await?;
    let keys = world.cloud.client.keys().clone();
    says(
        world,
        &cloud_config(&secure.url, &keys, ""),
        &["certificate", "ca-file"],
    )
    .await?;
    let trusting = format!("ca-file = {}\n", authority.ca_file().display());
    let config = world.file(
        "cloud-config-trusting",
        &cloud_config(&secure.url, &keys, &trusting),
    )?;
    world.cluster.clear().await?;
    let broker = world.broker_plan(config)?;
    let agent = world.agent_plan(&broker.joint, None).await?;
    let _pair = world.pair_of(broker, agent).await?;
    world.nodes().await?;
    let service = world.service(Wanted::new("trusted").port(80)).await?;
    expect::served(world, &service, &e2e::cloud::MACHINES).await?;
    service.delete(SOON).await
}
