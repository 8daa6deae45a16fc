//! How a balancer leaves an address: when its Service goes, or has another address.
//!
//! Decides whether an address is released, handed over or left to those who are still on it. The release takes the rules with
//! it, so that the proof of ownership never goes first; ACL items, which it leaves, go before it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::rules::Here;
use super::{Context, End, Farewell, Impact, Need, Phase, Plan, Step, acl, adopt, firewall, outside, unused};
use crate::cloudstack::types::{
    AddressId, AddressState, Network, NetworkId, PublicIpAddress, RuleState, ServiceName, Tag,
};
use crate::load_balancer::address::release_again;
use crate::load_balancer::marks::AddressWord;
use crate::load_balancer::network::{Filter, filter};
use crate::load_balancer::outcome::{Note, Wait};
use crate::load_balancer::ownership::{Claim, Claimed, TAG_KEY, is_half_released, is_tagged};
use crate::load_balancer::sources::{Sources, SourcesHash};
use crate::load_balancer::wish::transport_of;

/// Plans the end of a balancer.
pub(super) fn leave(cx: &Context<'_>, farewell: &Farewell) -> Plan {
    if cx.survey.is_unadopted() {
        return adopt::plan(cx, &farewell.adoption, farewell.keep_address, None);
    }
    let mut plan = Plan::default();
    let mut networks = cx.observation.networks.iter();
    let has_lists = |network: &Network| network.vpc_id.is_some() && network.has(ServiceName::NetworkAcl);
    if networks.any(|network| has_lists(network) && may_have_served(cx, farewell, network)) {
        acl::drop_everywhere(cx, ("the service goes", Impact::Outage), &mut plan);
    }
    for address in present(cx) {
        depart(cx, &address, farewell.keep_address, &mut plan);
    }
    for claimed in cx
        .survey
        .mine()
        .filter(|claimed| claimed.rule.address_id.is_none())
    {
        let step = Step::delete(claimed.rule);
        plan.push(Phase::Leave, step, "the service goes", Impact::None);
    }
    if cx.observation.unsettled.is_none() {
        plan.needs.push(Need::Unsettled);
        return plan;
    }
    if let Some(end) = unused::at_the_end(cx, farewell.keep_address, &mut plan) {
        plan.end = end;
        return plan;
    }
    if let Some((note, wait)) = outside::end_waits(cx) {
        plan.notes.push(note);
        plan.end = End::Wait(wait);
        return plan;
    }
    outside::keep(cx, &mut plan);
    let unseen = if !cx.observation.shows_anything() {
        Some((
            "NOTHING_VISIBLE",
            "nothing of the account or project is visible, so nothing can be said of what is left; check the keys, the \
             project and the networks of the configuration",
        ))
    } else if is_elsewhere(cx, &mut plan) {
        Some((
            "SCOPE_CHANGED",
            "neither the published address of the service nor anything else of this cluster is visible; check whether \
             keys or project of the configuration have changed",
        ))
    } else {
        None
    };
    plan.end = match unseen {
        Some((reason, text)) => {
            plan.notes.push(Note::warning("NothingVisible", text));
            End::Wait(Wait::for_a_change(reason, text))
        }
        None => End::Departed,
    };
    plan
}

/// Addresses that rules of the Service are on, and those whose release was begun for it: that takes the rules first.
fn present(cx: &Context<'_>) -> BTreeSet<AddressId> {
    let seen = cx.observation;
    let begun = seen.begun.iter().filter(|(id, begun)| {
        let is_still_the_same = |address| is_half_released(cx.identity, seen, address);
        begun.service == cx.identity.service.uid.as_str() && seen.address(id).is_none_or(is_still_the_same)
    });
    let mut addresses = cx.survey.addresses();
    addresses.extend(begun.map(|(id, _)| id.clone()));
    addresses
}

/// Whether the Service was balanced where these keys don't look: its published addresses are nobody's that is visible, nor
/// free, and neither a rule nor a machine of the cluster is to be seen. Where machines are, an address that is not to be seen
/// was released by hand and is a stranger's by now: other keys, or another project, would not show the machines.
fn is_elsewhere(cx: &Context<'_>, plan: &mut Plan) -> bool {
    if cx.published.is_empty() || cx.nodes_visible || cx.survey.shows_cluster() {
        return false;
    }
    let mut all_unseen = true;
    for ip in cx.published {
        let listed = cx.observation.addresses.iter().any(|address| address.ip == *ip);
        match cx.observation.digits.get(ip) {
            _ if listed => all_unseen = false,
            Some(found) => all_unseen &= found.is_none(),
            None => plan.needs.push(Need::Digits(*ip)),
        }
    }
    all_unseen && plan.needs.is_empty()
}

/// Leaves every address but that of the site, unless clients are still sent there: these are answered.
pub(super) fn others(cx: &Context<'_>, here: &Here<'_>, plan: &mut Plan) -> Vec<IpAddr> {
    let mut leaving = Vec::new();
    let mut used = BTreeSet::from([&here.network.id]);
    let mut left = BTreeSet::new();
    for address in present(cx)
        .iter()
        .filter(|address| **address != here.site.address)
    {
        let networks = cx
            .survey
            .mine_on(address)
            .filter_map(|claimed| claimed.rule.network_id.as_ref());
        let by_rule = cx.survey.mine_on(address).find_map(|claimed| claimed.rule.ip);
        let ip = cx.observation.address(address).map(|seen| seen.ip).or(by_rule);
        match ip {
            Some(ip) if cx.published.contains(&ip) => {
                leaving.push(ip);
                used.extend(networks);
            }
            Some(_) | None => {
                left.extend(networks);
                depart(cx, address, here.wish.keep_address, plan);
            }
        }
    }
    let of = |ids: &BTreeSet<&NetworkId>| {
        let networks = cx.observation.networks.iter();
        acl::lists(networks.filter(|network| ids.contains(&network.id)))
    };
    for list in of(&left).difference(&of(&used)) {
        acl::drop_ours(cx, list, ("the service leaves the network", Impact::None), plan);
    }
    leaving
}

/// What becomes of an address that the Service leaves.
enum Fate {
    /// Something has to be looked at first.
    Look(Need),
    /// Its release was begun: it is done again.
    ReleaseAgain,
    /// It is given back, with everything that is on it.
    Release,
    /// It stays allocated, and is the cluster's no more.
    HandOver,
    /// It stays allocated, for this reason.
    Keep(String),
    /// Others of the cluster are on it: it is theirs to decide about.
    Others,
}

/// Whoever is the last one on an address decides about it. So this is decided in one's turn, on what was seen in it: two that leave
/// together would each see the other.
fn fate(cx: &Context<'_>, address: &PublicIpAddress, keep_address: bool) -> Fate {
    let releasing = address.state == AddressState::Releasing;
    match cx.survey.word(cx.identity, cx.observation, &address.id) {
        AddressWord::Given if releasing => {
            return Fate::Keep("somebody else began to release it, and that did not end".to_owned());
        }
        AddressWord::Given => return Fate::Keep("it was given to the service".to_owned()),
        AddressWord::Own if releasing => return Fate::ReleaseAgain,
        AddressWord::Own => {}
    }
    if !cx.observation.holders.contains_key(&address.id) {
        return Fate::Look(Need::Holders(address.id.clone()));
    }
    let serving = |other: &&Claimed<'_>| other.serves();
    let mut others = cx.survey.others_on(&address.id).filter(serving);
    let mut siblings = cx.survey.others_on(&address.id).filter(serving);
    if siblings.any(|other| other.claim == Claim::Sibling) {
        return Fate::Others;
    }
    if keep_address {
        return Fate::HandOver;
    }
    if let Some(other) = others.next() {
        return Fate::Keep(format!("rule {} of somebody else is on it", other.rule.name));
    }
    held_by(cx, address).map_or(Fate::Release, Fate::Keep)
}

fn depart(cx: &Context<'_>, id: &AddressId, keep_address: bool, plan: &mut Plan) {
    let Some(address) = cx.observation.address(id) else {
        if cx.observation.invisible.contains(id) {
            rules(cx, id, plan);
        } else {
            plan.needs.push(Need::Address(id.clone()));
        }
        return;
    };
    match fate(cx, address, keep_address) {
        Fate::Look(need) => return plan.needs.push(need),
        Fate::ReleaseAgain => return end_release(cx, address, plan),
        Fate::Release => return release(cx, address, "nothing else is on it", plan),
        Fate::HandOver => hand_over(cx, address, plan),
        Fate::Keep(why) => keep(address.ip, &why, plan),
        Fate::Others => {}
    }
    close(cx, address, plan);
    rules(cx, id, plan);
}

/// Uses of an address beside rules of balancers, as far as they are known by now.
fn held_by(cx: &Context<'_>, address: &PublicIpAddress) -> Option<String> {
    let holders = cx.observation.holders.get(&address.id);
    let some = |count: Option<usize>| count.is_some_and(|count| count > 0);
    if address.is_source_nat {
        Some("it is the source nat address of its network".to_owned())
    } else if address.is_static_nat {
        Some("it stands for one machine (static nat)".to_owned())
    } else if holders.is_some_and(|holders| some(holders.port_forwarding)) {
        Some("port forwarding rules are on it".to_owned())
    } else if holders.is_some_and(|holders| some(holders.vpns)) {
        Some("a remote access vpn is on it".to_owned())
    } else {
        None
    }
}

pub(super) fn release(cx: &Context<'_>, address: &PublicIpAddress, reason: &str, plan: &mut Plan) {
    if let Some(why) = held_by(cx, address) {
        keep(address.ip, &why, plan);
    } else if cx.observation.holders.contains_key(&address.id) {
        let step = Step::Release {
            address: address.id.clone(),
            ip: address.ip,
        };
        let serving = cx.survey.mine_on(&address.id).any(Claimed::serves);
        let impact = if serving { Impact::Outage } else { Impact::None };
        plan.push(Phase::Leave, step, reason, impact);
    } else {
        plan.needs.push(Need::Holders(address.id.clone()));
    }
}

pub(super) fn end_release(cx: &Context<'_>, address: &PublicIpAddress, plan: &mut Plan) {
    match release_again(cx, address) {
        Ok(planned) => plan.steps.push(planned),
        Err(need) => plan.needs.push(need),
    }
}

pub(super) fn keep(ip: IpAddr, why: &str, plan: &mut Plan) {
    plan.kept.push(ip);
    plan.notes.push(Note::normal(
        "AddressKept",
        format!("address {ip} stays allocated: {why}"),
    ));
}

/// Nothing says any more that the address is the cluster's: whoever uses it next is given it.
pub(super) fn hand_over(cx: &Context<'_>, address: &PublicIpAddress, plan: &mut Plan) {
    let ours = |tag: &&Tag| tag.key.eq_ignore_ascii_case(TAG_KEY);
    let tag = address
        .tags
        .iter()
        .find(ours)
        .filter(|_| is_tagged(cx.identity, &address.tags));
    let Some(tag) = tag else {
        return keep(address.ip, "it was asked to be kept", plan);
    };
    if !cx.observation.features.may_untag {
        let why = format!(
            "it was asked to be kept; its tag {} says that it is the cluster's, and the key may not remove that: remove it, \
             or the next service that asks for the address releases it",
            tag.key
        );
        return keep(address.ip, &why, plan);
    }
    keep(address.ip, "it was asked to be kept", plan);
    let step = Step::Untag {
        address: address.id.clone(),
        ip: address.ip,
        tag: Tag::new(&tag.key, &tag.value),
    };
    plan.push(Phase::Leave, step, "the address is handed over", Impact::None);
}

/// Our firewall rules on an address that stays.
fn close(cx: &Context<'_>, address: &PublicIpAddress, plan: &mut Plan) {
    let network = |id: &Option<_>| {
        cx.observation
            .networks
            .iter()
            .find(|network| id.as_ref() == Some(&network.id))
    };
    let filtered = cx.survey.mine_on(&address.id).any(|claimed| {
        // Where the network is not visible any more, what is there is looked at.
        network(&claimed.rule.network_id).is_none_or(|network| filter(network) == Filter::Firewall)
    });
    if !filtered {
        return;
    }
    let Some(open) = cx.observation.firewall_of(&address.id) else {
        plan.needs.push(Need::Firewall);
        return;
    };
    let known: BTreeSet<SourcesHash> = cx
        .survey
        .mine_on(&address.id)
        .flat_map(|claimed| {
            let listed = || Sources::from_server(&claimed.rule.sources).map(|sources| sources.hash());
            match &claimed.mark {
                Some(mark) => mark.src.iter().cloned().collect::<Vec<_>>(),
                None => listed().into_iter().collect(),
            }
        })
        .collect();
    for claimed in cx.survey.mine_on(&address.id) {
        let place = (
            transport_of(claimed.rule.protocol.as_ref()),
            claimed.rule.public_port,
        );
        for rule in firewall::ours(&open, place, &known) {
            let step = Step::CloseFirewall {
                rule: rule.id.clone(),
                what: firewall::text(rule, address.ip),
            };
            plan.push(
                Phase::Close,
                step,
                "the service leaves the address",
                Impact::Outage,
            );
        }
    }
}

fn rules(cx: &Context<'_>, address: &AddressId, plan: &mut Plan) {
    for claimed in cx.survey.mine_on(address) {
        let impact = if claimed.rule.state == RuleState::Deleting {
            Impact::None
        } else {
            Impact::Outage
        };
        let step = Step::delete(claimed.rule);
        plan.push(Phase::Leave, step, "the service leaves the address", impact);
    }
}

/// Whether the Service may have been balanced in a network: where its rules are, and, since it may have moved, anywhere it may go.
fn may_have_served(cx: &Context<'_>, farewell: &Farewell, network: &Network) -> bool {
    let (id, name) = (network.id.as_str(), network.name.as_str());
    let named = farewell.network.as_ref().is_some_and(|named| named.is(id, name));
    let balances = named || network.has(ServiceName::LoadBalancer);
    let mut rules = cx.survey.mine().map(|claimed| claimed.rule);
    (balances && cx.scope.admits_network(id, name))
        || rules.any(|rule| rule.network_id.as_ref() == Some(&network.id))
}
