//! More than one of a kind: a second agent, a second broker, and the Go controller before them.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::cloud::MACHINES;
use e2e::peers::Peer;
use e2e::product::{Agent, Broker, Joint};
use e2e::runner::Layer;
use e2e::service::Wanted;
use e2e::wait;
use e2e::world::{SOON, World};

use super::take_over;
use crate::expect;

e2e::scenarios![Layer::Control;
    a_second_agent_takes_over_when_the_leader_dies,
    while_the_go_controller_holds_the_lease_the_agent_waits,
    an_agent_goes_on_with_its_second_broker_when_the_first_dies,
    two_agents_with_a_broker_each_end_with_one_address,
    both_halves_answer_for_their_health_over_https,
];

async fn a_second_agent_takes_over_when_the_leader_dies(world: &World) -> Result<()> {
    let mut pair = world.pair().await?;
    world.nodes().await?;
    let second = Agent {
        name: "k8s-agent-second".into(),
        ..pair.agent_plan.clone()
    };
    let second = world.start_agent(&second).await?;
    let one = world.service(Wanted::new("one").port(80)).await?;
    expect::served(world, &one, &MACHINES).await?;
    ensure!(
        second.log().find("this process leads").is_none(),
        "two agents lead"
    );
    pair.agent.kill().await?;
    let two = world.service(Wanted::new("two").port(80)).await?;
    expect::served(world, &two, &MACHINES).await?;
    one.delete(SOON).await?;
    two.delete(SOON).await
}

async fn while_the_go_controller_holds_the_lease_the_agent_waits(world: &World) -> Result<()> {
    let lease = [
        "--leader-elect-lease-duration=4s",
        "--leader-elect-renew-deadline=3s",
        "--leader-elect-retry-period=500ms",
    ];
    let more = [&["--leader-elect=true"], &lease[..]].concat();
    let mut old = take_over::start(world, Peer::Apache, &more).await?;
    world.nodes().await?;
    let service = world.service(Wanted::new("web").port(80)).await?;
    let (ip, _) = expect::served(world, &service, &MACHINES).await?;
    let _pair = world.pair().await?;
    wait::stays(Duration::from_secs(6), "the new agent writes nothing", || async {
        let rules = world.cloud.inventory().await?.rules_on(&ip);
        Ok(rules.values().all(|rule| !rule.description.contains("kcs1")))
    })
    .await?;
    old.kill().await?;
    wait::until_holds(SOON, "the new agent has taken over", || async {
        let rule = world
            .cloud
            .inventory()
            .await?
            .rules_on(&ip)
            .remove("80")
            .context("the rule is gone")?;
        Ok((!rule.description.contains("kcs1")).then_some(rule.description))
    })
    .await?;
    service.delete(SOON).await
}

/// A second broker beside the first, on a socket of its own.
fn second_broker(world: &World, first: &Broker) -> Result<Broker> {
    Ok(Broker {
        name: "cloud-broker-second".into(),
        joint: world.socket("second")?,
        ..first.clone()
    })
}

async fn an_agent_goes_on_with_its_second_broker_when_the_first_dies(world: &World) -> Result<()> {
    let first = world.broker_plan(world.config()?)?;
    let second = second_broker(world, &first)?;
    let mut agent = world.agent_plan(&first.joint, None).await?;
    if let Joint::Socket(path) = &second.joint {
        agent.more.push(format!("--broker=unix://{}", path.display()));
    }
    let _second = world.start_broker(&second).await?;
    let mut pair = world.pair_of(first, agent).await?;
    world.nodes().await?;
    let one = world.service(Wanted::new("one").port(80)).await?;
    expect::served(world, &one, &MACHINES).await?;
    pair.broker.kill().await?;
    let two = world.service(Wanted::new("two").port(80)).await?;
    expect::served(world, &two, &MACHINES).await?;
    one.delete(SOON).await?;
    two.delete(SOON).await
}

async fn two_agents_with_a_broker_each_end_with_one_address(world: &World) -> Result<()> {
    let first = world.broker_plan(world.config()?)?;
    let second = second_broker(world, &first)?;
    let mut agent = world.agent_plan(&first.joint, None).await?;
    // What leader election prevents, forced: both act at the same time.
    agent.more.push("--leader-elect=false".into());
    let other = Agent {
        name: "k8s-agent-second".into(),
        broker: Some(second.joint.clone()),
        ..agent.clone()
    };
    let _second = world.start_broker(&second).await?;
    let _first = world.pair_of(first, agent).await?;
    let _other = world.start_agent(&other).await?;
    world.nodes().await?;
    let service = world.service(Wanted::new("web").ports(80, 2)).await?;
    // The first address that is shown need not be the one that stays.
    let ip = service.address(SOON).await?;
    wait::until_holds(
        SOON,
        "one address is left, and it is the one that is shown",
        || async {
            let shown = service.ingress().await?;
            let left: Vec<_> = world
                .cloud
                .leftovers()
                .await?
                .into_iter()
                .filter(|line| line.starts_with("new address"))
                .collect();
            let fits = left.len() == 1 && shown.iter().all(|ip| left[0].contains(&format!("\"{ip}\"")));
            Ok((!fits).then(|| format!("shown {shown:?}, before {ip}, held {left:?}")))
        },
    )
    .await?;
    expect::served(world, &service, &MACHINES).await?;
    service.delete(SOON).await?;
    wait::until_holds(SOON, "nothing is left in CloudStack", || async {
        let left = world.cloud.leftovers().await?;
        Ok((!left.is_empty()).then(|| left.join("; ")))
    })
    .await
}

async fn both_halves_answer_for_their_health_over_https(world: &World) -> Result<()> {
    let (mut broker, ports) = (world.broker_plan(world.config()?)?, free_ports()?);
    let mut agent = world.agent_plan(&broker.joint, None).await?;
    broker.more.push(format!("--secure-port={}", ports.0));
    agent.more.push(format!("--secure-port={}", ports.1));
    let _pair = world.pair_of(broker, agent).await?;
    world.nodes().await?;
    // Their certificates are their own: who asks for health has no authority to check them with.
    let http = reqwest::Client::builder()
        .tls_danger_accept_invalid_certs(true)
        .timeout(Duration::from_secs(5))
        .build()?;
    for port in [ports.0, ports.1] {
        for path in ["healthz", "livez", "readyz", "metrics", "configz"] {
            let url = format!("https://127.0.0.1:{port}/{path}");
            let text = wait::until(SOON, format!("{url} answers"), || async {
                let answer = http.get(&url).send().await?.error_for_status()?;
                Ok(Some(answer.text().await?))
            })
            .await?;
            ensure!(!text.is_empty(), "{url} answers nothing");
            for secret in [&world.cloud.client.keys().secret, &world.cloud.client.keys().api] {
                ensure!(!text.contains(secret.as_str()), "{url} shows a secret");
            }
        }
    }
    Ok(())
}

fn free_ports() -> Result<(u16, u16)> {
    Ok((e2e::processes::free_port()?, e2e::processes::free_port()?))
}
