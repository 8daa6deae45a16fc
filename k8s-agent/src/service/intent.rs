//! What a Service wants of us: a load balancer, the end of one, nothing, or something that can't be had.
//!
//! Pure. Decides which Services are ours (type, class, deletion, finalizer) and turns one into the wish that a backend
//! gets, or into the list of everything that is wrong with it, before anything is written anywhere. Leaves the nodes to
//! [`super::members`], the choice of a backend to [`super::choice`], the meaning of a single annotation to
//! [`super::annotations`], and what the cloud can do to the broker.

mod meanwhile;
mod ports;
mod sources;
mod wish;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use proto::v1::{Adoption, Dialect, LoadBalancerRef, Wish};

use super::annotations::{self, Problem, Problems, Settings};
use super::backend::{BackendName, Holds, Notice, RemoveOrder};
use super::choice::{self, Choice, Evidence, Offer, Running, class_of};
use wish::Composer;

/// Holds a Service until its load balancer is gone; the name is Kubernetes' own.
pub const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// What the process was started with, as far as it decides about Services.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Which backends run.
    pub running: Running,
    /// Whose names new objects carry.
    pub dialect: Dialect,
}

impl Rules {
    /// Whether a load balancer without a class, or of this one, is ours.
    fn serve(&self, service: &Service) -> bool {
        class_of(service).is_none_or(|class| self.running.of_class(class).is_some())
    }
}

/// What else is known when a Service is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances<'a> {
    /// Whether keepalived's records name the Service.
    pub keepalived_holds: Holds,
    /// They name this very Service, and not only one of its name.
    pub keepalived_records: bool,
    /// What the broker says of the network.
    pub offer: Offer,
    /// Who serves it as this process remembers, which wins over what the Service says.
    pub served_by: Option<BackendName>,
    /// This process asked a backend for its load balancer.
    pub asked: bool,
    /// This process saw it with a class of somebody else.
    pub was_foreign: bool,
    /// Addresses that a host name in its status stands for, as this process remembers.
    pub behind_host_name: &'a [String],
}

/// What a Service wants of us.
#[derive(Clone, Debug)]
pub enum Intent {
    /// A load balancer.
    Ensure(Box<Wanted>),
    /// The end of one.
    Remove(Removal),
    /// Nothing.
    Skip(Skip),
    /// Something that can't be had as it is written.
    Refuse(Refusal),
    /// Too early to say.
    Wait(&'static str),
    /// Nothing for now: it has a published address of this backend, which does not run here.
    LeaveTo(BackendName),
}

/// A load balancer that is wanted.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Who serves it.
    pub backend: BackendName,
    /// What is wanted, without members.
    pub wish: Wish,
    /// Host name that the status shows in place of addresses.
    pub hostname: Option<String>,
    /// Write down who serves it, since more than one could.
    pub record_backend: bool,
    /// Write the facts that a controller after this one may read.
    pub writes_outputs: bool,
    /// What a person should know of it.
    pub notices: Vec<Notice>,
}

/// What can't be had, and what may go on.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// All that is wrong.
    pub problems: Problems,
    /// What a Service that serves already may go on with, where that can be told without guessing; see `meanwhile`.
    pub meanwhile: Option<Box<Wanted>>,
}

/// Why a load balancer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The Service is deleted.
    Deleted,
    /// It is of another type now.
    TypeChanged,
    /// Another controller's class is on it: the status is that controller's.
    ClassChanged,
    /// It vanished with its finalizer taken off by somebody, or another one took its name.
    Vanished,
}

/// The end of a load balancer.
#[derive(Clone, Debug)]
pub struct Removal {
    /// Why.
    pub ending: Ending,
    /// What the backends are told.
    pub order: RemoveOrder,
}

/// Why a Service is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// It is of another type and has nothing of ours.
    NotALoadBalancer,
    /// Its class names another controller.
    OtherClass,
    /// It is being deleted and has nothing of ours. A finalizer can't be added any more.
    BeingDeleted,
    /// It was not read from an API server.
    WithoutIdentity,
}

/// Decides.
pub fn of(service: &Service, rules: &Rules, circumstances: Circumstances<'_>) -> Intent {
    let Some(reference) = reference(service) else {
        return Intent::Skip(Skip::WithoutIdentity);
    };
    // The finalizer's name is Kubernetes' own: controllers of other classes hold their Services with the same one, also for a while
    // after the class went with the type.
    let is_ours = is_ours(service, rules.running, circumstances);
    let (ending, skip) = match load_balancer(service) {
        Some(_) if !rules.serve(service) && is_ours => (Ending::ClassChanged, Skip::OtherClass),
        Some(_) if !rules.serve(service) => return Intent::Skip(Skip::OtherClass),
        None if circumstances.was_foreign && !is_ours && has_finalizer(service) => {
            return Intent::Skip(Skip::OtherClass);
        }
        _ if service.metadata.deletion_timestamp.is_some() => (Ending::Deleted, Skip::BeingDeleted),
        None => (Ending::TypeChanged, Skip::NotALoadBalancer),
        Some(spec) => return wanted(service, spec, rules, circumstances),
    };
    if has_finalizer(service) {
        let behind = circumstances.behind_host_name;
        Intent::Remove(Removal {
            ending,
            order: remove_order(service, reference, &rules.dialect, behind),
        })
    } else {
        Intent::Skip(skip)
    }
}

/// Whether this process has, or one before it had, a load balancer for the Service, whatever its class says now. A Service with the class of
/// our other backend is served by the process that runs that one, with the same outputs and the same finalizer: only memory counts there.
fn is_ours(service: &Service, running: Running, circumstances: Circumstances<'_>) -> bool {
    let is_of_another_process = class_of(service).is_some_and(|class| running.leaves(class));
    let has_traces =
        circumstances.keepalived_records || annotations::has_outputs(annotations_of(service), running);
    circumstances.asked || has_traces && !is_of_another_process
}

/// What the backends are told when a Service that is remembered has vanished without its finalizer.
pub fn vanished(service: &Service, rules: &Rules, behind_host_name: &[String]) -> Option<Removal> {
    let order = remove_order(service, reference(service)?, &rules.dialect, behind_host_name);
    Some(Removal {
        ending: Ending::Vanished,
        order,
    })
}

/// Which Service it is; nothing if it did not come from an API server.
pub fn reference(service: &Service) -> Option<LoadBalancerRef> {
    let metadata = &service.metadata;
    Some(LoadBalancerRef {
        uid: metadata.uid.clone().filter(|uid| !uid.is_empty())?,
        namespace: metadata.namespace.clone()?,
        name: metadata.name.clone()?,
    })
}

/// Whether our finalizer is on it.
pub fn has_finalizer(service: &Service) -> bool {
    service
        .metadata
        .finalizers
        .iter()
        .flatten()
        .any(|finalizer| finalizer == FINALIZER)
}

/// Addresses that clients are told: those in the status, and where it shows a host name, those that this process remembers
/// behind it.
pub fn published(service: &Service, behind_host_name: &[String]) -> Vec<String> {
    let shown = ingress(service);
    let addresses: Vec<_> = shown.iter().filter_map(|reached| reached.ip.clone()).collect();
    if addresses.is_empty() && shows_host_name(service) {
        behind_host_name.to_vec()
    } else {
        addresses
    }
}

fn shows_host_name(service: &Service) -> bool {
    ingress(service)
        .iter()
        .any(|reached| reached.hostname.as_ref().is_some_and(|name| !name.is_empty()))
}

/// Whether what the status shows is from a pool: recorded when the backend was chosen, or said by the class.
pub fn is_from_pool(service: &Service, running: Running) -> bool {
    let recorded = annotations::served_by(annotations_of(service));
    recorded.or_else(|| running.of_class(class_of(service)?)) == Some(BackendName::Keepalived)
}

/// Whether the status shows clients a way in.
pub fn is_published(service: &Service) -> bool {
    !ingress(service).is_empty()
}

fn ingress(service: &Service) -> &[k8s_openapi::api::core::v1::LoadBalancerIngress] {
    service
        .status
        .as_ref()
        .and_then(|status| status.load_balancer.as_ref())
        .and_then(|balancer| balancer.ingress.as_deref())
        .unwrap_or_default()
}

fn load_balancer(service: &Service) -> Option<&ServiceSpec> {
    service
        .spec
        .as_ref()
        .filter(|spec| spec.type_.as_deref() == Some("LoadBalancer"))
}

fn remove_order(
    service: &Service,
    reference: LoadBalancerRef,
    dialect: &Dialect,
    behind_host_name: &[String],
) -> RemoveOrder {
    let annotations = annotations_of(service);
    let adoption = adoption(
        service,
        annotations
            .get(annotations::IP_ASSOCIATED)
            .is_some_and(|word| word == "true"),
    );
    // After a restart nobody remembers what is behind a host name. The address that was asked for is no substitute: the broker takes
    // what is published for an address that the Service has, and it may never have had that one.
    let published = published(service, behind_host_name);
    RemoveOrder {
        reference,
        keep_address: Settings::keeps_address(annotations),
        network: annotations
            .get(annotations::NETWORK)
            .map(|name| name.trim().to_owned())
            .unwrap_or_default(),
        dialect: dialect.clone(),
        adoption,
        published,
    }
}

/// What a controller before this one recorded. The annotation of one line of them wins over the field of the other.
fn adoption(service: &Service, ip_associated_by_controller: bool) -> Adoption {
    let asked = annotations_of(service)
        .get(annotations::ADDRESS)
        .filter(|address| !address.is_empty());
    let field = service
        .spec
        .as_ref()
        .and_then(|spec| spec.load_balancer_ip.as_ref());
    Adoption {
        load_balancer_ip: asked.or(field).cloned().unwrap_or_default(),
        ip_associated_by_controller,
    }
}

fn annotations_of(service: &Service) -> &BTreeMap<String, String> {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    service.metadata.annotations.as_ref().unwrap_or(&NONE)
}

fn wanted(service: &Service, spec: &ServiceSpec, rules: &Rules, circumstances: Circumstances<'_>) -> Intent {
    let (mut settings, mut problems) = Settings::read(annotations_of(service));
    let evidence = Evidence {
        class: class_of(service),
        asked: settings.backend,
        recorded: recorded(service, &settings, rules.running, circumstances.served_by),
        published: is_published(service),
        keepalived_holds: circumstances.keepalived_holds,
        offer: circumstances.offer,
    };
    let mut notices = Vec::new();
    let (backend, is_chosen) = match choice::choose(rules.running, &evidence) {
        Choice::Use(backend, notice) => {
            notices.extend(notice);
            (backend, true)
        }
        Choice::Wait(why) if problems.is_empty() => return Intent::Wait(why),
        Choice::Wait(_) => (BackendName::Cloud, false),
        Choice::NotOurs => return Intent::Skip(Skip::OtherClass),
        Choice::ServedBy(backend) => return Intent::LeaveTo(backend),
        Choice::Missing(backend) => {
            problems.push(not_running(backend));
            let meanwhile = None;
            return Intent::Refuse(Refusal { problems, meanwhile });
        }
    };
    // An address that is announced carries no PROXY protocol.
    let is_known =
        meanwhile::stand_in(service, &mut settings, &problems) || backend == BackendName::Keepalived;
    let mut composer = Composer {
        settings: &settings,
        backend,
        problems,
        notices,
    };
    let wish = composer.wish(service, spec, rules);
    let Composer {
        problems, notices, ..
    } = composer;
    let is_readable = problems.is_empty();
    let wanted = Box::new(Wanted {
        backend,
        wish,
        hostname: settings.hostname,
        record_backend: rules.running == Running::Both,
        writes_outputs: is_readable || meanwhile::has_id(service),
        notices,
    });
    if is_readable {
        return Intent::Ensure(wanted);
    }
    let goes_on = is_chosen && is_known && is_published(service) && problems.all(meanwhile::is_dispensable);
    let meanwhile = goes_on.then_some(wanted);
    Intent::Refuse(Refusal { problems, meanwhile })
}

/// Who serves it, as it is remembered or written down. The cloud alone writes no record; its outputs are one to keepalived alone.
fn recorded(
    service: &Service,
    settings: &Settings,
    running: Running,
    remembered: Option<BackendName>,
) -> Option<BackendName> {
    let by_outputs = (running == Running::One(BackendName::Keepalived) && meanwhile::has_id(service))
        .then_some(BackendName::Cloud);
    remembered.or(settings.served_by).or(by_outputs)
}

fn not_running(backend: BackendName) -> Problem {
    let text = format!(
        "asks for backend {}, which this controller was not started with",
        backend.word()
    );
    Problem::of(annotations::BACKEND, text)
}

#[cfg(test)]
mod tests;
