//! Rules that are named for the Service, have no mark and lie outside the tenant's fence, while clients are sent to their address.
//!
//! Decides what becomes of a Service that has only such rules. An older controller made them, and a fence that leaves them out is
//! wrong far more often than the name: so no other address is taken for the Service, and its end says what stays. A forger gains
//! nothing by it, since nothing is taken over either.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{Context, End, Plan, depart};
use crate::cloudstack::types::{LoadBalancerRule, RuleState};
use crate::load_balancer::admission::Fence;
use crate::load_balancer::outcome::{Note, Wait};

/// The first such rule of each published address.
fn published<'c>(cx: &'c Context<'_>) -> BTreeMap<IpAddr, (&'c LoadBalancerRule, Fence)> {
    let mut first = BTreeMap::new();
    let is_alone = cx.survey.mine().next().is_none();
    // Who wants no rules taken over has decided about them.
    if !is_alone || !cx.identity.take_over {
        return first;
    }
    let serving = cx.survey.outside().iter();
    for (rule, fence) in serving.filter(|(rule, _)| rule.state != RuleState::Deleting) {
        let seen = rule.address_id.as_ref().and_then(|id| cx.observation.address(id));
        let ip = rule.ip.or(seen.map(|address| address.ip));
        if let Some(ip) = ip.filter(|ip| cx.published.contains(ip)) {
            first.entry(ip).or_insert((*rule, *fence));
        }
    }
    first
}

/// The plan of a Service that waits for its fence to be mended.
pub(super) fn wait(cx: &Context<'_>) -> Option<Plan> {
    let (ip, (rule, fence)) = published(cx).pop_first()?;
    let text = format!(
        "load balancer rule {} on {ip}, where clients of the service are sent, is named for the service, and outside the fence \
         of the cluster: {}; mend the section of the broker's configuration so that the rule is taken over, or delete the \
         rule; until then no other address is taken",
        rule.name,
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
            "load balancer rule {} on it is named for the service, and outside the fence of the cluster: {}; delete the rule \
             and release the address by hand if they were the service's",
            rule.name,
            fence.why()
        );
        depart::keep(ip, &why, plan);
    }
}
