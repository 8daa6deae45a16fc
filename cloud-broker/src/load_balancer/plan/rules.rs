//! Rules and their members on the chosen address.
//!
//! Decides which rule serves which wanted port, and what has to be made, replaced or cleared away. Leaves to `replace` how that
//! is done. Facts: ports and network of a rule can't be changed.

use std::collections::BTreeSet;

use proto::{Fault, FaultKind};

use super::{Context, Impact, Need, Phase, Plan, Step, acl, consent, firewall, update};
use crate::cloudstack::types::{CidrList, FirewallRule, LoadBalancerRule, Network};
use crate::load_balancer::address::Site;
use crate::load_balancer::marks::Mark;
use crate::load_balancer::members::WantedMembers;
use crate::load_balancer::network::{Filter, filter, port_field};
use crate::load_balancer::outcome::Note;
use crate::load_balancer::ownership::Claimed;
use crate::load_balancer::sources::{Sources, SourcesHash};
use crate::load_balancer::wish::{Dialect, Protocol, Transport, Wish, WishPort, transport_of};

/// Where and what.
pub(super) struct Here<'a> {
    pub(super) network: &'a Network,
    pub(super) site: &'a Site,
    pub(super) wish: &'a Wish,
    pub(super) members: &'a WantedMembers,
}

/// Plans everything on the chosen address.
pub(super) fn plan(cx: &Context<'_>, here: &Here<'_>, plan: &mut Plan) -> Result<(), Fault> {
    no_stranger_in_the_way(cx, here)?;
    let filter = filter(here.network);
    let firewall = match filter {
        Filter::Firewall => {
            let Some(rules) = cx.observation.firewall_of(&here.site.address) else {
                plan.needs.push(Need::Firewall);
                return Ok(());
            };
            Some(rules)
        }
        Filter::Acl(_) | Filter::None => None,
    };
    let ports = Ports { firewall, cx, here };
    // Before any rule goes.
    ports.placeholder(plan);
    for port in &here.wish.ports {
        ports.one(port, plan);
    }
    ports.obsolete(plan);
    if let Filter::Acl(list) = &filter {
        acl::plan(cx, here, list, plan);
    }
    too_long(here, &filter, plan);
    update::tag(cx, here, plan);
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

pub(super) fn mine_at<'a, 'o>(
    cx: &'a Context<'o>,
    here: &'a Here<'_>,
    number: u16,
) -> impl Iterator<Item = &'a Claimed<'o>> {
    cx.survey
        .mine_on(&here.site.address)
        .filter(move |claimed| claimed.serves() && claimed.rule.public_port == number)
}

/// The rule that serves a port and can be changed into what is wanted; a marked one before others.
pub(super) fn keeper<'a, 'o>(
    cx: &'a Context<'o>,
    here: &'a Here<'_>,
    port: &WishPort,
) -> Option<&'a Claimed<'o>> {
    mine_at(cx, here, port.port)
        .filter(|claimed| fits(cx, here, port, claimed))
        .min_by_key(|claimed| (claimed.mark.is_none(), claimed.rule.id.clone()))
}

fn fits(cx: &Context<'_>, here: &Here<'_>, port: &WishPort, claimed: &Claimed<'_>) -> bool {
    let rule = claimed.rule;
    let features = cx.observation.features;
    let present = Sources::from_server(&rule.sources);
    let is_open = present.as_ref().is_some_and(Sources::is_everybody);
    // Servers from 4.18 to 4.21 take a list only when the rule is made.
    let list_stuck = features.sources_on_create
        && !features.sources_on_update
        && (takes_list(cx, here) || !is_open)
        && !is_held(cx, here, claimed)
        && rule_list(here.wish, present.as_ref()).is_some();
    transport_of(rule.protocol.as_ref()) == port.protocol.transport()
        && rule.private_port == port.node_port
        && rule
            .network_id
            .as_ref()
            .is_none_or(|network| *network == here.network.id)
        && !list_stuck
}

/// Whether new rules are made with a list of sources. On a server that may be too old for one: only where nothing else holds
/// restricted sources.
pub(super) fn takes_list(cx: &Context<'_>, here: &Here<'_>) -> bool {
    let features = cx.observation.features;
    let needed = || !here.wish.sources.is_everybody() && filter(here.network) != Filter::Firewall;
    features.sources_on_create && (!features.sources_unsure || needed())
}

/// The sources that were found at adoption stay as long as the wish is what it was then, unless people want otherwise.
fn is_held(cx: &Context<'_>, here: &Here<'_>, claimed: &Claimed<'_>) -> bool {
    let held = claimed.mark.as_ref().and_then(|mark| mark.held.as_ref());
    !cx.policy.tighten_on_adopt && held == Some(&here.wish.sources.hash())
}

/// The list that a rule should get instead of the one it has; `None` if that one is right. One that a server would cut is
/// left to the firewall.
pub(super) fn rule_list(wish: &Wish, present: Option<&Sources>) -> Option<CidrList> {
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

pub(super) struct Ports<'a, 'o> {
    /// None where nothing of that kind filters.
    firewall: Option<Vec<&'a FirewallRule>>,
    pub(super) cx: &'a Context<'o>,
    pub(super) here: &'a Here<'a>,
}

impl Ports<'_, '_> {
    fn one(&self, port: &WishPort, plan: &mut Plan) {
        let (cx, here) = (self.cx, self.here);
        let keeper = keeper(cx, here, port);
        let held = keeper.is_some_and(|claimed| is_held(cx, here, claimed));
        let opening = firewall::Opening {
            address: &here.site.address,
            place: (port.protocol.transport(), port.port),
            wanted: &here.wish.sources,
            known: &self.all_known(),
            held,
        };
        let firewall = firewall::port(self.firewall.as_deref(), &opening);
        let src = firewall.src.clone();
        if let Some(claimed) = keeper {
            self.update(port, claimed, (src, held), plan);
            self.members(claimed.rule, plan);
        } else {
            // The old rule takes its mark with it; the new one speaks of what is still open.
            self.create(port, src, plan);
        }
        self.open_and_close(port, firewall, plan);
    }

    /// What all marks of the Service on this address say.
    pub(super) fn all_known(&self) -> BTreeSet<SourcesHash> {
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

    pub(super) fn name(&self, protocol: Protocol, port: u16) -> String {
        self.cx.identity.names.rule(self.dialect(), protocol, port)
    }

    pub(super) fn mark(&self, src: BTreeSet<SourcesHash>) -> Mark {
        Mark {
            cluster: self.cx.identity.uids.mark().to_owned(),
            service: self.cx.identity.service.uid.to_string(),
            address: Some(self.here.site.word),
            src,
            held: None,
            other: Vec::new(),
        }
    }

    /// Rules of the Service on this address that serve no wanted port, and what let traffic in to them.
    fn obsolete(&self, plan: &mut Plan) {
        let (cx, here) = (self.cx, self.here);
        let open = self.firewall.as_deref().unwrap_or_default();
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
            if !wanted.contains(&place) {
                for open in firewall::ours(open, place, &known) {
                    let step = Step::CloseFirewall {
                        rule: open.id.clone(),
                        what: firewall::text(open, here.site.ip),
                    };
                    plan.push(Phase::Close, step, "its port is no longer wanted", Impact::None);
                }
            }
            let blocks = claimed.serves() && here.wish.port(rule.public_port).is_some();
            if !blocks {
                let idle = cx
                    .observation
                    .members
                    .get(&rule.id)
                    .is_some_and(BTreeSet::is_empty);
                let (reason, impact) = if claimed.serves() {
                    (
                        "its port is no longer wanted",
                        if idle { Impact::None } else { Impact::Outage },
                    )
                } else {
                    ("its deletion was begun and did not end", Impact::None)
                };
                plan.push(Phase::Clear, Step::delete(rule), reason, impact);
            }
        }
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
