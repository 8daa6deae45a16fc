//! What is there already: records, and addresses that are served without one.
//!
//! Decides the fate of every record as read (kept, moved to a Service of the same name, released) and which address a
//! Service without a record keeps. Runs before anything is given out, and for all Services, so that a waiting Service
//! can't take the address of a running one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use super::super::address;
use super::super::claim::{Claim, MethodWish, Standing};
use super::super::document::{self, Entry, Record, service_of_entry};
use super::super::method::{Method, Named};
use super::super::notes::Reason;
use super::{Draft, Finding, Held, ListAgain, Origin, Rules, Situation, share};

/// Reads the records and decides which stay.
pub(super) fn inherit<'a>(situation: Situation<'a>, rules: &'a Rules) -> Result<Draft<'a>, ListAgain> {
    let mut findings = Vec::new();
    let mut damaged = None;
    let records = match situation.config_map.records.as_deref().map(document::decode) {
        None => Vec::new(),
        Some(Ok(records)) => records,
        Some(Err(error)) => {
            findings.push(Finding::Damaged(error.to_string()));
            damaged.clone_from(&situation.config_map.records);
            Vec::new()
        }
    };
    let owned: BTreeSet<String> = records.iter().map(|record| record.ip.clone()).collect();
    let data = situation.config_map.data.iter();
    let foreign = data
        .filter(|(key, _)| !owned.contains(*key))
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    let mut draft = Draft {
        situation,
        rules,
        held: Vec::new(),
        foreign,
        owned,
        notes: BTreeMap::new(),
        refused: BTreeMap::new(),
        findings,
        damaged,
    };
    let known = Known::of(situation.claims, &records);
    let mut orphans = Vec::new();
    for record in records {
        orphans.extend(keep(&mut draft, &known, record)?);
    }
    for orphan in orphans {
        pass_on(&mut draft, &known, orphan);
    }
    drop_duplicates(&mut draft);
    Ok(draft)
}

struct Known<'a> {
    by_uid: BTreeMap<&'a str, &'a Claim>,
    by_name: BTreeMap<(&'a str, &'a str), &'a Claim>,
    recorded: BTreeSet<String>,
}

impl<'a> Known<'a> {
    fn of(claims: &'a [Claim], records: &[Record]) -> Self {
        Self {
            by_uid: claims.iter().map(|claim| (claim.uid.as_str(), claim)).collect(),
            by_name: claims
                .iter()
                .map(|claim| ((claim.namespace.as_str(), claim.name.as_str()), claim))
                .collect(),
            recorded: records.iter().map(|record| record.uid.clone()).collect(),
        }
    }

    /// The Service that lives under the name of a record whose own Service is gone.
    fn heir(&self, record: &Record, entry: Option<&str>) -> Option<&'a Claim> {
        let name = if record.is_named() {
            Some((record.namespace.as_str(), record.name.as_str()))
        } else {
            entry.and_then(service_of_entry)
        };
        let heir = self.by_name.get(&name?).copied()?;
        (heir.is_ours() && !self.recorded.contains(&heir.uid)).then_some(heir)
    }
}

/// Keeps a record whose Service lives; gives back one whose Service is gone.
fn keep<'a>(draft: &mut Draft<'a>, known: &Known<'a>, read: Record) -> Result<Option<Record>, ListAgain> {
    let Some(claim) = known.by_uid.get(read.uid.as_str()).copied() else {
        return if draft.situation.is_listed_after {
            Ok(Some(read))
        } else {
            Err(ListAgain)
        };
    };
    match claim.standing {
        Standing::Leaving => {
            draft.findings.push(Finding::Released(read));
            return Ok(None);
        }
        Standing::Elsewhere => draft.findings.push(Finding::Elsewhere(read.clone())),
        Standing::Asked | Standing::Held => {}
    }
    draft.held.push(Held {
        record: named(&read, claim),
        claim,
        origin: Origin::Read(read),
    });
    Ok(None)
}

/// A record whose Service is gone moves to the Service that has its name now, unless others share the address and don't
/// take that one in.
fn pass_on<'a>(draft: &mut Draft<'a>, known: &Known<'a>, read: Record) {
    let entry = draft.situation.config_map.data.get(&read.ip).map(String::as_str);
    let heir = known.heir(&read, entry).filter(|heir| {
        let members = draft.held.iter().filter(|held| held.record.ip == read.ip);
        share::may_join(members, heir, wanted_method(heir, draft.rules.default_method)).is_ok()
    });
    let Some(heir) = heir else {
        draft.findings.push(Finding::Released(read));
        return;
    };
    let record = Record {
        uid: heir.uid.clone(),
        ..named(&read, heir)
    };
    draft.findings.push(Finding::Moved(record.clone()));
    draft.note(
        heir,
        Reason::IpAdopted,
        format!("keeps the address {} of the Service of this name before", read.ip),
    );
    draft.held.push(Held {
        record,
        claim: heir,
        origin: Origin::Read(read),
    });
}

/// Names are filled in from the live Service; a record whose address is not canonical is left as it is.
fn named(read: &Record, claim: &Claim) -> Record {
    if read.address().is_none() {
        return read.clone();
    }
    Record {
        namespace: claim.namespace.clone(),
        name: claim.name.clone(),
        ..read.clone()
    }
}

/// One record per Service: the one that its status shows, else the first.
fn drop_duplicates(draft: &mut Draft<'_>) {
    let mut chosen: BTreeMap<&str, usize> = BTreeMap::new();
    for (place, held) in draft.held.iter().enumerate() {
        let shown = |place: &usize| {
            let address = draft.held.get(*place).and_then(|held| held.record.address());
            address.is_some_and(|address| held.claim.status.contains(&address))
        };
        let best = chosen.entry(held.claim.uid.as_str()).or_insert(place);
        if !shown(best) && shown(&place) {
            *best = place;
        }
    }
    let chosen: BTreeSet<usize> = chosen.into_values().collect();
    let mut place = 0;
    let findings = &mut draft.findings;
    draft.held.retain(|held| {
        let stays = chosen.contains(&place);
        place += 1;
        if !stays {
            findings.push(Finding::Duplicate(held.record.clone()));
        }
        stays
    });
}

/// Services without a record keep the address that they show, or the one of an entry that names them.
pub(super) fn adopt(draft: &mut Draft<'_>) {
    let recorded: BTreeSet<Ipv4Addr> = draft
        .held
        .iter()
        .filter_map(|held| held.record.address())
        .collect();
    let with_record: BTreeSet<&str> = draft.held.iter().map(|held| held.claim.uid.as_str()).collect();
    let mut without: Vec<&Claim> = draft
        .situation
        .claims
        .iter()
        .filter(|claim| claim.is_ours() && !with_record.contains(claim.uid.as_str()))
        .collect();
    without.sort_by_key(|claim| (claim.created, claim.full_name()));
    for claim in without {
        let shown = claim
            .status
            .iter()
            .copied()
            .find(|address| !recorded.contains(address) && is_its_own(draft, claim, *address));
        let Some(address) = shown.or_else(|| entry_of(draft, claim)) else {
            continue;
        };
        let entry = draft
            .situation
            .config_map
            .data
            .get(&address.to_string())
            .map(String::as_str);
        let record = Record {
            uid: claim.uid.clone(),
            ip: address.to_string(),
            namespace: claim.namespace.clone(),
            name: claim.name.clone(),
            method: method_of(claim, entry, draft.rules.default_method)
                .text()
                .to_owned(),
        };
        draft.note(
            claim,
            Reason::IpAdopted,
            format!("keeps the address {address}, which was not recorded for it"),
        );
        if draft.damaged.is_some() {
            let text = "the records in the ConfigMap could not be read and were rebuilt; the old text is kept in an annotation beside them";
            draft.note(claim, Reason::ConfigMapDamaged, text);
        }
        draft.held.push(Held {
            record,
            claim,
            origin: Origin::New,
        });
    }
    restore_sharing(draft);
    // What is recorded now is ours, also for those who share it.
    let keys: BTreeSet<&str> = draft.held.iter().map(|held| held.record.ip.as_str()).collect();
    draft.foreign.retain(|key, _| !keys.contains(key));
}

/// Services with one key that show one address shared it before the records were lost, and only `VIP` can be shared.
fn restore_sharing(draft: &mut Draft<'_>) {
    let mut members: BTreeMap<(String, Option<String>), u32> = BTreeMap::new();
    let group = |held: &Held<'_>| (held.record.ip.clone(), held.claim.wish.sharing_key.clone());
    for held in draft.held.iter().filter(|held| held.origin == Origin::New) {
        *members.entry(group(held)).or_default() += 1;
    }
    for held in draft.held.iter_mut().filter(|held| held.origin == Origin::New) {
        if held.claim.wish.sharing_key.is_some() && members.get(&group(held)).is_some_and(|count| *count > 1)
        {
            Named::Vip.word().clone_into(&mut held.record.method);
        }
    }
}

/// Whether the entry at an address that a Service shows contradicts it.
fn is_its_own(draft: &Draft<'_>, claim: &Claim, address: Ipv4Addr) -> bool {
    let key = address.to_string();
    // Without an entry, a node's address in a status comes from a controller that publishes nodes.
    let Some(value) = draft.foreign.get(key.as_str()) else {
        return !draft.situation.nodes.contains(&address);
    };
    if value.is_empty() {
        // Without a record list nobody can say that the entry was made by hand, and the Service shows the address.
        let is_lost = draft.damaged.is_some() || draft.situation.config_map.records.is_none();
        return is_lost || wanted_method(claim, draft.rules.default_method).is_vip();
    }
    let Some((namespace, name)) = service_of_entry(value) else {
        return false;
    };
    let is_named = |other: &Claim| other.namespace == namespace && other.name == name;
    // Another Service that shows the same address had it together with this one before the records were lost.
    let together = |other: &Claim| other.is_ours() && is_named(other) && other.status.contains(&address);
    is_named(claim) || draft.situation.claims.iter().any(together)
}

/// The lowest entry that names exactly this Service.
fn entry_of(draft: &Draft<'_>, claim: &Claim) -> Option<Ipv4Addr> {
    let own = |value: &str| service_of_entry(value) == Some((claim.namespace.as_str(), claim.name.as_str()));
    let keys = draft.foreign.iter().filter(|(_, value)| own(value));
    keys.filter_map(|(key, _)| address::canonical(key))
        .filter(|address| address::is_unicast(*address))
        .min()
}

/// The method of the entry where it names the Service, else the one that it asks for.
fn method_of(claim: &Claim, entry: Option<&str>, default: Method) -> Method {
    match entry.map(Entry::parse) {
        Some(Entry::Service {
            namespace,
            name,
            method,
        }) if namespace == claim.namespace && name == claim.name => {
            Method::parse(&method).unwrap_or_default()
        }
        Some(Entry::AddressOnly) => Method(Some(Named::Vip)),
        Some(Entry::Service { .. } | Entry::Ignored) | None => wanted_method(claim, default),
    }
}

/// The method that a Service asks for, where that is one.
pub(super) fn wanted_method(claim: &Claim, default: Method) -> Method {
    match &claim.wish.method {
        MethodWish::Of(method) => *method,
        MethodWish::Default | MethodWish::Bad(_) => default,
    }
}
