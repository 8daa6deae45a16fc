//! What the flags mean together.

use std::num::NonZeroU32;
use std::time::Duration;

use proto::v1::dialect;
use runtime::admin::AdminArgs;
use runtime::link::LinkAddress;
use runtime::tls::ClientFiles;
use serde_json::{Value, json};

use super::{Controllers, Flags};
use crate::apiserver::Access;
use crate::keepalived::KeepalivedSettings;
use crate::lease::Timing;
use crate::node::labels::Sanitiser;
use crate::node::lifecycle::Rules;

/// Under whose name the process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Provider {
    /// As the Apache controller: `external-cloudstack://<id>`.
    ExternalCloudstack,
    /// As the Leaseweb controller and Cluster API: `cloudstack:///<id>`.
    Cloudstack,
    /// No cloud at all: addresses of Services come from a pool.
    Keepalived,
}

impl Provider {
    /// The word of the flag.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ExternalCloudstack => "external-cloudstack",
            Self::Cloudstack => "cloudstack",
            Self::Keepalived => "keepalived",
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        [Self::ExternalCloudstack, Self::Cloudstack, Self::Keepalived]
            .into_iter()
            .find(|it| it.name() == word)
    }

    /// Whose names new load balancers get.
    pub const fn dialect(self) -> dialect::Kind {
        match self {
            Self::ExternalCloudstack | Self::Keepalived => dialect::Kind::Apache,
            Self::Cloudstack => dialect::Kind::Leaseweb,
        }
    }
}

/// How this process becomes leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectionSettings {
    /// Namespace of the lease.
    pub namespace: String,
    /// Name of the lease.
    pub name: String,
    /// Times.
    pub timing: Timing,
}

/// Where the broker is.
#[derive(Clone, Debug)]
pub struct BrokerSettings {
    /// At least one, tried in order.
    pub addresses: Vec<LinkAddress>,
    /// Certificates; there for every TCP address.
    pub files: Option<ClientFiles>,
    /// Users beside our own and root that are believed on a Unix socket.
    pub uids: Vec<u32>,
}

/// What the command line says, checked.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Under whose name.
    pub provider: Provider,
    /// `--cluster-name`.
    pub cluster_name: String,
    /// Which controllers run.
    pub controllers: Controllers,
    /// Services at a time.
    pub service_workers: usize,
    /// Nodes at a time.
    pub node_workers: usize,
    /// Nodes at a time in the refresh.
    pub status_workers: usize,
    /// Time between two refreshes of all nodes.
    pub status_period: Duration,
    /// Time between two looks at nodes that are not Ready.
    pub monitor_period: Duration,
    /// When nodes are deleted.
    pub rules: Rules,
    /// How label values are made legal.
    pub sanitiser: Sanitiser,
    /// kube-apiserver.
    pub access: Access,
    /// Nothing: no election, this process always acts.
    pub election: Option<ElectionSettings>,
    /// Nothing: no broker is needed.
    pub broker: Option<BrokerSettings>,
    /// Nothing: no address pool is used.
    pub keepalived: Option<KeepalivedSettings>,
    /// The HTTPS endpoint.
    pub admin: AdminArgs,
}

impl TryFrom<Flags> for Settings {
    type Error = Vec<String>;

    /// Checks everything and tells every fault at once.
    fn try_from(flags: Flags) -> Result<Self, Vec<String>> {
        let mut faults = Vec::new();
        let provider = keep(&mut faults, provider(&flags.cloud_provider));
        let controllers = controllers(&mut faults, &flags);
        let service_workers = keep(
            &mut faults,
            workers("concurrent-service-syncs", flags.concurrent_service_syncs),
        );
        let node_workers = keep(
            &mut faults,
            workers("concurrent-node-syncs", flags.concurrent_node_syncs),
        );
        let status_workers = keep(&mut faults, status_workers(flags.concurrent_node_status_updates));
        let status_period = keep(
            &mut faults,
            period(
                "node-status-update-frequency",
                flags.node_status_update_frequency.get(),
            ),
        );
        let monitor_period = keep(
            &mut faults,
            period("node-monitor-period", flags.node_monitor_period.get()),
        );
        let access = keep(&mut faults, access(&flags));
        let election = keep(&mut faults, election(&flags));
        let broker = keep(&mut faults, broker(&flags, provider));
        let keepalived = keep(&mut faults, keepalived(&flags, provider));
        let sanitiser = sanitiser(&flags, provider);
        let settings = (|| {
            let node_workers = node_workers?;
            Some(Self {
                provider: provider?,
                controllers: controllers?,
                service_workers: service_workers?,
                node_workers,
                status_workers: status_workers?.unwrap_or(node_workers),
                status_period: status_period?,
                monitor_period: monitor_period?,
                access: access?,
                election: election?,
                broker: broker?,
                keepalived: keepalived?,
                rules: rules(&flags),
                sanitiser,
                cluster_name: flags.cluster_name,
                admin: flags.admin,
            })
        })();
        settings.filter(|_| faults.is_empty()).ok_or(faults)
    }
}

fn keep<T>(faults: &mut Vec<String>, result: Result<T, String>) -> Option<T> {
    result.map_err(|fault| faults.push(fault)).ok()
}

fn controllers(faults: &mut Vec<String>, flags: &Flags) -> Option<Controllers> {
    let parsed = Controllers::parse(flags.controllers.iter().map(String::as_str));
    parsed
        .map_err(|unknown| faults.extend(unknown.iter().map(ToString::to_string)))
        .ok()
}

fn sanitiser(flags: &Flags, provider: Option<Provider>) -> Sanitiser {
    match flags.label_dialect.as_deref() {
        Some("leaseweb") => Sanitiser::Leaseweb,
        None if provider == Some(Provider::Cloudstack) => Sanitiser::Leaseweb,
        Some(_) | None => Sanitiser::Apache,
    }
}

fn provider(word: &str) -> Result<Provider, String> {
    let known = "external-cloudstack, cloudstack and keepalived";
    match Provider::from_word(word) {
        Some(provider) => Ok(provider),
        None if word.is_empty() => Err(format!("--cloud-provider is required; there are {known}")),
        None => Err(format!(
            "--cloud-provider: \"{word}\" is unknown; there are {known}"
        )),
    }
}

fn workers(flag: &str, value: i64) -> Result<usize, String> {
    usize::try_from(value)
        .ok()
        .filter(|workers| (1..=1000).contains(workers))
        .ok_or_else(|| format!("--{flag} must be 1 to 1000, not {value}"))
}

fn status_workers(value: i64) -> Result<Option<usize>, String> {
    if value == 0 {
        Ok(None)
    } else {
        workers("concurrent-node-status-updates", value).map(Some)
    }
}

fn period(flag: &str, value: Duration) -> Result<Duration, String> {
    if value.is_zero() {
        Err(format!("--{flag} must be more than zero"))
    } else {
        Ok(value)
    }
}

fn rules(flags: &Flags) -> Rules {
    let flags = &flags.brake;
    Rules {
        grace: flags.node_grace_period.get(),
        per_minute: flags.node_deletions_per_minute as usize,
        brake_minimum: flags.node_brake_minimum as usize,
        brake_percent: flags.node_brake_percent as usize,
        brake_window: flags.node_brake_window.get(),
        ..Rules::default()
    }
}

fn access(flags: &Flags) -> Result<Access, String> {
    let flags = &flags.access;
    let unlimited = NonZeroU32::MAX;
    let qps = if flags.kube_api_qps < 0.0 {
        unlimited
    } else {
        // Zero means the default, as in Go. Whole requests are counted.
        let asked = if flags.kube_api_qps == 0.0 {
            20.0
        } else {
            flags.kube_api_qps
        };
        (1..=10_000)
            .find(|whole| f64::from(*whole) >= asked)
            .and_then(NonZeroU32::new)
            .unwrap_or(unlimited)
    };
    let burst = match flags.kube_api_burst {
        0 => NonZeroU32::new(30),
        burst => u32::try_from(burst).ok().and_then(NonZeroU32::new),
    };
    let burst = burst.ok_or_else(|| {
        format!(
            "--kube-api-burst must be more than zero, not {}",
            flags.kube_api_burst
        )
    })?;
    Ok(Access {
        kubeconfig: flags.kubeconfig.clone(),
        master: flags.master.clone(),
        qps,
        burst,
    })
}

fn election(flags: &Flags) -> Result<Option<ElectionSettings>, String> {
    let flags = &flags.election;
    if flags.enable_leader_migration {
        return Err("--enable-leader-migration is not offered: no controller of this program was ever part of kube-controller-manager".into());
    }
    if !flags.leader_elect {
        return Ok(None);
    }
    if flags.leader_elect_resource_lock != "leases" {
        let kind = &flags.leader_elect_resource_lock;
        return Err(format!(
            "--leader-elect-resource-lock: only leases are left, not \"{kind}\""
        ));
    }
    let timing = Timing {
        lease: flags.leader_elect_lease_duration.get(),
        renew_deadline: flags.leader_elect_renew_deadline.get(),
        retry: flags.leader_elect_retry_period.get(),
    };
    let timing = timing.check().map_err(|error| error.to_string())?;
    let (namespace, name) = (
        flags.leader_elect_resource_namespace.clone(),
        flags.leader_elect_resource_name.clone(),
    );
    Ok(Some(ElectionSettings {
        namespace,
        name,
        timing,
    }))
}

fn broker(flags: &Flags, provider: Option<Provider>) -> Result<Option<BrokerSettings>, String> {
    let flags = &flags.broker;
    let files = match (
        &flags.broker_ca_file,
        &flags.broker_client_cert_file,
        &flags.broker_client_key_file,
    ) {
        (Some(ca), Some(certificate), Some(private_key)) => Some(ClientFiles {
            ca: ca.clone(),
            certificate: certificate.clone(),
            private_key: private_key.clone(),
        }),
        (None, None, None) => None,
        _ => {
            let text = "--broker-ca-file, --broker-client-cert-file and --broker-client-key-file belong together: give all three or none";
            return Err(text.into());
        }
    };
    if flags.broker.is_empty() {
        return match provider {
            Some(Provider::ExternalCloudstack | Provider::Cloudstack) => {
                Err("--broker is required: write unix:///PATH or https://HOST:PORT".into())
            }
            Some(Provider::Keepalived) | None => Ok(None),
        };
    }
    let tcp = flags
        .broker
        .iter()
        .find(|address| matches!(address, LinkAddress::Tcp { .. }));
    if let (Some(address), None) = (tcp, &files) {
        return Err(format!(
            "--broker {address} needs --broker-ca-file, --broker-client-cert-file and --broker-client-key-file"
        ));
    }
    Ok(Some(BrokerSettings {
        addresses: flags.broker.clone(),
        files,
        uids: flags.broker_uid.clone(),
    }))
}

/// The keepalived backend runs under its own name always, under another one where it has an address to give.
fn keepalived(flags: &Flags, provider: Option<Provider>) -> Result<Option<KeepalivedSettings>, String> {
    if provider != Some(Provider::Keepalived) && !flags.keepalived.has_pools() {
        return Ok(None);
    }
    flags
        .keepalived
        .settings()
        .map(Some)
        .map_err(|error| error.to_string())
}

impl Settings {
    /// What runs, for `/configz`.
    pub fn describe(&self) -> Value {
        let broker = self
            .broker
            .as_ref()
            .map(|it| it.addresses.iter().map(ToString::to_string).collect::<Vec<_>>());
        let election = self.election.as_ref().map(|it| {
            let Timing {
                lease,
                renew_deadline,
                retry,
            } = it.timing;
            let times = [lease, renew_deadline, retry].map(|time| time.as_secs_f64());
            json!({ "namespace": it.namespace, "name": it.name, "leaseRenewRetrySeconds": times })
        });
        json!({
            "cloudProvider": self.provider.name(),
            "clusterName": self.cluster_name,
            "controllers": self.controllers.iter().map(super::Controller::name).collect::<Vec<_>>(),
            "concurrentServiceSyncs": self.service_workers,
            "concurrentNodeSyncs": self.node_workers,
            "concurrentNodeStatusUpdates": self.status_workers,
            "nodeStatusUpdateFrequencySeconds": self.status_period.as_secs_f64(),
            "nodeMonitorPeriodSeconds": self.monitor_period.as_secs_f64(),
            "nodeDeletion": self.rules.describe(),
            "labelDialect": self.sanitiser.name(),
            "kubeApiQps": self.access.qps,
            "kubeApiBurst": self.access.burst,
            "leaderElection": election,
            "broker": broker,
            "keepalived": self.keepalived.as_ref().map(KeepalivedSettings::describe),
        })
    }
}
