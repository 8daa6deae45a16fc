//! How old what is planned on may be. Pure.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::{FRESH, MACHINES};
use crate::load_balancer::look::Ages;
use crate::load_balancer::observation::Need;
use crate::load_balancer::plan::{End, Goal, Plan};

/// How old what is planned on may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// Lists of the last drift period: enough to see that nothing is to be done.
    Memory,
    /// Lists of the last seconds: enough to act on.
    Fresh,
    /// Only what is read from then on, and of the last seconds: something happened that older lists don't show.
    Since(Instant),
}

impl Trust {
    /// The same in times.
    pub(super) fn ages(self, now: Instant, drift: Duration) -> Ages {
        let before = |age: Duration| now.checked_sub(age).unwrap_or(now);
        let oldest = match self {
            Self::Memory => before(drift),
            Self::Fresh => before(FRESH),
            Self::Since(at) => at.max(before(FRESH)),
        };
        Ages {
            oldest,
            oldest_membership: before(drift),
            machines: MACHINES,
        }
    }
}

/// What has to be trusted less before a plan may stand, where it may not. `published` is what clients are told already.
pub(super) fn stricter(plan: &Plan, published: &[IpAddr], trust: Trust, now: Instant) -> Option<Trust> {
    let end = match &plan.end {
        End::Served(served) if plan.steps.is_empty() => Some(served),
        End::Served(_) | End::Unfinished | End::Departed | End::Wait(_) | End::Await(_) | End::Refused(_) => {
            None
        }
    };
    // Another address than clients are told: what another broker did meanwhile is looked at first.
    let is_surprising = end.is_some_and(|end| !published.is_empty() && !published.contains(&end.ingress.ip));
    let is_as_published =
        end.is_some_and(|end| end.leaving.is_empty() && published == [end.ingress.ip].as_slice());
    let only_looks = !plan.needs.is_empty() && plan.needs.iter().all(is_of_any_age);
    match trust {
        Trust::Memory | Trust::Fresh if is_surprising => Some(Trust::Since(now)),
        Trust::Memory if !is_as_published && !only_looks => Some(Trust::Fresh),
        Trust::Memory | Trust::Fresh | Trust::Since(_) => None,
    }
}

/// Needs that lists of any age serve: what they lead to is planned again on younger ones.
fn is_of_any_age(need: &Need) -> bool {
    matches!(
        need,
        Need::Members(_) | Need::Firewall | Need::Acl(_) | Need::Address(_)
    )
}

/// Needs after which an address may be taken.
pub(super) fn leads_to_taking(need: &Need) -> bool {
    matches!(
        need,
        Need::Unsettled
            | Need::Free { .. }
            | Need::Digits(_)
            | Need::Job(_)
            | Need::SecondLook
            | Need::Address(_)
    )
}

/// Whether a plan might be another one if the server's version were known. That of an end never is, and that nothing is to be done
/// stands for every version.
pub(super) fn depends_on_version(goal: &Goal, plan: &Plan) -> bool {
    let acts = matches!(plan.end, End::Refused(_)) || (plan.needs.is_empty() && !plan.steps.is_empty());
    acts && matches!(goal, Goal::Serve(_))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::cloudstack::types::{AddressId, NetworkId};
    use crate::load_balancer::outcome::{Ingress, Outputs, Served, Wait};
    use crate::load_balancer::plan::{Impact, Phase, Planned, Step};

    fn served(ip: &str, leaving: &[&str]) -> Plan {
        let parse = |ip: &str| ip.parse().unwrap();
        let served = Served {
            ingress: Ingress {
                ip: parse(ip),
                proxy: false,
            },
            leaving: leaving.iter().map(|ip| parse(ip)).collect(),
            outputs: Outputs {
                address_id: AddressId::parse("ip").unwrap(),
                network_id: NetworkId::parse("net").unwrap(),
                address_owned: true,
            },
        };
        Plan {
            end: End::Served(Box::new(served)),
            ..Plan::default()
        }
    }

    fn needing(needs: Vec<Need>) -> Plan {
        Plan {
            needs,
            ..Plan::default()
        }
    }

    fn acting() -> Plan {
        let step = Step::Release {
            address: AddressId::parse("ip").unwrap(),
            ip: "192.0.2.1".parse().unwrap(),
        };
        Plan {
            steps: vec![Planned {
                phase: Phase::Leave,
                step,
                reason: String::new(),
                impact: Impact::None,
            }],
            ..Plan::default()
        }
    }

    fn waiting() -> Plan {
        Plan {
            end: End::Wait(Wait::for_a_change("X", "x")),
            ..Plan::default()
        }
    }

    // What memory and what fresh lists lead to.
    #[rstest]
    #[case::as_published(served("192.0.2.1", &[]), "-", "-")]
    #[case::another_address(served("192.0.2.2", &[]), "since", "since")]
    #[case::one_leaves(served("192.0.2.1", &["192.0.2.2"]), "fresh", "-")]
    #[case::steps(acting(), "fresh", "-")]
    #[case::a_wait(waiting(), "fresh", "-")]
    #[case::members_to_read(needing(vec![Need::Firewall]), "-", "-")]
    #[case::an_address_to_take(needing(vec![Need::Firewall, Need::Unsettled]), "fresh", "-")]
    fn a_plan_stands_on_memory_only_if_nothing_is_to_be_done(
        #[case] plan: Plan,
        #[case] on_memory: &str,
        #[case] on_fresh: &str,
    ) {
        let now = runtime::clock::now();
        let published: [IpAddr; 1] = ["192.0.2.1".parse().unwrap()];
        let word = |trust| match stricter(&plan, &published, trust, now) {
            None => "-",
            Some(Trust::Memory) => "memory",
            Some(Trust::Fresh) => "fresh",
            Some(Trust::Since(at)) if at == now => "since",
            Some(Trust::Since(_)) => "since some time",
        };
        assert_eq!((word(Trust::Memory), word(Trust::Fresh)), (on_memory, on_fresh));
        assert_eq!(word(Trust::Since(now)), "-");
    }

    #[test]
    fn lists_are_never_older_than_what_is_acted_on_may_be() {
        let now = runtime::clock::now() + Duration::from_hours(1);
        let drift = Duration::from_mins(10);
        let oldest = |trust: Trust| now.duration_since(trust.ages(now, drift).oldest);
        assert_eq!(oldest(Trust::Memory), drift);
        assert_eq!(oldest(Trust::Fresh), FRESH);
        assert_eq!(oldest(Trust::Since(now)), Duration::ZERO);
        let long_ago = now.checked_sub(Duration::from_mins(2)).unwrap();
        assert_eq!(oldest(Trust::Since(long_ago)), FRESH);
    }
}
