//! How a balancer leaves an address: when its Service goes, or has another address.
//!
//! Decides whether an address is released, handed over or left to those who are still on it. The release takes the rules with
//! it, so that the proof of ownership never goes first; ACL items, which it leaves, go before it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::{Context, End, Farewell, Impact, Need, Phase, Plan, Step, acl, adopt, firewall};
use crate::cloudstack::types::{AddressId, AddressState, PublicIpAddress, RuleState, Tag};
use crate::load_balancer::address::{leftovers, release_again};
use crate::load_balancer::marks::AddressWord;
use crate::load_balancer::network::{Filter, filter};
use crate::load_balancer::outcome::{Note, Wait};
use crate::load_balancer::ownership::{Claim, Proof, TAG_KEY, is_tagged, jobs};
use crate::load_balancer::sources::{Sources, SourcesHash};
use crate::load_balancer::wish::transport_of;

/// Plans the end of a balancer.
pub(super) fn leave(cx: &Context<'_>, farewell: &Farewell) -> Plan {
    if cx.survey.is_unadopted() {
        return adopt::plan(cx, &farewell.adoption, farewell.keep_address, None);
    }
    let mut plan = Plan::default();
    acl_items(cx, farewell, &mut plan);
    for address in cx.survey.addresses() {
        depart(cx, &address, farewell.keep_address, &mut plan);
    }
    for rule in cx
        .survey
        .mine()
        .map(|claimed| claimed.rule)
        .filter(|rule| rule.address_id.is_none())
    {
        let step = Step::DeleteRule {
            rule: rule.id.clone(),
            name: rule.name.clone(),
        };
        plan.push(Phase::Leave, step, "the service goes", Impact::None);
    }
    if cx.observation.unsettled.is_none() {
        plan.needs.push(Need::Unsettled);
        return plan;
    }
    if let Some(end) = never_used(cx, farewell.keep_address, &mut plan) {
        plan.end = end;
        return plan;
    }
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

/// Whether the Service was balanced where these keys don't look: its published addresses are nobody's that is visible, nor
/// free, and no rule of the whole cluster is to be seen.
fn is_elsewhere(cx: &Context<'_>, plan: &mut Plan) -> bool {
    if cx.published.is_empty() || cx.survey.shows_cluster() {
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

/// Addresses that were taken for the Service without a rule getting there.
fn never_used(cx: &Context<'_>, keep_address: bool, plan: &mut Plan) -> Option<End> {
    let mut end = None;
    for address in leftovers(cx) {
        match jobs(cx.identity, cx.observation, address) {
            Proof::Ask(job) => plan.needs.push(Need::Job(job)),
            Proof::Running(job) => end = Some(End::Await(job)),
            Proof::Taken if keep_address => keep(address.ip, "it was asked to be kept", plan),
            Proof::Taken if address.state == AddressState::Releasing => {
                plan.steps.push(release_again(address));
            }
            Proof::Taken => release(cx, address, "it was taken for the service and never used", plan),
            Proof::NotTaken(_) => {}
        }
    }
    end
}

/// Leaves every address but this one, unless clients are still sent there: these are answered.
pub(super) fn others(cx: &Context<'_>, site: &AddressId, plan: &mut Plan) -> Vec<IpAddr> {
    let mut leaving = Vec::new();
    for address in cx.survey.addresses().iter().filter(|address| *address != site) {
        let by_rule = cx.survey.mine_on(address).find_map(|claimed| claimed.rule.ip);
        let ip = cx.observation.address(address).map(|seen| seen.ip).or(by_rule);
        match ip {
            Some(ip) if cx.published.contains(&ip) => leaving.push(ip),
            Some(_) | None => depart(cx, address, false, plan),
        }
    }
    leaving
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
    let word = cx.survey.word(cx.identity, cx.observation, id);
    if word == AddressWord::Own && address.state == AddressState::Releasing {
        plan.steps.push(release_again(address));
        return;
    }
    let sibling = cx
        .survey
        .others_on(id)
        .find(|other| other.claim == Claim::Sibling);
    let foreign = cx
        .survey
        .others_on(id)
        .find(|other| other.claim != Claim::Sibling && other.serves());
    let holder = match (word, sibling, foreign) {
        (AddressWord::Given, _, _) => Some("it was given to the service".to_owned()),
        (AddressWord::Own, Some(_), _) => None,
        (AddressWord::Own, None, _) if keep_address => Some("it was asked to be kept".to_owned()),
        (AddressWord::Own, None, Some(other)) => {
            Some(format!("rule {} of somebody else is on it", other.rule.name))
        }
        (AddressWord::Own, None, None) => held_by(cx, address),
    };
    if word == AddressWord::Own && sibling.is_none() && holder.is_none() {
        release(cx, address, "nothing else is on it", plan);
        return;
    }
    if let Some(why) = &holder {
        keep(address.ip, why, plan);
    }
    if keep_address && sibling.is_none() {
        untag(cx, address, plan);
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

fn release(cx: &Context<'_>, address: &PublicIpAddress, reason: &str, plan: &mut Plan) {
    if let Some(why) = held_by(cx, address) {
        keep(address.ip, &why, plan);
    } else if cx.observation.holders.contains_key(&address.id) {
        let step = Step::Release {
            address: address.id.clone(),
            ip: address.ip,
        };
        let serving = cx
            .survey
            .mine_on(&address.id)
            .any(super::super::ownership::Claimed::serves);
        let impact = if serving { Impact::Outage } else { Impact::None };
        plan.push(Phase::Leave, step, reason, impact);
    } else {
        plan.needs.push(Need::Holders(address.id.clone()));
    }
}

fn keep(ip: IpAddr, why: &str, plan: &mut Plan) {
    plan.kept.push(ip);
    plan.notes.push(Note::normal(
        "AddressKept",
        format!("address {ip} stays allocated: {why}"),
    ));
}

fn untag(cx: &Context<'_>, address: &PublicIpAddress, plan: &mut Plan) {
    if cx.observation.features.may_tag && is_tagged(cx.identity, &address.tags) {
        for tag in address
            .tags
            .iter()
            .filter(|tag| tag.key.eq_ignore_ascii_case(TAG_KEY))
        {
            let tag = Tag::new(&tag.key, &tag.value);
            let step = Step::Untag {
                address: address.id.clone(),
                ip: address.ip,
                tag,
            };
            plan.push(Phase::Leave, step, "the address is handed over", Impact::None);
        }
    }
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
        let step = Step::DeleteRule {
            rule: claimed.rule.id.clone(),
            name: claimed.rule.name.clone(),
        };
        plan.push(Phase::Leave, step, "the service leaves the address", impact);
    }
}

/// Our items in the lists of the networks that the Service was balanced in; without rules that is any in scope.
fn acl_items(cx: &Context<'_>, farewell: &Farewell, plan: &mut Plan) {
    let networks: BTreeSet<_> = cx
        .survey
        .mine()
        .filter_map(|claimed| claimed.rule.network_id.as_ref())
        .collect();
    let meant = |network: &crate::cloudstack::types::Network| match &farewell.network {
        Some(name) if networks.is_empty() => name.is(network.id.as_str(), &network.name),
        Some(_) | None if networks.is_empty() => cx.scope.admits_network(network.id.as_str(), &network.name),
        Some(_) | None => networks.contains(&network.id),
    };
    let mut seen = BTreeSet::new();
    for network in cx.observation.networks.iter().filter(|network| meant(network)) {
        let Filter::Acl(list) = filter(network) else {
            continue;
        };
        if !seen.insert(list.clone()) {
            continue;
        }
        let Some(items) = cx.observation.acl.get(&list) else {
            plan.needs.push(Need::Acl(list));
            continue;
        };
        for item in acl::list(cx.identity, &list, items, &[], &Sources::everybody()).drop {
            let step = Step::DropFromAcl {
                item: item.id.clone(),
                what: acl::text(item),
            };
            plan.push(Phase::Close, step, "the service goes", Impact::Outage);
        }
    }
}
