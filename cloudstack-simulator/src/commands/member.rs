//! Machines behind a rule.

use std::sync::Arc;

use serde_json::{Value, json};
use uuid::Uuid;

use super::load_balancer::{reconfigure, settle};
use crate::catalog::Spec;
use crate::dispatch::Call;
use crate::error::{ApiError, JobError};
use crate::jobs::{JobRun, Started};
use crate::request::{Entity, Kind, Param, may, need};
use crate::state::{MachineState, Member, Owner, RuleState, World};

const PARAMS: &[Param] = &[
    need("id", Kind::Id(Entity::Rule)),
    may("virtualmachineids", Kind::Ids(Entity::Machine)),
    may("vmidipmap", Kind::Map),
];
const INSTANCES: &[Param] = &[
    need("id", Kind::Id(Entity::Rule)),
    may("applied", Kind::Flag),
    may("lbvmips", Kind::Flag),
];

pub(super) const SPECS: &[Spec] = &[
    Spec::job(
        "assignToLoadBalancerRule",
        "user.loadbalancer.AssignToLoadBalancerRuleCmd",
        PARAMS,
        assign,
    ),
    Spec::job(
        "removeFromLoadBalancerRule",
        "user.loadbalancer.RemoveFromLoadBalancerRuleCmd",
        PARAMS,
        remove,
    ),
    Spec::read("listLoadBalancerRuleInstances", INSTANCES, instances),
];

/// Machines of a call: plain ids, and ids with an address.
#[derive(Debug, Clone)]
struct Wanted {
    ids: Option<Vec<Uuid>>,
    pairs: Vec<(String, Option<String>)>,
    mapped: bool,
}

fn wanted(call: &Call) -> Wanted {
    let map = call.args.map("vmidipmap");
    Wanted {
        ids: call
            .args
            .text("virtualmachineids")
            .map(|_| call.args.ids("virtualmachineids").unwrap_or_default()),
        mapped: !map.is_empty(),
        pairs: map
            .into_iter()
            .map(|entry| {
                (
                    entry.get("vmid").cloned().unwrap_or_default(),
                    entry.get("vmip").cloned(),
                )
            })
            .collect(),
    }
}

fn assign(_: &mut World, call: &Call) -> Result<Started, ApiError> {
    let (id, wanted) = (call.args.uuid("id").unwrap_or_default(), wanted(call));
    Ok(Started::job(
        move |run| async move { add(&run, id, &wanted).await },
    ))
}

/// Every refusal has the same text.
fn no_assign() -> JobError {
    JobError::failed("Failed to assign load balancer rule")
}

async fn add(run: &Arc<JobRun>, id: Uuid, wanted: &Wanted) -> Result<Value, JobError> {
    let network = run.world(|world| {
        let rule = world.rules.get(id).ok_or_else(no_assign)?.clone();
        if !world.may_use(run.caller.account, rule.owner) || wanted.ids.is_none() && !wanted.mapped {
            return Err(no_assign());
        }
        let new = resolve(world, wanted, (rule.network, rule.owner))?;
        let twin = new
            .iter()
            .find_map(|member| rule.members.iter().find(|old| same(old, member)));
        if let Some(old) = twin {
            // One that is just being added by another job hits the database's own check.
            return Err(if old.coming {
                JobError::failed("Entity already exists ")
            } else {
                no_assign()
            });
        }
        if let Some(row) = world.rules.get_mut(id) {
            row.members.extend(new);
            row.state = RuleState::Add;
        }
        Ok(rule.network)
    })?;
    let ok = reconfigure(run, network).await;
    run.world(|world| {
        if let Some(rule) = world.rules.get_mut(id) {
            if ok {
                rule.members.iter_mut().for_each(|member| member.coming = false);
            } else {
                rule.members.retain(|member| !member.coming);
            }
        }
        settle(world, network);
    });
    if ok {
        Ok(json!({ "success": true }))
    } else {
        Err(no_assign())
    }
}

fn same(a: &Member, b: &Member) -> bool {
    a.machine == b.machine && a.address == b.address
}

/// The members that a call means. All of them must be fit.
fn resolve(world: &World, wanted: &Wanted, (network, owner): (Uuid, Owner)) -> Result<Vec<Member>, JobError> {
    let mut members: Vec<Member> = Vec::new();
    let plain = wanted.ids.iter().flatten().map(|id| (*id, None));
    let mut pairs = Vec::new();
    for (text, address) in &wanted.pairs {
        let id = Uuid::try_parse(text).ok().filter(|id| world.machines.knows(*id));
        pairs.push((
            id.ok_or_else(|| JobError::invalid(format!("Unable to find virtual machine ID: {text}")))?,
            address.clone(),
        ));
    }
    for (id, address) in plain.chain(pairs) {
        let machine = world
            .machines
            .get(id)
            .filter(|machine| machine.state != MachineState::Destroyed && machine.owner == owner)
            .ok_or_else(no_assign)?;
        let nic = machine
            .nics
            .iter()
            .find(|nic| nic.network == network)
            .ok_or_else(no_assign)?;
        let own = nic.address.clone().ok_or_else(no_assign)?;
        let address = match address {
            Some(given) if given == own || nic.secondary.contains(&given) => given,
            Some(_) => return Err(no_assign()),
            None => own,
        };
        let member = Member {
            machine: id,
            address,
            leaving: false,
            coming: true,
        };
        if !members.iter().any(|other| same(other, &member)) {
            members.push(member);
        }
    }
    Ok(members)
}

fn remove(_: &mut World, call: &Call) -> Result<Started, ApiError> {
    let (id, wanted) = (call.args.uuid("id").unwrap_or_default(), wanted(call));
    Ok(Started::job(move |run| async move {
        take_away(&run, id, &wanted).await
    }))
}

fn no_remove() -> JobError {
    JobError::invalid("Failed to remove instance from load balancer rule")
}

async fn take_away(run: &Arc<JobRun>, id: Uuid, wanted: &Wanted) -> Result<Value, JobError> {
    let network = run.world(|world| {
        let rule = world.rules.get(id).ok_or_else(no_remove)?;
        if !world.may_use(run.caller.account, rule.owner) {
            return Err(JobError::denied());
        }
        if wanted.ids.is_none() && !wanted.mapped {
            return Err(no_remove());
        }
        let known = |pair: &(String, Option<String>)| rule.members.iter().any(|member| is_pair(member, pair));
        if !wanted.pairs.iter().all(known) {
            return Err(no_remove());
        }
        let network = rule.network;
        if let Some(rule) = world.rules.get_mut(id) {
            for member in &mut rule.members {
                let by_id = wanted
                    .ids
                    .iter()
                    .flatten()
                    .any(|machine| *machine == member.machine);
                member.leaving |= by_id || wanted.pairs.iter().any(|pair| is_pair(member, pair));
            }
            rule.state = RuleState::Add;
        }
        Ok(network)
    })?;
    let ok = reconfigure(run, network).await;
    run.world(|world| {
        if let Some(rule) = world.rules.get_mut(id) {
            if ok {
                rule.members.retain(|member| !member.leaving);
            } else {
                rule.members.iter_mut().for_each(|member| member.leaving = false);
            }
        }
        settle(world, network);
        if ok {
            return Ok(super::job::success());
        }
        let numbers = wanted
            .ids
            .iter()
            .flatten()
            .map(|id| world.machines.number(*id).to_string());
        let numbers = numbers.collect::<Vec<_>>().join(", ");
        Err(JobError::failed(format!(
            "Failed to remove specified load balancer rule id for vms [{numbers}]"
        )))
    })
}

/// Whether a machine and an address, if one is given, mean this member.
fn is_pair(member: &Member, (machine, address): &(String, Option<String>)) -> bool {
    *machine == member.machine.to_string()
        && address.as_ref().is_none_or(|address| *address == member.address)
}

fn instances(world: &World, call: &Call) -> Result<Value, ApiError> {
    let id = call.args.uuid("id").unwrap_or_default();
    let rule = world.rules.get(id).ok_or_else(|| call.gone("id", id))?;
    call.must_own(world, rule.owner)?;
    let with_addresses = call.args.is("lbvmips");
    if call.args.flag("applied") == Some(false) {
        return Ok(json!({}));
    }
    let mut seen: Vec<Uuid> = Vec::new();
    for member in rule.members.iter().filter(|member| !member.coming) {
        if !seen.contains(&member.machine) {
            seen.push(member.machine);
        }
    }
    let mut rows = Vec::new();
    for machine in seen
        .iter()
        .filter_map(|id| world.machines.get(*id))
        .filter(|machine| machine.state != MachineState::Destroyed)
    {
        let shown = super::machine_list::show(
            world,
            machine,
            &super::machine_list::Details::everything(),
            call.reader(),
        );
        if with_addresses {
            let of_machine = rule
                .members
                .iter()
                .filter(|member| member.machine == machine.id && !member.coming);
            let addresses: Vec<&str> = of_machine.map(|member| member.address.as_str()).collect();
            rows.push(json!({ "loadbalancerruleinstance": shown, "lbvmipaddresses": addresses }));
        } else {
            rows.push(Value::Object(shown));
        }
    }
    if rows.is_empty() {
        return Ok(json!({}));
    }
    Ok(
        json!({ "count": rows.len(), if with_addresses { "lbrulevmidip" } else { "loadbalancerruleinstance" }: rows }),
    )
}
