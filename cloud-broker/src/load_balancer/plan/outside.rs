//! Rules that are named for the Service, or marked for it while nobody said a cluster's UID, and lie outside the tenant's fence,
//! while clients are sent to their address.
//!
//! Decides what becomes of a Service that has only such rules. An older controller made them, or this one before it knew its UID, and
//! a fence that leaves them out is wrong far more often than the name: so no other address is taken for the Service, and its end says what stays. A forger gains
//! nothing by it, since nothing is taken over either.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{Context, End, Plan, depart};
use crate::cloudstack::types::{LoadBalancerRule, RuleState};
use crate::load_balancer::admission::Fence;
use crate::load_balancer::marks::Mark;
use crate::load_balancer::outcome::{Note, Wait};

/// The first such rule of each published address.
fn published<'c>(cx: &'c Context<'_>) -> BTreeMap<IpAddr, (&'c LoadBalancerRule, Fence)> {
    let mut first = BTreeMap::new();
    if cx.survey.mine().next().is_some() {
        return first;
    }
    // Who wants no rules of older controllers taken over has decided about them.
    let counts = |rule: &LoadBalancerRule| cx.identity.take_over || Mark::find(&rule.description).is_some();
    let serving = cx.survey.outside().iter();
    for (rule, fence) in serving.filter(|(rule, _)| rule.state != RuleState::Deleting && counts(rule)) {
        let seen = rule.address_id.as_ref().and_then(|id| cx.observation.address(id));
        let ip = rule.ip.or(seen.map(|address| address.ip));
        if let Some(ip) = ip.filter(|ip| cx.published.contains(ip)) {
            first.entry(ip).or_insert((*rule, *fence));
        }
    }
    first
}

fn named(rule: &LoadBalancerRule) -> &'static str {
    if Mark::find(&rule.description).is_some() {
        "marked"
    } else {
        "named"
    }
}

/// The plan of a Service that waits for its fence to be mended.
pub(super) fn wait(cx: &Context<'_>) -> Option<Plan> {
    let (ip, (rule, fence)) = published(cx).pop_first()?;
    let text = format!(
        "load balancer rule {} on {ip}, where clients of the service are sent, is {} for the service, and outside the fence \
         of the cluster: {}; mend the section of the broker's configuration so that the rule is taken over, or delete the \
         rule; until then no other address is taken",
        rule.name,
        named(rule),
        fence.why()
    );
    Some(Plan {
        notes: vec![Note::warning("OutsideFence", text.clone())],
        end: End::Wait(Wait::for_a_change("OUTSIDE_FENCE", text)),
        ..Plan::default()
    })
}

/// Says what stays when the Service goes.
pub(super) fn keep(cx: &Context<'_>, plan: &mut Plan) {
    for (ip, (rule, fence)) in published(cx) {
        let why = format!(
            "load balancer rule {} on it is {} for the service, and outside the fence of the cluster: {}; delete the rule \
             and release the address by hand if they were the service's",
            rule.name,
            named(rule),
            fence.why()
        );
        depart::keep(ip, &why, plan);
    }
}
