//! Rules, their fields and their members on the chosen address.
//!
//! Decides which rule serves which wanted port, what is changed in place and what has to be replaced. Facts: two rules of one
//! address never share a port, whatever their protocols; ports can't be changed; a failed update shows the new protocol although
//! the router has the old one, and only name and state tell; from 4.22 on an update that repeats algorithm and protocol does not
//! touch the router, and one that leaves the algorithm out always does.

use std::collections::BTreeSet;

use proto::{Fault, FaultKind};

use super::{Context, Impact, Need, Phase, Plan, Step, acl, consent, firewall};
use crate::cloudstack::types::{
    Algorithm, CidrList, FirewallRule, LoadBalancerRule, Network, RuleProtocol, RuleState, Tag,
};
use crate::cloudstack::{CreateRule, RuleChange};
use crate::load_balancer::address::Site;
use crate::load_balancer::marks::{AddressWord, Mark};
use crate::load_balancer::members::WantedMembers;
use crate::load_balancer::network::{Filter, filter, port_field};
use crate::load_balancer::outcome::Note;
use crate::load_balancer::ownership::{Claimed, TAG_KEY, is_tagged};
use crate::load_balancer::sources::{Sources, SourcesHash};
use crate::load_balancer::wish::{Dialect, Protocol, Transport, Wish, WishPort, transport_of};

/// Where and what.
pub(super) struct Here<'a> {
    pub(super) network: &'a Network,
    pub(super) site: &'a Site,
    pub(super) wish: &'a Wish,
    pub(super) members: &'a WantedMembers,
}

/// How long an address is proved by its job alone, before it gets a tag.
const TAG_AFTER: std::time::Duration = std::time::Duration::from_secs(3600);
/// The port of the router's statistics, which no rule may have.
const STATISTICS_PORT: u16 = 8081;

/// Plans everything on the chosen address.
pub(super) fn plan(cx: &Context<'_>, here: &Here<'_>, plan: &mut Plan) -> Result<(), Fault> {
    no_stranger_in_the_way(cx, here)?;
    let filter = filter(here.network);
    let firewall = match filter {
        Filter::Firewall => match cx.observation.firewall_of(&here.site.address) {
            Some(rules) => rules,
            None => {
                plan.needs.push(Need::Firewall);
                return Ok(());
            }
        },
        Filter::Acl(_) | Filter::None => Vec::new(),
    };
    let ports = Ports {
        filtered: filter == Filter::Firewall,
        firewall,
        cx,
        here,
    };
    for port in &here.wish.ports {
        ports.one(port, plan);
    }
    ports.obsolete(plan);
    if let Filter::Acl(list) = &filter {
        acl_items(cx, here, list, plan);
    }
    too_long(here, &filter, plan);
    tag(cx, here, plan);
    // The steps stay to be seen: they are what a person would accept.
    if let Err(fault) = consent(cx, here, plan) {
        plan.end = super::End::Refused(fault);
    }
    Ok(())
}

/// The rules that stay and serve a wanted port.
pub(super) fn kept<'a>(
    cx: &'a Context<'_>,
    here: &'a Here<'_>,
) -> impl Iterator<Item = &'a LoadBalancerRule> {
    here.wish
        .ports
        .iter()
        .filter_map(|port| keeper(cx, here, port))
        .map(|claimed| claimed.rule)
}

fn mine_at<'a, 'o>(
    cx: &'a Context<'o>,
    here: &'a Here<'_>,
    number: u16,
) -> impl Iterator<Item = &'a Claimed<'o>> {
    cx.survey
        .mine_on(&here.site.address)
        .filter(move |claimed| claimed.serves() && claimed.rule.public_port == number)
}

/// The rule that serves a port and can be changed into what is wanted; a marked one before others.
fn keeper<'a, 'o>(cx: &'a Context<'o>, here: &'a Here<'_>, port: &WishPort) -> Option<&'a Claimed<'o>> {
    mine_at(cx, here, port.port)
        .filter(|claimed| fits(cx, here, port, claimed))
        .min_by_key(|claimed| (claimed.mark.is_none(), claimed.rule.id.clone()))
}

fn fits(cx: &Context<'_>, here: &Here<'_>, port: &WishPort, claimed: &Claimed<'_>) -> bool {
    let rule = claimed.rule;
    let features = cx.observation.features;
    // Servers from 4.18 to 4.21 take a list only when the rule is made.
    let list_stuck = features.sources_on_create
        && !features.sources_on_update
        && !is_held(cx, here, claimed)
        && rule_list(here.wish, Sources::from_server(&rule.sources).as_ref()).is_some();
    transport_of(rule.protocol.as_ref()) == port.protocol.transport()
        && rule.private_port == port.node_port
        && rule
            .network_id
            .as_ref()
            .is_none_or(|network| *network == here.network.id)
        && !list_stuck
}

/// The sources that were found at adoption stay as long as the wish is what it was then, unless people want otherwise.
fn is_held(cx: &Context<'_>, here: &Here<'_>, claimed: &Claimed<'_>) -> bool {
    let held = claimed.mark.as_ref().and_then(|mark| mark.held.as_ref());
    !cx.policy.tighten_on_adopt && held == Some(&here.wish.sources.hash())
}

/// The list that a rule should get instead of the one it has; `None` if that one is right. One that a server would cut is
/// left to the firewall.
fn rule_list(wish: &Wish, present: Option<&Sources>) -> Option<CidrList> {
    let everybody = Sources::everybody();
    let (wanted, list) = match wish.sources.rule_list() {
        Some(list) => (&wish.sources, list),
        None => (&everybody, everybody.list()),
    };
    (present != Some(wanted)).then_some(list)
}

fn no_stranger_in_the_way(cx: &Context<'_>, here: &Here<'_>) -> Result<(), Fault> {
    for port in &here.wish.ports {
        let other = cx
            .survey
            .others_on(&here.site.address)
            .find(|other| other.serves() && other.rule.public_port == port.port);
        if let Some(other) = other {
            let text = format!(
                "port {} of {} is taken by rule {}, which is not this service's; use another port or address",
                port.port, here.site.ip, other.rule.name
            );
            let field = port_field(&port.name, port.port, "port");
            return Err(Fault::new(FaultKind::Conflict, "PORT_TAKEN", text).with_field(field));
        }
    }
    Ok(())
}

struct Ports<'a, 'o> {
    filtered: bool,
    firewall: Vec<&'a FirewallRule>,
    cx: &'a Context<'o>,
    here: &'a Here<'a>,
}

impl<'a> Ports<'a, '_> {
    fn one(&self, port: &WishPort, plan: &mut Plan) {
        let (cx, here) = (self.cx, self.here);
        let keeper = keeper(cx, here, port);
        let known = self.all_known();
        let held = keeper.is_some_and(|claimed| is_held(self.cx, here, claimed));
        let place = (port.protocol.transport(), port.port);
        let firewall = self
            .filtered
            .then(|| firewall::port(&self.firewall, here.site, place, &here.wish.sources, &known));
        let open_as_found = held
            && known
                .iter()
                .any(|_| !firewall::ours(&self.firewall, place, &known).is_empty());
        let firewall = firewall.filter(|_| !open_as_found);
        match keeper {
            Some(claimed) => {
                let src = match &firewall {
                    Some(firewall) => firewall.src.clone(),
                    None if held => known.clone(),
                    None => BTreeSet::from([here.wish.sources.hash()]),
                };
                self.update(port, claimed, src, held, plan);
                self.members(claimed.rule, plan);
            }
            None => {
                // The old rule takes its mark with it; the new one speaks of what is still open.
                let src = firewall.as_ref().map(|firewall| firewall.src.clone());
                self.create(port, src.unwrap_or_else(|| BTreeSet::from([here.wish.sources.hash()])), plan);
            }
        }
        if let Some(firewall) = firewall {
            self.open_and_close(port, firewall, plan);
        }
    }

    /// What all marks of the Service on this address say.
    fn all_known(&self) -> BTreeSet<SourcesHash> {
        let marks = self
            .cx
            .survey
            .mine_on(&self.here.site.address)
            .filter_map(|claimed| claimed.mark.as_ref());
        marks.flat_map(|mark| mark.src.iter().cloned()).collect()
    }

    fn open_and_close(&self, port: &WishPort, firewall: firewall::PortPlan<'_>, plan: &mut Plan) {
        let ip = self.here.site.ip;
        for rule in firewall.wider {
            let text = format!(
                "{} lets in more than the source ranges of the service; it was not made for it",
                firewall::text(rule, ip)
            );
            plan.notes
                .push(Note::warning("FirewallWider", text).about("sources"));
        }
        let (phase, impact) = if firewall.close_first {
            (Phase::Build, Impact::Brief)
        } else {
            (Phase::Close, Impact::None)
        };
        for rule in firewall.close {
            let step = Step::CloseFirewall {
                rule: rule.id.clone(),
                what: firewall::text(rule, ip),
            };
            plan.push(phase, step, "other sources are wanted", impact);
        }
        if let Some(rule) = firewall.open {
            let reason = format!("port {} is not open for the wanted sources", port.port);
            plan.push(
                Phase::Build,
                Step::OpenFirewall { rule, ip },
                reason,
                Impact::None,
            );
        }
    }

    fn members(&self, rule: &LoadBalancerRule, plan: &mut Plan) {
        let Some(present) = self.cx.observation.members.get(&rule.id) else {
            plan.needs.push(Need::Members(rule.id.clone()));
            return;
        };
        let difference = self.here.members.difference(present);
        let (id, name) = (rule.id.clone(), rule.name.clone());
        let nobody_left = difference.surplus.len() == present.len() && difference.missing.is_empty();
        if !difference.missing.is_empty() {
            let step = Step::Assign {
                rule: id.clone(),
                name: name.clone(),
                machines: difference.missing,
            };
            plan.push(
                Phase::Assign,
                step,
                "nodes serve that are no members",
                Impact::None,
            );
        }
        if !difference.surplus.is_empty() {
            let impact = if nobody_left {
                Impact::Outage
            } else {
                Impact::Brief
            };
            let step = Step::Remove {
                rule: id,
                name,
                machines: difference.surplus,
            };
            plan.push(Phase::Unassign, step, "members are no nodes that serve", impact);
        }
    }

    fn dialect(&self) -> Dialect {
        let named = |claimed: &&Claimed<'_>| claimed.serves();
        self.cx
            .survey
            .mine()
            .filter(named)
            .find_map(|claimed| self.cx.identity.names.parse(&claimed.rule.name))
            .map_or(self.here.wish.dialect.kind, |parsed| parsed.dialect)
    }

    fn name(&self, protocol: Protocol, port: u16) -> String {
        self.cx.identity.names.rule(self.dialect(), protocol, port)
    }

    fn mark(&self, src: BTreeSet<SourcesHash>) -> Mark {
        Mark {
            cluster: self.cx.identity.uids.mark().to_owned(),
            service: self.cx.identity.service.uid.to_string(),
            address: Some(self.here.site.word),
            src,
            held: None,
            other: Vec::new(),
        }
    }

    fn create(&self, port: &WishPort, src: BTreeSet<SourcesHash>, plan: &mut Plan) {
        let (cx, here) = (self.cx, self.here);
        let blockers: Vec<_> = mine_at(cx, here, port.port).collect();
        let mut prepared = false;
        for blocker in &blockers {
            if !self.proved_without(blocker) {
                prepared = true;
                self.placeholder(plan);
            }
            let step = Step::DeleteRule {
                rule: blocker.rule.id.clone(),
                name: blocker.rule.name.clone(),
            };
            let reason = format!("it is in the way of the rule that port {} needs", port.port);
            plan.push(Phase::Build, step, reason, Impact::Outage);
        }
        let reason = match (blockers.is_empty(), prepared) {
            (true, _) => format!("no rule serves port {}", port.port),
            (false, _) => format!("protocol or node port of port {} changed", port.port),
        };
        let rule = self.rule(port.protocol, (port.port, port.node_port), src);
        plan.push(Phase::Build, self.create_step(rule), reason, Impact::None);
    }

    fn create_step(&self, rule: CreateRule) -> Step {
        Step::CreateRule {
            rule,
            ip: self.here.site.ip,
            check_network: self.here.network.vpc_id.is_some(),
        }
    }

    fn rule(&self, protocol: Protocol, (port, node_port): (u16, u16), src: BTreeSet<SourcesHash>) -> CreateRule {
        let here = self.here;
        let sources = here
            .wish
            .sources
            .rule_list()
            .unwrap_or_else(|| Sources::everybody().list());
        CreateRule {
            name: self.name(protocol, port),
            description: self.mark(src).to_string(),
            address: here.site.address.clone(),
            network: here.network.id.clone(),
            public_port: port,
            private_port: node_port,
            algorithm: here.wish.algorithm.clone(),
            protocol: protocol.rule(),
            sources: self.cx.observation.features.sources_on_create.then_some(sources),
        }
    }

    /// Whether an own address is still proved ours while this rule is away.
    fn proved_without(&self, going: &Claimed<'_>) -> bool {
        let (cx, site) = (self.cx, self.here.site);
        let proves = |other: &&LoadBalancerRule| {
            other.id != going.rule.id
                && other.state != RuleState::Deleting
                && Mark::find(&other.description).is_some_and(|mark| {
                    mark.address == Some(AddressWord::Own) && cx.identity.is_of_cluster(&mark)
                })
        };
        site.word == AddressWord::Given
            || cx.observation.rules_on(&site.address).any(|rule| proves(&rule))
            || cx
                .observation
                .address(&site.address)
                .is_some_and(|address| is_tagged(cx.identity, &address.tags))
    }

    /// A rule without members and firewall that proves the address while the only other one is replaced.
    fn placeholder(&self, plan: &mut Plan) {
        let (cx, here) = (self.cx, self.here);
        let used: BTreeSet<u16> = cx
            .observation
            .rules_on(&here.site.address)
            .map(|rule| rule.public_port)
            .chain(here.wish.ports.iter().map(|port| port.port))
            .chain([STATISTICS_PORT])
            .collect();
        let free = (1..=u16::MAX).rev().find(|port| !used.contains(port));
        let node_port = here.wish.ports.first().map(|port| port.node_port);
        if let (Some(port), Some(node_port)) = (free, node_port) {
            let rule = self.rule(Protocol::Tcp, (port, node_port), self.all_known());
            let reason = "it proves whose the address is while its only rule is replaced";
            plan.push(Phase::Build, self.create_step(rule), reason, Impact::None);
        }
    }

    fn update(
        &self,
        port: &WishPort,
        claimed: &Claimed<'_>,
        src: BTreeSet<SourcesHash>,
        held: bool,
        plan: &mut Plan,
    ) {
        let rule = claimed.rule;
        let current = claimed.mark.clone();
        let mark = self.wanted_mark(current.as_ref(), src, held);
        let description = mark.written_into(&rule.description);
        let fields = self.fields(port, rule, held);
        let marked = description != rule.description;
        let Some((mut change, reason, impact)) = fields.or_else(|| {
            let change = RuleChange {
                algorithm: Some(rule.algorithm.clone()),
                protocol: Some(port.protocol.rule()),
                ..RuleChange::default()
            };
            marked.then_some((change, "its mark is not up to date", Impact::None))
        }) else {
            return;
        };
        change.description = marked.then_some(description);
        // A mark that only forgets what is closed by now has time until the rest is done.
        let only_forgets = impact == Impact::None
            && current.is_some_and(|old| {
                old.src.is_superset(&mark.src)
                    && Mark {
                        src: old.src.clone(),
                        ..mark
                    } == old
            });
        let phase = if only_forgets {
            Phase::Settle
        } else {
            Phase::Update
        };
        let step = Step::UpdateRule {
            rule: rule.id.clone(),
            name: rule.name.clone(),
            change,
        };
        plan.push(phase, step, reason, impact);
    }

    fn wanted_mark(&self, current: Option<&Mark>, src: BTreeSet<SourcesHash>, held: bool) -> Mark {
        let fresh = self.mark(src);
        match current {
            // Another UID of our own cluster is as good; "-" is replaced once there is a UID.
            Some(mark) if self.cx.identity.uids.are_ours(&mark.cluster) => Mark {
                cluster: mark.cluster.clone(),
                held: mark.held.clone().filter(|_| held),
                other: mark.other.clone(),
                ..fresh
            },
            Some(mark) => Mark {
                held: mark.held.clone().filter(|_| held),
                other: mark.other.clone(),
                ..fresh
            },
            None => fresh,
        }
    }

    /// What of the rule's own fields is to be changed, with the reason; the description is the caller's.
    fn fields(
        &self,
        port: &WishPort,
        rule: &LoadBalancerRule,
        held: bool,
    ) -> Option<(RuleChange, &'static str, Impact)> {
        let features = self.cx.observation.features;
        let wanted = port.protocol.rule();
        let stored = rule.protocol.clone().unwrap_or(RuleProtocol::Tcp);
        let named = self
            .cx
            .identity
            .names
            .parse(&rule.name)
            .and_then(|parsed| parsed.protocol);
        let name = self.name(port.protocol, port.port);
        let algorithm = self.here.wish.algorithm.clone();
        let sources = (!held && features.sources_on_update)
            .then(|| rule_list(self.here.wish, Sources::from_server(&rule.sources).as_ref()))
            .flatten();
        let mut change = RuleChange {
            protocol: Some(wanted.clone()),
            algorithm: Some(algorithm.clone()),
            sources,
            ..RuleChange::default()
        };
        let members = self.cx.observation.members.get(&rule.id);
        let stuck = rule.state == RuleState::Add && members.is_some_and(|members| !members.is_empty());
        let misnamed = named.is_some_and(|named| named != port.protocol);
        let repair = misnamed || stuck;
        if stored != wanted || repair {
            change.name = (misnamed || stored != wanted).then_some(name);
            if stored == wanted && features.protocol_update_applies {
                // What is left out counts as changed, so that the router hears of what the list already says.
                change.algorithm = None;
                change.name = Some(self.name(port.protocol, port.port));
            } else if !features.protocol_update_applies && rule.algorithm == algorithm {
                // Such a server tells the router only together with another algorithm; the right one follows.
                change.algorithm = Some(another(&algorithm));
                change.name = None;
            }
            let reason = if stored == wanted {
                "an earlier change did not reach the router"
            } else {
                "the PROXY header is switched"
            };
            return Some((change, reason, Impact::Brief));
        }
        if rule.algorithm != algorithm {
            return Some((change, "another algorithm is wanted", Impact::Brief));
        }
        change
            .sources
            .is_some()
            .then_some((change, "other sources are wanted", Impact::None))
    }

    /// Rules of the Service on this address that serve no wanted port, and what let traffic in to them.
    fn obsolete(&self, plan: &mut Plan) {
        let (cx, here) = (self.cx, self.here);
        let mut known = self.all_known();
        known.insert(here.wish.sources.hash());
        let kept: BTreeSet<_> = kept(cx, here).map(|rule| &rule.id).collect();
        let wanted: BTreeSet<(Transport, u16)> = here
            .wish
            .ports
            .iter()
            .map(|port| (port.protocol.transport(), port.port))
            .collect();
        for claimed in cx.survey.mine_on(&here.site.address) {
            let rule = claimed.rule;
            if kept.contains(&rule.id) {
                continue;
            }
            let place = (transport_of(rule.protocol.as_ref()), rule.public_port);
            if self.filtered && !wanted.contains(&place) {
                for open in firewall::ours(&self.firewall, place, &known) {
                    let step = Step::CloseFirewall {
                        rule: open.id.clone(),
                        what: firewall::text(open, here.site.ip),
                    };
                    plan.push(Phase::Close, step, "its port is no longer wanted", Impact::None);
                }
            }
            let blocks = claimed.serves() && here.wish.port(rule.public_port).is_some();
            if !blocks {
                let (reason, impact) = if claimed.serves() {
                    ("its port is no longer wanted", Impact::Outage)
                } else {
                    ("its deletion was begun and did not end", Impact::None)
                };
                let step = Step::DeleteRule {
                    rule: rule.id.clone(),
                    name: rule.name.clone(),
                };
                plan.push(Phase::Clear, step, reason, impact);
            }
        }
    }
}

/// Any other algorithm.
fn another(algorithm: &Algorithm) -> Algorithm {
    match algorithm {
        Algorithm::RoundRobin => Algorithm::LeastConnections,
        Algorithm::LeastConnections | Algorithm::Source | Algorithm::Other(_) => Algorithm::RoundRobin,
    }
}

fn acl_items(cx: &Context<'_>, here: &Here<'_>, list: &crate::cloudstack::types::AclListId, plan: &mut Plan) {
    let Some(items) = cx.observation.acl.get(list) else {
        plan.needs.push(Need::Acl(list.clone()));
        return;
    };
    let ports: Vec<(Transport, u16)> = here
        .wish
        .ports
        .iter()
        .map(|port| (port.protocol.transport(), port.port))
        .collect();
    let items = acl::list(cx.identity, list, items, &ports, &here.wish.sources);
    for item in items.wider {
        let text = format!(
            "acl item {} lets in more than the source ranges of the service",
            acl::text(item)
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
            what: acl::text(item),
        };
        plan.push(
            Phase::Close,
            step,
            "its port or sources are no longer wanted",
            Impact::None,
        );
    }
}

fn too_long(here: &Here<'_>, filter: &Filter, plan: &mut Plan) {
    if *filter == Filter::Firewall && here.wish.sources.rule_list().is_none() {
        let text = "the source ranges need more than the 255 characters that a load balancer rule keeps, so only the \
                    firewall holds them";
        plan.notes
            .push(Note::warning("SourcesInFirewallOnly", text).about("sources"));
    }
}

/// A tag proves an own address for longer than its job does.
fn tag(cx: &Context<'_>, here: &Here<'_>, plan: &mut Plan) {
    let Some(address) = cx.observation.address(&here.site.address) else {
        return;
    };
    let old_enough = address
        .allocated
        .is_some_and(|at| at.after(TAG_AFTER) <= cx.observation.now);
    let wanted = cx.observation.features.may_tag
        && here.site.word == AddressWord::Own
        && !cx.identity.uids.is_unknown()
        && old_enough
        && !address
            .tags
            .iter()
            .any(|tag| tag.key.eq_ignore_ascii_case(TAG_KEY));
    if wanted {
        let tag = Tag::new(TAG_KEY, cx.identity.uids.mark());
        let step = Step::Tag {
            address: address.id.clone(),
            ip: address.ip,
            tag,
        };
        plan.push(Phase::Settle, step, "the address is the cluster's", Impact::None);
    }
}
