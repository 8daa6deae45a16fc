//! Events that people see with `kubectl describe`: their reasons, and how they are written.
//!
//! Type and reason are the contract and all stand in [`TABLE`]; texts are for people. Events are core/v1 objects, since
//! that is what the `ClusterRole` grants. An event that can't be written never fails the work it tells of: [`Recorder`] takes it without
//! waiting, and drops it when too many wait. What is merged or held back is decided in `correlate`.

mod correlate;
mod writer;

use std::borrow::Cow;
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, ObjectReference, Service};
use kube::{Resource, ResourceExt as _};
use tokio::sync::mpsc;

use crate::metrics::Metrics;

pub use writer::Writer;

/// Events that wait to be written; more are dropped.
const WAITING: usize = 1000;

/// Trouble that lasts is told again after this time: Kubernetes forgets an event after an hour.
pub const REMINDER: Duration = Duration::from_mins(30);

/// Whether something that was told at this time and still holds is to be told again.
pub fn is_due_again(told: Instant, now: Instant) -> bool {
    now.saturating_duration_since(told) >= REMINDER
}

/// Whether an event tells of the usual or of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// As it should be.
    Normal,
    /// Somebody should look.
    Warning,
}

impl Kind {
    /// The word in the event.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Who tells it: `source.component` of the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Component {
    /// Initialises nodes.
    Node,
    /// Deletes and taints nodes.
    NodeLifecycle,
    /// Serves Services.
    Service,
    /// The process itself.
    Process,
}

impl Component {
    /// The name in the event; the Go controllers' names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Node => "cloud-node-controller",
            Self::NodeLifecycle => "cloud-node-lifecycle-controller",
            Self::Service => "service-controller",
            Self::Process => "cloud-controller-manager",
        }
    }
}

/// Type and reason of an event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reason {
    /// Normal or Warning.
    pub kind: Kind,
    /// The word that programs may look for.
    pub word: Cow<'static, str>,
}

/// A reason, who gives it, and when: a line of the reference for users.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Type and reason.
    pub reason: Reason,
    /// Who tells it.
    pub component: Component,
    /// When.
    pub when: &'static str,
}

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident = $kind:ident $word:literal by $component:ident;)+) => {
        impl Reason {
            $($(#[doc = $doc])+ pub const $name: Self = Self { kind: Kind::$kind, word: Cow::Borrowed($word) };)+
        }

        /// Every reason that this program gives by itself. A broker's notes may add others.
        pub const TABLE: &[Entry] = &[
            $(Entry { reason: Reason::$name, component: Component::$component, when: concat!($($doc),+) },)+
        ];
    };
}

reasons! {
    /// A process became leader, or stopped leading because it ended or lost the lease.
    LEADER_ELECTION = Normal "LeaderElection" by Process;
    /// A node got provider id, labels and addresses, and lost its taint.
    SYNCED = Normal "Synced" by Node;
    /// A node could not be initialised for a minute, with the reason.
    CLOUD_NODE_INIT_FAILED = Warning "CloudNodeInitFailed" by Node;
    /// A name of the cloud had to be changed to become a legal label value.
    LABEL_VALUE_CHANGED = Warning "LabelValueChanged" by Node;
    /// The addresses that the kubelet was started with are not among the machine's.
    PROVIDED_NODE_IP_NOT_FOUND = Warning "ProvidedNodeIPNotFound" by Node;
    /// The system UUID of a node names another machine than its provider id.
    MACHINE_MISMATCH = Warning "MachineMismatch" by Node;
    /// A node is about to be deleted, since its machine is proved gone.
    DELETING_NODE = Normal "DeletingNode" by NodeLifecycle;
    /// A node could not be deleted; it is tried again.
    DELETING_NODE_FAILED = Warning "DeletingNodeFailed" by NodeLifecycle;
    /// A node whose machine is or seems gone is kept, since too many went at once, the scope changed, or nothing proves it.
    NODE_DELETION_HELD = Warning "NodeDeletionHeld" by NodeLifecycle;
    /// The machine of a node that is not Ready is switched off.
    NODE_SHUTDOWN = Normal "NodeShutdown" by NodeLifecycle;
    /// Work on a load balancer begins.
    ENSURING_LOAD_BALANCER = Normal "EnsuringLoadBalancer" by Service;
    /// The load balancer is what the Service asks for.
    ENSURED_LOAD_BALANCER = Normal "EnsuredLoadBalancer" by Service;
    /// The load balancer is about to be removed.
    DELETING_LOAD_BALANCER = Normal "DeletingLoadBalancer" by Service;
    /// Nothing of the load balancer is left.
    DELETED_LOAD_BALANCER = Normal "DeletedLoadBalancer" by Service;
    /// The load balancer has the present nodes.
    UPDATED_LOAD_BALANCER = Normal "UpdatedLoadBalancer" by Service;
    /// No node can serve.
    UNAVAILABLE_LOAD_BALANCER = Warning "UnAvailableLoadBalancer" by Service;
    /// The load balancer could not be made what the Service asks for.
    SYNC_LOAD_BALANCER_FAILED = Warning "SyncLoadBalancerFailed" by Service;
    /// The load balancer could not be removed.
    DELETE_LOAD_BALANCER_FAILED = Warning "DeleteLoadBalancerFailed" by Service;
    /// The load balancer could not be given the present nodes.
    UPDATE_LOAD_BALANCER_FAILED = Warning "UpdateLoadBalancerFailed" by Service;
    /// Another backend is asked for while an address is published; the one that serves stays.
    BACKEND_KEPT = Warning "BackendKept" by Service;
    /// The address annotation hides another address in `spec.loadBalancerIP`.
    ADDRESS_HIDDEN = Warning "AddressHidden" by Service;
    /// An annotation is known and has no effect.
    ANNOTATION_IGNORED = Warning "AnnotationIgnored" by Service;
    /// A list of sources is empty and restricts nothing.
    SOURCE_CIDRS_EMPTY = Warning "SourceCidrsEmpty" by Service;
    /// IPv6 networks in a list of sources are left out.
    SOURCE_RANGES_IGNORED = Warning "LoadBalancerSourceRangesIgnored" by Service;
    /// The load balancer knows no time limit of client affinity.
    AFFINITY_TIMEOUT_IGNORED = Normal "SessionAffinityTimeoutIgnored" by Service;
    /// Ports that are not TCP don't carry the PROXY protocol.
    PROXY_PROTOCOL_IGNORED = Normal "ProxyProtocolIgnored" by Service;
    /// IPv6 is asked for beside IPv4, and load balancers have IPv4 addresses.
    IPV6_FAMILY_IGNORED = Normal "IPv6FamilyIgnored" by Service;
    /// UDP members are not checked, so nodes without a local pod lose packets under `externalTrafficPolicy: Local`.
    LOCAL_TRAFFIC_UNCHECKED = Warning "LocalTrafficUnchecked" by Service;
    /// Nodes of another provider are left out.
    NODE_NOT_ELIGIBLE = Warning "NodeNotEligible" by Service;
    /// A Service got an address of a pool, or moved to the one that it asks for.
    IP_ALLOCATED = Normal "IPAllocated" by Service;
    /// A Service keeps an address that was not recorded for it.
    IP_ADOPTED = Normal "IPAdopted" by Service;
    /// No pool that the Service may use has an address left; it gets one as soon as one is free.
    POOL_EXHAUSTED = Warning "PoolExhausted" by Service;
    /// The address that a Service asks for is somebody else's.
    ADDRESS_IN_USE = Warning "AddressInUse" by Service;
    /// The address that a Service asks for can't be had.
    INVALID_LOAD_BALANCER_IP = Warning "InvalidLoadBalancerIP" by Service;
    /// The annotation names no permitted forward method.
    INVALID_FORWARD_METHOD = Warning "InvalidForwardMethod" by Service;
    /// The Service wants IPv6, and only IPv4 can be announced.
    UNSUPPORTED_IP_FAMILY = Warning "UnsupportedIPFamily" by Service;
    /// keepalived serves the Service, but not as its author may expect.
    KEEPALIVED_LIMITATION = Warning "KeepalivedLimitation" by Service;
    /// An entry of the ConfigMap was changed by somebody and is put right.
    CONFIG_MAP_REPAIRED = Normal "ConfigMapRepaired" by Service;
    /// Somebody changes an entry of the ConfigMap again and again; it is left alone for a while.
    CONFIG_MAP_CONTESTED = Warning "ConfigMapContested" by Service;
    /// The records in the ConfigMap could not be read and were rebuilt.
    CONFIG_MAP_DAMAGED = Warning "ConfigMapDamaged" by Service;
    /// The ConfigMap has no room for another Service.
    CONFIG_MAP_FULL = Warning "ConfigMapFull" by Service;
    /// An earlier program left an entry for the Service that nobody maintains.
    STALE_ENTRY = Warning "StaleEntry" by Service;
}

impl Reason {
    /// A reason that a broker or another part gives in its own words.
    pub fn told(kind: Kind, word: impl Into<String>) -> Self {
        Self {
            kind,
            word: Cow::Owned(word.into()),
        }
    }
}

/// The object that an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Subject {
    api_version: String,
    kind: String,
    namespace: Option<String>,
    name: String,
    uid: String,
    resource_version: String,
}

impl Subject {
    /// Any object.
    pub fn of<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        Self {
            api_version: K::api_version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            namespace: object.namespace(),
            name: object.name_any(),
            uid: object.uid().unwrap_or_default(),
            resource_version: object.resource_version().unwrap_or_default(),
        }
    }

    /// Namespace that the event goes to; that of nodes is `default`.
    pub fn event_namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or("default")
    }

    fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some(self.api_version.clone()),
            kind: Some(self.kind.clone()),
            name: Some(self.name.clone()),
            namespace: self.namespace.clone(),
            resource_version: Some(self.resource_version.clone()).filter(|version| !version.is_empty()),
            uid: Some(self.uid.clone()).filter(|uid| !uid.is_empty()),
            field_path: None,
        }
    }
}

impl From<&Node> for Subject {
    fn from(node: &Node) -> Self {
        Self::of(node)
    }
}

impl From<&Service> for Subject {
    fn from(service: &Service) -> Self {
        Self::of(service)
    }
}

impl From<&Lease> for Subject {
    fn from(lease: &Lease) -> Self {
        Self::of(lease)
    }
}

/// Something that happened to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Happening {
    component: Component,
    subject: Subject,
    reason: Reason,
    text: String,
}

/// Takes events from anywhere without waiting.
#[derive(Clone, Debug)]
pub struct Recorder {
    component: Component,
    waiting: mpsc::Sender<Happening>,
    metrics: Metrics,
}

impl Recorder {
    /// A recorder and the writer that must run for its events to be written.
    pub fn new(metrics: Metrics) -> (Self, Writer) {
        let (waiting, taken) = mpsc::channel(WAITING);
        let recorder = Self {
            component: Component::Process,
            waiting,
            metrics: metrics.clone(),
        };
        (recorder, Writer::new(taken, metrics))
    }

    /// The same recorder in another one's name.
    #[must_use]
    pub fn of(&self, component: Component) -> Self {
        Self {
            component,
            ..self.clone()
        }
    }

    /// Tells what happened. The text says what, to which object, and what to do, without times or ids of jobs, so that the same happening
    /// has the same text.
    pub fn publish(&self, subject: &Subject, reason: &Reason, text: impl Into<String>) {
        let happening = Happening {
            component: self.component,
            subject: subject.clone(),
            reason: reason.clone(),
            text: text.into(),
        };
        if self.waiting.try_send(happening).is_err() {
            self.metrics.event_dropped();
        }
    }
}

#[cfg(test)]
mod tests;
