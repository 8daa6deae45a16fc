//! The network that is balanced in, and what it can do.
//!
//! Decides which network a Service's rules belong to, what filters there (firewall rules, ACL items or neither; one answer for
//! creating and deleting), and which ports it can't serve. Facts: routers advertise UDP and refuse it; port 53 of the source
//! NAT address is taken by the router's own name service; the two default ACL lists can't be changed.

use std::collections::BTreeMap;

use proto::{Fault, FaultKind};

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

/// Whether the network can serve the wish at all.
pub(crate) fn check(network: &Network, wish: &Wish) -> Result<(), Fault> {
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
    if network.vpc_id.is_some() && !wish.sources.is_everybody() && wish.sources.rule_list().is_none() {
        let text = "the source ranges need more than 255 characters, which is all that a VPC's load balancer keeps; \
                    merge some of them";
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
