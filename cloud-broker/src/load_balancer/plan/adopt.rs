//! Adoption: marks for the rules that an older controller made for the Service.
//!
//! Decides what the marks say, and nothing else: no rule, address, member or firewall rule is made or deleted. Sources that
//! differ from the wish are held as they are until the wish changes.

use std::collections::BTreeSet;

use super::{Context, Impact, Need, Phase, Plan, Step};
use crate::cloudstack::RuleChange;
use crate::cloudstack::types::{AddressId, LoadBalancerRule, RuleProtocol};
use crate::load_balancer::marks::{AddressWord, Mark};
use crate::load_balancer::network::{Filter, filter};
use crate::load_balancer::ownership::{Claimed, adopted_word};
use crate::load_balancer::sources::{Sources, SourcesHash};
use crate::load_balancer::wish::{AdoptionHint, Dialect, Wish, transport_of};

/// Marks for every rule of the Service.
pub(super) fn plan(cx: &Context<'_>, hint: &AdoptionHint, keep_address: bool, wish: Option<&Wish>) -> Plan {
    let mut plan = Plan::default();
    let unknown = cx
        .survey
        .addresses()
        .into_iter()
        .filter(|id| cx.observation.address(id).is_none() && !cx.observation.invisible.contains(id));
    plan.needs.extend(unknown.map(Need::Address));
    for claimed in cx.survey.mine().filter(|claimed| claimed.serves()) {
        let Some(address) = &claimed.rule.address_id else {
            continue;
        };
        let Some(src) = sources_of(cx, claimed.rule, address, wish) else {
            plan.needs.push(Need::Firewall);
            continue;
        };
        let word = word(cx, claimed, address, hint, keep_address);
        let held = wish
            .filter(|wish| !is_as_wished(claimed.rule, &src, wish))
            .map(|wish| wish.sources.hash());
        let mark = Mark {
            cluster: cx.identity.uids.mark().to_owned(),
            service: cx.identity.service.uid.to_string(),
            address: Some(word),
            src,
            held,
            other: Vec::new(),
        };
        let change = RuleChange {
            description: Some(mark.written_into(&claimed.rule.description)),
            algorithm: Some(claimed.rule.algorithm.clone()),
            protocol: Some(claimed.rule.protocol.clone().unwrap_or(RuleProtocol::Tcp)),
            ..RuleChange::default()
        };
        let step = Step::UpdateRule {
            rule: claimed.rule.id.clone(),
            name: claimed.rule.name.clone(),
            change,
        };
        plan.push(
            Phase::Update,
            step,
            "the rule of an older controller is taken over",
            Impact::None,
        );
    }
    plan
}

/// The word of siblings on the address, else what the older controller would have done.
fn word(
    cx: &Context<'_>,
    claimed: &Claimed<'_>,
    address: &AddressId,
    hint: &AdoptionHint,
    keep_address: bool,
) -> AddressWord {
    if cx.survey.word(cx.identity, cx.observation, address) == AddressWord::Own {
        return AddressWord::Own;
    }
    let mut of_siblings = cx
        .survey
        .others_on(address)
        .filter(|other| other.is_of_cluster())
        .filter_map(|other| other.mark.as_ref());
    if of_siblings.any(|mark| mark.address.is_some()) {
        return AddressWord::Given;
    }
    let dialect = cx
        .identity
        .names
        .parse(&claimed.rule.name)
        .map_or(Dialect::Apache, |parsed| parsed.dialect);
    match cx.observation.address(address) {
        Some(seen) => adopted_word(dialect, hint, keep_address, seen),
        None => AddressWord::Given,
    }
}

/// The source sets that this rule's firewall rules have now; `None` if they have not been looked at.
fn sources_of(
    cx: &Context<'_>,
    rule: &LoadBalancerRule,
    address: &AddressId,
    wish: Option<&Wish>,
) -> Option<BTreeSet<SourcesHash>> {
    let network = cx
        .observation
        .networks
        .iter()
        .find(|network| rule.network_id.as_ref() == Some(&network.id));
    let listed = Sources::from_server(&rule.sources);
    if network.map(filter) != Some(Filter::Firewall) {
        return Some(listed.iter().map(Sources::hash).collect());
    }
    let word = transport_of(rule.protocol.as_ref()).word();
    let sets: BTreeSet<Sources> = cx
        .observation
        .firewall_of(address)?
        .into_iter()
        .filter(|firewall| super::firewall::is_for(firewall, word, rule.public_port))
        .filter_map(|firewall| Sources::from_server(&firewall.sources))
        .collect();
    // That controller opened for the ranges of the Service, or for everybody; of several rules only those are its own.
    let likely = |set: &&Sources| {
        sets.len() == 1
            || set.is_everybody()
            || listed.as_ref() == Some(*set)
            || wish.is_some_and(|wish| wish.sources == **set)
    };
    Some(sets.iter().filter(likely).map(Sources::hash).collect())
}

fn is_as_wished(rule: &LoadBalancerRule, src: &BTreeSet<SourcesHash>, wish: &Wish) -> bool {
    let hash = wish.sources.hash();
    let listed = Sources::from_server(&rule.sources);
    (src.is_empty() || *src == BTreeSet::from([hash])) && listed.as_ref() == Some(&wish.sources)
}
