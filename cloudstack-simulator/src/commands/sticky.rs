//! Stickiness policies of rules, and health check policies, which the virtual router does not have.

use std::sync::Arc;

use serde_json::{Value, json};
use uuid::Uuid;

use super::load_balancer::reconfigure;
use crate::catalog::Spec;
use crate::dispatch::Call;
use crate::error::{ApiError, JobError};
use crate::jobs::{JobRun, Started, new_id};
use crate::request::{Entity, Kind, Param, TEXT, may, need};
use crate::state::show::Reader;
use crate::state::{Policy, Rule, RuleState, World};

const CREATE: &[Param] = &[
    may("description", TEXT),
    need("lbruleid", Kind::Id(Entity::Rule)),
    need("name", TEXT),
    need("methodname", TEXT),
    may("param", Kind::Map),
];
const DELETE: &[Param] = &[need("id", Kind::Id(Entity::Policy))];
const FILTERS: &[Param] = &[
    may("lbruleid", Kind::Id(Entity::Rule)),
    may("id", Kind::Id(Entity::Policy)),
];
const HEALTH: &[Param] = &[need("lbruleid", Kind::Id(Entity::Rule))];

pub(super) const SPECS: &[Spec] = &[
    Spec::job(
        "createLBStickinessPolicy",
        "user.loadbalancer.CreateLBStickinessPolicyCmd",
        CREATE,
        create,
    )
    .enveloped("createLBStickinessPolicy"),
    Spec::job(
        "deleteLBStickinessPolicy",
        "user.loadbalancer.DeleteLBStickinessPolicyCmd",
        DELETE,
        delete,
    )
    .enveloped("deleteLBstickinessrruleresponse"),
    Spec::read("listLBStickinessPolicies", FILTERS, list),
    Spec::job(
        "createLBHealthCheckPolicy",
        "user.loadbalancer.CreateLBHealthCheckPolicyCmd",
        HEALTH,
        create_health,
    ),
    Spec::job(
        "deleteLBHealthCheckPolicy",
        "user.loadbalancer.DeleteLBHealthCheckPolicyCmd",
        &[need("id", Kind::Id(Entity::Other))],
        delete,
    ),
    Spec::read("listLBHealthCheckPolicies", FILTERS, list_health),
];

/// Methods with their parameters.
const METHODS: &[(&str, &[&str])] = &[
    (
        "LbCookie",
        &["cookie-name", "mode", "nocache", "indirect", "postonly", "domain"],
    ),
    (
        "AppCookie",
        &[
            "cookie-name",
            "length",
            "holdtime",
            "request-learn",
            "prefix",
            "mode",
        ],
    ),
    ("SourceBased", &["tablesize", "expire"]),
];

fn create(world: &mut World, call: &Call) -> Result<Started, ApiError> {
    let rule_id = call.args.uuid("lbruleid").unwrap_or_default();
    let rule = world
        .rules
        .get(rule_id)
        .ok_or_else(|| call.gone("lbruleid", rule_id))?;
    call.must_own(world, rule.owner)?;
    let network = rule.network;
    let method = call.args.text("methodname").unwrap_or_default().to_owned();
    let known = METHODS
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(&method));
    let (_, names) = known.ok_or_else(|| {
        ApiError::invalid(format!(
            "Failed to match Stickiness method name for LB rule:{}",
            world.rules.number(rule_id)
        ))
    })?;
    let mut params = Vec::new();
    for entry in call.args.map("param") {
        let name = entry.get("name").cloned().unwrap_or_default();
        if !names.contains(&name.as_str()) {
            return Err(ApiError::invalid(format!(
                "Failed : Stickiness policy does not support param name :{name}"
            )));
        }
        if let Some(value) = entry.get("value").filter(|value| !value.is_empty()) {
            params.push((name, value.clone()));
        }
    }
    let id = new_id();
    world.policies.insert(Policy {
        id,
        rule: rule_id,
        name: call.args.text("name").unwrap_or_default().to_owned(),
        description: call.args.text("description").map(str::to_owned),
        method,
        params,
        state: RuleState::Add,
    });
    Ok(
        Started::job(move |run| async move { applied(&run, id, (rule_id, network)).await })
            .created("None", id),
    )
}

/// The new policy replaces the rule's other ones once the router has it.
async fn applied(run: &Arc<JobRun>, id: Uuid, (rule, network): (Uuid, Uuid)) -> Result<Value, JobError> {
    if !reconfigure(run, network).await {
        run.world(|world| world.policies.remove(id));
        return Err(JobError::failed("Failed to create stickiness policy"));
    }
    run.world(|world| {
        let others: Vec<Uuid> = world
            .policies
            .iter()
            .filter(|policy| policy.rule == rule && policy.id != id)
            .map(|policy| policy.id)
            .collect();
        for other in others {
            world.policies.remove(other);
        }
        let rule = world
            .rules
            .get(rule)
            .ok_or_else(|| JobError::failed("Failed to create stickiness policy"))?;
        Ok(json!({ "stickinesspolicies": shown(world, rule, Reader::of(run.caller.kind)) }))
    })
}

fn shown(world: &World, rule: &Rule, reader: Reader) -> Value {
    let policies = world
        .policies
        .iter()
        .filter(|policy| policy.rule == rule.id)
        .map(|policy| Value::Object(World::show_policy(policy, reader)));
    let mut fields = policy_owner(world, rule);
    fields.insert("lbruleid".into(), json!(rule.id));
    fields.insert("stickinesspolicy".into(), policies.collect());
    Value::Object(fields)
}

fn delete(world: &mut World, call: &Call) -> Result<Started, ApiError> {
    let id = call.args.uuid("id").unwrap_or_default();
    let rule = world
        .policies
        .get(id)
        .map(|policy| policy.rule)
        .ok_or_else(|| call.gone("id", id))?;
    let (owner, network) = world
        .rules
        .get(rule)
        .map(|rule| (rule.owner, rule.network))
        .ok_or_else(|| call.gone("id", id))?;
    Ok(Started::job(move |run| async move {
        run.must_own(Some(owner))?;
        run.world(|world| {
            if let Some(policy) = world.policies.get_mut(id) {
                policy.state = RuleState::Deleting;
            }
        });
        if !reconfigure(&run, network).await {
            return Err(JobError::failed(
                "Failed to delete load balancer stickiness policy",
            ));
        }
        run.world(|world| world.policies.remove(id));
        Ok(super::job::success())
    }))
}

fn rule_of<'a>(world: &'a World, call: &Call) -> Result<&'a Rule, ApiError> {
    let by_policy = call
        .args
        .uuid("id")
        .and_then(|id| world.policies.get(id))
        .map(|policy| policy.rule);
    let id =
        call.args.uuid("lbruleid").or(by_policy).ok_or_else(|| {
            ApiError::invalid("load balancer rule ID and stickiness policy ID can't be null")
        })?;
    let rule = world.rules.get(id).ok_or_else(|| call.gone("lbruleid", id))?;
    call.must_own(world, rule.owner)?;
    Ok(rule)
}

fn list(world: &World, call: &Call) -> Result<Value, ApiError> {
    let rule = rule_of(world, call)?;
    Ok(json!({ "count": 1, "stickinesspolicies": [shown(world, rule, call.reader())] }))
}

fn create_health(world: &mut World, call: &Call) -> Result<Started, ApiError> {
    let id = call.args.uuid("lbruleid").unwrap_or_default();
    let rule = world.rules.get(id).ok_or_else(|| call.gone("lbruleid", id))?;
    call.must_own(world, rule.owner)?;
    Err(ApiError::with_code(
        430,
        format!(
            "Failed to create HealthCheck policy: Validation Failed (HealthCheck Policy is not supported by LB Provider for the LB rule:{})",
            super::conflict::balancer_text(world, rule)
        ),
    ))
}

fn list_health(world: &World, call: &Call) -> Result<Value, ApiError> {
    let rule = rule_of(world, call)?;
    let mut fields = policy_owner(world, rule);
    fields.insert("lbruleid".into(), json!(rule.id));
    fields.insert("healthcheckpolicy".into(), json!([]));
    Ok(json!({ "count": 1, "healthcheckpolicies": [fields] }))
}

/// Owner fields of policies: a project shows as the account behind it.
fn policy_owner(world: &World, rule: &Rule) -> crate::state::Object {
    let mut fields = world.owner_fields(rule.owner);
    fields.remove("domainpath");
    if let crate::state::Owner::Project(id) = rule.owner {
        fields.remove("project");
        fields.remove("projectid");
        fields.insert(
            "account".into(),
            json!(
                world
                    .projects
                    .get(id)
                    .map(|project| project.account_name.as_str())
            ),
        );
    }
    fields
}
