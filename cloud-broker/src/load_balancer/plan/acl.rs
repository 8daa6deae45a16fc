//! ACL items of a port, in tiers whose list can be changed.
//!
//! Decides what is allowed, and where in the list: before an item that would hide it. Ours are only those whose `reason` says so;
//! what an older controller left is used and left. (The balancer of a VPC is not filtered by its ACLs; items are made for what
//! else reaches the machines, as the Go controller did.)

use std::collections::BTreeSet;

use super::rules::Here;
use super::{Context, Impact, Need, Phase, Plan, Step};
use crate::cloudstack::CreateAclItem;
use crate::cloudstack::types::{
    AclAction, AclDirection, AclItemId, AclListId, Network, NetworkAclItem, PortRange, RuleState,
};
use crate::load_balancer::marks::Mark;
use crate::load_balancer::network::{Filter, filter};
use crate::load_balancer::outcome::{Note, enumerate};
use crate::load_balancer::ownership::{Claim, Identity};
use crate::load_balancer::sources::Sources;
use crate::load_balancer::wish::Transport;

/// What an ACL list needs for a Service.
#[derive(Debug, Default)]
pub(super) struct ListPlan<'o> {
    /// To make, in this order.
    pub(super) allow: Vec<CreateAclItem>,
    /// Ours that are no longer wanted.
    pub(super) drop: Vec<&'o NetworkAclItem>,
    /// Items of others that let in more than is wanted.
    pub(super) wider: Vec<&'o NetworkAclItem>,
    /// Ports for which no place is free before an item that hides them.
    pub(super) hidden: Vec<u16>,
}

/// Plans a list for these ports.
fn list<'o>(
    cx: &Context<'_>,
    id: &AclListId,
    items: &'o [NetworkAclItem],
    ports: &[(Transport, u16)],
    sources: &Sources,
) -> ListPlan<'o> {
    let mut plan = ListPlan::default();
    let mut used: BTreeSet<&AclItemId> = BTreeSet::new();
    let mut numbers: BTreeSet<u32> = items.iter().filter_map(|item| item.number).collect();
    for (transport, number) in ports {
        let fitting = items.iter().filter(|item| allows(item, *transport, *number));
        let exact =
            |item: &&NetworkAclItem| Sources::from_server_strict(&item.sources).as_ref() == Some(sources);
        let hiding = first_hiding(items, *transport, *number, sources);
        let in_front =
            |item: &&NetworkAclItem| hiding.is_none_or(|deny| item.number.is_some_and(|n| n < deny));
        // One of ours before one that nobody claims; what another service has made goes when that one goes. One that names this
        // service and may not be removed is used all the same: where nobody says the cluster's UID, it is what was made before.
        let mine = |item: &&NetworkAclItem| is_mine(cx, item);
        let is_of_service = |mark: Mark| cx.identity.of_mark(&mark) == Claim::Mine;
        let lasting = |item: &&NetworkAclItem| Mark::find(&item.reason).is_none_or(is_of_service);
        let found = fitting
            .clone()
            .filter(exact)
            .filter(in_front)
            .filter(lasting)
            .max_by_key(mine);
        plan.wider.extend(fitting.filter(|item| {
            !mine(item) && Sources::from_server_strict(&item.sources).is_some_and(|set| !sources.covers(&set))
        }));
        if let Some(item) = found {
            used.insert(&item.id);
            continue;
        }
        let place = match hiding {
            Some(deny) => (1..deny).rev().find(|n| !numbers.contains(n)),
            None => numbers.last().map_or(Some(1), |last| last.checked_add(1)),
        };
        let Some(place) = place else {
            plan.hidden.push(*number);
            continue;
        };
        numbers.insert(place);
        plan.allow.push(CreateAclItem {
            list: id.clone(),
            number: place,
            protocol: transport.firewall(),
            ports: PortRange::single(*number),
            sources: sources.list(),
            reason: mark(cx.identity, sources),
        });
    }
    plan.drop = items
        .iter()
        .filter(|item| is_mine(cx, item) && !used.contains(&item.id))
        .collect();
    plan
}

/// Plans the items for a wish.
pub(super) fn plan(cx: &Context<'_>, here: &Here<'_>, id: &AclListId, plan: &mut Plan) {
    let Some(items) = cx.observation.acl.get(id) else {
        plan.needs.push(Need::Acl(id.clone()));
        return;
    };
    let ports: Vec<(Transport, u16)> = here
        .wish
        .ports
        .iter()
        .map(|port| (port.protocol.transport(), port.port))
        .collect();
    let items = list(cx, id, items, &ports, &here.wish.sources);
    for item in items.wider {
        let text = format!(
            "acl item {} lets in more than the source ranges of the service",
            text(item)
        );
        plan.notes.push(Note::warning("AclWider", text).about("sources"));
    }
    for port in items.hidden {
        let text = format!("no number is free in the acl list before the item that denies port {port}");
        plan.notes.push(Note::warning("AclFull", text));
    }
    for item in items.allow {
        let reason = format!("the acl list does not let in port {}", item.ports.start);
        plan.push(Phase::Build, Step::AllowInAcl(item), reason, Impact::None);
    }
    for item in items.drop {
        let step = Step::DropFromAcl {
            item: item.id.clone(),
            what: text(item),
        };
        plan.push(
            Phase::Close,
            step,
            "its port or sources are no longer wanted",
            Impact::None,
        );
    }
}

/// The ACL lists of networks, as far as they can be changed.
pub(super) fn lists<'n>(networks: impl Iterator<Item = &'n Network>) -> BTreeSet<AclListId> {
    networks
        .filter_map(|network| match filter(network) {
            Filter::Acl(list) => Some(list),
            Filter::Firewall | Filter::None => None,
        })
        .collect()
}

/// Drops what is ours in a list.
pub(super) fn drop_ours(cx: &Context<'_>, list: &AclListId, why: (&str, Impact), plan: &mut Plan) {
    match cx.observation.acl.get(list) {
        Some(items) => drop_of(cx, (list, items), why, plan),
        None => plan.needs.push(Need::Acl(list.clone())),
    }
}

/// Drops what is ours in any list: a person may have given a tier another one, and the items stay in the list that it had.
pub(super) fn drop_everywhere(cx: &Context<'_>, why: (&str, Impact), plan: &mut Plan) {
    if !cx.observation.acl_read {
        return plan.needs.push(Need::AllAcl);
    }
    for list in &cx.observation.acl {
        drop_of(cx, list, why, plan);
    }
}

fn drop_of(
    cx: &Context<'_>,
    (list, items): (&AclListId, &Vec<NetworkAclItem>),
    (reason, impact): (&str, Impact),
    plan: &mut Plan,
) {
    for item in items.iter().filter(|item| is_mine(cx, item)) {
        let step = Step::DropFromAcl {
            item: item.id.clone(),
            what: text(item),
        };
        plan.push(Phase::Close, step, reason, impact);
    }
    plan.notes.extend(kept(cx, list, items));
}

/// Says what stays in a list although its mark names the Service.
fn kept(cx: &Context<'_>, list: &AclListId, items: &[NetworkAclItem]) -> Option<Note> {
    let names_it = |item: &&NetworkAclItem| {
        Mark::find(&item.reason).is_some_and(|mark| cx.identity.is_of_service(&mark))
    };
    let staying = items
        .iter()
        .filter(|item| item.state != RuleState::Deleting && !is_mine(cx, item));
    let named: Vec<String> = staying.filter(names_it).map(text).collect();
    let named: Vec<&str> = named.iter().map(String::as_str).collect();
    if named.is_empty() {
        return None;
    }
    let text = format!(
        "items of acl list {list} stay: {}; they are marked for the service, but under another cluster's uid, or under none while \
         rules for the service are another cluster's or outside the fence; delete them by hand if they were the service's",
        enumerate(&named)
    );
    Some(Note::warning("AclKept", text))
}

fn is_mine(cx: &Context<'_>, item: &NetworkAclItem) -> bool {
    cx.survey.is_mine(cx.identity, &item.reason)
}

fn mark(identity: &Identity, sources: &Sources) -> String {
    Mark {
        cluster: identity.uids.mark().to_owned(),
        service: identity.service.uid.to_string(),
        address: None,
        src: BTreeSet::from([sources.hash()]),
        held: None,
        other: Vec::new(),
    }
    .to_string()
}

fn allows(item: &NetworkAclItem, transport: Transport, port: u16) -> bool {
    item.action == AclAction::Allow
        && item.direction == AclDirection::Ingress
        && item.state != RuleState::Deleting
        && item.protocol == transport.word()
        && item.ports == Some(PortRange::single(port))
}

/// Number of the first item that denies some of what should be let in.
fn first_hiding(items: &[NetworkAclItem], transport: Transport, port: u16, sources: &Sources) -> Option<u32> {
    let hides = |item: &&NetworkAclItem| {
        item.action == AclAction::Deny
            && item.direction == AclDirection::Ingress
            && item.state != RuleState::Deleting
            && (item.protocol == "all" || item.protocol == transport.word())
            && item.ports.is_none_or(|ports| ports.contains(port))
            && Sources::from_server(&item.sources).is_none_or(|set| set.meets(sources))
    };
    items.iter().filter(hides).filter_map(|item| item.number).min()
}

/// How an item reads.
pub(super) fn text(item: &NetworkAclItem) -> String {
    let ports = item
        .ports
        .map_or_else(|| "all ports".to_owned(), |ports| ports.start.to_string());
    let number = item
        .number
        .map_or_else(String::new, |number| format!(" (number {number})"));
    format!("{}/{ports} for {}{number}", item.protocol, item.sources)
}
