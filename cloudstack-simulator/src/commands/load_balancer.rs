//! Creating load balancer rules, and sending all of a network to the router.

use std::sync::Arc;

use serde_json::{Value, json};
use uuid::Uuid;

use super::conflict::{balancer_text, of_balancer};
use super::firewall::apply_firewall;
use super::sources::of_new_balancer;
use crate::catalog::Spec;
use crate::dispatch::Call;
use crate::error::{ApiError, JobError};
use crate::jobs::{JobRun, Started, new_id};
use crate::lock::LockKey;
use crate::request::{Entity, IdArg, Kind, Param, TEXT, may, need};
use crate::router::Command;
use crate::state::{Address, FirewallRule, NetworkKind, Rule, RuleState, World};

const CREATE: &[Param] = &[
    need("algorithm", TEXT),
    may("description", Kind::Text(4096, "description")),
    need("name", Kind::Text(255, "loadBalancerRuleName")),
    need("privateport", Kind::Int),
    may("publicipid", Kind::Id(Entity::Address)),
    may("zoneid", Kind::Id(Entity::Zone)),
    need("publicport", Kind::Int),
    may("openfirewall", Kind::Flag),
    may("account", TEXT),
    may("domainid", Kind::Id(Entity::Domain)),
    may("cidrlist", Kind::Names),
    may("networkid", Kind::Id(Entity::Network)),
    may("protocol", TEXT),
    may("fordisplay", Kind::Flag),
];

pub(super) const SPECS: &[Spec] = &[Spec::job(
    "createLoadBalancerRule",
    "user.loadbalancer.CreateLoadBalancerRuleCmd",
    CREATE,
    create,
)
.locking(|_, call| call.args.uuid("publicipid").map(LockKey::Address))];

/// Protocols that a rule may have.
pub(super) const PROTOCOLS: [&str; 4] = ["tcp", "udp", "tcp-proxy", "ssl"];

/// The refusal of another protocol.
pub(super) fn bad_protocol(protocol: &str) -> String {
    format!("protocol {protocol} is not in valid protocols [tcp, udp, tcp-proxy, ssl]")
}

/// Whether the network's provider can serve a rule of this protocol and port.
pub(super) fn provider_takes(world: &World, network: Uuid, protocol: Option<&str>, port: u16) -> bool {
    let statistics = world.number_setting("network.loadbalancer.haproxy.stats.port");
    !(world.has_router(network) && (protocol == Some("udp") || statistics == Some(i64::from(port))))
}

fn create(world: &mut World, call: &Call) -> Result<Started, ApiError> {
    let address = address_of(world, call)?;
    let rule = new_rule(world, call, &address)?;
    of_balancer(world, address.id, rule.public_port)?;
    let opens = call.args.flag("openfirewall").unwrap_or(address.vpc.is_none());
    let id = rule.id;
    occupy(world, &address, rule.network);
    let opened = opens && open(world, &rule);
    world.rules.insert(rule);
    Ok(
        Started::job(move |run| async move { created(&run, id, (opens, opened)).await })
            .created("FirewallRule", id),
    )
}

/// The address of a call, which must be taken.
fn address_of(world: &World, call: &Call) -> Result<Address, ApiError> {
    let id = match call.args.id("publicipid") {
        None => {
            return Err(ApiError::invalid(
                "Can't define IP owner. Either specify account/domainId or publicIpId",
            ));
        }
        Some(IdArg::Nothing) => {
            return Err(ApiError::invalid(
                "Unable to create load balancer rule, invalid IP address ID -1",
            ));
        }
        Some(IdArg::Is(id)) => id,
    };
    let address = world
        .addresses
        .get(id)
        .cloned()
        .ok_or_else(|| call.gone("publicipid", id))?;
    if address.owner.is_none() || address.system {
        let number = world.addresses.number(id);
        return Err(ApiError::invalid(format!(
            "Unable to create load balancer rule, invalid IP address ID {number}"
        )));
    }
    Ok(address)
}

/// The rule that a call describes, with everything checked but the conflict with others.
fn new_rule(world: &World, call: &Call, address: &Address) -> Result<Rule, ApiError> {
    let args = &call.args;
    let owner = address.owner.ok_or_else(ApiError::denied)?;
    call.must_own(world, owner)?;
    let (public_port, private_port) = ports(call)?;
    let protocol = match args.text("protocol") {
        Some(given) if PROTOCOLS.contains(&given.to_lowercase().as_str()) => Some(given.to_lowercase()),
        Some(given) => return Err(ApiError::parameter(bad_protocol(given))),
        None => None,
    };
    let bad_source = |entry| ApiError::parameter(format!("CIDR [{entry}] is invalid."));
    let sources = args
        .list("cidrlist")
        .map(|entries| of_new_balancer(&entries).map_err(bad_source))
        .transpose()?;
    let network = network_of(world, call, address)?;
    check_port(world, address, network, (public_port, protocol.as_deref()))?;
    let name = args.text("name").unwrap_or_default().to_owned();
    if name.chars().any(|c| u32::from(c) > 0xffff) {
        return Err(ApiError::runtime("incorrect string value for a column"));
    }
    Ok(Rule {
        id: new_id(),
        name,
        description: args.text("description").map(str::to_owned),
        address: address.id,
        public_port,
        private_port,
        algorithm: args.text("algorithm").unwrap_or_default().to_owned(),
        protocol,
        sources,
        network,
        owner,
        state: RuleState::Add,
        members: Vec::new(),
    })
}

fn ports(call: &Call) -> Result<(u16, u16), ApiError> {
    let port = |name: &str, field: &str| {
        let value = call.args.int(name).unwrap_or(-1);
        u16::try_from(value).map_err(|_| ApiError::parameter(format!("{field} is an invalid value: {value}")))
    };
    let algorithm = call.args.text("algorithm").unwrap_or_default();
    let private = port("privateport", "privatePort")?;
    let public = port("publicport", "publicPort")?;
    if !["roundrobin", "leastconn", "source"].contains(&algorithm.to_lowercase().as_str()) {
        return Err(ApiError::parameter(format!("Invalid algorithm: {algorithm}")));
    }
    Ok((public, private))
}

/// The network of a rule: the address's own, and only without one that of the call.
fn network_of(world: &World, call: &Call, address: &Address) -> Result<Uuid, ApiError> {
    if address.vpc.is_some() && call.args.is("openfirewall") {
        return Err(ApiError::parameter(
            "Can't have openFirewall=true when IP address belongs to VPC",
        ));
    }
    if let Some(network) = address.network {
        let lacks = world
            .networks
            .get(network)
            .is_some_and(|network| !network.has("Lb"));
        return if lacks {
            Err(ApiError::parameter(
                "LB service is not supported in specified network id",
            ))
        } else {
            Ok(network)
        };
    }
    let number = world.addresses.number(address.id);
    let Some(id) = call.args.uuid("networkid") else {
        return Err(ApiError::parameter(format!(
            "IP address ID={number} is not associated with any network"
        )));
    };
    let network = world.networks.get(id).ok_or_else(|| call.gone("networkid", id))?;
    if network.vpc.is_none() || network.vpc != address.vpc {
        return Err(ApiError::parameter(format!(
            "Ip address IPAddress {{\"address\":\"{}\",\"dataCenterId\":1,\"id\":{number},\"uuid\":\"{}\"}} is not assigned to the network Network {{\"id\": {}, \
             \"name\": \"{}\", \"uuid\": \"{id}\", \"networkofferingid\": 10}}",
            address.address,
            address.id,
            world.networks.number(id),
            network.name
        )));
    }
    if !network.has("Lb") {
        return Err(ApiError::parameter(
            "LB service is not supported in specified network id",
        ));
    }
    Ok(id)
}

fn check_port(
    world: &World,
    address: &Address,
    network: Uuid,
    (port, protocol): (u16, Option<&str>),
) -> Result<(), ApiError> {
    if address.static_nat.is_some() {
        return Err(ApiError::conflict(format!(
            "Can't do load balance on ip address: {}",
            address.address
        )));
    }
    let dns = world.networks.get(network).is_some_and(|network| {
        network.has("Dns") && network.kind == NetworkKind::Isolated && network.vpc.is_none()
    });
    if port == 53 && address.source_nat && dns {
        return Err(ApiError::parameter(
            "Error adding load balancer rule, cannot add port 53 with network service offering having DNS service and Source NAT.",
        ));
    }
    if provider_takes(world, network, protocol, port) {
        Ok(())
    } else {
        Err(ApiError::parameter(
            "LB service provider cannot support this rule",
        ))
    }
}

/// A rule ties an address of a VPC to a tier. The source NAT address of a VPC loses its role by that, for good.
fn occupy(world: &mut World, address: &Address, network: Uuid) {
    if let Some(row) = world.addresses.get_mut(address.id)
        && row.vpc.is_some()
    {
        row.network = Some(network);
        row.source_nat = false;
    }
}

/// Makes the firewall rule that goes with a rule. False: an equal one is there already.
fn open(world: &mut World, rule: &Rule) -> bool {
    let implicit = FirewallRule {
        id: new_id(),
        protocol: "tcp".into(),
        ports: Some((rule.public_port, rule.public_port)),
        icmp: None,
        address: rule.address,
        network: rule.network,
        owner: rule.owner,
        sources: vec!["0.0.0.0/0".into()],
        state: RuleState::Add,
        related: Some(rule.id),
    };
    if super::conflict::of_firewall(world, &implicit).is_err() {
        return false;
    }
    world.firewall_rules.insert(implicit);
    true
}

/// Second phase of a create: only the firewall goes to the router.
async fn created(run: &Arc<JobRun>, id: Uuid, (opens, opened): (bool, bool)) -> Result<Value, JobError> {
    let address = run.world(|world| world.rules.get(id).map(|rule| rule.address));
    if let (true, Some(address)) = (opens, address)
        && !apply_firewall(run, address).await
        && opened
    {
        let text = run.world(|world| {
            let text = world
                .rules
                .get(id)
                .map(|rule| balancer_text(world, rule))
                .unwrap_or_default();
            if let Some(rule) = world.rules.get_mut(id) {
                rule.state = RuleState::Deleting;
            }
            let implicit = world
                .firewall_rules
                .iter_mut()
                .filter(|rule| rule.related == Some(id));
            implicit.for_each(|rule| rule.state = RuleState::Deleting);
            text
        });
        apply_firewall(run, address).await;
        return Err(JobError::failed(format!(
            "Unable to remove load balancer rule {text}"
        )));
    }
    run.world(|world| {
        let rule = world
            .rules
            .get(id)
            .ok_or_else(|| JobError::failed("Failed to create load balancer rule"))?;
        // The job shows its own copy, whatever happened to the rule meanwhile.
        let rule = Rule {
            state: RuleState::Add,
            ..rule.clone()
        };
        let reader = crate::state::show::Reader::of(run.caller.kind);
        Ok(json!({ "loadbalancer": world.show_rule(&rule, reader) }))
    })
}

/// Sends addresses, the whole load balancer configuration and the addresses again. A network without a router takes everything.
pub(super) async fn reconfigure(run: &Arc<JobRun>, network: Uuid) -> bool {
    if !run.world(|world| world.has_router(network)) {
        return true;
    }
    let router = run.world(|world| world.router_of(network));
    for make in [Command::addresses, Command::balancers, Command::addresses] {
        let command = run.world(|world| make(world, network));
        if !run.send(router, command).await {
            return false;
        }
    }
    true
}

/// Puts the state of every rule of a network right after a successful apply: active with members, else `Add`.
pub(super) fn settle(world: &mut World, network: Uuid) {
    for rule in world
        .rules
        .iter_mut()
        .filter(|rule| rule.network == network && rule.state != RuleState::Deleting)
    {
        let serving = rule
            .members
            .iter()
            .any(|member| !member.leaving && !member.coming);
        rule.state = if serving {
            RuleState::Active
        } else {
            RuleState::Add
        };
    }
}
