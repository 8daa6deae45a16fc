//! How an address is given back that was taken for a Service and never got a rule.
//!
//! Decides which that are: those that a job of the Service proves, and that nothing else is on. Somebody who waits for a wish that
//! the cloud refuses would else have one more of them every day, since jobs prove nothing for longer.

use super::{Context, Need, Plan, Request, depart};
use crate::cloudstack::types::AddressState;
use crate::load_balancer::address::leftovers;
use crate::load_balancer::observation::Observation;
use crate::load_balancer::ownership::{Proof, jobs};

/// Plans to give back what was taken for the Service and never used.
pub(crate) fn give_back(request: &Request, observation: &Observation) -> Plan {
    let cx = Context::of(request, observation);
    let mut plan = Plan::default();
    for address in leftovers(&cx).filter(|address| address.state == AddressState::Allocated) {
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
