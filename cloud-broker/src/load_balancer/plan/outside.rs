//! Rules that are meant for the Service and are not taken for its own, while clients are sent to their address: they are named for it, or
//! marked for it while nobody said a cluster's UID, and lie outside the tenant's fence; or they are marked for it under the UID of another
//! cluster.
//!
//! Decides what becomes of a Service that has only such rules. An older controller made them, or this one before it knew its UID or under
//! another one, and a fence that leaves them out, or a UID that got lost, is wrong far more often than the name: so no other address is
//! taken for the Service, and its end says what stays. A forger gains nothing by it, since nothing is taken over either.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{Context, End, Plan, depart};
use crate::cloudstack::types::{LoadBalancerRule, RuleState};
use crate::load_balancer::admission::Fence;
use crate::load_balancer::marks::Mark;
use crate::load_balancer::outcome::{Note, Wait};

/// Why a rule is not taken for the Service's.
#[derive(Clone, Copy)]
enum Bar<'c> {
    /// It is outside the fence.
    Fence(Fence),
    /// Its mark has this UID of another cluster.
    Uid(&'c str),
}

/// The first such rule of each published address.
fn published<'c>(cx: &'c Context<'_>) -> BTreeMap<IpAddr, (&'c LoadBalancerRule, Bar<'c>)> {
    let mut first = BTreeMap::new();
    // Who wants no rules of older controllers taken over has decided about them.
    let counts = |rule: &LoadBalancerRule| cx.identity.take_over || Mark::find(&rule.description).is_some();
    let outside = cx.survey.outside().iter().copied();
    let under_other_uids = cx.survey.under_other_uids(cx.identity);
    let all = outside
        .map(|(rule, fence)| (rule, Bar::Fence(fence)))
        .chain(under_other_uids.map(|(rule, uid)| (rule, Bar::Uid(uid))));
    for (rule, bar) in all.filter(|(rule, _)| rule.state != RuleState::Deleting && counts(rule)) {
        let seen = rule.address_id.as_ref().and_then(|id| cx.observation.address(id));
        let ip = rule.ip.or(seen.map(|address| address.ip));
        if let Some(ip) = ip.filter(|ip| cx.published.contains(ip)) {
            first.entry(ip).or_insert((rule, bar));
        }
    }
    first
}

impl Bar<'_> {
    /// What is said of a rule, behind its name.
    fn why(self, rule: &LoadBalancerRule) -> String {
        let named = match Mark::find(&rule.description) {
            Some(_) => "marked",
            None => "named",
        };
        match self {
            Self::Fence(fence) => {
                format!(
                    "is {named} for the service, and outside the fence of the cluster: {}",
                    fence.why()
                )
            }
            Self::Uid(uid) => {
                format!("is {named} for the service, but by a cluster with the uid {uid}")
            }
        }
    }

    /// What a person can do.
    fn remedy(self, nobody_says_ours: bool) -> &'static str {
        match self {
            Self::Fence(_) => {
                "mend the section of the broker's configuration so that the rule is taken over, or delete the rule"
            }
            Self::Uid(_) if nobody_says_ours => {
                "nobody says the uid of this cluster: if it is that one, let the agent read the namespace kube-system, or name \
                 it in `uid` of the cluster's section of the broker's configuration (`cluster-uid` of [Global]); otherwise \
                 delete the rule"
            }
            Self::Uid(_) => {
                "if it was this cluster's, name it in `uid` of the cluster's section of the broker's configuration (`cluster-uid` \
                 of [Global]), behind the present one; otherwise delete the rule"
            }
        }
    }
}

/// The plan of a Service that waits for its fence or its cluster's UID to be mended.
pub(super) fn wait(cx: &Context<'_>) -> Option<Plan> {
    if cx.survey.mine().next().is_some() {
        return None;
    }
    let (ip, (rule, bar)) = published(cx).pop_first()?;
    let text = told(cx, ip, (rule, bar), "until then no other address is taken");
    let (note, reason) = match bar {
        Bar::Fence(_) => (Note::warning("OutsideFence", text.clone()), "OUTSIDE_FENCE"),
        Bar::Uid(_) => (
            Note::warning("OtherClusterMark", text.clone()),
            "OTHER_CLUSTER_MARK",
        ),
    };
    Some(Plan {
        notes: vec![note],
        end: End::Wait(Wait::for_a_change(reason, text)),
        ..Plan::default()
    })
}

/// The end of a Service waits where nobody says the cluster's UID: that heals, and the balancer would be forgotten.
pub(super) fn end_waits(cx: &Context<'_>) -> Option<(Note, Wait)> {
    let of_a_uid = |(_, (_, bar)): &(IpAddr, (&LoadBalancerRule, Bar<'_>))| matches!(bar, Bar::Uid(_));
    let (ip, found) = published(cx)
        .into_iter()
        .find(of_a_uid)
        .filter(|_| cx.identity.uids.is_unknown())?;
    let text = told(cx, ip, found, "until then the service is not given up");
    let note = Note::warning("OtherClusterMark", text.clone());
    Some((note, Wait::for_a_change("OTHER_CLUSTER_MARK", text)))
}

/// What is said of a rule, and what follows.
fn told(cx: &Context<'_>, ip: IpAddr, (rule, bar): (&LoadBalancerRule, Bar<'_>), then: &str) -> String {
    format!(
        "load balancer rule {} on {ip}, where clients of the service are sent, {}; {}; {then}",
        rule.name,
        bar.why(rule),
        bar.remedy(cx.identity.uids.is_unknown())
    )
}

/// Says what stays when the Service goes; of an address that it leaves itself that is said there.
pub(super) fn keep(cx: &Context<'_>, plan: &mut Plan) {
    for (ip, (rule, bar)) in published(cx) {
        if plan.kept.contains(&ip) {
            continue;
        }
        let why = format!(
            "load balancer rule {} on it {}; delete the rule and release the address by hand if they were the service's",
            rule.name,
            bar.why(rule)
        );
        depart::keep(ip, &why, plan);
    }
}
