//! Which rules of one public address exclude each other.

use uuid::Uuid;

use crate::error::ApiError;
use crate::state::{FirewallRule, Rule, RuleState, World};

/// Refuses a load balancer rule whose public port is taken by another one. Firewall rules never conflict with it; the protocol does not matter, and rules
/// that are being deleted don't count.
pub(super) fn of_balancer(world: &World, address: Uuid, port: u16) -> Result<(), ApiError> {
    let taken = world
        .rules_on(address)
        .find(|rule| rule.public_port == port && rule.state != RuleState::Deleting);
    taken.map_or(Ok(()), |rule| {
        Err(ApiError::conflict(text(
            (port, port),
            &of_rule(world, rule),
            (rule.public_port, rule.public_port),
        )))
    })
}

fn of_rule(world: &World, rule: &Rule) -> String {
    described(
        world.rules.number(rule.id),
        world.networks.number(rule.network),
        "LoadBalancing",
        (rule.state, rule.id),
    )
}

fn described(number: u64, network: u64, purpose: &str, (state, id): (RuleState, Uuid)) -> String {
    let state = if state == RuleState::Deleting {
        "Revoke"
    } else {
        state.text()
    };
    format!(
        "FirewallRule {{\"id\":{number},\"networkId\":{network},\"purpose\":\"{purpose}\",\"state\":\"{state}\",\"uuid\":\"{id}\"}}"
    )
}

fn text(new: (u16, u16), rule: &str, old: (u16, u16)) -> String {
    format!(
        "The range specified, {}-{}, conflicts with rule {rule} which has {}-{}",
        new.0, new.1, old.0, old.1
    )
}

/// Refuses a firewall rule that overlaps one of the same protocol with a source in common. Sources are compared letter by letter.
pub(super) fn of_firewall(world: &World, new: &FirewallRule) -> Result<(), ApiError> {
    for old in world
        .firewall_on(new.address)
        .filter(|old| old.state != RuleState::Deleting && old.protocol == new.protocol)
    {
        let common = old.sources.iter().any(|source| new.sources.contains(source));
        let rule = || {
            described(
                world.firewall_rules.number(old.id),
                world.networks.number(old.network),
                "Firewall",
                (old.state, old.id),
            )
        };
        match (new.ports, old.ports) {
            (Some(a), Some(b)) if common && a.0 <= b.1 && b.0 <= a.1 => {
                return Err(ApiError::conflict(text(a, &rule(), b)).caused_by(4360));
            }
            (None, None) if common && new.icmp.is_some() && new.icmp == old.icmp => {
                return Err(ApiError::invalid(format!(
                    "New rule conflicts with existing rule: {}",
                    rule()
                )));
            }
            (None, None) if common && new.icmp.is_none() => {
                return Err(ApiError::conflict(format!(
                    "There is already a firewall rule specified with protocol = {} and no ports",
                    new.protocol
                ))
                .caused_by(4360));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Name of a load balancer rule in error texts.
pub(super) fn balancer_text(world: &World, rule: &Rule) -> String {
    let state = if rule.state == RuleState::Deleting {
        "Revoke"
    } else {
        rule.state.text()
    };
    format!(
        "LoadBalancer {{\"name\":\"{}\",\"id\":{},\"purpose\":\"LoadBalancing\",\"state\":\"{state}\",\"uuid\":\"{}\"}}",
        rule.name,
        world.rules.number(rule.id),
        rule.id
    )
}
