//! The product's two programs, started with the command lines that its users write.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::net::{TcpStream, UnixStream};

use crate::cloud::Keys;
use crate::pki::{Authority, Pair};
use crate::processes::{Process, Program, free_port};
use crate::settings::Settings;
use crate::wait;

/// How long a program may take until it listens.
const START: Duration = Duration::from_secs(30);

/// Waits that a scenario can't afford at their default.
pub const QUICK_AGENT: [&str; 7] = [
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=500ms",
    "--node-monitor-period=1s",
    "--node-status-update-frequency=5s",
    "--node-grace-period=2s",
    "--v=4",
];

/// The text of a cloud-config as the Go controllers read it.
pub fn cloud_config(url: &str, keys: &Keys, more: &str) -> String {
    format!(
        "[Global]\napi-url = {url}\napi-key = {}\nsecret-key = {}\nzone = {}\n{more}",
        keys.api,
        keys.secret,
        crate::cloud::ZONE
    )
}

/// How agent and broker are joined.
#[derive(Debug, Clone)]
pub enum Joint {
    /// A Unix socket, as in one pod.
    Socket(PathBuf),
    /// Mutual TLS over TCP, as with a broker outside the cluster.
    Network(Mutual),
}

/// Everything for a joint by mutual TLS.
#[derive(Debug, Clone)]
pub struct Mutual {
    /// `HOST:PORT` of the broker.
    pub address: String,
    /// The authority of both.
    pub ca: PathBuf,
    /// The broker's pair.
    pub server: Pair,
}

impl Mutual {
    /// On a free loopback port, with a server certificate of this authority.
    pub fn new(authority: &Authority) -> Result<Self> {
        let address = format!("127.0.0.1:{}", free_port()?);
        Ok(Self {
            address,
            ca: authority.ca_file(),
            server: authority.server("broker")?,
        })
    }
}

/// A broker to start.
#[derive(Debug, Clone)]
pub struct Broker {
    /// Its name in reports.
    pub name: String,
    /// Its configuration file.
    pub config: PathBuf,
    /// Where it listens.
    pub joint: Joint,
    /// Further arguments.
    pub more: Vec<String>,
}

impl Broker {
    /// Starts it and returns once it listens.
    pub async fn start(&self, settings: &Settings, dir: &Path) -> Result<Process> {
        let mut process = self.launch(settings, dir).await?;
        let joint = self.joint.clone();
        let listens = wait::until(START, format!("{} listens", self.name), || async {
            Ok(match &joint {
                Joint::Socket(path) => UnixStream::connect(path).await.is_ok().then_some(()),
                Joint::Network(mutual) => TcpStream::connect(&mutual.address).await.is_ok().then_some(()),
            })
        });
        if let Err(error) = listens.await {
            let ended = process.ended()?;
            return Err(error.context(format!("{ended:?}\n{}", process.log().tail(20))));
        }
        Ok(process)
    }

    /// Starts it, whatever becomes of it.
    pub async fn launch(&self, settings: &Settings, dir: &Path) -> Result<Process> {
        let mut program = Program::new(&self.name, settings.binary("cloud-broker")?)
            .arg("--cloud-config")
            .arg(&self.config)
            .arg("--bind-address=127.0.0.1");
        if !self.more.iter().any(|arg| arg.starts_with("--v=")) {
            program = program.arg("--v=4");
        }
        if !self.more.iter().any(|arg| arg.starts_with("--secure-port")) {
            program = program.arg("--secure-port=0");
        }
        program = match &self.joint {
            Joint::Socket(path) => program.arg(format!("--listen=unix://{}", path.display())),
            Joint::Network(mutual) => program
                .arg(format!("--listen=https://{}", mutual.address))
                .arg("--tls-cert-file")
                .arg(&mutual.server.cert)
                .arg("--tls-private-key-file")
                .arg(&mutual.server.key)
                .arg("--client-ca-file")
                .arg(&mutual.ca),
        };
        program.args(&self.more).start(dir).await
    }
}

/// An agent to start.
#[derive(Debug, Clone)]
pub struct Agent {
    /// Its name in reports.
    pub name: String,
    /// Its way into the cluster.
    pub kubeconfig: PathBuf,
    /// Where its broker is; none for backends that need none.
    pub broker: Option<Joint>,
    /// Its client pair, for a joint by mutual TLS.
    pub identity: Option<Pair>,
    /// `--cloud-provider`.
    pub provider: String,
    /// With the short waits that scenarios need, else as users run it.
    pub quick: bool,
    /// Further arguments.
    pub more: Vec<String>,
    /// Environment variables.
    pub env: Vec<(String, String)>,
}

impl Agent {
    /// Starts it.
    pub async fn start(&self, settings: &Settings, dir: &Path) -> Result<Process> {
        let mut program = Program::new(&self.name, settings.binary("k8s-agent")?)
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .arg(format!("--cloud-provider={}", self.provider))
            .arg("--bind-address=127.0.0.1")
            .args(
                QUICK_AGENT
                    .iter()
                    .filter(|flag| self.quick && !self.overrides(flag)),
            );
        if !self.more.iter().any(|arg| arg.starts_with("--secure-port")) {
            program = program.arg("--secure-port=0");
        }
        program = match &self.broker {
            None => program,
            Some(Joint::Socket(path)) => program.arg(format!("--broker=unix://{}", path.display())),
            Some(Joint::Network(mutual)) => {
                let pair = self
                    .identity
                    .as_ref()
                    .context("an agent on the network needs a pair")?;
                program
                    .arg(format!("--broker=https://{}", mutual.address))
                    .arg("--broker-ca-file")
                    .arg(&mutual.ca)
                    .arg("--broker-client-cert-file")
                    .arg(&pair.cert)
                    .arg("--broker-client-key-file")
                    .arg(&pair.key)
            }
        };
        for (name, value) in &self.env {
            program = program.env(name, value);
        }
        program.args(&self.more).start(dir).await
    }

    /// Whether a scenario sets this flag itself.
    fn overrides(&self, flag: &str) -> bool {
        let name = flag.split('=').next().unwrap_or(flag);
        self.more.iter().any(|arg| arg.split('=').next() == Some(name))
    }
}

/// A section that gives a caller on the network its identity and scope.
pub fn cluster_section(name: &str, identity: &str, more: &[(&str, &str)]) -> String {
    let mut text = format!("\n[Cluster \"{name}\"]\nidentity = {identity}\n");
    for (key, value) in more {
        // Writing to a String can't fail.
        let _ = writeln!(text, "{key} = {value}");
    }
    text
}
