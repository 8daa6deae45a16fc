//! Firewall rules of isolated networks.

use std::sync::Arc;

use serde_json::{Value, json};
use uuid::Uuid;

use super::conflict::of_firewall;
use super::sources::no_network;
use crate::catalog::Spec;
use crate::dispatch::{self, Call};
use crate::error::{ApiError, JobError};
use crate::jobs::{JobRun, Started, new_id};
use crate::lock::LockKey;
use crate::request::{Entity, Kind, Param, TEXT, may, need};
use crate::router::Command;
use crate::scope::Scope;
use crate::state::{FirewallRule, RuleState, World};

const CREATE: &[Param] = &[
    need("ipaddressid", Kind::Id(Entity::Address)),
    need("protocol", TEXT),
    may("startport", Kind::Int),
    may("endport", Kind::Int),
    may("cidrlist", Kind::Names),
    may("icmptype", Kind::Int),
    may("icmpcode", Kind::Int),
    may("type", TEXT),
    may("fordisplay", Kind::Flag),
];
const BY_ID: &[Param] = &[need("id", Kind::Id(Entity::FirewallRule))];
const FILTERS: &[Param] = &[
    may("id", Kind::Id(Entity::FirewallRule)),
    may("ipaddressid", Kind::Id(Entity::Address)),
    may("networkid", Kind::Id(Entity::Network)),
    may("fordisplay", Kind::Flag),
];

pub(super) const SPECS: &[Spec] = &[
    Spec::job(
        "createFirewallRule",
        "user.firewall.CreateFirewallRuleCmd",
        CREATE,
        create,
    )
    .locking(|_, call| call.args.uuid("ipaddressid").map(LockKey::Address)),
    Spec::job(
        "deleteFirewallRule",
        "user.firewall.DeleteFirewallRuleCmd",
        BY_ID,
        delete,
    ),
    Spec::job(
        "updateFirewallRule",
        "user.firewall.UpdateFirewallRuleCmd",
        BY_ID,
        update,
    ),
    Spec::read("listFirewallRules", FILTERS, list),
];

fn create(world: &mut World, call: &Call) -> Result<Started, ApiError> {
    let args = &call.args;
    let id = args.uuid("ipaddressid").unwrap_or_default();
    let address = world
        .addresses
        .get(id)
        .ok_or_else(|| call.gone("ipaddressid", id))?
        .clone();
    let Some((network, owner)) = address.network.zip(address.owner) else {
        return Err(ApiError::invalid(format!(
            "Unable to create firewall rule for the IP address ID={} as IP is not associated with any network and no networkId is passed in",
            world.addresses.number(id)
        )));
    };
    let sources = sources(call)?;
    call.must_own(world, owner)?;
    let protocol = args.text("protocol").unwrap_or_default().to_lowercase();
    if !["tcp", "udp", "icmp"].contains(&protocol.as_str()) {
        return Err(ApiError::invalid(format!(
            "Protocol {protocol} is not supported in zone 1"
        )));
    }
    let served = world
        .networks
        .get(network)
        .is_some_and(|network| network.has("Firewall"));
    if address.vpc.is_some() || !served {
        let text = format!(
            "There is no new provider for IP {} of service Firewall!",
            address.address
        );
        return Err(ApiError::invalid(text));
    }
    let (ports, icmp) = details(call, &protocol)?;
    let rule = FirewallRule {
        id: new_id(),
        protocol,
        ports,
        icmp,
        address: id,
        network,
        owner,
        sources,
        state: RuleState::Add,
        related: None,
    };
    of_firewall(world, &rule)?;
    let mut sorted = rule.sources.clone();
    sorted.sort();
    sorted.dedup();
    if sorted.len() < rule.sources.len() {
        return Err(ApiError::internal("a network stands twice in the list"));
    }
    let rule_id = rule.id;
    world.firewall_rules.insert(rule);
    Ok(Started::job(move |run| async move { created(&run, rule_id).await }).created("FirewallRule", rule_id))
}

/// The given networks, else everybody.
fn sources(call: &Call) -> Result<Vec<String>, ApiError> {
    let given = call.args.list("cidrlist").filter(|entries| !entries.is_empty());
    let sources = given.unwrap_or_else(|| vec!["0.0.0.0/0".to_owned()]);
    match no_network(&sources) {
        Some(bad) => Err(ApiError::parameter(format!(
            "Source CIDRs formatting error {bad}"
        ))),
        None => Ok(sources),
    }
}

/// Ports or ICMP fields of a new rule.
#[expect(clippy::type_complexity, reason = "two optional pairs, taken apart at once")]
fn details(call: &Call, protocol: &str) -> Result<(Option<(u16, u16)>, Option<(i64, i64)>), ApiError> {
    let args = &call.args;
    let (start, end) = (
        args.int("startport"),
        args.int("endport").or(args.int("startport")),
    );
    let icmp = (args.int("icmptype"), args.int("icmpcode"));
    if protocol == "icmp" {
        if start.is_some() || end.is_some() {
            return Err(ApiError::invalid(
                "Can't specify start/end port when protocol is ICMP",
            ));
        }
        return Ok((None, Some((icmp.0.unwrap_or(-1), icmp.1.unwrap_or(-1)))));
    }
    let port = |value: i64| {
        u16::try_from(value)
            .map_err(|_| ApiError::invalid(format!("publicPort is an invalid value: {value}")))
    };
    let ports = match start.or(end).zip(end) {
        Some((start, end)) => {
            let ports = (port(start)?, port(end)?);
            if ports.0 > ports.1 {
                return Err(ApiError::invalid("Start port can't be bigger than end port"));
            }
            Some(ports)
        }
        None => None,
    };
    if icmp.0.is_some() || icmp.1.is_some() {
        return Err(ApiError::invalid(
            "Can specify icmpCode and icmpType for ICMP protocol only",
        ));
    }
    Ok((ports, None))
}

async fn created(run: &Arc<JobRun>, id: Uuid) -> Result<Value, JobError> {
    let address = run.world(|world| world.firewall_rules.get(id).map(|rule| rule.address));
    let ok = match address {
        Some(address) => {
            let _held = run.lock(LockKey::Address(address)).await;
            let ok = apply_firewall(run, address).await;
            if !ok {
                // It stays in the lists until the router takes the next change.
                run.world(|world| revoke(world, id));
                apply_firewall(run, address).await;
            }
            ok
        }
        None => false,
    };
    run.world(|world| {
        let rule = world
            .firewall_rules
            .get(id)
            .filter(|_| ok)
            .ok_or_else(|| JobError::failed("Failed to create firewall rule"))?;
        Ok(json!({ "firewallrule": world.show_firewall(rule, crate::state::show::Reader::of(run.caller.kind)) }))
    })
}

fn revoke(world: &mut World, id: Uuid) {
    if let Some(rule) = world.firewall_rules.get_mut(id) {
        rule.state = RuleState::Deleting;
    }
}

fn delete(world: &mut World, call: &Call) -> Result<Started, ApiError> {
    let id = call.args.uuid("id").unwrap_or_default();
    let rule = world.firewall_rules.get(id).ok_or_else(|| call.gone("id", id))?;
    call.must_own(world, rule.owner)?;
    Ok(Started::job(move |run| async move { remove(&run, id).await }))
}

async fn remove(run: &Arc<JobRun>, id: Uuid) -> Result<Value, JobError> {
    let Some(address) = run.world(|world| world.firewall_rules.get(id).map(|rule| rule.address)) else {
        return Ok(super::job::success());
    };
    let _held = run.lock(LockKey::Address(address)).await;
    run.world(|world| revoke(world, id));
    if apply_firewall(run, address).await {
        Ok(super::job::success())
    } else {
        Err(JobError::failed("Failed to delete firewall rule"))
    }
}

fn update(world: &mut World, call: &Call) -> Result<Started, ApiError> {
    let id = call.args.uuid("id").unwrap_or_default();
    let rule = world.firewall_rules.get(id).ok_or_else(|| call.gone("id", id))?;
    call.must_own(world, rule.owner)?;
    Ok(Started::job(move |run| async move {
        run.world(|world| {
            let rule = world
                .firewall_rules
                .get(id)
                .ok_or_else(|| JobError::failed("Failed to update firewall rule"))?;
            Ok(json!({ "firewallrule": world.show_firewall(rule, crate::state::show::Reader::of(run.caller.kind)) }))
        })
    }))
}

/// Sends all firewall rules of an address. When the router took them, new ones are active and deleted ones gone.
pub(super) async fn apply_firewall(run: &Arc<JobRun>, address: Uuid) -> bool {
    let Some(network) = run.world(|world| world.addresses.get(address).and_then(|row| row.network)) else {
        return true;
    };
    if !run.world(|world| world.has_router(network)) {
        let sent = run.world(|world| states(world, address));
        run.world(|world| settle(world, &sent));
        return true;
    }
    let router = run.world(|world| world.router_of(network));
    let first = run.world(|world| {
        let active = world
            .firewall_on(address)
            .any(|rule| rule.state == RuleState::Active);
        !active
            && !world
                .rules_on(address)
                .any(|rule| rule.state == RuleState::Active)
    });
    if first {
        let command = run.world(|world| Command::addresses(world, network));
        if !run.send(router, command).await {
            return false;
        }
    }
    let (sent, command) = run.world(|world| (states(world, address), Command::firewall(world, address)));
    if !run.send(router, command).await {
        return false;
    }
    run.world(|world| settle(world, &sent));
    true
}

/// Firewall rules of an address as they are sent.
fn states(world: &World, address: Uuid) -> Vec<(Uuid, RuleState)> {
    world
        .firewall_on(address)
        .map(|rule| (rule.id, rule.state))
        .collect()
}

/// The router took the rules: deleted ones are gone, new ones active. What changed meanwhile waits for the next time.
fn settle(world: &mut World, sent: &[(Uuid, RuleState)]) {
    for (id, state) in sent {
        if *state == RuleState::Deleting {
            world.firewall_rules.remove(*id);
            world.tags.retain(|tag| tag.resource != *id);
        } else if let Some(rule) = world
            .firewall_rules
            .get_mut(*id)
            .filter(|rule| rule.state == RuleState::Add)
        {
            rule.state = RuleState::Active;
        }
    }
}

fn list(world: &World, call: &Call) -> Result<Value, ApiError> {
    let args = &call.args;
    if let Some(id) = args.uuid("ipaddressid") {
        check_address(world, call, id)?;
    }
    let scope = Scope::of(world, call, args.id("id").is_some())?;
    let (address, network) = (args.uuid("ipaddressid"), args.uuid("networkid"));
    let rows = world.firewall_rules.iter().rev().filter(|rule| {
        args.id("id").is_none_or(|_| args.uuid("id") == Some(rule.id))
            && address.is_none_or(|address| rule.address == address)
            && network.is_none_or(|network| rule.network == network)
            && super::tag::matches(world, call, rule.id)
            && scope.has(world, rule.owner)
    });
    let shown = rows.map(|rule| Value::Object(world.show_firewall(rule, call.reader())));
    dispatch::list(world, call, "firewallrule", shown.collect())
}

/// A filter by address looks at the address first.
fn check_address(world: &World, call: &Call, id: Uuid) -> Result<(), ApiError> {
    let row = world
        .addresses
        .get(id)
        .ok_or_else(|| call.gone("ipaddressid", id))?;
    let Some(owner) = row.owner else {
        return Err(ApiError::invalid(format!(
            "Ip address id={} not ready for firewall rules yet",
            world.addresses.number(id)
        )));
    };
    call.must_own(world, owner)
}
