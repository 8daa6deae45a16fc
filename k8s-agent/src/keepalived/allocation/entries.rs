//! The entries that follow from the records, and our own state.
//!
//! Decides the value of every key that is ours. Everything else in the ConfigMap stays byte for byte, except entries
//! of an earlier program when the prune switch is on.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use super::super::claim::{Claim, Standing};
use super::super::document::{Record, State, service_of_entry};
use super::super::notes::Reason;
use super::{Draft, Finding, Held, Origin, share};

/// So much of an unreadable record list is kept.
const DAMAGED_LIMIT: usize = 32 * 1024;

/// All entries as they should be.
pub(super) fn entries(draft: &mut Draft<'_>) -> BTreeMap<String, String> {
    stale(draft);
    let mut data: BTreeMap<String, String> = draft
        .foreign
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (place, held) in draft.held.iter().enumerate() {
        groups.entry(held.record.ip.clone()).or_default().push(place);
    }
    for (key, places) in groups {
        if let Some(value) = entry(draft, &key, &places) {
            data.insert(key, value);
        }
    }
    data
}

/// The entry of one address.
fn entry(draft: &mut Draft<'_>, key: &str, places: &[usize]) -> Option<String> {
    let present = draft.situation.config_map.data.get(key).cloned();
    let members: Vec<Held<'_>> = places
        .iter()
        .filter_map(|place| draft.held.get(*place).cloned())
        .collect();
    let odd = members.iter().any(|held| held.record.address().is_none());
    if odd {
        return present;
    }
    let records: Vec<&Record> = members.iter().map(|held| &held.record).collect();
    let owner = owner(&records, present.as_deref())?;
    let wanted = owner.entry();
    grandfathered(draft, &members, owner);
    if present.as_deref() == Some(&wanted) || !is_damage(draft, &members, key, present.as_deref()) {
        return Some(wanted);
    }
    let claim = members
        .iter()
        .find(|held| held.record.uid == owner.uid)
        .map(|held| held.claim);
    if draft.situation.contested.contains(key) {
        draft.findings.push(Finding::Contested(key.to_owned()));
        if let Some(claim) = claim {
            let text = format!(
                "somebody else changes the entry {key} of the ConfigMap again and again; it is left alone for now"
            );
            draft.note(claim, Reason::ConfigMapContested, text);
        }
        return present;
    }
    draft.findings.push(Finding::Repaired(key.to_owned()));
    if let Some(claim) = claim {
        let was = present.map_or_else(|| "was missing".to_owned(), |value| format!("said \"{value}\""));
        draft.note(
            claim,
            Reason::ConfigMapRepaired,
            format!("put the entry {key} of the ConfigMap right; it {was}"),
        );
    }
    Some(wanted)
}

/// The record whose Service the entry leads to: the one that it names now, else the oldest.
fn owner<'r>(records: &[&'r Record], present: Option<&str>) -> Option<&'r Record> {
    let named = present.and_then(service_of_entry);
    let names_it = |record: &&&Record| named == Some((record.namespace.as_str(), record.name.as_str()));
    let announced = |record: &&&Record| present == Some("") && record.entry().is_empty();
    let found = records
        .iter()
        .find(names_it)
        .or_else(|| records.iter().find(announced));
    found.or_else(|| records.first()).copied()
}

/// Whether an entry differs from what its records said when they were read, so that somebody else changed it.
fn is_damage(draft: &Draft<'_>, members: &[Held<'_>], key: &str, present: Option<&str>) -> bool {
    let read: Vec<&Record> = members
        .iter()
        .filter_map(|held| match &held.origin {
            Origin::Read(record) if record.ip == key => Some(record),
            Origin::Read(_) | Origin::New => None,
        })
        .collect();
    // Version 0.0.1 recorded no names; then the entry alone says what was meant.
    if !draft.owned.contains(key) || read.is_empty() {
        return false;
    }
    if read.iter().any(|record| !record.is_named()) {
        return present.and_then(service_of_entry).is_none();
    }
    owner(&read, present).map(Record::entry).as_deref() != present
}

/// Several Services on one address that do not share it by agreement: all keep it, those beside the owner are told.
fn grandfathered(draft: &mut Draft<'_>, members: &[Held<'_>], owner: &Record) {
    let chief = members
        .iter()
        .find(|held| held.record.uid == owner.uid)
        .map(|held| held.claim);
    let others = members
        .iter()
        .filter(|held| held.record.uid != owner.uid && held.claim.standing != Standing::Elsewhere);
    for held in others {
        let method = held.method().unwrap_or_default();
        if share::may_join(members.iter(), held.claim, method).is_ok() {
            continue;
        }
        let port = chief.and_then(|chief| share::common_port(held.claim, chief));
        let collision = port
            .map(|port| format!(", which has the port {port} as well"))
            .unwrap_or_default();
        let text = format!(
            "the address {} is recorded for {}/{} too{collision}; the entry leads there. Ask for another address, or let both share it by agreement",
            owner.ip, owner.namespace, owner.name
        );
        draft.note(held.claim, Reason::AddressInUse, text);
    }
}

/// Entries without record that name a Service which has its address elsewhere.
fn stale(draft: &mut Draft<'_>) {
    let served: BTreeMap<(&str, &str), &Claim> = draft
        .held
        .iter()
        .map(|held| {
            (
                (held.record.namespace.as_str(), held.record.name.as_str()),
                held.claim,
            )
        })
        .collect();
    let found: Vec<(String, &Claim)> = draft
        .foreign
        .iter()
        .filter_map(|(key, value)| Some(((*key).to_owned(), *served.get(&service_of_entry(value)?)?)))
        .collect();
    let keys: BTreeSet<String> = found.iter().map(|(key, _)| key.clone()).collect();
    for (key, claim) in found {
        if !draft.rules.prune_stale {
            let text = format!(
                "the ConfigMap has an entry {key} for this Service that nobody maintains; the address is not given out"
            );
            draft.note(claim, Reason::StaleEntry, text);
        }
        draft.findings.push(Finding::Stale(key, claim.full_name()));
    }
    if draft.rules.prune_stale {
        draft.foreign.retain(|key, _| !keys.contains(*key));
    }
}

/// Our own state after this plan.
pub(super) fn state(draft: &Draft<'_>) -> State {
    let before = draft
        .situation
        .config_map
        .state
        .as_deref()
        .map(State::decode)
        .unwrap_or_default();
    let mut by_uid: Vec<(&str, String)> = draft
        .held
        .iter()
        .map(|held| (held.claim.uid.as_str(), held.claim.ports_text()))
        .collect();
    by_uid.sort();
    let ports = if by_uid.is_empty() {
        String::new()
    } else {
        fingerprint(&by_uid)
    };
    let damaged = draft.damaged.as_ref().map_or(before.damaged, |text| {
        text.char_indices()
            .take_while(|(at, _)| *at < DAMAGED_LIMIT)
            .map(|(_, character)| character)
            .collect()
    });
    State { ports, damaged }
}

fn fingerprint(ports: &[(&str, String)]) -> String {
    let mut hash = Sha256::new();
    for (uid, text) in ports {
        hash.update(uid.as_bytes());
        hash.update(b"=");
        hash.update(text.as_bytes());
        hash.update(b"\n");
    }
    hash.finalize()
        .iter()
        .take(8)
        .fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}
