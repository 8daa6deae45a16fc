//! One scenario's surroundings: a cluster, a CloudStack, the counting proxy before it, and the programs under test.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use parking_lot::Mutex;
use serde_json::json;

use crate::cloud::{Cloud, MACHINES};
use crate::cluster::Cluster;
use crate::link::Link;
use crate::pki::Pair;
use crate::processes::{Log, Process, leaks};
use crate::product::{Agent, Broker, Joint, cloud_config};
use crate::proxy::Proxy;
use crate::rbac::Account;
use crate::service::{Handle, Wanted};
use crate::settings::Settings;

/// What a condition may take on a busy machine.
pub const SOON: Duration = Duration::from_mins(1);

/// Settings of the broker that scenarios can't afford at their default.
pub const QUICK_BROKER: &str = "vm-cache-ttl = 2\n";

/// A scenario's surroundings.
#[derive(Debug)]
pub struct World {
    /// The run's settings.
    pub settings: Settings,
    /// The cluster, empty at the start.
    pub cluster: Arc<Cluster>,
    /// The CloudStack.
    pub cloud: Cloud,
    /// The proxy before its API.
    pub api: Proxy,
    /// A namespace of this scenario's own.
    pub namespace: String,
    /// Folder for logs and files.
    pub dir: PathBuf,
    account: Account,
    sockets: tempfile::TempDir,
    logs: Mutex<Vec<Arc<Log>>>,
    secrets: Mutex<Vec<(String, String)>>,
}

/// Broker and agent, running.
#[derive(Debug)]
pub struct Pairing {
    /// How the broker was started.
    pub broker_plan: Broker,
    /// How the agent was started.
    pub agent_plan: Agent,
    /// The broker.
    pub broker: Process,
    /// The agent.
    pub agent: Process,
}

impl World {
    /// Builds the surroundings of a scenario.
    pub async fn new(
        settings: &Settings,
        cluster: Arc<Cluster>,
        account: Account,
        cloud: Cloud,
        name: &str,
    ) -> Result<Self> {
        let dir = settings.dir().join("logs").join(name);
        if dir.exists() {
            std::fs::remove_dir_all(&dir)?;
        }
        std::fs::create_dir_all(&dir)?;
        let api = Proxy::before(&cloud.url, None).await?;
        let namespace = format!("s{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
        cluster.namespace(&namespace).await?;
        let keys = cloud.client.keys();
        let secrets = vec![
            ("secret key".to_owned(), keys.secret.clone()),
            ("API key".to_owned(), keys.api.clone()),
        ];
        Ok(Self {
            settings: settings.clone(),
            cluster,
            cloud,
            api,
            namespace,
            dir,
            account,
            // A socket's path may have 107 bytes; folders of a project tend to be longer.
            sockets: tempfile::TempDir::with_prefix("e2e-")?,
            logs: Mutex::default(),
            secrets: Mutex::new(secrets),
        })
    }

    /// Writes a file of this scenario.
    pub fn file(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.dir.join(name);
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }

    /// The plain cloud-config: the proxy's address and the account's keys, and a machine list that is read anew after
    /// two seconds, because no scenario can wait for two reads a minute apart.
    pub fn config(&self) -> Result<PathBuf> {
        self.config_with("cloud-config", QUICK_BROKER)
    }

    /// The same with more lines, in a file of this name.
    pub fn config_with(&self, name: &str, more: &str) -> Result<PathBuf> {
        self.file(name, &cloud_config(&self.api.url, self.cloud.client.keys(), more))
    }

    /// Something that must not stand in any output.
    pub fn secret(&self, what: &str, text: &str) {
        self.secrets.lock().push((what.to_owned(), text.to_owned()));
    }

    /// A kubeconfig with the rights of the manifests.
    pub async fn kubeconfig(&self) -> Result<PathBuf> {
        self.kubeconfig_through(&self.cluster.plane.url, "agent.kubeconfig")
            .await
    }

    /// The same through a link that can be cut.
    pub async fn kubeconfig_over(&self, link: &Link) -> Result<PathBuf> {
        let url = format!("https://127.0.0.1:{}", link.port());
        self.kubeconfig_through(&url, "agent-link.kubeconfig").await
    }

    async fn kubeconfig_through(&self, url: &str, name: &str) -> Result<PathBuf> {
        self.account
            .kubeconfig(&self.cluster, url, &self.dir.join(name))
            .await
    }

    /// A path for a Unix socket.
    pub fn socket(&self, name: &str) -> Result<Joint> {
        let dir = self.sockets.path().join(name);
        if !dir.exists() {
            std::fs::create_dir_all(&dir)?;
            std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700))?;
        }
        Ok(Joint::Socket(dir.join("broker.sock")))
    }

    /// A broker on a Unix socket with this configuration, not started.
    pub fn broker_plan(&self, config: PathBuf) -> Result<Broker> {
        Ok(Broker {
            name: "cloud-broker".into(),
            config,
            joint: self.socket("pod")?,
            more: Vec::new(),
        })
    }

    /// An agent for that broker, not started.
    pub async fn agent_plan(&self, joint: &Joint, identity: Option<Pair>) -> Result<Agent> {
        Ok(Agent {
            name: "k8s-agent".into(),
            kubeconfig: self.kubeconfig().await?,
            broker: Some(joint.clone()),
            identity,
            provider: "external-cloudstack".into(),
            quick: true,
            more: Vec::new(),
            env: Vec::new(),
        })
    }

    /// Starts both halves as the two containers of one pod.
    pub async fn pair(&self) -> Result<Pairing> {
        let broker = self.broker_plan(self.config()?)?;
        let agent = self.agent_plan(&broker.joint, None).await?;
        self.pair_of(broker, agent).await
    }

    /// Starts both halves as planned.
    pub async fn pair_of(&self, broker_plan: Broker, agent_plan: Agent) -> Result<Pairing> {
        let broker = self.start_broker(&broker_plan).await?;
        let agent = self.start_agent(&agent_plan).await?;
        Ok(Pairing {
            broker_plan,
            agent_plan,
            broker,
            agent,
        })
    }

    /// Starts a broker.
    pub async fn start_broker(&self, plan: &Broker) -> Result<Process> {
        let process = plan.start(&self.settings, &self.dir).await?;
        Ok(self.watched(process))
    }

    /// Starts a broker that may refuse to.
    pub async fn launch_broker(&self, plan: &Broker) -> Result<Process> {
        let process = plan.launch(&self.settings, &self.dir).await?;
        Ok(self.watched(process))
    }

    /// Starts an agent.
    pub async fn start_agent(&self, plan: &Agent) -> Result<Process> {
        let process = plan.start(&self.settings, &self.dir).await?;
        Ok(self.watched(process))
    }

    /// Takes a process's output into the report and the search for secrets.
    pub fn watched(&self, process: Process) -> Process {
        self.logs.lock().push(Arc::clone(process.log()));
        process
    }

    /// Registers the three machines of the network as Nodes and waits until they are initialised.
    pub async fn nodes(&self) -> Result<()> {
        for name in MACHINES {
            self.cluster.register(name).await?;
        }
        for name in MACHINES {
            self.cluster.initialised(name, SOON).await?;
        }
        Ok(())
    }

    /// Registers machines that an earlier controller has initialised already.
    pub async fn initialised_nodes(&self, scheme: &str) -> Result<()> {
        for name in MACHINES {
            let id = self.cloud.machine_id(name).await?;
            let node = json!({"spec": {"taints": [], "providerID": format!("{scheme}{id}")}});
            self.cluster.register_with(name, node).await?;
        }
        Ok(())
    }

    /// Creates a Service.
    pub async fn service(&self, wanted: Wanted) -> Result<Handle<'_>> {
        Handle::create(&self.cluster, &self.namespace, wanted).await
    }

    /// All logs of this scenario.
    pub fn logs(&self) -> Vec<Arc<Log>> {
        self.logs.lock().clone()
    }

    /// Fails when something is left in CloudStack that was not there before, or something that was is missing.
    pub async fn nothing_left(&self) -> Result<()> {
        let left = self.cloud.leftovers().await?;
        ensure!(
            left.is_empty(),
            "CloudStack is not as before:\n  {}",
            left.join("\n  ")
        );
        Ok(())
    }

    /// Fails when a key, secret or signature stands in any output of this scenario.
    pub fn no_secrets_printed(&self) -> Result<()> {
        let mut secrets = self.secrets.lock().clone();
        secrets.extend(
            self.api
                .signatures()
                .into_iter()
                .map(|text| ("signature".to_owned(), text)),
        );
        secrets.sort();
        secrets.dedup();
        let ours: Vec<_> = self
            .logs()
            .into_iter()
            .filter(|log| !log.name.contains("-ccm-"))
            .collect();
        let found = leaks(&ours, &secrets);
        ensure!(found.is_empty(), "secrets in the output: {}", found.join(", "));
        Ok(())
    }

    /// What to print when the scenario failed.
    pub fn report(&self) -> String {
        let mut lines = Vec::new();
        for log in self.logs() {
            lines.push(format!(
                "  -- {} ({})\n{}",
                log.name,
                log.path.display(),
                log.tail(25)
            ));
        }
        let calls = self.api.calls();
        lines.push(format!("  -- last of {} CloudStack calls", calls.len()));
        for call in calls.iter().skip(calls.len().saturating_sub(25)) {
            lines.push(format!("    {} {} {:?}", call.status, call.command, call.params));
        }
        lines.join("\n")
    }

    /// A folder for a second cluster and the like.
    pub fn subdir(&self, name: &str) -> PathBuf {
        Path::new(&self.dir).join(name)
    }
}

impl Pairing {
    /// Kills the agent and starts it again.
    pub async fn restart_agent(&mut self, world: &World) -> Result<()> {
        self.agent.kill().await?;
        self.agent = world.start_agent(&self.agent_plan).await?;
        Ok(())
    }

    /// Kills the broker and starts it again.
    pub async fn restart_broker(&mut self, world: &World) -> Result<()> {
        self.broker.kill().await?;
        self.broker = world.start_broker(&self.broker_plan).await?;
        Ok(())
    }

    /// Stops both as Kubernetes does.
    pub async fn stop(&mut self) -> Result<()> {
        self.agent.stop(SOON).await?;
        self.broker.stop(SOON).await?;
        Ok(())
    }
}
