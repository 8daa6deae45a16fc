//! What every controller needs, made once at the start.

use k8s_openapi::api::core::v1::{Node, Service};
use kube::Client;
use runtime::host::Host;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::args::Settings;
use crate::broker::Broker;
use crate::election::Leadership;
use crate::events::Recorder;
use crate::metrics::Metrics;
use crate::node::machines::Machines;
use crate::watch::Watch;

/// What every controller needs. Controllers start only after this process leads, and end with [`Context::stop`].
pub struct Context {
    /// The process.
    pub host: Host,
    /// What the command line says.
    pub settings: Settings,
    /// kube-apiserver.
    pub client: Client,
    /// All Nodes.
    pub nodes: Watch<Node>,
    /// All Services.
    pub services: Watch<Service>,
    /// The broker; nothing where only the keepalived backend serves.
    pub broker: Option<Broker>,
    /// What was last heard of the machine behind each node.
    pub machines: Machines,
    /// Events; take the one of your component with [`Recorder::of`].
    pub events: Recorder,
    /// Metrics.
    pub metrics: Metrics,
    /// Whether this process may act.
    pub leadership: Leadership,
    /// Work that the end of the process waits for before it gives the lease up.
    pub work: TaskTracker,
}

impl Context {
    /// Cancelled when no new work should begin.
    pub fn stop(&self) -> CancellationToken {
        self.host.shutdown()
    }
}
