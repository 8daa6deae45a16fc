//! Changing a load balancer rule, with what reaches the router and what a failure leaves behind.

use std::sync::Arc;

use serde_json::{Value, json};
use uuid::Uuid;

use super::conflict::balancer_text;
use super::load_balancer::{PROTOCOLS, bad_protocol, provider_takes, reconfigure, settle};
use super::sources::of_changed_balancer;
use crate::catalog::Spec;
use crate::dispatch::Call;
use crate::error::{ApiError, JobError};
use crate::jobs::{JobRun, Started};
use crate::request::{Entity, Kind, Param, TEXT, may, need};
use crate::state::show::Reader;
use crate::state::{Rule, RuleState, World};

const UPDATE: &[Param] = &[
    may("algorithm", TEXT),
    may("description", Kind::Text(4096, "description")),
    need("id", Kind::Id(Entity::Rule)),
    may("name", Kind::Text(255, "loadBalancerName")),
    may("fordisplay", Kind::Flag),
    may("protocol", TEXT),
    may("cidrlist", Kind::Names),
];

pub(super) const SPECS: &[Spec] = &[Spec::job(
    "updateLoadBalancerRule",
    "user.loadbalancer.UpdateLoadBalancerRuleCmd",
    UPDATE,
    update,
)];

/// What a call changes; none: not given.
#[derive(Debug, Clone)]
struct Change {
    name: Option<String>,
    description: Option<String>,
    algorithm: Option<String>,
    protocol: Option<String>,
    sources: Option<(String, Vec<String>)>,
}

impl Change {
    fn is_empty(&self) -> bool {
        self.name.is_none()
            && self.description.is_none()
            && self.algorithm.is_none()
            && self.protocol.is_none()
            && self.sources.is_none()
    }
}

fn update(_: &mut World, call: &Call) -> Result<Started, ApiError> {
    let id = call.args.uuid("id").unwrap_or_default();
    let text = |name: &str| call.args.text(name).map(str::to_owned);
    let change = Change {
        name: text("name"),
        description: text("description"),
        algorithm: text("algorithm"),
        protocol: text("protocol"),
        sources: text("cidrlist").map(|given| (given, call.args.list("cidrlist").unwrap_or_default())),
    };
    Ok(Started::job(
        move |run| async move { apply(&run, id, change).await },
    ))
}

async fn apply(run: &Arc<JobRun>, id: Uuid, change: Change) -> Result<Value, JobError> {
    let gone = || JobError::invalid("Unable to find load balancer rule");
    let before = run.world(|world| world.rules.get(id).cloned()).ok_or_else(gone)?;
    run.must_own(Some(before.owner))?;
    let sources = run.world(|world| check(world, &before, &change))?;
    let reaches = reaches_router(&before, &change, sources.as_deref());
    let mut mine = changed(before.clone(), &change, sources);
    run.world(|world| store(world, &before, &mine));
    if compares_nothing(&before, &change) {
        return Err(JobError::failed(
            "Cannot invoke \"String.equals(Object)\" because the return value of \
             \"com.cloud.network.dao.LoadBalancerVO.getLbProtocol()\" is null",
        ));
    }
    if reaches {
        mine.state = RuleState::Add;
        run.world(|world| {
            if let Some(rule) = world.rules.get_mut(id) {
                rule.state = RuleState::Add;
            }
        });
        if !reconfigure(run, before.network).await {
            return Err(run.world(|world| roll_back(world, &before)));
        }
    }
    // The answer shows the job's own copy: what another job changed meanwhile is not in it.
    run.world(|world| {
        settle(world, before.network);
        if change.is_empty() {
            let text = balancer_text(world, &mine);
            return Err(JobError::failed(format!(
                "Failed to update load balancer rule: {text}"
            )));
        }
        Ok(json!({ "loadbalancer": world.show_rule(&mine, Reader::of(run.caller.kind)) }))
    })
}

/// Unless the algorithm is the same, the server looks at the rule's protocol, and falls over when there is none. The change is stored all the same.
fn compares_nothing(before: &Rule, change: &Change) -> bool {
    before.protocol.is_none()
        && change.protocol.is_none()
        && change.algorithm.as_ref() != Some(&before.algorithm)
}

fn check(world: &World, before: &Rule, change: &Change) -> Result<Option<String>, JobError> {
    if let Some(protocol) = &change.protocol {
        if !PROTOCOLS.contains(&protocol.as_str()) {
            return Err(JobError::invalid(bad_protocol(protocol)));
        }
        if !provider_takes(world, before.network, Some(protocol), before.public_port) {
            return Err(JobError::invalid(format!(
                "Modifications in lb rule {} are not supported.",
                balancer_text(world, before)
            )));
        }
    }
    match &change.sources {
        Some((given, entries)) => of_changed_balancer(entries)
            .map(Some)
            .ok_or_else(|| JobError::invalid(format!("Invalid CIDR list: {given}"))),
        None => Ok(None),
    }
}

/// The server compares algorithm and protocol as they were given: what is left out counts as changed.
fn reaches_router(before: &Rule, change: &Change, sources: Option<&str>) -> bool {
    let same_algorithm = change.algorithm.as_ref() == Some(&before.algorithm);
    let same_protocol = change.protocol.is_some() && change.protocol == before.protocol;
    let same_sources = sources.is_none_or(|sources| Some(sources) == before.sources.as_deref());
    !(same_algorithm && same_protocol && same_sources)
}

/// The rule with what the call gives.
fn changed(mut rule: Rule, change: &Change, sources: Option<String>) -> Rule {
    let take = |field: &mut String, value: &Option<String>| {
        if let Some(value) = value {
            field.clone_from(value);
        }
    };
    take(&mut rule.name, &change.name);
    take(&mut rule.algorithm, &change.algorithm);
    rule.description = change.description.clone().or(rule.description);
    rule.protocol = change.protocol.clone().or(rule.protocol);
    rule.sources = sources.or(rule.sources);
    rule
}

/// Writes the fields that differ.
fn store(world: &mut World, before: &Rule, mine: &Rule) {
    let Some(rule) = world.rules.get_mut(before.id) else {
        return;
    };
    if mine.name != before.name {
        rule.name.clone_from(&mine.name);
    }
    if mine.algorithm != before.algorithm {
        rule.algorithm.clone_from(&mine.algorithm);
    }
    if mine.description != before.description {
        rule.description.clone_from(&mine.description);
    }
    if mine.protocol != before.protocol {
        rule.protocol.clone_from(&mine.protocol);
    }
    if mine.sources != before.sources {
        rule.sources.clone_from(&mine.sources);
    }
}

/// After a refusal everything is as before, except the protocol.
fn roll_back(world: &mut World, before: &Rule) -> JobError {
    if let Some(rule) = world.rules.get_mut(before.id) {
        rule.name.clone_from(&before.name);
        rule.description.clone_from(&before.description);
        rule.algorithm.clone_from(&before.algorithm);
        rule.sources.clone_from(&before.sources);
        rule.state = before.state;
    }
    JobError::failed(format!(
        "Failed to update load balancer rule: {}",
        balancer_text(world, before)
    ))
}
