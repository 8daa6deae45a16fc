//! The demo with addresses from a pool, announced by keepalived: no broker and no CloudStack.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use e2e::cluster::Cluster;
use e2e::lab::{Lab, render};
use e2e::pool::{self, Map};
use e2e::product::Agent;
use e2e::rbac;
use e2e::service::{Handle, Wanted};
use e2e::settings::{Settings, on_path};
use e2e::wait;
use e2e::world::SOON;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use serde_json::json;

use crate::steps::{Steps, say, until_interrupted};

/// Where kube-keepalived-vip reads.
const NAMESPACE: &str = "kube-system";
const CONFIG_MAP: &str = "vip-configmap";
const POOL: &str = "198.51.100.0/28";

/// Runs it.
pub(crate) async fn run(settings: &Settings, steps: &mut Steps, keep: bool) -> Result<()> {
    let dir = settings.dir();
    if dir.exists() {
        std::fs::remove_dir_all(&dir)?;
    }
    let cluster = steps
        .step(
            "Start a Kubernetes control plane: the real etcd and kube-apiserver",
            async {
                let cluster = Cluster::start(&dir.join("kubernetes")).await?;
                let line = format!("{} answers", cluster.plane.url);
                Ok((Arc::new(cluster), vec![line]))
            },
        )
        .await?;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), NAMESPACE);
    let agent = steps
        .step(
            "Start the agent with the environment of keepalived-cloud-provider",
            async {
                let empty = serde_json::from_value(json!({"metadata": {"name": CONFIG_MAP}}))?;
                maps.create(&PostParams::default(), &empty).await?;
                let account = rbac::apply_folder(&cluster, "deploy/keepalived").await?;
                let kubeconfig = account
                    .kubeconfig(&cluster, &cluster.plane.url, &dir.join("agent.kubeconfig"))
                    .await?;
                let agent = plan(kubeconfig).start(settings, &dir).await?;
                let line = format!("k8s-agent is process {}; the pool is {POOL}", agent.pid());
                Ok((agent, vec![line]))
            },
        )
        .await?;
    cluster.namespace("demo").await?;
    let shown = Box::pin(show(&cluster, &maps, steps, &dir)).await;
    if let Err(error) = shown {
        say(&format!("\n{}", agent.log().tail(40)));
        return Err(error);
    }
    if keep {
        Handle::create(&cluster, "demo", Wanted::new("web").port(80))
            .await?
            .address(SOON)
            .await?;
        let kubectl = cluster.plane.kubectl_words();
        say(&format!(
            "\nTry:\n  export KUBECONFIG={}",
            cluster.plane.kubeconfig.display()
        ));
        say(&format!("  {kubectl} -n demo get service web"));
        say(&format!(
            "  {kubectl} -n {NAMESPACE} get configmap {CONFIG_MAP} -o yaml"
        ));
        until_interrupted().await?;
    }
    drop(agent);
    Ok(())
}

fn plan(kubeconfig: std::path::PathBuf) -> Agent {
    let env = [
        ("KEEPALIVED_NAMESPACE", NAMESPACE),
        ("KEEPALIVED_CONFIG_MAP", CONFIG_MAP),
        ("KEEPALIVED_SERVICE_CIDR", POOL),
        ("KEEPALIVED_DEFAULT_FORWARD_METHOD", "NAT"),
    ];
    Agent {
        name: "k8s-agent".into(),
        kubeconfig,
        broker: None,
        identity: None,
        provider: "keepalived".into(),
        quick: true,
        more: vec!["--leader-elect-resource-name=keepalived-cloud-provider".into()],
        env: env
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
    }
}

async fn show(cluster: &Cluster, maps: &Api<ConfigMap>, steps: &mut Steps, dir: &Path) -> Result<()> {
    let (service, ip) = steps
        .step(
            "A Service of type LoadBalancer gets an address from the pool",
            async {
                let service = Handle::create(cluster, "demo", Wanted::new("web").port(80)).await?;
                let ip = service.address(SOON).await?;
                Ok((
                    (service, ip.clone()),
                    vec![format!("demo/web has the address {ip}")],
                ))
            },
        )
        .await?;
    steps
        .step("kube-keepalived-vip finds it in the ConfigMap", async {
            let entry = entries(maps)
                .await?
                .remove(&ip)
                .context("the address is not in the ConfigMap")?;
            ensure!(entry.starts_with("demo/web"), "the entry is {entry}");
            Ok(((), vec![format!("{ip}: {entry}")]))
        })
        .await?;
    let title = "The configuration made from it passes keepalived's own check";
    match on_path("keepalived") {
        None => steps.skip(title, "keepalived is not installed (apt-get install keepalived)"),
        Some(program) => {
            steps
                .step(title, async {
                    pool::checked(&program, dir, &entries(maps).await?).await?;
                    let file = dir.join("keepalived.conf");
                    Ok(((), vec![format!("keepalived accepts {}", file.display())]))
                })
                .await?;
        }
    }
    Box::pin(announce(cluster, steps, dir)).await?;
    steps
        .step("The Service is deleted", async {
            service.delete(SOON).await?;
            wait::until_holds(SOON, "the entry is gone", || async {
                Ok(entries(maps).await?.remove(&ip))
            })
            .await?;
            Ok((
                (),
                vec!["its entry is gone from the ConfigMap, the address is free again".to_owned()],
            ))
        })
        .await
}

async fn entries(maps: &Api<ConfigMap>) -> Result<std::collections::BTreeMap<String, String>> {
    Ok(maps.get(CONFIG_MAP).await?.data.unwrap_or_default())
}

/// Real keepalived on two nodes: the address is announced, and moves when a node dies.
async fn announce(cluster: &Cluster, steps: &mut Steps, dir: &Path) -> Result<()> {
    let title =
        "Two nodes run the real keepalived: one announces the address, the other takes over when it dies";
    let Some(keepalived) = on_path("keepalived") else {
        steps.skip(title, "keepalived is not installed (apt-get install keepalived)");
        return Ok(());
    };
    let lab = match Lab::build(dir).await {
        Ok(lab) => lab,
        Err(error) => {
            steps.skip(title, &format!("{error:#}"));
            return Ok(());
        }
    };
    let shown = take_over(cluster, &lab, &keepalived, dir);
    steps.step(title, Box::pin(shown)).await
}

async fn take_over(cluster: &Cluster, lab: &Lab, keepalived: &Path, dir: &Path) -> Result<((), Vec<String>)> {
    // No pod runs here: with this method an address is announced without any.
    let wanted = Wanted::new("announced").port(80).annotation(pool::METHOD, "VIP");
    let service = Handle::create(cluster, "demo", wanted).await?;
    let ip = service.address(SOON).await?;
    let file = dir.join("nodes.conf");
    render(&Map::of(cluster), &file).await?;
    let one = lab.station("a", keepalived, &file).await?;
    let other = lab.station("b", keepalived, &file).await?;
    let (mut first, second) = lab.holder(&ip, one, other).await?;
    lab.answers(&first, &ip).await?;
    let before = format!("{} carries {ip} and answers for it", first.namespace);
    lab.die(&mut first).await?;
    lab.answers(&second, &ip).await?;
    let after = format!(
        "{} dies; {} carries {ip} and answers for it",
        first.namespace, second.namespace
    );
    service.delete(SOON).await?;
    Ok(((), vec![before, after]))
}
