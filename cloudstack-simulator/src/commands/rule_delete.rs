//! Deleting load balancer rules.

use std::sync::Arc;

use serde_json::{Value, json};
use uuid::Uuid;

use super::conflict::balancer_text;
use super::firewall::apply_firewall;
use super::load_balancer::reconfigure;
use crate::catalog::Spec;
use crate::dispatch::Call;
use crate::error::{ApiError, JobError};
use crate::jobs::{JobRun, Started};
use crate::request::{Entity, Kind, Param, need};
use crate::state::{RuleState, World};

const DELETE: &[Param] = &[need("id", Kind::Id(Entity::Rule))];

pub(super) const SPECS: &[Spec] = &[Spec::job(
    "deleteLoadBalancerRule",
    "user.loadbalancer.DeleteLoadBalancerRuleCmd",
    DELETE,
    delete,
)];

fn delete(_: &mut World, call: &Call) -> Result<Started, ApiError> {
    let id = call.args.uuid("id").unwrap_or_default();
    Ok(Started::job(move |run| async move { remove(&run, id).await }))
}

async fn remove(run: &Arc<JobRun>, id: Uuid) -> Result<Value, JobError> {
    let Some(before) = run.world(|world| world.rules.get(id).cloned()) else {
        let number = run.world(|world| world.firewall_rules.number(id));
        return if number > 0 {
            Err(JobError::invalid(format!(
                "Unable to find load balancer rule: {number}"
            )))
        } else {
            Ok(json!({ "success": true }))
        };
    };
    run.must_own(Some(before.owner))?;
    let implicit = run.world(|world| {
        let mut any = false;
        for rule in world
            .firewall_rules
            .iter_mut()
            .filter(|rule| rule.related == Some(id))
        {
            rule.state = RuleState::Deleting;
            any = true;
        }
        any
    });
    let mut ok = !implicit || apply_firewall(run, before.address).await;
    if ok {
        run.world(|world| {
            if let Some(rule) = world.rules.get_mut(id) {
                rule.state = RuleState::Deleting;
                // Even a delete that fails leaves its members on their way out for the router, while lists show them.
                rule.members.iter_mut().for_each(|member| member.leaving = true);
            }
        });
        ok = reconfigure(run, before.network).await;
    }
    run.world(|world| {
        if ok {
            drop_rule(world, id);
            return Ok(json!({ "success": true }));
        }
        let text = balancer_text(world, &before);
        if let Some(rule) = world.rules.get_mut(id) {
            rule.state = before.state;
        }
        Err(JobError::failed(format!(
            "Unable to remove load balancer rule {text}"
        )))
    })
}

/// Takes a rule out of the database. Its tags stay for ever.
pub(super) fn drop_rule(world: &mut World, id: Uuid) {
    let Some(rule) = world.rules.remove(id) else {
        return;
    };
    let policies: Vec<Uuid> = world
        .policies
        .iter()
        .filter(|policy| policy.rule == id)
        .map(|policy| policy.id)
        .collect();
    for policy in policies {
        world.policies.remove(policy);
    }
    world.detach_unused(rule.address);
}
