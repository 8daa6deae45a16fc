//! The network that is balanced in, and what it can do.
//!
//! Decides which network a Service's rules belong to, what filters there (firewall rules, ACL items or neither; one answer for
//! creating and deleting), which ports it can't serve, and whether anything in it holds restricted sources. Facts: routers
//! advertise UDP and refuse it; port 53 of the source NAT address is taken by the router's own name service, 8081 by its
//! statistics; the two default ACL lists can't be changed; ACLs don't filter what comes through the balancer.

use std::collections::BTreeMap;

use proto::{Fault, FaultKind};

use super::features::Features;
use super::observation::Observation;
use super::ownership::Survey;
use super::wish::{Protocol, Wish};
use crate::cloudstack::AssociateTarget;
use crate::cloudstack::types::{AclListId, MachineId, Network, NetworkId, PublicIpAddress, ServiceName};
use crate::tenant::{NameOrId, Scope};

/// Names of the ACL lists that can't be changed.
const DEFAULT_LISTS: [&str; 2] = ["default_allow", "default_deny"];
/// Providers that are CloudStack's own routers.
const ROUTERS: [&str; 2] = ["VirtualRouter", "VpcVirtualRouter"];
/// The port of the router's statistics, which no rule may have, unless an operator has moved it.
pub(crate) const STATISTICS_PORT: u16 = 8081;

/// What lets traffic in beside the balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    /// Firewall rules of the address.
    Firewall,
    /// Items of this ACL list.
    Acl(AclListId),
    /// Nothing, or nothing that could be changed.
    None,
}

/// What filters in a network.
pub(crate) fn filter(network: &Network) -> Filter {
    if network.has(ServiceName::Firewall) {
        return Filter::Firewall;
    }
    let custom = network
        .acl_name
        .as_deref()
        .is_none_or(|name| !DEFAULT_LISTS.contains(&name));
    match &network.acl_id {
        Some(list) if custom && network.has(ServiceName::NetworkAcl) => Filter::Acl(list.clone()),
        Some(_) | None => Filter::None,
    }
}

/// What an address for this network is acquired for.
pub(crate) fn target(network: &Network) -> AssociateTarget {
    match &network.vpc_id {
        Some(vpc) => AssociateTarget::Vpc(vpc.clone()),
        None => AssociateTarget::Network(network.id.clone()),
    }
}

/// Whether an address may carry rules for this network.
pub(crate) fn may_use(network: &Network, address: &PublicIpAddress) -> Result<(), &'static str> {
    if address.is_static_nat {
        return Err("it stands for one machine (static nat)");
    }
    if address.is_system {
        return Err("the system made it for itself");
    }
    match &network.vpc_id {
        Some(_) if address.is_source_nat => {
            Err("it is the source nat address of the vpc and would lose that role")
        }
        Some(vpc) if address.vpc_id.as_ref() != Some(vpc) => Err("it belongs to another network or vpc"),
        Some(_)
            if address
                .network_id
                .as_ref()
                .is_some_and(|tier| *tier != network.id) =>
        {
            Err("rules for another tier of the vpc are on it")
        }
        None if address.vpc_id.is_some() || address.network_id.as_ref() != Some(&network.id) => {
            Err("it belongs to another network")
        }
        Some(_) | None => Ok(()),
    }
}

/// The network for a wish: the one asked for, else that of existing rules, else the one shared by most nodes.
pub(crate) fn choose<'o>(
    wish: &Wish,
    scope: &Scope,
    survey: &Survey<'_>,
    observation: &'o Observation,
) -> Result<Option<&'o Network>, Fault> {
    let admitted = |network: &Network| scope.admits_network(network.id.as_str(), &network.name);
    if let Some(asked) = &wish.network {
        return named(asked, scope, observation).map(Some);
    }
    let mut by_rules: BTreeMap<&NetworkId, usize> = BTreeMap::new();
    for claimed in survey.mine() {
        if let Some(network) = &claimed.rule.network_id {
            *by_rules.entry(network).or_default() += usize::from(claimed.serves()) + 1;
        }
    }
    let with_most_rules = by_rules
        .into_iter()
        .max_by_key(|(_, count)| *count)
        .map(|(id, _)| id);
    if let Some(id) = with_most_rules {
        return match observation.networks.iter().find(|network| network.id == *id) {
            Some(network) if admitted(network) => Ok(Some(network)),
            Some(network) => Err(outside(&network.name)),
            None => Ok(None),
        };
    }
    Ok(shared_by_most(
        wish.members.machines.keys(),
        observation,
        admitted,
    ))
}

fn named<'o>(asked: &NameOrId, scope: &Scope, observation: &'o Observation) -> Result<&'o Network, Fault> {
    let mut fitting = observation
        .networks
        .iter()
        .filter(|network| asked.is(network.id.as_str(), &network.name));
    match (fitting.next(), fitting.next()) {
        (Some(network), None) if scope.admits_network(network.id.as_str(), &network.name) => Ok(network),
        (Some(network), None) => Err(outside(&network.name)),
        (Some(_), Some(_)) => {
            let text = format!("several networks are named \"{asked}\"; give the id of one");
            Err(Fault::invalid("NETWORK_AMBIGUOUS", "network", text))
        }
        (None, _) => {
            let text = format!("no network \"{asked}\" is visible to the keys of the broker");
            Err(Fault::new(FaultKind::NotFound, "NETWORK_NOT_FOUND", text).with_field("network"))
        }
    }
}

fn outside(name: &str) -> Fault {
    let text = format!("network {name} is not among those of this cluster");
    Fault::new(FaultKind::Denied, "NETWORK_NOT_ALLOWED", text).with_field("network")
}

/// Most nodes first, then most default interfaces; one that can balance before one that can't.
fn shared_by_most<'o, 'w>(
    machines: impl Iterator<Item = &'w MachineId>,
    observation: &'o Observation,
    admitted: impl Fn(&Network) -> bool,
) -> Option<&'o Network> {
    let mut score: BTreeMap<&NetworkId, (usize, usize)> = BTreeMap::new();
    for machine in machines.filter_map(|id| observation.machines.get(id)) {
        for nic in &machine.nics {
            if let Some(network) = &nic.network_id {
                let (nodes, defaults) = score.entry(network).or_default();
                *nodes += 1;
                *defaults += usize::from(nic.is_default);
            }
        }
    }
    let candidates = observation.networks.iter().filter(|network| admitted(network));
    candidates
        .filter_map(|network| score.get(&network.id).map(|score| (network, score)))
        .max_by_key(|(network, score)| (network.has(ServiceName::LoadBalancer), **score))
        .map(|(network, _)| network)
}

/// Whether the network can serve the wish at all, on such a server and with the rules that are there.
pub(crate) fn check(
    network: &Network,
    wish: &Wish,
    features: Features,
    survey: &Survey<'_>,
) -> Result<(), Fault> {
    let name = &network.name;
    let Some(service) = network.service(ServiceName::LoadBalancer) else {
        let text = format!(
            "network {name} has no load balancing service; choose another with the network annotation"
        );
        return Err(Fault::invalid("NO_LOAD_BALANCER_IN_NETWORK", "network", text));
    };
    let by_router = service.providers.is_empty()
        || service
            .providers
            .iter()
            .any(|provider| ROUTERS.contains(&provider.as_str()));
    let speaks_udp = service
        .words("SupportedProtocols")
        .iter()
        .any(|word| word == "udp");
    for port in wish.ports.iter().filter(|port| port.protocol == Protocol::Udp) {
        if by_router || !speaks_udp {
            let text = format!(
                "the load balancer of network {name} can't balance UDP (port {})",
                port.port
            );
            return Err(Fault::invalid(
                "UDP_NOT_SUPPORTED",
                port_field(&port.name, port.port, "protocol"),
                text,
            ));
        }
    }
    let has_moved = || {
        survey
            .mine()
            .any(|claimed| claimed.serves() && claimed.rule.public_port == STATISTICS_PORT)
    };
    match wish.port(STATISTICS_PORT) {
        Some(port) if by_router && !has_moved() => {
            let text = format!(
                "port {STATISTICS_PORT} is taken by the statistics of the router of network {name}; use another port"
            );
            let field = port_field(&port.name, port.port, "port");
            return Err(Fault::invalid("PORT_8081_TAKEN", field, text));
        }
        Some(_) | None => {}
    }
    check_sources(network, wish, features)
}

/// Whether some layer holds restricted sources: the firewall, else the list of the rule itself.
fn check_sources(network: &Network, wish: &Wish, features: Features) -> Result<(), Fault> {
    if wish.sources.is_everybody() || filter(network) == Filter::Firewall {
        return Ok(());
    }
    let name = &network.name;
    if !features.sources_on_create {
        let text = format!(
            "nothing in network {name} can restrict who reaches the load balancer: it has no firewall, and rules take \
             source ranges only from CloudStack 4.18 on; remove the source ranges, or use a network with a firewall"
        );
        return Err(Fault::invalid("SOURCES_NOT_ENFORCEABLE", "sources", text));
    }
    if wish.sources.rule_list().is_none() {
        let text = format!(
            "the source ranges need more than 255 characters, which is all that a load balancer rule keeps, and network \
             {name} has no firewall to hold them; merge some of them"
        );
        return Err(Fault::invalid("SOURCES_TOO_LONG", "sources", text));
    }
    Ok(())
}

/// Whether the wish can be served on this very address.
pub(crate) fn check_address(network: &Network, wish: &Wish, address: &PublicIpAddress) -> Result<(), Fault> {
    let taken = network.vpc_id.is_none() && address.is_source_nat && network.has(ServiceName::Dns);
    match wish.port(53) {
        Some(port) if taken => {
            let text = format!(
                "port 53 of {} is taken by the name service of the router; use another address or port",
                address.ip
            );
            Err(Fault::invalid(
                "PORT_53_TAKEN",
                port_field(&port.name, port.port, "port"),
                text,
            ))
        }
        Some(_) | None => Ok(()),
    }
}

/// How a field of a port is named.
pub(crate) fn port_field(name: &str, number: u16, field: &str) -> String {
    if name.is_empty() {
        format!("ports[{number}].{field}")
    } else {
        format!("ports[{name}].{field}")
    }
}
