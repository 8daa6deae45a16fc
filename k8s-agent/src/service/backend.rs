//! What a backend is: something that gives a Service an address and takes it away again.
//!
//! Decides the shape of an order and of an answer, nothing else. There are two backends: the broker
//! ([`super::broker_backend`]) and the pool of addresses that keepalived announces. Which one serves a Service is decided
//! in [`super::choice`]; what is wanted of it in [`super::intent`]; what becomes of the answer in [`super::status`].
//!
//! One call is one round: a backend answers [`Outcome::Pending`] instead of holding the caller for long, and is asked
//! again. It may be dropped at any point (the Service changed, leadership could have run out) and must be restartable
//! from there.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use proto::Fault;
use proto::v1::{Adoption, Dialect, LoadBalancerRef, Wish};

use crate::events::{Kind, Reason};

/// The backends by name, as annotations, flags and metrics spell them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BackendName {
    /// The load balancer of the cloud, made by the broker.
    Cloud,
    /// An address from a pool, announced by keepalived.
    Keepalived,
}

impl BackendName {
    /// Both, in the order in which they are asked for the end of a load balancer: first the one that needs nobody else.
    pub const ALL: [Self; 2] = [Self::Keepalived, Self::Cloud];

    /// The word in annotations, flags and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cloud => "cloud",
            Self::Keepalived => "keepalived",
        }
    }

    /// Reads the word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.word() == word)
    }
}

/// A load balancer that is wanted.
#[derive(Clone, Debug)]
pub struct EnsureOrder {
    /// The Service as it was read.
    pub service: Arc<Service>,
    /// Which Service it is for.
    pub reference: LoadBalancerRef,
    /// What is wanted.
    pub wish: Wish,
    /// Addresses that the Service's status shows now.
    pub published: Vec<String>,
}

/// A load balancer that is no longer wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoveOrder {
    /// Which Service it was for.
    pub reference: LoadBalancerRef,
    /// Hand the address over instead of releasing it.
    pub keep_address: bool,
    /// The network that the Service asked for; may be empty.
    pub network: String,
    /// Whose names the objects carry.
    pub dialect: Dialect,
    /// What a controller before this one recorded.
    pub adoption: Adoption,
    /// Addresses that the Service's status shows.
    pub published: Vec<String>,
}

/// What a backend answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer<T> {
    /// How far it got.
    pub outcome: Outcome<T>,
    /// What a person should see as an event.
    pub notes: Vec<Notice>,
}

/// How far a backend got.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome<T> {
    /// It is as it was ordered.
    Settled(T),
    /// Not yet; ask again.
    Pending(Pending),
}

/// When to ask again, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Zero is at once.
    pub retry_after: Duration,
    /// The step that is waited for.
    pub step: String,
    /// Stable word in capitals.
    pub reason: String,
    /// For people.
    pub text: String,
}

/// A load balancer that is as it was ordered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Where clients reach it.
    pub ingress: Vec<Reached>,
    /// Addresses that go as soon as the status no longer shows them.
    pub leaving: Vec<String>,
    /// Facts for the annotations of older controllers; a backend without a cloud has none.
    pub outputs: Option<Outputs>,
    /// Changes that this call made.
    pub changes: u32,
}

/// An address that clients reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The address.
    pub ip: String,
    /// Traffic must pass the load balancer, because it adds or ends something (`ipMode: Proxy`).
    pub proxy: bool,
}

/// Facts about the address in the cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outputs {
    /// Id of the address.
    pub address_id: String,
    /// Id of the network.
    pub network_id: String,
    /// The cluster owns the address.
    pub address_owned: bool,
}

/// A load balancer that is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Addresses given back.
    pub released: Vec<String>,
    /// Addresses that stay allocated.
    pub kept: Vec<String>,
    /// Changes that this call made; 0 means that nothing was there.
    pub changes: u32,
}

/// Something that a person should see as an event on the Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Notice {
    /// Warning, or only worth knowing.
    pub warning: bool,
    /// Reason of the event.
    pub reason: String,
    /// Field of the Service it is about; may be empty.
    pub field: String,
    /// What happened and what to do.
    pub text: String,
}

impl Notice {
    /// One of the agent's own reasons, about a field.
    pub fn of(reason: &Reason, field: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            warning: reason.kind == Kind::Warning,
            reason: reason.word.clone().into_owned(),
            field: field.into(),
            text: text.into(),
        }
    }

    /// A warning about a field.
    pub fn warning(reason: impl Into<String>, field: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            warning: true,
            reason: reason.into(),
            field: field.into(),
            text: text.into(),
        }
    }

    /// Something worth knowing about a field.
    pub fn normal(reason: impl Into<String>, field: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            warning: false,
            ..Self::warning(reason, field, text)
        }
    }

    /// The text of the event: the field first, where there is one.
    pub fn message(&self) -> String {
        if self.field.is_empty() {
            self.text.clone()
        } else {
            format!("{}: {}", self.field, self.text)
        }
    }
}

/// Whether a backend has something recorded for a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// It has.
    Yes,
    /// It has not.
    No,
    /// It can't say without work that only an order does.
    Unknown,
}

/// Makes the controller look at the Service with this namespace and name at once.
pub type Wake = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// Something that gives a Service an address and takes it away again.
pub trait Backend: Send + Sync + 'static {
    /// Makes the load balancer what the order says, or gets nearer. The same order again changes nothing.
    fn ensure(&self, order: EnsureOrder) -> impl Future<Output = Result<Answer<Settled>, Fault>> + Send;

    /// Removes what the backend has for the Service. Settled when nothing is left, also if nothing was there.
    fn remove(&self, order: RemoveOrder) -> impl Future<Output = Result<Answer<Removed>, Fault>> + Send;

    /// Whether the backend has something recorded for the Service. Cheap: no call to anybody.
    fn holds(&self, service: &Service) -> Holds;

    /// Whether the backend has something recorded for this very Service, not for one that had its name before.
    fn records(&self, service: &Service) -> bool {
        let _ = service;
        false
    }

    /// Gives the backend a way to wake Services that wait for something which only it sees. One that never needs it ignores it.
    fn wake_with(&self, wake: Wake) {
        drop(wake);
    }
}

/// The backends that this process runs.
#[derive(Debug)]
pub struct Backends<C, K> {
    /// The load balancers of the cloud.
    pub cloud: Option<C>,
    /// The addresses that keepalived announces.
    pub keepalived: Option<K>,
}

impl<C: Backend, K: Backend> Backends<C, K> {
    /// Asks one of them for a load balancer.
    pub async fn ensure(&self, name: BackendName, order: EnsureOrder) -> Result<Answer<Settled>, Fault> {
        match (name, &self.cloud, &self.keepalived) {
            (BackendName::Cloud, Some(cloud), _) => cloud.ensure(order).await,
            (BackendName::Keepalived, _, Some(keepalived)) => keepalived.ensure(order).await,
            (BackendName::Cloud | BackendName::Keepalived, ..) => Err(not_running(name)),
        }
    }

    /// Asks one of them for the end of a load balancer; nothing if it does not run, or surely has nothing.
    pub async fn remove(
        &self,
        name: BackendName,
        service: &Service,
        order: RemoveOrder,
    ) -> Option<Result<Answer<Removed>, Fault>> {
        match name {
            BackendName::Cloud => remove(self.cloud.as_ref()?, service, order).await,
            BackendName::Keepalived => remove(self.keepalived.as_ref()?, service, order).await,
        }
    }

    /// Gives every backend a way to wake Services.
    pub fn wake_with(&self, wake: &Wake) {
        if let Some(cloud) = &self.cloud {
            cloud.wake_with(Arc::clone(wake));
        }
        if let Some(keepalived) = &self.keepalived {
            keepalived.wake_with(Arc::clone(wake));
        }
    }

    /// Whether keepalived's records name the Service.
    pub fn keepalived_holds(&self, service: &Service) -> Holds {
        self.keepalived
            .as_ref()
            .map_or(Holds::No, |keepalived| keepalived.holds(service))
    }

    /// Whether keepalived's records name this very Service.
    pub fn keepalived_records(&self, service: &Service) -> bool {
        self.keepalived
            .as_ref()
            .is_some_and(|keepalived| keepalived.records(service))
    }
}

async fn remove<B: Backend>(
    backend: &B,
    service: &Service,
    order: RemoveOrder,
) -> Option<Result<Answer<Removed>, Fault>> {
    if backend.holds(service) == Holds::No {
        return None;
    }
    Some(backend.remove(order).await)
}

fn not_running(name: BackendName) -> Fault {
    let text = format!("backend {} does not run in this process", name.word());
    Fault::new(proto::FaultKind::Internal, "BACKEND_NOT_RUNNING", text)
}

/// A backend that never runs, for a process with only one.
#[derive(Clone, Copy, Debug)]
pub enum Absent {}

impl Backend for Absent {
    async fn ensure(&self, _: EnsureOrder) -> Result<Answer<Settled>, Fault> {
        match *self {}
    }

    async fn remove(&self, _: RemoveOrder) -> Result<Answer<Removed>, Fault> {
        match *self {}
    }

    fn holds(&self, _: &Service) -> Holds {
        match *self {}
    }
}
