//! A network with two nodes on which the real keepalived runs: network namespaces, joined by a bridge with a client on it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::pool::{self, Map};
use crate::processes::{Process, Program};
use crate::runner::Skip;
use crate::settings::on_path;
use crate::wait;
use crate::world::SOON;

/// The interface of every node, as the rendered file names it.
pub const INTERFACE: &str = "vip0";

/// A network of its own: a bridge with a client on it, and two nodes.
#[derive(Debug)]
pub struct Lab {
    ip: PathBuf,
    tag: String,
    dir: PathBuf,
}

/// A node with keepalived on it.
#[derive(Debug)]
pub struct Station {
    /// Its network namespace.
    pub namespace: String,
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
    pub async fn build(dir: &Path) -> Result<Self> {
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

    /// Starts keepalived on a node with this file: its part that holds addresses, since not every kernel has IPVS.
    pub async fn station(&self, node: &str, keepalived: &Path, file: &Path) -> Result<Station> {
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
            .args([
                "--vrrp",
                "--dont-fork",
                "--log-console",
                "--log-detail",
                "--use-file",
            ])
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

    /// Whether a station carries an address.
    pub async fn carries(&self, station: &Station, address: &str) -> Result<bool> {
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

    /// Waits until a station carries an address and answers for it.
    pub async fn answers(&self, station: &Station, address: &str) -> Result<()> {
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

    /// The node dies: its cable, and its processes.
    pub async fn die(&self, station: &mut Station) -> Result<()> {
        self.run(&["-n", &station.namespace, "link", "set", INTERFACE, "down"])
            .await?;
        station.keepalived.kill().await
    }

    /// Waits until one of two stations carries an address, and gives that one first.
    pub async fn holder(&self, address: &str, one: Station, other: Station) -> Result<(Station, Station)> {
        wait::until(SOON, format!("one node carries {address}"), || async {
            Ok((self.carries(&one, address).await? != self.carries(&other, address).await?).then_some(()))
        })
        .await?;
        if self.carries(&one, address).await? {
            Ok((one, other))
        } else {
            Ok((other, one))
        }
    }
}

impl Station {
    /// Makes keepalived read its file again.
    pub async fn reload(&self) -> Result<()> {
        let kill = on_path("kill").ok_or_else(|| Skip::impossible("the command kill is not installed"))?;
        let words = ["-HUP".to_owned(), self.keepalived.pid().to_string()];
        Program::new("kill", kill).args(words).output().await.map(drop)
    }
}

/// What kube-keepalived-vip does when the ConfigMap changes.
pub async fn render(map: &Map, file: &Path) -> Result<()> {
    std::fs::write(file, pool::rendered(&map.entries().await?))?;
    Ok(())
}
