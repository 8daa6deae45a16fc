//! What a cluster owns: for reports of drift and orphans. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::admission::{Admission, admission_of_nameless};
use super::marks::{AddressWord, Mark};
use super::observation::Observation;
use super::ownership::TAG_KEY;
use crate::cloudstack::types::{AddressState, LoadBalancerRule, RuleState};
use crate::tenant::{ClusterUids, Scope};

/// What the cluster owns for one Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// UID of the Service as marks carry it; empty for an address that no Service uses.
    pub service_uid: String,
    /// Its addresses.
    pub addresses: BTreeSet<IpAddr>,
    /// Whether one of them is the cluster's own.
    pub address_owned: bool,
    /// Names of its rules.
    pub rules: Vec<String>,
    /// What is not as it should be.
    pub drift: Vec<String>,
    /// No live Service asks for it; `None` if the live ones are not known.
    pub orphan: Option<bool>,
    /// Why an address that nobody uses is kept.
    pub kept_because: String,
}

/// Everything of the cluster, Services by UID, addresses that nobody uses last.
pub(super) fn list(
    (uids, scope): (&ClusterUids, &Scope),
    seen: &Observation,
    live: &BTreeSet<String>,
) -> Vec<Summary> {
    let is_ours = |rule: &LoadBalancerRule, mark: &Mark| {
        uids.are_ours(&mark.cluster)
            || (mark.is_nameless()
                && is_likely_ours(uids, mark, live)
                && admission_of_nameless(uids, scope, rule, seen) == Admission::Inside)
    };
    let mut services: BTreeMap<String, Summary> = BTreeMap::new();
    for rule in &seen.rules {
        let Some(mark) = Mark::find(&rule.description).filter(|mark| is_ours(rule, mark)) else {
            continue;
        };
        let summary = services.entry(mark.service.clone()).or_default();
        summary.service_uid.clone_from(&mark.service);
        summary.addresses.extend(rule.ip);
        summary.address_owned |= mark.address == Some(AddressWord::Own);
        summary.rules.push(rule.name.clone());
        summary.drift.extend(drift(rule, &mark, seen));
    }
    let mut list: Vec<Summary> = services
        .into_values()
        .map(|mut summary| {
            summary.orphan = (!live.is_empty()).then(|| !live.contains(&summary.service_uid));
            summary.rules.sort();
            summary
        })
        .collect();
    let unused = seen.addresses.iter().filter(|address| {
        address
            .tags
            .iter()
            .any(|tag| tag.key.eq_ignore_ascii_case(TAG_KEY) && uids.are_ours(&tag.value))
            && seen.rules_on(&address.id).next().is_none()
    });
    list.extend(unused.map(|address| Summary {
        addresses: BTreeSet::from([address.ip]),
        address_owned: true,
        kept_because: if address.state == AddressState::Allocated {
            "it carries the cluster's tag and no rule; nothing says which service took it".to_owned()
        } else {
            format!("it carries the cluster's tag and is {}", address.state.as_str())
        },
        ..Summary::default()
    }));
    list
}

/// Whether a mark that names no cluster is one of ours: of a Service that lives, or, where nobody says which do, of a cluster that
/// writes such marks itself.
fn is_likely_ours(uids: &ClusterUids, mark: &Mark, live: &BTreeSet<String>) -> bool {
    live.contains(&mark.service) || (live.is_empty() && uids.is_unknown())
}

fn drift(rule: &LoadBalancerRule, mark: &Mark, seen: &Observation) -> Vec<String> {
    let mut drift = Vec::new();
    let name = &rule.name;
    if rule.state == RuleState::Deleting {
        drift.push(format!("rule {name} is half deleted"));
    }
    if seen.members.get(&rule.id).is_some_and(BTreeSet::is_empty) {
        drift.push(format!("rule {name} has no members"));
    }
    if mark.address.is_none() {
        drift.push(format!(
            "the mark of rule {name} does not say whose the address is"
        ));
    }
    let words: BTreeSet<_> = rule
        .address_id
        .iter()
        .flat_map(|address| seen.rules_on(address))
        .filter_map(|other| Mark::find(&other.description))
        .filter(|other| other.cluster == mark.cluster)
        .filter_map(|other| other.address)
        .collect();
    if words.len() > 1 {
        drift.push(format!(
            "the marks on the address of rule {name} do not agree whose it is"
        ));
    }
    drift
}
