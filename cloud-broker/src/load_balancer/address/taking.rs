//! Taking an address: always a chosen one, under a job id that anybody can compute again, so that whatever dies in between, the
//! next look finds it and can prove it.
//!
//! Decides which address that is: one that was taken for the Service and never used, else the requested one, else the free one
//! that hashes highest. Facts: an address that is being taken shows neither its network nor its VPC; a job that fails gives the
//! address back, and its id is used up. So one that is allocated although its job failed stays: as far as anything shows somebody else
//! has taken it since, for a job that failed says nothing of when the address was taken, and its times are whole seconds.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::time::Duration;

use proto::{Fault, FaultKind};
use sha2::{Digest as _, Sha256};

use super::{Decision, Site, end_release, unavailable, wait};
use crate::cloudstack::Associate;
use crate::cloudstack::types::{AddressId, AddressState, Network, PublicIpAddress};
use crate::load_balancer::marks::AddressWord;
use crate::load_balancer::network;
use crate::load_balancer::observation::{Need, Taken};
use crate::load_balancer::outcome::Wait;
use crate::load_balancer::ownership::{Proof, Tries, jobs, tries};
use crate::load_balancer::plan::{Context, Impact, Phase, Planned, Step};

/// How long a server keeps the record of a job, with some room: an older address can't be proved by one.
pub(crate) const PROVABLE: Duration = Duration::from_hours(25);
/// Associates that may fail to get their address in one call.
const MOST_LOST: u32 = 3;
/// Free addresses that are tried before it is no use to go on, and as many as are looked for.
pub(crate) const CANDIDATES: usize = 3;
/// Jobs of one address after which another one comes first; if all of them failed, it is tried no more while they are known.
const MOST_TRIES: u32 = 3;

/// No address yet: one that we took and did not use, else a free one.
pub(super) fn acquire(cx: &Context<'_>, network: &Network) -> Decision {
    if let Some(fault) = too_many(cx) {
        return Decision::Refused(fault);
    }
    let mut needs = Vec::new();
    if !cx.published.is_empty() && cx.observation.looks < 2 {
        needs.push(Need::SecondLook);
    }
    if cx.observation.unsettled.is_none() {
        needs.push(Need::Unsettled);
    }
    if cx.observation.free.is_none() {
        needs.push(Need::Free {
            zone: network.zone_id.clone(),
            among: cx.policy.allowed_addresses.clone(),
        });
    }
    if !needs.is_empty() {
        return Decision::Need(needs);
    }
    match unused(cx, network) {
        Some(decision) => decision,
        None => choose(cx, network),
    }
}

/// An address that was taken for this Service without a rule getting there.
fn unused(cx: &Context<'_>, network: &Network) -> Option<Decision> {
    let mut needs = Vec::new();
    // One that is being taken does not say for which network; its job does.
    let may_be_it = |address: &&PublicIpAddress| {
        address.state == AddressState::Allocating || network::may_use(network, address).is_ok()
    };
    for address in leftovers(cx).filter(may_be_it) {
        match jobs(cx.identity, cx.observation, address) {
            Proof::Ask(job) => needs.push(Need::Job(job)),
            Proof::Running(job) => return Some(Decision::Await(job)),
            Proof::Taken if address.state == AddressState::Releasing => {
                return Some(end_release(cx, address));
            }
            Proof::Taken if address.state == AddressState::Allocating => {
                // Its job ended after the list was read.
                if cx.observation.address(&address.id).is_some() {
                    return Some(still_pending(address.ip, None));
                }
                needs.push(Need::Address(address.id.clone()));
            }
            Proof::Taken => {
                let (id, ip) = (address.id.clone(), address.ip);
                return Some(Decision::At(Site {
                    address: id,
                    ip,
                    word: AddressWord::Own,
                }));
            }
            Proof::NotTaken(_) => {}
        }
    }
    (!needs.is_empty()).then_some(Decision::Need(needs))
}

pub(super) fn still_pending(ip: IpAddr, present: Option<Site>) -> Decision {
    let text = format!("address {ip} is being taken for the service");
    wait(
        Wait::shortly("ADDRESS_PENDING", "associate address", &text),
        present,
        "AddressPending",
        text,
    )
}

/// The free address that hashes highest, unless it was tried too often.
fn choose(cx: &Context<'_>, network: &Network) -> Decision {
    let free = cx.observation.free.iter().flatten();
    let elsewhere = |address: &PublicIpAddress| {
        let zones = (address.zone_id.as_ref(), network.zone_id.as_ref());
        matches!(zones, (Some(zone), Some(other)) if zone != other)
    };
    let mut usable: Vec<&PublicIpAddress> = free
        .filter(|address| {
            address.state == AddressState::Free
                && address.ip.is_ipv4()
                && !elsewhere(address)
                && cx.policy.allowed_addresses.admit(address.ip)
        })
        .collect();
    usable.sort_by_cached_key(|address| Reverse(rank(cx, &address.id)));
    usable.truncate(CANDIDATES);
    let mut spare: Option<(&PublicIpAddress, Tries<'_>)> = None;
    let mut failed = Vec::new();
    for address in usable {
        if let Proof::Ask(job) = jobs(cx.identity, cx.observation, address) {
            return Decision::Need(vec![Need::Job(job)]);
        }
        let tries = tries(cx.identity, cx.observation, address);
        if tries.used < MOST_TRIES {
            return take(cx, address, network, None);
        }
        if tries.failed >= MOST_TRIES {
            failed.push((address, tries));
        } else if spare.as_ref().is_none_or(|(_, least)| tries.used < least.used) {
            spare = Some((address, tries));
        }
    }
    match (spare, failed.last()) {
        (Some((address, _)), _) => take(cx, address, network, None),
        (None, Some((address, tries))) => hopeless(address, *tries, None),
        (None, None) => {
            let text =
                "no public address is free that this cluster may use; release one or add a range".to_owned();
            wait(
                Wait::for_a_change("NO_FREE_ADDRESS", &text),
                None,
                "NoFreeAddress",
                text,
            )
        }
    }
}

/// Every try failed in its job: that is no matter of the address, and is not tried for ever.
fn hopeless(address: &PublicIpAddress, tries: Tries<'_>, present: Option<Site>) -> Decision {
    let text = format!(
        "the cloud gives the service no address: {} jobs in a row failed for {}, the last one with \"{}\"",
        tries.failed, address.ip, tries.said
    );
    wait(
        Wait::at_length("ADDRESS_NOT_OBTAINED", &text),
        present,
        "AddressNotObtained",
        text,
    )
}

/// Addresses that some job of this Service may have taken without a rule getting there.
pub(crate) fn leftovers<'c>(cx: &'c Context<'_>) -> impl Iterator<Item = &'c PublicIpAddress> {
    cx.observation.all_addresses().filter(|address| {
        let taken = cx.observation.taken.get(&address.id);
        is_bare(cx, &address.id)
            && taken.is_none_or(|taken| is_for_this(cx, taken))
            && !address.is_static_nat
            && !address.is_system
            && is_recent(cx, address)
    })
}

fn is_for_this(cx: &Context<'_>, taken: &Taken) -> bool {
    taken.service == cx.identity.service.uid.as_str() && is_of_cluster(cx, taken)
}

fn is_of_cluster(cx: &Context<'_>, taken: &Taken) -> bool {
    let uids = &cx.identity.uids;
    uids.mark() == taken.cluster || uids.are_ours(&taken.cluster)
}

/// Whether no rule is on an address.
pub(crate) fn is_bare(cx: &Context<'_>, address: &AddressId) -> bool {
    cx.observation.rules_on(address).next().is_none()
}

/// Whether a job may prove the address. A source NAT address needs no proof: it is never released, and its network would
/// have one anyway.
pub(crate) fn is_recent(cx: &Context<'_>, address: &PublicIpAddress) -> bool {
    let provable = address
        .allocated
        .is_some_and(|at| at.after(PROVABLE) >= cx.observation.now);
    !address.is_source_nat && (provable || address.state == AddressState::Allocating)
}

/// The highest wins: the same for every broker and every try, and another for every Service.
fn rank(cx: &Context<'_>, address: &AddressId) -> [u8; 32] {
    Sha256::digest(format!("{}/{address}", cx.identity.service.uid).as_bytes()).into()
}

/// Takes a free address, if nothing speaks against it.
pub(super) fn take(
    cx: &Context<'_>,
    address: &PublicIpAddress,
    network: &Network,
    present: Option<Site>,
) -> Decision {
    if cx.observation.lost_associates >= MOST_LOST {
        let text = format!("{MOST_LOST} tries in a row to take an address failed; trying again later");
        return wait(
            Wait::for_a_change("ADDRESS_NOT_OBTAINED", &text),
            present,
            "AddressNotObtained",
            text,
        );
    }
    if let Some(fault) = too_many(cx) {
        return Decision::Refused(fault);
    }
    let job = match jobs(cx.identity, cx.observation, address) {
        Proof::Ask(job) => return Decision::Need(vec![Need::Job(job)]),
        Proof::Running(job) => return Decision::Await(job),
        Proof::NotTaken(job) => job,
        Proof::Taken => return unavailable(address.ip, present, "it is just being taken"),
    };
    let tries = tries(cx.identity, cx.observation, address);
    if tries.failed >= MOST_TRIES {
        return hopeless(address, tries, present);
    }
    let reason = if present.is_some() || cx.survey.mine().next().is_some() {
        "another address is requested"
    } else {
        "the service has no address"
    };
    let request = Associate {
        target: network::target(network),
        ip: address.ip,
        job,
    };
    Decision::First(Box::new(Planned {
        phase: Phase::Acquire,
        step: Step::Associate {
            request,
            address: address.id.clone(),
        },
        reason: reason.to_owned(),
        impact: Impact::None,
    }))
}

/// Whether the cluster has as many addresses as it may, those counted that were taken for other Services and have no rule yet.
/// What was taken for this one and never used is no further address.
fn too_many(cx: &Context<'_>) -> Option<Fault> {
    let most = cx.policy.max_public_ips?;
    let of_this_service = cx
        .observation
        .addresses
        .iter()
        .filter(|address| is_bare(cx, &address.id))
        .filter(|address| jobs(cx.identity, cx.observation, address) == Proof::Taken)
        .count();
    let own = cx.survey.own_addresses(cx.identity, cx.observation);
    let used = own.saturating_sub(of_this_service) + on_their_way(cx);
    let text =
        format!("the cluster has the {most} public addresses that its section of the configuration allows");
    (used >= usize::try_from(most).unwrap_or(usize::MAX))
        .then(|| Fault::new(FaultKind::Quota, "MAX_PUBLIC_IPS", text))
}

/// Addresses that this process took for other Services, and that no rule and no tag shows to be the cluster's yet.
fn on_their_way(cx: &Context<'_>) -> usize {
    let seen = cx.observation;
    let is_listed = |id: &AddressId| seen.all_addresses().any(|address| address.id == *id);
    seen.taken
        .iter()
        .filter(|(_, taken)| is_of_cluster(cx, taken) && !is_for_this(cx, taken))
        .filter(|(id, taken)| is_bare(cx, id) && (taken.lately || is_listed(id)))
        .filter(|(id, _)| cx.survey.word(cx.identity, seen, id) != AddressWord::Own)
        .count()
}

#[cfg(test)]
mod tests;
