//! Which backend serves a Service: the load balancer of the cloud, or an address that keepalived announces.
//!
//! Pure. Decides by class, then annotation, then what already serves the Service, then what the broker says of the
//! networks. Chosen once: while an address is published the backend stays, whatever is edited, because a change would
//! change the address under the clients. The choice is recorded in an annotation where two backends run; the annotation
//! is a hint for the next start and no proof, each backend keeps its own.

use k8s_openapi::api::core::v1::Service;
use proto::v1::NetworkInfo;

use super::backend::{BackendName, Holds, Notice};
use crate::events::Reason;

/// Class of Services that want the load balancer of the cloud.
pub const CLOUD_CLASS: &str = "cloudstack-load-balancer/cloud";
/// Class of Services that want an address announced by keepalived.
pub const KEEPALIVED_CLASS: &str = "cloudstack-load-balancer/keepalived";

/// The class of a Service; nothing if every controller may take it.
pub fn class_of(service: &Service) -> Option<&str> {
    service.spec.as_ref()?.load_balancer_class.as_deref()
}

impl BackendName {
    /// The backend that a class names; any other class is somebody else's.
    pub fn of_class(class: &str) -> Option<Self> {
        match class {
            CLOUD_CLASS => Some(Self::Cloud),
            KEEPALIVED_CLASS => Some(Self::Keepalived),
            _ => None,
        }
    }
}

/// Which backends this process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Running {
    /// One; every Service is its.
    One(BackendName),
    /// Both; each Service is given to one of them.
    Both,
}

impl Running {
    /// Whether this backend runs.
    pub fn has(self, name: BackendName) -> bool {
        match self {
            Self::One(only) => only == name,
            Self::Both => true,
        }
    }

    /// The backend that a class names, if this process runs it. A Service of any other class is somebody else's.
    pub fn of_class(self, class: &str) -> Option<BackendName> {
        BackendName::of_class(class).filter(|name| self.has(*name))
    }

    /// Whether a class names a backend of ours that another process runs, if any does.
    pub fn leaves(self, class: &str) -> bool {
        BackendName::of_class(class).is_some_and(|name| !self.has(name))
    }
}

/// What the broker says of the network that a Service would use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// It has not said yet.
    Unknown,
    /// A load balancer can be made.
    LoadBalancer,
    /// The network has none.
    Nothing,
}

impl Offer {
    /// Reads it from what the broker says of the networks in scope. A network that the Service names and the broker does not
    /// list is left to the cloud, which says what is wrong with it.
    pub fn of(networks: &[NetworkInfo], asked: &str) -> Self {
        let named = |network: &&NetworkInfo| network.id == asked || network.name.eq_ignore_ascii_case(asked);
        if networks.is_empty() {
            return Self::Unknown;
        }
        let offers = if asked.is_empty() {
            networks.iter().any(|network| network.offers_load_balancer)
        } else {
            networks
                .iter()
                .find(named)
                .is_none_or(|network| network.offers_load_balancer)
        };
        if offers { Self::LoadBalancer } else { Self::Nothing }
    }
}

/// What speaks for one backend or the other.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// `spec.loadBalancerClass`.
    pub class: Option<&'a str>,
    /// What the annotation asks for.
    pub asked: Option<BackendName>,
    /// What was chosen before, as recorded on the Service.
    pub recorded: Option<BackendName>,
    /// The Service's status shows an address.
    pub published: bool,
    /// Whether keepalived's records name the Service.
    pub keepalived_holds: Holds,
    /// What the broker says of the network.
    pub offer: Offer,
}

/// What was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// This backend, and what a person should know about it.
    Use(BackendName, Option<Notice>),
    /// The class names another controller.
    NotOurs,
    /// Too early to say.
    Wait(&'static str),
    /// The annotation asks for a backend that does not run here.
    Missing(BackendName),
    /// The published address is of a backend that does not run here, and stays as it is.
    ServedBy(BackendName),
}

const UNREAD: &str = "the ConfigMap of the keepalived backend has not been read yet";

/// Decides.
pub fn choose(running: Running, evidence: &Evidence<'_>) -> Choice {
    let by_class = match evidence.class {
        None => None,
        Some(class) => match running.of_class(class) {
            None => return Choice::NotOurs,
            named => named,
        },
    };
    if let Running::One(only) = running
        && let Some(choice) = leave_to_the_other(only, evidence)
    {
        return choice;
    }
    if let Some(asked) = evidence.asked
        && !running.has(asked)
    {
        return Choice::Missing(asked);
    }
    if let Running::One(only) = running {
        return Choice::Use(only, None);
    }
    if evidence.keepalived_holds == Holds::Unknown && evidence.recorded.is_none() {
        return Choice::Wait(UNREAD);
    }
    let wanted = by_class.or(evidence.asked);
    match (serving(evidence), wanted) {
        (Some(serving), Some(wanted)) if serving != wanted => {
            Choice::Use(serving, Some(stays(serving, wanted)))
        }
        (Some(backend), _) | (None, Some(backend)) => Choice::Use(backend, None),
        (None, None) => by_offer(evidence.offer),
    }
}

/// With one backend, a Service whose published address is recorded as the other's is not taken over: clients would lose the address, and it may
/// only be that the other one was left out of the command line by mistake.
fn leave_to_the_other(only: BackendName, evidence: &Evidence<'_>) -> Option<Choice> {
    let other = evidence
        .recorded
        .filter(|recorded| evidence.published && *recorded != only)?;
    match evidence.keepalived_holds {
        Holds::Yes => None,
        Holds::Unknown => Some(Choice::Wait(UNREAD)),
        Holds::No => Some(Choice::ServedBy(other)),
    }
}

/// What serves the Service now. Without a published address nothing would be lost by choosing anew.
fn serving(evidence: &Evidence<'_>) -> Option<BackendName> {
    match (evidence.published, evidence.recorded, evidence.keepalived_holds) {
        (_, _, Holds::Yes) => Some(BackendName::Keepalived),
        (true, Some(recorded), _) => Some(recorded),
        // Published without a record: a controller before this one did it, and keepalived's records don't name it.
        (true, None, Holds::No) => Some(BackendName::Cloud),
        (true, None, Holds::Unknown) | (false, _, _) => None,
    }
}

fn by_offer(offer: Offer) -> Choice {
    match offer {
        Offer::LoadBalancer => Choice::Use(BackendName::Cloud, None),
        Offer::Nothing => Choice::Use(BackendName::Keepalived, None),
        Offer::Unknown => Choice::Wait("the broker has not said yet whether the network has a load balancer"),
    }
}

fn stays(serving: BackendName, wanted: BackendName) -> Notice {
    Notice::of(
        &Reason::BACKEND_KEPT,
        "",
        format!(
            "stays with backend {}, since its address is published; to move to {}, delete the Service and create it again",
            serving.word(),
            wanted.word()
        ),
    )
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const CLOUD: Choice = Choice::Use(BackendName::Cloud, None);
    const KEEPALIVED: Choice = Choice::Use(BackendName::Keepalived, None);

    fn nothing() -> Evidence<'static> {
        Evidence {
            class: None,
            asked: None,
            recorded: None,
            published: false,
            keepalived_holds: Holds::No,
            offer: Offer::Unknown,
        }
    }

    #[rstest]
    #[case::class_of_the_cloud(Evidence { class: Some(CLOUD_CLASS), ..nothing() }, CLOUD)]
    #[case::class_of_keepalived(Evidence { class: Some(KEEPALIVED_CLASS), ..nothing() }, KEEPALIVED)]
    #[case::foreign_class(Evidence { class: Some("example.com/lb"), ..nothing() }, Choice::NotOurs)]
    #[case::foreign_class_even_with_an_annotation(
        Evidence { class: Some("example.com/lb"), asked: Some(BackendName::Cloud), ..nothing() }, Choice::NotOurs)]
    #[case::annotation(Evidence { asked: Some(BackendName::Keepalived), ..nothing() }, KEEPALIVED)]
    #[case::class_before_annotation(
        Evidence { class: Some(CLOUD_CLASS), asked: Some(BackendName::Keepalived), ..nothing() }, CLOUD)]
    #[case::network_with_a_load_balancer(Evidence { offer: Offer::LoadBalancer, ..nothing() }, CLOUD)]
    #[case::network_without_one(Evidence { offer: Offer::Nothing, ..nothing() }, KEEPALIVED)]
    #[case::published_by_a_cloud_controller_before(Evidence { published: true, offer: Offer::Nothing, ..nothing() }, CLOUD)]
    #[case::published_by_keepalived_before(
        Evidence { published: true, keepalived_holds: Holds::Yes, offer: Offer::LoadBalancer, ..nothing() }, KEEPALIVED)]
    #[case::recorded_and_published(
        Evidence { published: true, recorded: Some(BackendName::Keepalived), offer: Offer::LoadBalancer, ..nothing() },
        KEEPALIVED)]
    #[case::recorded_but_never_published_is_chosen_anew(
        Evidence { recorded: Some(BackendName::Keepalived), offer: Offer::LoadBalancer, ..nothing() }, CLOUD)]
    fn with_both_backends(#[case] evidence: Evidence<'_>, #[case] expected: Choice) {
        assert_eq!(choose(Running::Both, &evidence), expected);
    }

    #[rstest]
    #[case::nothing_known(&[], "", Offer::Unknown)]
    #[case::one_offers(&[("a", false), ("b", true)], "", Offer::LoadBalancer)]
    #[case::none_offers(&[("a", false)], "", Offer::Nothing)]
    #[case::the_named_one_does_not(&[("a", false), ("b", true)], "A", Offer::Nothing)]
    #[case::the_named_one_does(&[("a", false), ("b", true)], "b", Offer::LoadBalancer)]
    #[case::the_named_one_is_not_listed(&[("a", false)], "c", Offer::LoadBalancer)]
    fn what_the_networks_offer(
        #[case] networks: &[(&str, bool)],
        #[case] asked: &str,
        #[case] expected: Offer,
    ) {
        let networks: Vec<_> = networks
            .iter()
            .map(|(name, offers)| NetworkInfo {
                id: format!("id-{name}"),
                name: (*name).to_owned(),
                offers_load_balancer: *offers,
            })
            .collect();
        assert_eq!(Offer::of(&networks, asked), expected);
    }

    #[test]
    fn without_a_word_from_the_broker_a_new_service_waits() {
        assert!(matches!(choose(Running::Both, &nothing()), Choice::Wait(_)));
        let unread = Evidence {
            published: true,
            keepalived_holds: Holds::Unknown,
            ..nothing()
        };
        assert!(matches!(choose(Running::Both, &unread), Choice::Wait(_)));
    }

    #[test]
    fn a_published_address_keeps_its_backend_and_says_so() {
        let evidence = Evidence {
            published: true,
            asked: Some(BackendName::Keepalived),
            ..nothing()
        };
        let Choice::Use(BackendName::Cloud, Some(notice)) = choose(Running::Both, &evidence) else {
            panic!("the backend changed under a published address");
        };
        assert_eq!(notice.reason, "BackendKept");
        assert!(notice.text.contains("keepalived"));
    }

    #[rstest]
    #[case::the_cloud(BackendName::Cloud)]
    #[case::keepalived(BackendName::Keepalived)]
    fn a_single_backend_serves_every_service_without_a_class(#[case] only: BackendName) {
        assert_eq!(choose(Running::One(only), &nothing()), Choice::Use(only, None));
    }

    #[rstest]
    #[case::pool_taken_from_the_command_line(BackendName::Cloud, BackendName::Keepalived)]
    #[case::broker_taken_from_the_command_line(BackendName::Keepalived, BackendName::Cloud)]
    fn a_published_address_of_the_backend_that_does_not_run_is_left_alone(
        #[case] only: BackendName,
        #[case] other: BackendName,
    ) {
        let running = Running::One(only);
        let published = Evidence {
            published: true,
            recorded: Some(other),
            ..nothing()
        };
        assert_eq!(choose(running, &published), Choice::ServedBy(other));
        let asked = Evidence {
            asked: Some(other),
            ..published
        };
        assert_eq!(choose(running, &asked), Choice::ServedBy(other));
        let never_published = Evidence {
            published: false,
            ..published
        };
        assert_eq!(choose(running, &never_published), Choice::Use(only, None));
        let its_own = Evidence {
            recorded: Some(only),
            ..published
        };
        assert_eq!(choose(running, &its_own), Choice::Use(only, None));
    }

    #[test]
    fn what_keepalived_records_is_its_own_whatever_the_service_says() {
        let alone = Running::One(BackendName::Keepalived);
        let held = |keepalived_holds| Evidence {
            published: true,
            recorded: Some(BackendName::Cloud),
            keepalived_holds,
            ..nothing()
        };
        assert_eq!(choose(alone, &held(Holds::Yes)), KEEPALIVED);
        assert!(matches!(choose(alone, &held(Holds::Unknown)), Choice::Wait(_)));
    }

    #[test]
    fn a_class_or_annotation_for_a_backend_that_does_not_run_is_not_served_by_the_other() {
        let running = Running::One(BackendName::Cloud);
        let class = Evidence {
            class: Some(KEEPALIVED_CLASS),
            ..nothing()
        };
        assert_eq!(choose(running, &class), Choice::NotOurs);
        let annotation = Evidence {
            asked: Some(BackendName::Keepalived),
            ..nothing()
        };
        assert_eq!(
            choose(running, &annotation),
            Choice::Missing(BackendName::Keepalived)
        );
    }
}
