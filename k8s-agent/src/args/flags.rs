//! The flags that have an effect, as clap reads them.

use std::path::PathBuf;

use clap::Parser;
use runtime::admin::AdminArgs;
use runtime::flags::GoDuration;
use runtime::link::LinkAddress;
use runtime::log::LogArgs;

use crate::keepalived::KeepalivedArgs;

/// Port of the health endpoint unless the flags say another one: that of all cloud controllers.
pub const SECURE_PORT: u16 = 10258;
/// Width of the service controller. Kubernetes' own default is 1, for providers that are not safe side by side. Here a worker only waits: the
/// broker does everything of one Service, address or account lock one after the other and keeps the rate, so that a change of the nodes
/// reaches all Services in about the time of one.
const SERVICE_WORKERS: i64 = 32;
/// Width of the node controller.
const NODE_WORKERS: i64 = 10;

/// The half of the cloud controller that faces Kubernetes: initialises and removes nodes, and serves Services of type
/// LoadBalancer, through a broker that faces the cloud.
#[derive(Clone, Debug, Parser)]
#[command(name = "k8s-agent", version, max_term_width = 110)]
#[command(mut_arg("secure_port", |arg| arg.default_value("10258")))]
pub struct Flags {
    /// external-cloudstack, cloudstack or keepalived; decides how provider ids and names are written
    #[arg(long, value_name = "NAME", default_value = "")]
    pub cloud_provider: String,

    /// Name of this cluster, part of the names of load balancers in the cloudstack dialect
    #[arg(long, value_name = "NAME", default_value = "kubernetes")]
    pub cluster_name: String,

    /// Controllers to run: * is all, name runs one, -name does not
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "*",
        allow_hyphen_values = true
    )]
    pub controllers: Vec<String>,

    /// Services worked on at a time
    #[arg(long, value_name = "N", default_value_t = SERVICE_WORKERS, allow_negative_numbers = true)]
    pub concurrent_service_syncs: i64,

    /// Nodes written at a time
    #[arg(long, value_name = "N", default_value_t = NODE_WORKERS, allow_negative_numbers = true)]
    pub concurrent_node_syncs: i64,

    /// Nodes written at a time by the refresh of addresses and labels; 0 is as many as --concurrent-node-syncs
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub concurrent_node_status_updates: i64,

    /// How often addresses and labels of all nodes are compared with the cloud
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub node_status_update_frequency: GoDuration,

    /// How often nodes that are not Ready are looked at
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    pub node_monitor_period: GoDuration,

    /// When nodes are deleted.
    #[command(flatten)]
    pub brake: BrakeFlags,

    /// How names of the cloud become label values: apache removes what is not allowed, leaseweb writes an underscore; follows
    /// --cloud-provider unless given
    #[arg(long, value_name = "DIALECT", value_parser = ["apache", "leaseweb"])]
    pub label_dialect: Option<String>,

    /// The keepalived backend.
    #[command(flatten)]
    pub keepalived: KeepalivedArgs,

    /// kube-apiserver.
    #[command(flatten)]
    pub access: AccessFlags,

    /// Who leads.
    #[command(flatten)]
    pub election: ElectionFlags,

    /// The broker.
    #[command(flatten)]
    pub broker: BrokerFlags,

    /// The HTTPS endpoint.
    #[command(flatten)]
    pub admin: AdminArgs,

    /// Logs.
    #[command(flatten)]
    pub log: LogArgs,
}

/// When nodes are deleted and when that is held.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Deletion of nodes")]
#[expect(clippy::struct_field_names, reason = "the fields are named as the flags are")]
pub struct BrakeFlags {
    /// A node that is not Ready for less is never deleted
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub node_grace_period: GoDuration,

    /// No more nodes are deleted in a minute
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub node_deletions_per_minute: u32,

    /// Deletion is held while more nodes than this, and than the share, stopped being Ready within the window
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub node_brake_minimum: u32,

    /// Share of all nodes for the brake, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 33, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub node_brake_percent: u32,

    /// Window of the brake
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    pub node_brake_window: GoDuration,
}

/// How to reach kube-apiserver.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Kubernetes")]
pub struct AccessFlags {
    /// File with address and credentials of kube-apiserver; the pod's service account unless given
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Address of kube-apiserver, instead of the one in the file
    #[arg(long, value_name = "URL")]
    pub master: Option<String>,

    /// Requests a second; negative is without a limit
    #[arg(long, value_name = "N", default_value_t = 20.0, allow_negative_numbers = true)]
    pub kube_api_qps: f64,

    /// Requests at once
    #[arg(long, value_name = "N", default_value_t = 30, allow_negative_numbers = true)]
    pub kube_api_burst: i64,
}

/// Who leads when several processes run.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Leader election")]
pub struct ElectionFlags {
    /// Act only while holding the lease
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true", action = clap::ArgAction::Set)]
    pub leader_elect: bool,

    /// How long others believe a leader that is silent
    #[arg(long, value_name = "DURATION", default_value = "15s")]
    pub leader_elect_lease_duration: GoDuration,

    /// A leader that could not renew for this long ends
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub leader_elect_renew_deadline: GoDuration,

    /// Time between two attempts
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    pub leader_elect_retry_period: GoDuration,

    /// Kind of the lock; only leases are left
    #[arg(long, value_name = "KIND", default_value = "leases")]
    pub leader_elect_resource_lock: String,

    /// Name of the lease
    #[arg(long, value_name = "NAME", default_value = "cloud-controller-manager")]
    pub leader_elect_resource_name: String,

    /// Namespace of the lease
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    pub leader_elect_resource_namespace: String,

    /// Move controllers out of kube-controller-manager; not offered
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", action = clap::ArgAction::Set)]
    pub enable_leader_migration: bool,
}

/// How to reach the broker.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Broker")]
pub struct BrokerFlags {
    /// Addresses of brokers, tried in order: `unix:///PATH` or `https://HOST:PORT`
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    pub broker: Vec<LinkAddress>,

    /// User ids beside the agent's own and root's whose broker is believed on a Unix socket; may be repeated
    #[arg(long, value_name = "UID", value_delimiter = ',')]
    pub broker_uid: Vec<u32>,

    /// CA of the broker's certificate, in PEM
    #[arg(long, value_name = "FILE")]
    pub broker_ca_file: Option<PathBuf>,

    /// Certificate that says which cluster this is, in PEM
    #[arg(long, value_name = "FILE")]
    pub broker_client_cert_file: Option<PathBuf>,

    /// Its private key, in PEM
    #[arg(long, value_name = "FILE")]
    pub broker_client_key_file: Option<PathBuf>,
}
