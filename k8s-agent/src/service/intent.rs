//! What a Service wants of us: a load balancer, the end of one, nothing, or something that can't be had.
//!
//! Pure. Decides which Services are ours (type, class, deletion, finalizer) and turns one into the wish that a backend
//! gets, or into the list of everything that is wrong with it, before anything is written anywhere. Leaves the nodes to
//! [`super::members`], the choice of a backend to [`super::choice`], the meaning of a single annotation to
//! [`super::annotations`], and what the cloud can do to the broker.

mod ports;
mod sources;
mod wish;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use proto::v1::{Adoption, Dialect, LoadBalancerRef, Wish};

use super::annotations::{self, Problem, Settings};
use super::backend::{BackendName, Holds, Notice, RemoveOrder};
use super::choice::{self, Choice, Evidence, Offer, Running};
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
    fn serve(&self, spec: &ServiceSpec) -> bool {
        spec.load_balancer_class
            .as_deref()
            .is_none_or(|class| self.running.of_class(class).is_some())
    }
}

/// What else is known when a Service is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances {
    /// Whether keepalived's records name the Service.
    pub keepalived_holds: Holds,
    /// What the broker says of the network.
    pub offer: Offer,
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
    /// Something that can't be had as it is written; all that is wrong with it.
    Refuse(Vec<Problem>),
    /// Too early to say.
    Wait(&'static str),
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
    /// What a person should know of it.
    pub notices: Vec<Notice>,
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
pub fn of(service: &Service, rules: &Rules, circumstances: Circumstances) -> Intent {
    let Some(reference) = reference(service) else {
        return Intent::Skip(Skip::WithoutIdentity);
    };
    let (ending, skip) = match load_balancer(service) {
        _ if service.metadata.deletion_timestamp.is_some() => (Ending::Deleted, Skip::BeingDeleted),
        None => (Ending::TypeChanged, Skip::NotALoadBalancer),
        Some(spec) if !rules.serve(spec) => (Ending::ClassChanged, Skip::OtherClass),
        Some(spec) => return wanted(service, spec, rules, circumstances),
    };
    if has_finalizer(service) {
        Intent::Remove(Removal {
            ending,
            order: remove_order(service, reference, &rules.dialect),
        })
    } else {
        Intent::Skip(skip)
    }
}

/// What the backends are told when a Service that is remembered has vanished without its finalizer.
pub fn vanished(service: &Service, rules: &Rules) -> Option<Removal> {
    let order = remove_order(service, reference(service)?, &rules.dialect);
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

/// Addresses that the status shows.
pub fn published(service: &Service) -> Vec<String> {
    ingress(service)
        .iter()
        .filter_map(|ingress| ingress.ip.clone())
        .collect()
}

/// Whether what the status shows is from a pool: recorded when the backend was chosen, or said by the class.
pub fn is_from_pool(service: &Service, running: Running) -> bool {
    let recorded = annotations_of(service)
        .get(annotations::SERVED_BY)
        .and_then(|word| BackendName::from_word(word));
    let class = service
        .spec
        .as_ref()
        .and_then(|spec| spec.load_balancer_class.as_deref());
    recorded.or_else(|| running.of_class(class?)) == Some(BackendName::Keepalived)
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

fn remove_order(service: &Service, reference: LoadBalancerRef, dialect: &Dialect) -> RemoveOrder {
    let annotations = annotations_of(service);
    RemoveOrder {
        reference,
        keep_address: Settings::keeps_address(annotations),
        network: annotations
            .get(annotations::NETWORK)
            .map(|name| name.trim().to_owned())
            .unwrap_or_default(),
        dialect: dialect.clone(),
        adoption: adoption(
            service,
            annotations
                .get(annotations::IP_ASSOCIATED)
                .is_some_and(|word| word == "true"),
        ),
        published: published(service),
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

fn wanted(service: &Service, spec: &ServiceSpec, rules: &Rules, circumstances: Circumstances) -> Intent {
    let (settings, mut problems) = match Settings::read(annotations_of(service)) {
        Ok(settings) => (settings, Vec::new()),
        Err(problems) => (Settings::default(), problems),
    };
    let evidence = Evidence {
        class: spec.load_balancer_class.as_deref(),
        asked: settings.backend,
        recorded: settings.served_by,
        published: is_published(service),
        keepalived_holds: circumstances.keepalived_holds,
        offer: circumstances.offer,
    };
    let mut notices = Vec::new();
    let backend = match choice::choose(rules.running, &evidence) {
        Choice::Use(backend, notice) => {
            notices.extend(notice);
            backend
        }
        Choice::Wait(why) if problems.is_empty() => return Intent::Wait(why),
        Choice::Wait(_) => BackendName::Cloud,
        Choice::NotOurs => return Intent::Skip(Skip::OtherClass),
        Choice::Missing(backend) => {
            problems.push(Problem::of(
                annotations::BACKEND,
                format!(
                    "asks for backend {}, which this controller was not started with",
                    backend.word()
                ),
            ));
            return Intent::Refuse(problems);
        }
    };
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
    if problems.is_empty() {
        let record_backend = rules.running == Running::Both;
        Intent::Ensure(Box::new(Wanted {
            backend,
            wish,
            hostname: settings.hostname,
            record_backend,
            notices,
        }))
    } else {
        Intent::Refuse(problems)
    }
}

#[cfg(test)]
mod tests;
