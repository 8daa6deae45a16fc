//! How an address is given back that was taken for a Service and never got a rule.
//!
//! Decides which that are: those that a job of the Service proves, that nothing else is on, and that nobody was ever told about.
//! Somebody who waits for a wish that the cloud refuses would else have one more of them every day, since jobs prove nothing for
//! longer. An address that clients are sent to stays although its rules are gone, and so does the one that is asked for: there
//! never is another one of it.

use super::{Context, Goal, Need, Plan, Request, depart};
use crate::cloudstack::types::{AddressState, PublicIpAddress};
use crate::load_balancer::address::leftovers;
use crate::load_balancer::observation::Observation;
use crate::load_balancer::ownership::{Proof, jobs};

/// Plans to give back what was taken for the Service and never used.
pub(crate) fn give_back(request: &Request, observation: &Observation) -> Plan {
    let cx = Context::of(request, observation);
    let mut plan = Plan::default();
    let requested = match &request.goal {
        Goal::Serve(wish) => wish.requested,
        Goal::Leave(_) => None,
    };
    let is_known =
        |address: &PublicIpAddress| cx.published.contains(&address.ip) || requested == Some(address.ip);
    let unused = leftovers(&cx).filter(|address| address.state == AddressState::Allocated);
    for address in unused.filter(|address| !is_known(address)) {
        match jobs(cx.identity, observation, address) {
            Proof::Ask(job) => plan.needs.push(Need::Job(job)),
            Proof::Taken => {
                let reason = "the cloud refuses the rule that it was taken for";
                depart::release(&cx, address, reason, &mut plan);
            }
            Proof::Running(_) | Proof::NotTaken(_) => {}
        }
    }
    plan.finished()
}
