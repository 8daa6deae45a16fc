//! Addresses and methods for Services that ask.
//!
//! Decides who gets which address and forward method, one after the other: Services that name an address first, then
//! the oldest. A wish that can't be met never changes what a Service has.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use super::super::claim::{AddressWish, Claim, Family, MethodWish, Standing};
use super::super::address::AddressError;
use super::super::document::{Record, service_of_entry};
use super::super::method::Method;
use super::super::notes::{Note, Reason};
use super::super::pool::{Asker, Pool, PoolRefusal};
use super::inherit::wanted_method;
use super::{Draft, Held, Origin, share};

/// The record list may grow to this many bytes; the server allows 262144 for all annotations together.
const RECORDS_LIMIT: usize = 250_000;

/// Brings every Service that asks up to date.
pub(super) fn assign(draft: &mut Draft<'_>) {
    let mut asking: Vec<&Claim> =
        draft.situation.claims.iter().filter(|claim| claim.standing == Standing::Asked).collect();
    let names_address = |claim: &Claim| matches!(claim.wish.address, Ok(Some(_)));
    asking.sort_by_key(|claim| (!names_address(claim), claim.created, claim.full_name()));
    let mut taken = draft.taken();
    for claim in asking {
        match draft.of_claim(claim) {
            Some(place) => update(draft, claim, place),
            None => admit(draft, claim, &taken),
        }
        // Given up addresses stay taken until the status says so.
        taken.extend(draft.of_claim(claim).and_then(|place| draft.held.get(place)?.record.address()));
    }
}

fn asker(claim: &Claim) -> Asker<'_> {
    Asker { namespace: &claim.namespace, labels: &claim.labels, pool: claim.wish.pool.as_deref() }
}

/// A Service with a record: a new request is met, or reported and ignored.
fn update<'a>(draft: &mut Draft<'a>, claim: &'a Claim, place: usize) {
    if let Some(note) = family_refusal(claim) {
        draft.note(claim, note.reason, format!("{}; what it has stays", note.text));
    }
    let Some(held) = draft.held.get(place) else { return };
    let (present, had) = (held.record.ip.clone(), held.record.method.clone());
    let method = match wanted(draft, claim) {
        Ok(method) => match leaves_sharing(draft, claim, held, method) {
            None => method.text().to_owned(),
            Some(note) => {
                draft.note(claim, note.reason, note.text);
                had
            }
        },
        Err(note) => {
            draft.note(claim, note.reason, format!("{}; the forward method stays as it is", note.text));
            had
        }
    };
    let move_to = match &claim.wish.address {
        Ok(Some(wish)) if wish.to_string() != present => Some(*wish),
        Ok(_) => None,
        Err(problem) => {
            draft.note(claim, reason_of(problem), format!("{problem}; the address {present} stays"));
            None
        }
    };
    let address = move_to.and_then(|wish| {
        let verdict = take(draft, claim, wish, Method::parse(&method).unwrap_or_default());
        match verdict {
            Ok(()) => Some(wish),
            Err(note) => {
                draft.note(claim, note.reason, format!("{}; the address {present} stays", note.text));
                None
            }
        }
    });
    if let Some(address) = address {
        draft.note(claim, Reason::IpAllocated, format!("moves from {present} to {address}, as requested"));
    }
    if let Some(held) = draft.held.get_mut(place) {
        if let Some(address) = address {
            held.record.ip = address.to_string();
            claim.namespace.clone_into(&mut held.record.namespace);
            claim.name.clone_into(&mut held.record.name);
        }
        held.record.method = method;
    }
    refuse_odd_record(draft, claim, place);
}

/// A recorded address that is not canonical can't be published by us.
fn refuse_odd_record(draft: &mut Draft<'_>, claim: &Claim, place: usize) {
    let Some(held) = draft.held.get(place).filter(|held| held.record.address().is_none()) else { return };
    let record = held.record.clone();
    let text = format!(
        "the recorded address \"{}\" is not in canonical form and is left alone; set spec.loadBalancerIP to the address meant",
        record.ip
    );
    draft.findings.push(super::Finding::NotCanonical(record));
    draft.refuse(claim, Note::new(Reason::InvalidLoadBalancerIp, text));
}

/// Who shares an address must keep the method that makes it possible.
fn leaves_sharing(draft: &Draft<'_>, claim: &Claim, held: &Held<'_>, method: Method) -> Option<Note> {
    let address = held.record.address()?;
    if method.is_vip() || !held.method().is_some_and(Method::is_vip) {
        return None;
    }
    let other = draft.at(address).find(|other| other.claim.uid != claim.uid)?;
    let text = format!(
        "the address {address} is shared with {}, so the forward method stays VIP",
        other.claim.full_name()
    );
    Some(Note::new(Reason::InvalidForwardMethod, text))
}

/// A Service without a record: it gets an address, or hears why not.
fn admit<'a>(draft: &mut Draft<'a>, claim: &'a Claim, taken: &BTreeSet<Ipv4Addr>) {
    let verdict = family_refusal(claim).map_or_else(|| wanted(draft, claim), Err).and_then(|method| {
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
            draft.note(claim, Reason::IpAllocated, format!("has the address {address} {from}"));
            draft.held.push(Held { record, claim, origin: Origin::New });
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
        AddressWish::Bad(AddressError::NotAnAddress(_) | AddressError::NotUnicast(_)) | AddressWish::Two(..) => {
            Reason::InvalidLoadBalancerIp
        }
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
        90 + record.uid.len() + record.ip.len() + record.namespace.len() + record.name.len() + record.method.len()
    };
    let used: usize = draft.held.iter().map(|held| size(&held.record)).sum();
    if used < RECORDS_LIMIT {
        return Ok(());
    }
    let text = format!("the ConfigMap has no room for another record ({} Services)", draft.held.len());
    Err(Note::new(Reason::ConfigMapFull, text))
}

/// Whether a Service may have this very address. An entry that names the Service becomes ours.
fn take<'a>(draft: &mut Draft<'a>, claim: &Claim, address: Ipv4Addr, method: Method) -> Result<(), Note> {
    draft.rules.pools.admit(address, asker(claim)).map_err(|refusal| {
        Note::new(Reason::InvalidLoadBalancerIp, refusal.to_string())
    })?;
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
        Some(other) => in_use(format!("the address {address} stands in the status of {}", other.full_name())),
        None => Ok(()),
    }
}

/// The address that a Service shares, else the lowest free one of the best pool.
fn choose(draft: &Draft<'_>, claim: &Claim, method: Method, taken: &BTreeSet<Ipv4Addr>) -> Result<Ipv4Addr, Note> {
    let pools = draft.rules.pools.for_service(asker(claim)).map_err(|refusal| match refusal {
        PoolRefusal::NoPool if draft.rules.pools.is_empty() => Note::new(
            Reason::PoolExhausted,
            "no address pool is configured (KEEPALIVED_SERVICE_CIDR); only requested addresses can be served",
        ),
        other => Note::new(Reason::PoolExhausted, other.to_string()),
    })?;
    if let Some(shared) = shared_address(draft, claim, method, &pools) {
        return Ok(shared);
    }
    let free = pools.iter().find_map(|pool| draft.rules.pools.first_free(pool, taken));
    free.ok_or_else(|| {
        let full: Vec<String> = pools.iter().map(|pool| describe_full(pool, taken)).collect();
        Note::new(Reason::PoolExhausted, format!("no address is free: {}", full.join("; ")))
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
    let used = taken.iter().filter(|address| pool.addresses().contains(**address)).count();
    format!("pool {pool} has {used} in use")
}
