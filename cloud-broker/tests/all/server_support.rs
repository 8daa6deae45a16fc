//! A whole broker in this process, a simulator behind it, and an agent's end of its socket.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser as _;
use cloud_broker::args::Args;
use cloud_broker::cloudstack::Pace;
use cloudstack_simulator::{Handle, Seed, Simulator};
use proto::Fault;
use proto::v1::cloud_broker_client::CloudBrokerClient;
use proto::v1::{
    Caller, DescribeRequest, DescribeResponse, InstanceKey, InstanceResult, LookupInstancesRequest, finding,
    instance_result,
};
use runtime::host::Host;
use runtime::link::{Link, LinkAddress};
use tonic::transport::Channel;

use super::client_support::until;

/// The account of most tests, with three machines in one network.
pub(crate) fn seed() -> Seed {
    Seed::builder()
        .account("demo")
        .network("demo", "k8s", "127.101.0.0/24")
        .machines("k8s", "node-", 3)
        .build()
}

pub(crate) async fn simulator(seed: Seed) -> Handle {
    runtime::host::install_tls_provider();
    Simulator::start_with_seed(seed).await.unwrap()
}

/// The configuration of one caller, and more lines of `[Global]`.
pub(crate) fn config(simulator: &Handle, caller: &str, more: &str) -> String {
    let keys = simulator.keys(caller).unwrap();
    format!(
        "[Global]\napi-url = {}\napi-key = {}\nsecret-key = {}\nvm-cache-ttl = 0\n{more}\n",
        simulator.url(),
        keys.api_key,
        keys.secret_key
    )
}

/// A command line.
pub(crate) fn args(flags: &[&str]) -> Args {
    runtime::host::install_tls_provider();
    Args::try_parse_from(std::iter::once("cloud-broker").chain(flags.iter().copied())).unwrap()
}

/// A running broker.
pub(crate) struct Running {
    pub(crate) host: Host,
    folder: tempfile::TempDir,
    ended: tokio::sync::oneshot::Receiver<anyhow::Result<()>>,
}

impl Running {
    pub(crate) async fn start(config: &str) -> Self {
        Self::start_with(config, &[]).await
    }

    /// With files beside the configuration.
    pub(crate) async fn start_with_files(config: &str, files: &[(&str, &str)]) -> Self {
        Self::start_in(config, files, &[]).await
    }

    /// With more of a command line; `{}` in it is the folder of the configuration.
    pub(crate) async fn start_with(config: &str, flags: &[&str]) -> Self {
        Self::start_in(config, &[], flags).await
    }

    async fn start_in(config: &str, files: &[(&str, &str)], flags: &[&str]) -> Self {
        runtime::host::install_tls_provider();
        let folder = tempfile::tempdir().unwrap();
        let host = Host::new();
        std::fs::write(folder.path().join("cloud.conf"), config).unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let at = folder.path().display().to_string();
        let mut line: Vec<String> = [
            "cloud-broker",
            "--cloud-config",
            "{}/cloud.conf",
            "--secure-port",
            "0",
        ]
        .iter()
        .chain(flags)
        .map(|word| word.replace("{}", &at))
        .collect();
        if !flags.contains(&"--listen") {
            line.extend(["--listen".to_owned(), format!("unix://{at}/run/broker.sock")]);
        }
        let args = Args::try_parse_from(line).unwrap();
        let (send, mut ended) = tokio::sync::oneshot::channel();
        let running = host.clone();
        host.spawn("broker", async move {
            let _ = send.send(cloud_broker::run_at(running, args, Pace::scaled(0.01)).await);
        });
        until(|| match ended.try_recv() {
            Ok(result) => panic!("the broker ended: {result:?}"),
            Err(_) => host.health().ready(true, &[]).text.contains("[+]listening ok"),
        })
        .await;
        Self { host, folder, ended }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("run/broker.sock")
    }

    pub(crate) fn agent(&self) -> Agent {
        Agent::new(Link::connect(&self.host, vec![LinkAddress::Unix(self.socket())], None).channel())
    }

    /// The number that a line of the scrape ends with.
    pub(crate) fn metric(&self, line: &str) -> Option<f64> {
        let scrape = self.host.scrape();
        scrape
            .lines()
            .find_map(|text| text.strip_prefix(line)?.trim().parse().ok())
    }

    pub(crate) async fn stop(self) {
        assert_eq!(self.host.finish(Duration::from_secs(10)).await, None);
        self.ended.await.unwrap().unwrap();
    }
}

/// An agent's end.
#[derive(Clone)]
pub(crate) struct Agent {
    pub(crate) client: CloudBrokerClient<Channel>,
    pub(crate) caller: Caller,
}

impl Agent {
    pub(crate) fn new(channel: Channel) -> Self {
        let caller = Caller {
            cluster_uid: "cluster-1".into(),
            process_id: "p1".into(),
            version: "test".into(),
        };
        Self {
            client: CloudBrokerClient::new(channel),
            caller,
        }
    }

    pub(crate) fn saying(&self, uid: &str) -> Self {
        let caller = Caller {
            cluster_uid: uid.into(),
            ..self.caller.clone()
        };
        Self {
            caller,
            ..self.clone()
        }
    }

    pub(crate) async fn describe(&self) -> Result<DescribeResponse, Fault> {
        let request = DescribeRequest {
            caller: Some(self.caller.clone()),
        };
        Ok(self.client.clone().describe(request).await?.into_inner())
    }

    pub(crate) async fn look_up(&self, keys: Vec<InstanceKey>) -> Result<Vec<InstanceResult>, Fault> {
        let request = LookupInstancesRequest {
            caller: Some(self.caller.clone()),
            keys,
        };
        Ok(self
            .client
            .clone()
            .lookup_instances(request)
            .await?
            .into_inner()
            .results)
    }

    pub(crate) async fn look_up_one(&self, key: InstanceKey) -> instance_result::Presence {
        let mut results = self.look_up(vec![key]).await.unwrap();
        assert_eq!(results.len(), 1);
        results.remove(0).presence.unwrap()
    }

    /// Reasons of the present findings of a severity.
    pub(crate) async fn findings(&self, severity: finding::Severity) -> Vec<String> {
        let findings = self.describe().await.unwrap().findings;
        findings
            .into_iter()
            .filter(|finding| finding.severity() == severity)
            .map(|finding| finding.reason)
            .collect()
    }
}

/// A key as an agent has it before the node has a provider id.
pub(crate) fn named(name: &str) -> InstanceKey {
    InstanceKey {
        node_uid: format!("uid-{name}"),
        node_name: name.to_owned(),
        ..InstanceKey::default()
    }
}

/// A key as an agent has it afterwards.
pub(crate) fn with_id(name: &str, id: &str) -> InstanceKey {
    InstanceKey {
        machine_id: Some(id.to_owned()),
        ..named(name)
    }
}

/// The same, of a node that has not been Ready for a minute.
pub(crate) fn not_ready(key: InstanceKey) -> InstanceKey {
    not_ready_for(key, Duration::from_mins(1))
}

/// The same, of a node that has not been Ready for so long.
pub(crate) fn not_ready_for(key: InstanceKey, ago: Duration) -> InstanceKey {
    InstanceKey {
        not_ready_for: prost_types::Duration::try_from(ago).ok(),
        ..key
    }
}
