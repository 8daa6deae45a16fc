//! Firewall rules of a port.
//!
//! Decides which are ours (by protocol, a single port, and a source set that is the wish or in the rule's mark), what is opened
//! before what is closed, and how a replacement is spelled so that it does not collide with what it replaces. Everything else
//! on the address stays.

use std::collections::BTreeSet;

use crate::cloudstack::CreateFirewallRule;
use crate::cloudstack::types::{AddressId, FirewallRule, PortRange, RuleState};
use crate::load_balancer::sources::{Sources, SourcesHash};
use crate::load_balancer::wish::Transport;

/// Whether a firewall rule is for exactly this port.
pub(super) fn is_for(rule: &FirewallRule, transport: &str, port: u16) -> bool {
    rule.protocol == transport && rule.ports == Some(PortRange::single(port))
}

/// A port, and who should reach it.
pub(super) struct Opening<'a> {
    /// The address.
    pub(super) address: &'a AddressId,
    /// The port.
    pub(super) place: (Transport, u16),
    /// For whom.
    pub(super) wanted: &'a Sources,
    /// What the marks of the Service on the address say.
    pub(super) known: &'a BTreeSet<SourcesHash>,
    /// What was found at adoption stays as it is.
    pub(super) held: bool,
}

/// What the firewall of one port needs.
#[derive(Debug, Default)]
pub(super) struct PortPlan<'o> {
    /// To open.
    pub(super) open: Option<CreateFirewallRule>,
    /// Our old ones, to be closed after that.
    pub(super) close: Vec<&'o FirewallRule>,
    /// They have to be closed first, since no spelling is free.
    pub(super) close_first: bool,
    /// What the mark has to say meanwhile.
    pub(super) src: BTreeSet<SourcesHash>,
    /// Rules of others that let in more than is wanted.
    pub(super) wider: Vec<&'o FirewallRule>,
}

/// Plans the firewall of a port. Without rules nothing filters there, and only the mark is decided.
pub(super) fn port<'o>(rules: Option<&[&'o FirewallRule]>, opening: &Opening<'_>) -> PortPlan<'o> {
    let as_found = || PortPlan {
        src: opening.known.clone(),
        ..PortPlan::default()
    };
    let wished = PortPlan {
        src: BTreeSet::from([opening.wanted.hash()]),
        ..PortPlan::default()
    };
    match rules {
        None if opening.held => as_found(),
        None => wished,
        Some(rules) if opening.held && !ours(rules, opening.place, opening.known).is_empty() => as_found(),
        Some(rules) => changed(wished, rules, opening),
    }
}

/// Opens what is wanted and closes what is ours and not wanted.
fn changed<'o>(mut plan: PortPlan<'o>, rules: &[&'o FirewallRule], opening: &Opening<'_>) -> PortPlan<'o> {
    let Opening {
        place: (transport, number),
        wanted,
        known,
        ..
    } = *opening;
    let mut is_open = false;
    let mut taken = BTreeSet::new();
    for rule in rules
        .iter()
        .filter(|rule| rule.protocol == transport.word() && rule.state != RuleState::Deleting)
    {
        if !rule.ports.is_none_or(|ports| ports.contains(number)) {
            continue;
        }
        taken.extend(rule.sources.entries().iter().cloned());
        let set = Sources::from_server(&rule.sources);
        let for_port = is_for(rule, transport.word(), number);
        match set {
            Some(set) if for_port && set == *wanted => is_open = true,
            Some(set) if for_port && known.contains(&set.hash()) => {
                plan.src.insert(set.hash());
                plan.close.push(rule);
            }
            Some(set) if !wanted.covers(&set) => plan.wider.push(rule),
            Some(_) | None => {}
        }
    }
    if !is_open {
        let spelled = wanted.spelled_apart_from(&taken);
        plan.close_first = spelled.is_none();
        let sources = spelled.unwrap_or_else(|| wanted.list());
        let ports = PortRange::single(number);
        let protocol = transport.firewall();
        plan.open = Some(CreateFirewallRule {
            address: opening.address.clone(),
            protocol,
            ports,
            sources,
        });
    }
    plan
}

/// Our firewall rules for a port that is no longer wanted.
pub(super) fn ours<'o>(
    rules: &[&'o FirewallRule],
    (transport, number): (Transport, u16),
    known: &BTreeSet<SourcesHash>,
) -> Vec<&'o FirewallRule> {
    rules
        .iter()
        .copied()
        .filter(|rule| is_for(rule, transport.word(), number))
        .filter(|rule| Sources::from_server(&rule.sources).is_some_and(|set| known.contains(&set.hash())))
        .collect()
}

/// How a firewall rule reads.
pub(super) fn text(rule: &FirewallRule, ip: std::net::IpAddr) -> String {
    let ports = match rule.ports {
        Some(ports) if ports.start == ports.end => ports.start.to_string(),
        Some(ports) => format!("{}-{}", ports.start, ports.end),
        None => "all ports".to_owned(),
    };
    format!("{}/{ports} of {ip} for {}", rule.protocol, rule.sources)
}
