//! Both backends in one agent: who serves a Service, and that it stays so.

use anyhow::{Result, ensure};
use e2e::cloud::{Simulator, SimulatorOptions};
use e2e::pool::{self, Map};
use e2e::product::{Agent, cloud_config};
use e2e::rbac;
use e2e::runner::Layer;
use e2e::service::{Handle, Wanted};
use e2e::wait;
use e2e::world::{QUICK_BROKER, SOON, World};
use serde_json::json;

e2e::scenarios![Layer::Pool;
    a_service_is_served_by_the_backend_it_asks_for_and_stays_there,
    a_service_on_a_network_without_a_load_balancer_gets_an_address_of_the_pool,
];

const FAMILY: &str = "service.beta.kubernetes.io/cloudstack-load-balancer";

/// Both halves, the agent with a pool and the rights for it.
async fn both(world: &World, joint: &e2e::product::Joint) -> Result<Agent> {
    let account = rbac::apply_folder(&world.cluster, "deploy/keepalived-beside-cloud").await?;
    let file = world.dir.join("agent.kubeconfig");
    let kubeconfig = account
        .kubeconfig(&world.cluster, &world.cluster.plane.url, &file)
        .await?;
    let mut agent = world.agent_plan(joint, None).await?;
    agent.kubeconfig = kubeconfig;
    let env = [
        ("KEEPALIVED_SERVICE_CIDR", "198.51.100.0/28"),
        ("KEEPALIVED_NAMESPACE", pool::NAMESPACE),
        ("KEEPALIVED_CONFIG_MAP", pool::NAME),
        ("KEEPALIVED_CREATE_CONFIG_MAP", "false"),
    ];
    agent.env = env
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    Ok(agent)
}

async fn served_by(service: &Handle<'_>) -> Result<String> {
    let annotations = service.get().await?.metadata.annotations.unwrap_or_default();
    Ok(annotations
        .get(&format!("{FAMILY}-served-by"))
        .cloned()
        .unwrap_or_default())
}

async fn a_service_is_served_by_the_backend_it_asks_for_and_stays_there(world: &World) -> Result<()> {
    let map = Map::fresh(&world.cluster, json!({})).await?;
    let broker = world.broker_plan(world.config()?)?;
    let agent = both(world, &broker.joint).await?;
    let _pair = world.pair_of(broker, agent).await?;
    world.nodes().await?;
    let usual = world.service(Wanted::new("usual").port(80)).await?;
    let asked = world
        .service(
            Wanted::new("asked")
                .port(80)
                .annotation(&format!("{FAMILY}-backend"), "keepalived"),
        )
        .await?;
    let class = json!({"loadBalancerClass": "cloudstack-load-balancer/keepalived"});
    let classed = world.service(Wanted::new("classed").port(80).spec(class)).await?;
    let foreign = json!({"loadBalancerClass": "example.com/other"});
    let foreign = world
        .service(Wanted::new("foreign").port(80).spec(foreign))
        .await?;
    let from_cloud = usual.address(SOON).await?;
    let (one, two) = (asked.address(SOON).await?, classed.address(SOON).await?);
    ensure!(
        !from_cloud.starts_with("198.51.100."),
        "the usual Service has {from_cloud}"
    );
    ensure!(
        one != two && [&one, &two].iter().all(|ip| ip.starts_with("198.51.100.")),
        "{one} and {two}"
    );
    ensure!(map.entries().await?.len() == 2, "{:?}", map.entries().await?);
    ensure!(
        served_by(&usual).await? == "cloud" && served_by(&asked).await? == "keepalived",
        "the choice is not recorded"
    );
    // Another wish does not move a Service whose address is published.
    asked
        .patch(json!({"metadata": {"annotations": {format!("{FAMILY}-backend"): "cloud"}}}))
        .await?;
    asked.event("BackendKept", SOON).await?;
    ensure!(
        asked.ingress().await? == [one.clone()],
        "it moved to {:?}",
        asked.ingress().await?
    );
    ensure!(
        foreign.ingress().await?.is_empty() && !foreign.is_protected().await?,
        "another class was touched"
    );
    for service in [&usual, &asked, &classed] {
        service.delete(SOON).await?;
    }
    foreign.delete(SOON).await?;
    ensure!(map.entries().await?.is_empty(), "{:?}", map.entries().await?);
    world.nothing_left().await
}

async fn a_service_on_a_network_without_a_load_balancer_gets_an_address_of_the_pool(
    world: &World,
) -> Result<()> {
    let options = SimulatorOptions {
        balances: false,
        ..SimulatorOptions::default()
    };
    let dir = world.subdir("plain");
    let simulator = Simulator::start(&world.settings, &dir, options).await?;
    let config = world.file(
        "plain-config",
        &cloud_config(&simulator.url, &simulator.keys, QUICK_BROKER),
    )?;
    let map = Map::fresh(&world.cluster, json!({})).await?;
    let mut broker = world.broker_plan(config)?;
    broker.joint = world.socket("plain")?;
    let agent = both(world, &broker.joint).await?;
    // The broker comes later: until it says what the network offers, nobody chooses.
    let _agent = world.start_agent(&agent).await?;
    let on_plain = world.service(Wanted::new("plain").port(80)).await?;
    wait::stays(std::time::Duration::from_secs(2), "it has no address", || async {
        Ok(on_plain.ingress().await?.is_empty() && map.entries().await?.is_empty())
    })
    .await?;
    let _broker = world.start_broker(&broker).await?;
    world.nodes().await?;
    let address = on_plain.address(SOON).await?;
    ensure!(address.starts_with("198.51.100."), "it has {address}");
    ensure!(
        served_by(&on_plain).await? == "keepalived",
        "the choice is not recorded"
    );
    on_plain.delete(SOON).await?;
    ensure!(map.entries().await?.is_empty(), "{:?}", map.entries().await?);
    Ok(())
}
