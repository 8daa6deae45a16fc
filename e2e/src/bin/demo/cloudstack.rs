//! The demo with CloudStack's load balancers: agent and broker as two processes, joined by mutual TLS.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use e2e::cloud::{Cloud, MACHINES, Machine, NETWORK, Router, Simulator, SimulatorOptions, text};
use e2e::cluster::{ANNOTATION, Cluster, addresses};
use e2e::pki::Authority;
use e2e::product::{Broker, Joint, Mutual, cluster_section};
use e2e::rbac;
use e2e::service::{Handle, Wanted};
use e2e::settings::{Settings, on_path};
use e2e::traffic::{self, Backend};
use e2e::wait;
use e2e::world::{Pairing, QUICK_BROKER, SOON, World};
use serde_json::json;

use crate::steps::{Steps, say, until_interrupted};

/// The certificate's name for this cluster.
const IDENTITY: &str = "spiffe://demo.example/cluster/demo";
/// Above 1023, so that the demo needs no root.
const PORT: u16 = 8080;
/// The client's address: not 127.0.0.1, so that it is recognised on the other side.
const CLIENT: &str = "127.0.0.77";

/// Runs it.
pub(crate) async fn run(settings: &Settings, steps: &mut Steps, keep: bool) -> Result<()> {
    let haproxy = on_path("haproxy").is_some();
    let mut world = surroundings(settings, steps, haproxy).await?;
    let pair = halves(&world, steps).await?;
    let shown = show(&world, steps, haproxy).await;
    if let Err(error) = shown {
        say(&format!("\n{}", world.report()));
        return Err(error);
    }
    if keep {
        again(&world, haproxy).await?;
    }
    drop(pair);
    match &mut world.cloud.simulator {
        Some(simulator) => simulator.stop().await,
        None => Ok(()),
    }
}

/// Kubernetes and CloudStack.
async fn surroundings(settings: &Settings, steps: &mut Steps, haproxy: bool) -> Result<World> {
    let dir = settings.dir();
    if dir.exists() {
        std::fs::remove_dir_all(&dir)?;
    }
    let cluster = steps
        .step(
            "Start a Kubernetes control plane: the real etcd and kube-apiserver",
            async {
                let cluster = Cluster::start(&dir.join("kubernetes")).await?;
                let line = format!(
                    "{} answers, kubeconfig {}",
                    cluster.plane.url,
                    cluster.plane.kubeconfig.display()
                );
                Ok((Arc::new(cluster), vec![line]))
            },
        )
        .await?;
    let account = rbac::apply(&cluster).await?;
    let simulator = steps
        .step(
            "Start a simulated CloudStack with one isolated network and machines in it",
            async {
                let router = haproxy.then_some(Router { range: 0 });
                let options = SimulatorOptions {
                    router,
                    ..SimulatorOptions::default()
                };
                let simulator = Simulator::start(settings, &dir.join("simulator"), options).await?;
                let router = if haproxy {
                    "its virtual router is a real HAProxy"
                } else {
                    "without HAProxy: no packets flow"
                };
                let line = format!("{} answers; {router}", simulator.url);
                Ok((simulator, vec![line]))
            },
        )
        .await?;
    let world = World::new(
        settings,
        cluster,
        account,
        Cloud::simulated(simulator).await?,
        "programs",
    )
    .await?;
    steps.api = Some(world.api.clone());
    Ok(world)
}

/// The product.
async fn halves(world: &World, steps: &mut Steps) -> Result<Pairing> {
    steps
        .step("Start broker and agent, joined by mutual TLS", async {
            let authority = Authority::found(&world.subdir("pki"), "demo")?;
            let section = cluster_section("demo", IDENTITY, &[("networks", NETWORK)]);
            let broker = Broker {
                name: "cloud-broker".into(),
                config: world.config_with("cloud-config", &format!("{QUICK_BROKER}{section}"))?,
                joint: Joint::Network(Mutual::new(&authority)?),
                more: Vec::new(),
            };
            let pair = authority.client("demo", IDENTITY)?;
            let agent = world.agent_plan(&broker.joint, Some(pair)).await?;
            let pair = world.pair_of(broker, agent).await?;
            let lines = vec![
                format!(
                    "cloud-broker is process {}: it alone holds the API keys",
                    pair.broker.pid()
                ),
                format!(
                    "k8s-agent is process {}: it has the rights of deploy/ and no key",
                    pair.agent.pid()
                ),
                "waits are shortened for the demo: a node that is not Ready is looked at after 2 s, not 30, and the machine list is 2 s old at most, not 55".into(),
            ];
            Ok((pair, lines))
        })
        .await
}

/// What it does.
async fn show(world: &World, steps: &mut Steps, haproxy: bool) -> Result<()> {
    nodes(world, steps).await?;
    let (service, ip) = service(world, steps).await?;
    let port = node_port(&service).await?;
    let mut backends = Vec::new();
    if haproxy {
        for name in MACHINES {
            backends.push(backend(world, name, port).await?);
        }
    }
    let at = SocketAddr::new(ip.parse()?, PORT);
    packets(steps, at, haproxy).await?;
    let machine = grow(world, steps, &service).await?;
    let name = machine.name.clone();
    if haproxy {
        backends.push(backend(world, &name, port).await?);
        let answers = async {
            let mut all = e2e_set(&MACHINES);
            all.insert(name.clone());
            traffic::reaches(at, &all, SOON).await?;
            Ok(((), vec![format!("http://{at} is answered by {all:?}")]))
        };
        steps
            .step("Ask until the new node's backend has answered too", answers)
            .await?;
    } else {
        steps.skip(
            "Ask until the new node's backend has answered too",
            "haproxy is not installed",
        );
    }
    shrink(world, steps, &service, &machine).await?;
    end(world, steps, &service).await
}

async fn nodes(world: &World, steps: &mut Steps) -> Result<()> {
    let work = async {
        let mut lines = vec![
            "there is no kubelet here: the demo registers the nodes and sets them Ready itself".to_owned(),
        ];
        for name in MACHINES {
            world.cluster.register(name).await?;
        }
        for name in MACHINES {
            let node = world.cluster.initialised(name, SOON).await?;
            let id = node
                .spec
                .as_ref()
                .and_then(|spec| spec.provider_id.clone())
                .unwrap_or_default();
            let inside = addresses(&node)
                .into_iter()
                .find(|(kind, _)| kind == "InternalIP");
            lines.push(format!(
                "{name}: {id}, {}, taint gone",
                inside.unwrap_or_default().1
            ));
        }
        Ok(((), lines))
    };
    steps
        .step(
            "Three machines register as tainted nodes and are initialised",
            work,
        )
        .await
}

async fn service<'a>(world: &'a World, steps: &mut Steps) -> Result<(Handle<'a>, String)> {
    let work = async {
        let proxied = format!("{ANNOTATION}proxy-protocol");
        let service = world
            .service(Wanted::new("web").port(PORT).annotation(&proxied, "true"))
            .await?;
        let ip = service.address(SOON).await?;
        let rules = world.cloud.inventory().await?.rules_on(&ip);
        let rule = rules.values().next().context("an address without a rule")?;
        let lines = vec![
            format!("{}/web has the address {ip}", world.namespace),
            format!(
                "rule {} sends port {} to node port {} of {:?}",
                rule.name, rule.port, rule.private_port, rule.members
            ),
        ];
        Ok(((service, ip), lines))
    };
    steps
        .step(
            "A Service of type LoadBalancer, with the PROXY protocol, gets its address",
            work,
        )
        .await
}

async fn packets(steps: &mut Steps, at: SocketAddr, haproxy: bool) -> Result<()> {
    let title = "An HTTP request to that address arrives at a backend, with the client's address";
    if !haproxy {
        steps.skip(title, "haproxy is not installed (apt-get install haproxy)");
        return Ok(());
    }
    let work = async {
        let from: IpAddr = CLIENT.parse()?;
        let seen = wait::until(SOON, "an answer", || async {
            traffic::request(at, Some(from)).await.map(Some)
        })
        .await?;
        ensure!(seen.client() == Some(CLIENT), "the backend saw {seen:?}");
        let lines = vec![
            format!("from {CLIENT} to http://{at}: answered by {}", seen.backend),
            format!("the backend read: {}", seen.proxy.unwrap_or_default()),
        ];
        Ok(((), lines))
    };
    steps.step(title, work).await
}

async fn grow(world: &World, steps: &mut Steps, service: &Handle<'_>) -> Result<Machine> {
    let name = "node-4".to_owned();
    let work = async {
        let machine = world.cloud.add_machine(&name).await?;
        world.cluster.register(&name).await?;
        world.cluster.initialised(&name, SOON).await?;
        members(world, service, &name, true).await?;
        Ok((
            machine,
            vec![format!("{name} is initialised and a member of the load balancer")],
        ))
    };
    steps.step("A fourth machine joins", work).await
}

async fn shrink(world: &World, steps: &mut Steps, service: &Handle<'_>, machine: &Machine) -> Result<()> {
    let name = machine.name.as_str();
    let work = async {
        world.cloud.destroy_machine(machine).await?;
        world.cluster.set_ready(name, false).await?;
        wait::until_holds(SOON, format!("node {name} is gone"), || async {
            Ok(world.cluster.node(name).await?.map(|_| "it is there".to_owned()))
        })
        .await?;
        members(world, service, name, false).await?;
        Ok((
            (),
            vec![format!(
                "the Node {name} was deleted on proof; the other three are as they were"
            )],
        ))
    };
    steps
        .step(
            "The fourth machine is destroyed, and its node stops being Ready",
            work,
        )
        .await
}

/// Waits until a machine is, or is no longer, a member.
async fn members(world: &World, service: &Handle<'_>, name: &str, wanted: bool) -> Result<()> {
    wait::until_holds(SOON, format!("membership of {name} is {wanted}"), || async {
        let rules = world
            .cloud
            .inventory()
            .await?
            .rules_of(&service.load_balancer_name());
        let fits = !rules.is_empty() && rules.values().all(|rule| rule.members.contains(name) == wanted);
        Ok((!fits).then(|| format!("{rules:?}")))
    })
    .await
}

async fn end(world: &World, steps: &mut Steps, service: &Handle<'_>) -> Result<()> {
    let work = async {
        service.delete(SOON).await?;
        world.nothing_left().await?;
        world.no_secrets_printed()?;
        let lines = vec![
            "no address, rule or firewall rule is left in CloudStack".to_owned(),
            "no key, secret or signature stands in any output".to_owned(),
        ];
        Ok(((), lines))
    };
    steps.step("The Service is deleted", work).await
}

async fn backend(world: &World, name: &str, port: u16) -> Result<Backend> {
    let ip: IpAddr = text(&world.cloud.machine(name).await?["nic"][0], "ipaddress").parse()?;
    Backend::listen(name, SocketAddr::new(ip, port)).await
}

async fn node_port(service: &Handle<'_>) -> Result<u16> {
    let ports = service
        .get()
        .await?
        .spec
        .and_then(|spec| spec.ports)
        .unwrap_or_default();
    let port = ports
        .first()
        .and_then(|port| port.node_port)
        .context("no node port")?;
    Ok(u16::try_from(port)?)
}

fn e2e_set(names: &[&str]) -> std::collections::BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Makes the Service again and says what to try.
async fn again(world: &World, haproxy: bool) -> Result<()> {
    let service = world
        .service(Wanted::new("web").port(PORT).with(json!({})))
        .await?;
    let ip = service.address(SOON).await?;
    let port = node_port(&service).await?;
    let mut backends = Vec::new();
    if haproxy {
        for name in MACHINES {
            backends.push(backend(world, name, port).await?);
        }
    }
    let kubeconfig = world.cluster.plane.kubeconfig.display();
    let kubectl =
        on_path("kubectl").map_or_else(|| world.cluster.plane.kubectl_words(), |_| "kubectl".into());
    say(&format!("\nTry:\n  export KUBECONFIG={kubeconfig}"));
    say(&format!(
        "  {kubectl} get nodes -o wide\n  {kubectl} -n {} get service web -o yaml",
        world.namespace
    ));
    say(&format!(
        "  {kubectl} -n {} describe service web",
        world.namespace
    ));
    if haproxy {
        say(&format!("  curl http://{ip}:{PORT}"));
    }
    say(&format!("Logs: {}", world.dir.display()));
    until_interrupted().await
}
