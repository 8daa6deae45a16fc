//! Addresses and methods for Services that ask.
//!
//! Decides who gets which address and forward method, one after the other: Services that name an address first, then
//! the oldest. A wish that can't be met never changes what a Service has.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use super::super::address::AddressError;
use super::super::claim::{AddressWish, Claim, Family, MethodWish, Standing};
use super::super::document::{Record, service_of_entry};
use super::super::method::Method;
use super::super::notes::{Note, Reason};
use super::super::pool::{Asker, Pool, PoolRefusal};
use super::inherit::wanted_method;
use super::{Draft, Held, Origin, share};

/// The record list may grow to this many bytes; the server allows 262144 for all annotations together.
const RECORDS_LIMIT: usize = 250_000;

/// Brings every Service that asks up to date: those with a record first, since they may make room for the others.
pub(super) fn assign(draft: &mut Draft<'_>) {
    let mut asking: Vec<&Claim> = draft
        .situation
        .claims
        .iter()
        .filter(|claim| claim.standing == Standing::Asked)
        .collect();
    let names_address = |claim: &Claim| matches!(claim.wish.address, Ok(Some(_)));
    asking.sort_by_key(|claim| (!names_address(claim), claim.created, claim.full_name()));
    let recorded: BTreeSet<&str> = draft.held.iter().map(|held| held.claim.uid.as_str()).collect();
    let (present, new): (Vec<&Claim>, Vec<&Claim>) = asking
        .into_iter()
        .partition(|claim| recorded.contains(claim.uid.as_str()));
    let wanted = change_methods(draft, &present);
    change_addresses(draft, &present, &wanted);
    finish_methods(draft, &present, &wanted);
    for claim in present {
        refuse_odd_record(draft, claim);
    }
    // Addresses that were given up stay taken as long as a status shows them.
    let mut taken = draft.taken();
    for claim in new {
        admit(draft, claim, &taken);
        taken.extend(
            draft
                .of_claim(claim)
                .and_then(|place| draft.held.get(place)?.record.address()),
        );
    }
}

fn asker(claim: &Claim) -> Asker<'_> {
    Asker {
        namespace: &claim.namespace,
        labels: &claim.labels,
        pool: claim.wish.pool.as_deref(),
    }
}

/// The methods that Services with a record should have, by UID; those that can have it at once get it.
fn change_methods(draft: &mut Draft<'_>, present: &[&Claim]) -> BTreeMap<String, Method> {
    let mut wishes = BTreeMap::new();
    for claim in present {
        if let Some(note) = family_refusal(claim) {
            draft.note(claim, note.reason, format!("{}; what it has stays", note.text));
        }
        match wanted(draft, claim) {
            Ok(method) => {
                wishes.insert(claim.uid.clone(), method);
                if shared_with(draft, claim, method).is_none() {
                    set_method(draft, claim, method);
                }
            }
            Err(note) => {
                draft.note(
                    claim,
                    note.reason,
                    format!("{}; the forward method stays as it is", note.text),
                );
            }
        }
    }
    wishes
}

/// Those whose address is shared may leave the method that makes it possible only when they are alone.
fn finish_methods(draft: &mut Draft<'_>, present: &[&Claim], wanted: &BTreeMap<String, Method>) {
    for claim in present {
        let Some(method) = wanted.get(&claim.uid).copied() else {
            continue;
        };
        match shared_with(draft, claim, method) {
            None => set_method(draft, claim, method),
            Some(other) => {
                let text = format!("its address is shared with {other}, so the forward method stays VIP");
                draft.note(claim, Reason::InvalidForwardMethod, text);
            }
        }
    }
}

fn set_method(draft: &mut Draft<'_>, claim: &Claim, method: Method) {
    if let Some(held) = draft.held.iter_mut().find(|held| held.claim.uid == claim.uid) {
        method.text().clone_into(&mut held.record.method);
    }
}

/// Somebody who shares the address, where the method would end that.
fn shared_with(draft: &Draft<'_>, claim: &Claim, method: Method) -> Option<String> {
    let held = draft.held.get(draft.of_claim(claim)?)?;
    if method.is_vip() || !held.method().is_some_and(Method::is_vip) {
        return None;
    }
    let mut members = draft.at(held.record.address()?);
    members
        .find(|other| other.claim.uid != claim.uid)
        .map(|other| other.claim.full_name())
}

/// Moves Services that ask for another address, as long as one move makes room for the next.
fn change_addresses<'a>(draft: &mut Draft<'a>, present: &[&'a Claim], wanted: &BTreeMap<String, Method>) {
    let mut refused: BTreeMap<&str, Note> = BTreeMap::new();
    let mut moved = true;
    while std::mem::take(&mut moved) {
        for claim in present {
            let Some(held) = draft.of_claim(claim).and_then(|place| draft.held.get(place)) else {
                continue;
            };
            let (from, recorded) = (held.record.ip.clone(), held.method().unwrap_or_default());
            match &claim.wish.address {
                Ok(Some(wish)) if wish.to_string() != from => {
                    let method = wanted.get(&claim.uid).copied().unwrap_or(recorded);
                    match take(draft, claim, *wish, method) {
                        Ok(()) => {
                            relocate(draft, claim, *wish);
                            refused.remove(claim.uid.as_str());
                            moved = true;
                        }
                        Err(note) => {
                            let text = format!("{}; the address {from} stays", note.text);
                            refused.insert(&claim.uid, Note { text, ..note });
                        }
                    }
                }
                Ok(_) => {}
                Err(problem) => {
                    let text = format!("{problem}; the address {from} stays");
                    refused.insert(&claim.uid, Note::new(reason_of(problem), text));
                }
            }
        }
    }
    for claim in present {
        if let Some(note) = refused.remove(claim.uid.as_str()) {
            draft.note(claim, note.reason, note.text);
        }
    }
}

fn relocate(draft: &mut Draft<'_>, claim: &Claim, to: Ipv4Addr) {
    let Some(held) = draft.held.iter_mut().find(|held| held.claim.uid == claim.uid) else {
        return;
    };
    let from = std::mem::replace(&mut held.record.ip, to.to_string());
    claim.namespace.clone_into(&mut held.record.namespace);
    claim.name.clone_into(&mut held.record.name);
    draft.note(
        claim,
        Reason::IpAllocated,
        format!("moves from {from} to {to}, as requested"),
    );
}

/// A recorded address that is not canonical can't be published by us.
fn refuse_odd_record(draft: &mut Draft<'_>, claim: &Claim) {
    let odd = draft
        .held
        .iter()
        .find(|held| held.claim.uid == claim.uid && held.record.address().is_none());
    let Some(record) = odd.map(|held| held.record.clone()) else {
        return;
    };
    let text = format!(
        "the recorded address \"{}\" is not in canonical form and is left alone; set spec.loadBalancerIP to the address meant",
        record.ip
    );
    draft.findings.push(super::Finding::NotCanonical(record));
    draft.refuse(claim, Note::new(Reason::InvalidLoadBalancerIp, text));
}

/// A Service without a record: it gets an address, or hears why not.
fn admit<'a>(draft: &mut Draft<'a>, claim: &'a Claim, taken: &BTreeSet<Ipv4Addr>) {
    let verdict = family_refusal(claim)
        .map_or_else(|| wanted(draft, claim), Err)
        .and_then(|method| {
            check_room(draft)?;
            let address = match &claim.wish.address {
                Ok(Some(address)) => take(draft, claim, *address, method).map(|()| *address),
                Ok(None) => choose(draft, claim, method, taken),
                Err(problem) => Err(Note::new(reason_of(problem), problem.to_string())),
            }?;
            Ok((address, method))
        });
    match verdict {
        Ok((address, method)) => {
            let record = Record {
                uid: claim.uid.clone(),
                ip: address.to_string(),
                namespace: claim.namespace.clone(),
                name: claim.name.clone(),
                method: method.text().to_owned(),
            };
            let from = match draft.rules.pools.of_address(address) {
                Some(pool) => format!("from the pool {}", pool.name),
                None => "from outside of the pools".to_owned(),
            };
            draft.note(
                claim,
                Reason::IpAllocated,
                format!("has the address {address} {from}"),
            );
            draft.held.push(Held {
                record,
                claim,
                origin: Origin::New,
            });
        }
        Err(note) => draft.refuse(claim, note),
    }
}

fn family_refusal(claim: &Claim) -> Option<Note> {
    let text = match claim.wish.family {
        Family::Ipv4 => return None,
        Family::Ipv6First => "the Service's first address family is IPv6, and only IPv4 can be announced",
        Family::RequireDualStack => {
            "the Service requires an IPv6 address as well (RequireDualStack), and only IPv4 can be announced"
        }
    };
    Some(Note::new(Reason::UnsupportedIpFamily, text))
}

fn reason_of(problem: &AddressWish) -> Reason {
    match problem {
        AddressWish::Bad(AddressError::Ipv6(_)) => Reason::UnsupportedIpFamily,
        AddressWish::Bad(AddressError::NotAnAddress(_) | AddressError::NotUnicast(_))
        | AddressWish::Two(..) => Reason::InvalidLoadBalancerIp,
    }
}

/// The method that a Service asks for, if it may have it.
fn wanted(draft: &Draft<'_>, claim: &Claim) -> Result<Method, Note> {
    if let MethodWish::Bad(unknown) = &claim.wish.method {
        return Err(Note::new(Reason::InvalidForwardMethod, unknown.to_string()));
    }
    let method = wanted_method(claim, draft.rules.default_method);
    if draft.rules.forbidden.contains(&method.effective()) {
        let text = format!("the forward method {} is not permitted here", method.effective());
        return Err(Note::new(Reason::InvalidForwardMethod, text));
    }
    Ok(method)
}

fn check_room(draft: &Draft<'_>) -> Result<(), Note> {
    // Member names and punctuation of one record, generously.
    let size = |record: &Record| {
        90 + record.uid.len()
            + record.ip.len()
            + record.namespace.len()
            + record.name.len()
            + record.method.len()
    };
    let used: usize = draft.held.iter().map(|held| size(&held.record)).sum();
    if used < RECORDS_LIMIT {
        return Ok(());
    }
    let text = format!(
        "the ConfigMap has no room for another record ({} Services)",
        draft.held.len()
    );
    Err(Note::new(Reason::ConfigMapFull, text))
}

/// Whether a Service may have this very address. An entry that names the Service becomes ours.
fn take(draft: &mut Draft<'_>, claim: &Claim, address: Ipv4Addr, method: Method) -> Result<(), Note> {
    draft
        .rules
        .pools
        .admit(address, asker(claim))
        .map_err(|refusal| Note::new(Reason::InvalidLoadBalancerIp, refusal.to_string()))?;
    if draft.situation.nodes.contains(&address) {
        let text = format!("the address {address} belongs to a node");
        return Err(Note::new(Reason::InvalidLoadBalancerIp, text));
    }
    let in_use = |text: String| Err(Note::new(Reason::AddressInUse, text));
    if draft.at(address).next().is_some() {
        return match share::may_join(draft.at(address), claim, method) {
            Ok(()) => Ok(()),
            Err(refusal) => in_use(format!("the address {address} can't be had: {refusal}")),
        };
    }
    let key = address.to_string();
    if let Some(value) = draft.foreign.get(key.as_str()) {
        if service_of_entry(value) != Some((claim.namespace.as_str(), claim.name.as_str())) {
            return in_use(format!(
                "the address {address} has an entry in the ConfigMap that is not ours (\"{value}\"); remove it there to make the address free"
            ));
        }
        draft.foreign.retain(|foreign, _| *foreign != key);
    }
    let shows_it = |other: &&Claim| {
        other.uid != claim.uid && other.standing != Standing::Leaving && other.status.contains(&address)
    };
    match draft.situation.claims.iter().find(shows_it) {
        Some(other) => in_use(format!(
            "the address {address} stands in the status of {}",
            other.full_name()
        )),
        None => Ok(()),
    }
}

/// The address that a Service shares, else the lowest free one of the best pool.
fn choose(
    draft: &Draft<'_>,
    claim: &Claim,
    method: Method,
    taken: &BTreeSet<Ipv4Addr>,
) -> Result<Ipv4Addr, Note> {
    if draft.rules.pools.is_empty() {
        let text =
            "no address pool is configured (KEEPALIVED_SERVICE_CIDR); only requested addresses can be served";
        return Err(Note::new(Reason::PoolExhausted, text));
    }
    let exhausted = |refusal: PoolRefusal| Note::new(Reason::PoolExhausted, refusal.to_string());
    let pools = draft.rules.pools.for_service(asker(claim)).map_err(exhausted)?;
    if let Some(shared) = shared_address(draft, claim, method, &pools) {
        return Ok(shared);
    }
    let free = pools
        .iter()
        .find_map(|pool| draft.rules.pools.first_free(pool, taken));
    free.ok_or_else(|| {
        let full: Vec<String> = pools.iter().map(|pool| describe_full(pool, taken)).collect();
        Note::new(
            Reason::PoolExhausted,
            format!("no address is free: {}", full.join("; ")),
        )
    })
}

/// An address of these pools whose Services take this one in.
fn shared_address(draft: &Draft<'_>, claim: &Claim, method: Method, pools: &[&Pool]) -> Option<Ipv4Addr> {
    claim.wish.sharing_key.as_ref()?;
    let addresses = draft.held.iter().filter_map(|held| held.record.address());
    let in_pools = |address: &Ipv4Addr| pools.iter().any(|pool| pool.addresses().contains(*address));
    let joinable = |address: &Ipv4Addr| share::may_join(draft.at(*address), claim, method).is_ok();
    addresses.filter(in_pools).find(joinable)
}

fn describe_full(pool: &Pool, taken: &BTreeSet<Ipv4Addr>) -> String {
    let used = taken
        .iter()
        .filter(|address| pool.addresses().contains(**address))
        .count();
    format!("pool {pool} has {used} in use")
}
