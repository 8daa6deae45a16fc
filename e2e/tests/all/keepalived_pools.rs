//! Named pools, sharing, the dry run and the metrics, as processes.

use anyhow::{Context as _, Result, ensure};
use e2e::pool::{self, Map};
use e2e::processes::{Program, free_port};
use e2e::runner::Layer;
use e2e::service::{Handle, Wanted};
use e2e::wait;
use e2e::world::{SOON, World};
use serde_json::json;

use crate::pool::plan;

e2e::scenarios![Layer::Pool;
    named_pools_serve_their_namespaces_and_those_who_ask,
    two_services_share_an_address_and_its_metrics_say_so,
    a_dry_run_says_what_would_change_and_writes_nothing,
];

const FAMILY: &str = "service.beta.kubernetes.io/cloudstack-load-balancer";

async fn named_pools_serve_their_namespaces_and_those_who_ask(world: &World) -> Result<()> {
    let map = Map::fresh(&world.cluster, json!({})).await?;
    let file = world.file(
        "pools",
        &format!(
            "[Pool \"ours\"]\naddresses = 203.0.113.8/30\nnamespaces = {}\nservices = tier = front\n\n\
             [Pool \"vip\"]\naddresses = 203.0.113.100-203.0.113.101\nauto-assign = false\n",
            world.namespace
        ),
    )?;
    let mut agent = plan(world, "198.51.100.0/28").await?;
    agent
        .more
        .push(format!("--keepalived-pools-file={}", file.display()));
    let _agent = world.start_agent(&agent).await?;
    let front = Wanted::new("front")
        .port(80)
        .with(json!({"metadata": {"labels": {"tier": "front"}}}));
    let front = world.service(front).await?;
    let usual = world.service(Wanted::new("usual").port(80)).await?;
    let asking = |name: &str| {
        Wanted::new(name)
            .port(80)
            .annotation(&format!("{FAMILY}-address-pool"), "vip")
    };
    let vips = [
        world.service(asking("one")).await?,
        world.service(asking("two")).await?,
    ];
    ensure!(
        front.address(SOON).await? == "203.0.113.9",
        "the pool of its namespace comes first"
    );
    ensure!(
        usual.address(SOON).await?.starts_with("198.51.100."),
        "no label, no pool"
    );
    for vip in &vips {
        ensure!(
            vip.address(SOON).await?.starts_with("203.0.113.10"),
            "it asked for the pool"
        );
    }
    let late = world.service(asking("late")).await?;
    late.event("PoolExhausted", SOON).await?;
    late.warning(&["pool vip", "2 usable"], SOON).await?;
    has_condition(&late, "PoolExhausted").await?;
    for service in [&late, &front, &usual, &vips[0], &vips[1]] {
        service.delete(SOON).await?;
    }
    ensure!(map.entries().await?.is_empty(), "{:?}", map.entries().await?);
    Ok(())
}

async fn has_condition(service: &Handle<'_>, reason: &str) -> Result<()> {
    wait::until_holds(SOON, format!("a condition says {reason}"), || async {
        let status = service.get().await?.status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let said = conditions
            .iter()
            .any(|condition| condition.reason == reason && condition.status == "False");
        Ok((!said).then(|| format!("{conditions:?}")))
    })
    .await
}

async fn two_services_share_an_address_and_its_metrics_say_so(world: &World) -> Result<()> {
    let map = Map::fresh(&world.cluster, json!({})).await?;
    let port = free_port()?;
    let mut agent = plan(world, "198.51.100.0/28").await?;
    agent.more.push(format!("--secure-port={port}"));
    let _agent = world.start_agent(&agent).await?;
    let shared = |name: &str, port| {
        Wanted::new(name)
            .port(port)
            .annotation(pool::METHOD, "VIP")
            .annotation(&format!("{FAMILY}-sharing-key"), "k")
    };
    let (web, tls) = (
        world.service(shared("web", 80)).await?,
        world.service(shared("tls", 443)).await?,
    );
    let address = web.address(SOON).await?;
    ensure!(tls.address(SOON).await? == address, "they do not share");
    ensure!(
        map.entries().await?.get(&address).is_some_and(String::is_empty),
        "{:?}",
        map.entries().await?
    );
    let pinned = shared("clash", 80).spec(json!({"loadBalancerIP": address}));
    let clash = world.service(pinned).await?;
    clash.event("AddressInUse", SOON).await?;
    let client = reqwest::Client::builder()
        .danger_accept_invalid_certs(true)
        .build()?;
    wait::until_holds(SOON, "the metrics show the pool", || async {
        let text = client
            .get(format!("https://127.0.0.1:{port}/metrics"))
            .send()
            .await?
            .text()
            .await?;
        let wanted = [
            "k8s_agent_keepalived_pool_addresses{pool=\"default\"} 14",
            "k8s_agent_keepalived_pool_addresses_in_use{pool=\"default\"} 1",
            "k8s_agent_keepalived_services_waiting 1",
        ];
        Ok(wanted
            .iter()
            .find(|line| !text.contains(**line))
            .map(|line| format!("{line} is missing in\n{text}")))
    })
    .await?;
    web.delete(SOON).await?;
    ensure!(
        map.entries().await?.contains_key(&address),
        "the other one still needs {address}"
    );
    clash.address(SOON).await.context("the port is free now")?;
    for service in [&clash, &tls] {
        service.delete(SOON).await?;
    }
    ensure!(map.entries().await?.is_empty(), "{:?}", map.entries().await?);
    Ok(())
}

async fn a_dry_run_says_what_would_change_and_writes_nothing(world: &World) -> Result<()> {
    let service = world
        .service(Wanted::new("web").port(80).annotation(pool::METHOD, "DR"))
        .await?;
    let entry = format!("{}/web", world.namespace);
    let records = json!({"services": [{"uid": service.uid, "ip": "198.51.100.9",
        "serviceNamespace": world.namespace, "serviceName": "web"}]});
    let content = json!({"metadata": {"annotations": {pool::RECORDS: records.to_string()}},
        "data": {"198.51.100.9": entry, "198.51.100.1": "infra/hand"}});
    let map = Map::fresh(&world.cluster, content).await?;
    let version = map.version().await?;
    let agent = plan(world, "198.51.100.0/28").await?;
    let program = Program::new("k8s-agent-dry-run", world.settings.binary("k8s-agent")?)
        .arg("--kubeconfig")
        .arg(&agent.kubeconfig)
        .args([
            "--cloud-provider=keepalived",
            "--secure-port=0",
            "--keepalived-dry-run",
        ]);
    let program = agent
        .env
        .iter()
        .fold(program, |program, (name, value)| program.env(name, value.clone()));
    let said = program.output().await?;
    let expected = format!("entry 198.51.100.9: \"{entry}\" -> \"{entry}:DR\"");
    ensure!(said.contains(&expected), "{said}");
    ensure!(
        said.contains(&format!("{entry}\n    status: (none) -> 198.51.100.9")),
        "{said}"
    );
    ensure!(!said.contains("198.51.100.1:"), "{said}");
    ensure!(map.version().await? == version, "something was written");
    ensure!(!service.is_protected().await?, "the Service was touched");
    service.delete(SOON).await
}
