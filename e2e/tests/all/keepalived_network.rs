//! Two real keepalived in network namespaces announce what the agent wrote, as kube-keepalived-vip would make them.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use e2e::pool::{self, Map};
use e2e::processes::{Process, Program};
use e2e::runner::{Layer, Skip};
use e2e::service::Wanted;
use e2e::settings::on_path;
use e2e::wait;
use e2e::world::{SOON, World};
use serde_json::json;

use crate::pool::plan;

e2e::scenarios![Layer::Pool;
    two_keepalived_announce_an_address_and_one_takes_over_when_the_other_dies,
];

/// The interface of every node, as the rendered file names it.
const INTERFACE: &str = "vip0";

/// A network of its own: a bridge with a client on it, and two nodes.
struct Lab {
    ip: PathBuf,
    tag: String,
    dir: PathBuf,
}

/// A node with keepalived on it.
struct Station {
    namespace: String,
    mac: String,
    keepalived: Process,
}

impl Drop for Lab {
    fn drop(&mut self) {
        for name in ["a", "b", "c"] {
            let namespace = self.namespace(name);
            let mut delete = std::process::Command::new(&self.ip);
            let _gone = delete.args(["netns", "delete", &namespace]).output();
        }
    }
}

impl Lab {
    /// Builds the network, or says what is missing for it.
    async fn build(dir: &Path) -> Result<Self> {
        let ip =
            on_path("ip").ok_or_else(|| Skip::impossible("the command ip (iproute2) is not installed"))?;
        let lab = Self {
            ip,
            tag: uuid::Uuid::new_v4().simple().to_string()[..6].to_owned(),
            dir: dir.to_path_buf(),
        };
        let client = lab.namespace("c");
        if let Err(error) = lab.run(&["netns", "add", &client]).await {
            return Err(Skip::impossible(format!(
                "no network namespace can be made here (root is needed): {error:#}"
            ))
            .into());
        }
        lab.run(&["-n", &client, "link", "add", "br0", "type", "bridge"])
            .await?;
        lab.run(&["-n", &client, "addr", "add", "198.51.100.250/24", "dev", "br0"])
            .await?;
        lab.run(&["-n", &client, "link", "set", "br0", "up"]).await?;
        for (node, address) in [("a", "198.51.100.251/24"), ("b", "198.51.100.252/24")] {
            let namespace = lab.namespace(node);
            let port = format!("to-{node}");
            lab.run(&["netns", "add", &namespace]).await?;
            let pair = [
                "-n", &client, "link", "add", &port, "type", "veth", "peer", "name", INTERFACE,
            ];
            lab.run(&[&pair[..], &["netns", &namespace]].concat()).await?;
            lab.run(&["-n", &client, "link", "set", &port, "master", "br0", "up"])
                .await?;
            lab.run(&["-n", &namespace, "addr", "add", address, "dev", INTERFACE])
                .await?;
            lab.run(&["-n", &namespace, "link", "set", "lo", "up"]).await?;
            lab.run(&["-n", &namespace, "link", "set", INTERFACE, "up"])
                .await?;
        }
        Ok(lab)
    }

    fn namespace(&self, name: &str) -> String {
        format!("kv-{}-{name}", self.tag)
    }

    async fn run(&self, words: &[&str]) -> Result<String> {
        let program = Program::new("ip", &self.ip).args(words.iter().map(|word| (*word).to_owned()));
        program.output().await.with_context(|| words.join(" "))
    }

    /// Starts keepalived on a node with this file.
    async fn station(&self, node: &str, keepalived: &Path, file: &Path) -> Result<Station> {
        let namespace = self.namespace(node);
        let link = self
            .run(&["-n", &namespace, "-o", "link", "show", INTERFACE])
            .await?;
        let mac = link
            .split_whitespace()
            .skip_while(|word| *word != "link/ether")
            .nth(1)
            .context("no MAC")?
            .to_owned();
        let pid = |what: &str| {
            self.dir
                .join(format!("keepalived-{node}-{what}.pid"))
                .display()
                .to_string()
        };
        let program = Program::new(format!("keepalived-{node}"), &self.ip)
            .args(["netns", "exec", &namespace])
            .arg(keepalived)
            .args(["--dont-fork", "--log-console", "--log-detail", "--use-file"])
            .arg(file)
            .args([
                "--pid".to_owned(),
                pid("parent"),
                "--vrrp_pid".to_owned(),
                pid("vrrp"),
            ])
            .args(["--checkers_pid".to_owned(), pid("checkers")]);
        let process = program.start(&self.dir).await?;
        Ok(Station {
            namespace,
            mac,
            keepalived: process,
        })
    }

    async fn carries(&self, station: &Station, address: &str) -> Result<bool> {
        let shown = self
            .run(&[
                "-n",
                &station.namespace,
                "-o",
                "-4",
                "addr",
                "show",
                "dev",
                INTERFACE,
            ])
            .await?;
        Ok(shown.contains(&format!("inet {address}/32")))
    }

    /// The MAC that answers for an address, seen from the client.
    async fn answering(&self, address: &str) -> Result<Option<String>> {
        let client = self.namespace("c");
        let send = format!("echo x > /dev/udp/{address}/9");
        let _no_matter = self.run(&["netns", "exec", &client, "bash", "-c", &send]).await;
        let known = self.run(&["-n", &client, "neigh", "show", address]).await?;
        let mac = known
            .split_whitespace()
            .skip_while(|word| *word != "lladdr")
            .nth(1);
        Ok(mac.map(ToOwned::to_owned))
    }

    async fn answers(&self, station: &Station, address: &str) -> Result<()> {
        let what = format!("{} carries {address} and answers for it", station.namespace);
        wait::until_holds(SOON, what, || async {
            if !self.carries(station, address).await? {
                return Ok(Some("it does not carry it".to_owned()));
            }
            let mac = self.answering(address).await?;
            Ok((mac.as_ref() != Some(&station.mac)).then(|| format!("{mac:?} answers, not {}", station.mac)))
        })
        .await
    }
}

/// What kube-keepalived-vip does when the ConfigMap changes.
async fn render(map: &Map, file: &Path) -> Result<()> {
    std::fs::write(file, pool::rendered(&map.entries().await?))?;
    Ok(())
}

async fn reload(station: &Station) -> Result<()> {
    let kill = on_path("kill").ok_or_else(|| Skip::impossible("the command kill is not installed"))?;
    Program::new("kill", kill)
        .args(["-HUP".to_owned(), station.keepalived.pid().to_string()])
        .output()
        .await?;
    Ok(())
}

async fn two_keepalived_announce_an_address_and_one_takes_over_when_the_other_dies(
    world: &World,
) -> Result<()> {
    let keepalived = on_path("keepalived").ok_or_else(|| Skip::missing("keepalived is not installed"))?;
    let lab = Lab::build(&world.dir).await?;
    let map = Map::fresh(&world.cluster, json!({})).await?;
    let _agent = world.start_agent(&plan(world, "198.51.100.0/28").await?).await?;
    // No pod runs here: an address that is announced only needs no endpoints.
    let announced = |name: &str| Wanted::new(name).port(80).annotation(pool::METHOD, "VIP");
    let first = world.service(announced("first")).await?;
    let address = first.address(SOON).await?;
    let file = world.dir.join("keepalived-nodes.conf");
    render(&map, &file).await?;
    let mut stations = vec![
        lab.station("a", &keepalived, &file).await?,
        lab.station("b", &keepalived, &file).await?,
    ];
    wait::until(SOON, format!("one node carries {address}"), || async {
        let a = lab.carries(&stations[0], &address).await?;
        let b = lab.carries(&stations[1], &address).await?;
        Ok((a != b).then_some(()))
    })
    .await?;
    if lab.carries(&stations[1], &address).await? {
        stations.swap(0, 1);
    }
    lab.answers(&stations[0], &address).await?;
    let mut dying = stations.remove(0);
    let survivor = stations.remove(0);
    // The node dies: its process, and its cable.
    lab.run(&["-n", &dying.namespace, "link", "set", INTERFACE, "down"])
        .await?;
    dying.keepalived.kill().await?;
    lab.answers(&survivor, &address).await?;
    let second = world.service(announced("second")).await?;
    let another = second.address(SOON).await?;
    ensure!(another != address, "{address} is given out twice");
    render(&map, &file).await?;
    reload(&survivor).await?;
    lab.answers(&survivor, &another).await?;
    lab.answers(&survivor, &address).await?;
    first.delete(SOON).await?;
    render(&map, &file).await?;
    reload(&survivor).await?;
    wait::until_holds(SOON, format!("{address} is withdrawn"), || async {
        Ok(lab
            .carries(&survivor, &address)
            .await?
            .then(|| "it is still there".to_owned()))
    })
    .await?;
    lab.answers(&survivor, &another).await?;
    second.delete(SOON).await
}
