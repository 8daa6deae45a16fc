//! Addresses without a rule: which of them are given back.
//!
//! Decides what goes when a Service ends, and what is given back of a wish that the cloud refuses: addresses that a job of the
//! Service proves and that nothing else is on. Somebody who waits for a wish that the cloud refuses would else have one more of
//! them every day, since jobs prove nothing for longer; of these, one that clients are sent to stays although its rules are
//! gone, and so does the one that is asked for: there never is another one of it. At the end a published one goes, too; once no job
//! can tell for which Service it was taken, its tag will do.

use super::{Context, End, Goal, Need, Plan, Request, depart};
use crate::cloudstack::types::{AddressState, PublicIpAddress};
use crate::load_balancer::address::{is_bare, is_recent, leftovers};
use crate::load_balancer::observation::Observation;
use crate::load_balancer::ownership::{Proof, is_tagged, jobs};

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

/// Bare addresses: those that were taken for the Service without a rule getting there, those that a broker before this one
/// began to release, and the Service's own whose rules somebody else deleted.
pub(super) fn at_the_end(cx: &Context<'_>, keep_address: bool, plan: &mut Plan) -> Option<End> {
    let mut end = None;
    let is_published = |address: &PublicIpAddress| cx.published.contains(&address.ip);
    let older = cx
        .observation
        .all_addresses()
        .filter(|address| is_published(address) || address.state == AddressState::Releasing)
        .filter(|address| is_bare(cx, &address.id) && !is_recent(cx, address));
    let ends_here = |address: &&PublicIpAddress| !cx.observation.begun.contains_key(&address.id);
    for address in leftovers(cx).chain(older).filter(ends_here) {
        let releasing = address.state == AddressState::Releasing;
        let is_tagged = is_tagged(cx.identity, &address.tags) && (releasing || is_published(address));
        // A tag does not say for which Service the address was taken; as long as a job can, it has the word.
        let by_tag = is_tagged.then_some(Proof::Taken);
        let proof = match is_recent(cx, address) {
            true if releasing && is_tagged => by_tag,
            true => Some(jobs(cx.identity, cx.observation, address)),
            false => by_tag,
        };
        match proof {
            Some(Proof::Ask(job)) => plan.needs.push(Need::Job(job)),
            Some(Proof::Running(job)) => end = Some(End::Await(job)),
            Some(Proof::Taken) if releasing => depart::end_release(cx, address, plan),
            Some(Proof::Taken) if keep_address => depart::hand_over(cx, address, plan),
            Some(Proof::Taken) => {
                depart::release(cx, address, "it is the cluster's and no rule is on it", plan);
            }
            Some(Proof::NotTaken(_)) | None if releasing && is_published(address) => {
                let why =
                    "its release was begun and did not end, and nothing proves that it is the cluster's";
                depart::keep(address.ip, why, plan);
            }
            Some(Proof::NotTaken(_)) if is_tagged => {
                let why = "it is the cluster's, no rule is on it, and it was taken within the last day, not for this service as far \
                           as is known: another one may be about to use it";
                depart::keep(address.ip, why, plan);
            }
            Some(Proof::NotTaken(_)) | None => {}
        }
    }
    end
}
