//! The life of a machine.

use std::sync::Arc;

use serde_json::{Value, json};
use uuid::Uuid;

use super::load_balancer::settle;
use super::machine_list::{Details, show};
use crate::catalog::{Spec, Start};
use crate::clock::Stamp;
use crate::dispatch::Call;
use crate::error::{ApiError, JobError};
use crate::jobs::{JobRun, Started, new_id};
use crate::request::{Entity, Kind, Param, TEXT, may, need};
use crate::state::load::{NewMachine, add_machine};
use crate::state::show::Reader;
use crate::state::{MachineState, Owner, RoleKind, World};

const DEPLOY: &[Param] = &[
    need("zoneid", Kind::Id(Entity::Zone)),
    need("serviceofferingid", Kind::Id(Entity::ServiceOffering)),
    may("templateid", Kind::Id(Entity::Template)),
    may("name", TEXT),
    may("displayname", TEXT),
    may("networkids", Kind::Ids(Entity::Network)),
    may("ipaddress", TEXT),
    may("projectid", Kind::Id(Entity::Project)),
    may("startvm", Kind::Flag),
];
const BY_ID: &[Param] = &[
    need("id", Kind::Id(Entity::Machine)),
    may("forced", Kind::Flag),
    may("expunge", Kind::Flag),
];

const fn by_id(name: &'static str, class: &'static str, admin: &'static str, start: Start) -> Spec {
    Spec::job(name, class, BY_ID, start).by_admin(admin)
}

pub(super) const SPECS: &[Spec] = &[
    Spec::job("deployVirtualMachine", "user.vm.DeployVMCmd", DEPLOY, deploy)
        .by_admin("admin.vm.DeployVMCmdByAdmin"),
    by_id(
        "startVirtualMachine",
        "user.vm.StartVMCmd",
        "admin.vm.StartVMCmdByAdmin",
        start,
    ),
    by_id(
        "stopVirtualMachine",
        "user.vm.StopVMCmd",
        "admin.vm.StopVMCmdByAdmin",
        stop,
    ),
    by_id(
        "rebootVirtualMachine",
        "user.vm.RebootVMCmd",
        "admin.vm.RebootVMCmdByAdmin",
        reboot,
    ),
    by_id(
        "destroyVirtualMachine",
        "user.vm.DestroyVMCmd",
        "admin.vm.DestroyVMCmdByAdmin",
        destroy,
    ),
    by_id(
        "expungeVirtualMachine",
        "admin.vm.ExpungeVMCmd",
        "admin.vm.ExpungeVMCmd",
        expunge,
    ),
    Spec::change("recoverVirtualMachine", BY_ID, recover),
];

/// The kind of object that jobs on machines name.
const INSTANCE: &str = "VirtualMachine";

fn deploy(world: &mut World, call: &Call) -> Result<Started, ApiError> {
    let network = call.args.ids("networkids").and_then(|ids| ids.first().copied());
    let network = network
        .and_then(|id| world.networks.get(id))
        .ok_or_else(|| ApiError::invalid("a network is needed"))?;
    let id = new_id();
    let name = call
        .args
        .filled("name")
        .map_or_else(|| format!("VM-{id}"), str::to_owned);
    let twin = |machine: &crate::state::Machine| {
        machine.name.eq_ignore_ascii_case(&name) && machine.nics.iter().any(|nic| nic.network == network.id)
    };
    if world.machines.iter().any(twin) {
        let domain = network
            .shown
            .get("networkdomain")
            .and_then(Value::as_str)
            .unwrap_or_default();
        return Err(ApiError::invalid(format!(
            "The vm with hostName {name} already exists in the network domain: {domain}; network={}",
            network.name
        )));
    }
    let owner = call
        .args
        .uuid("projectid")
        .map_or(Owner::Account(call.caller.account), Owner::Project);
    let address = call.args.filled("ipaddress").map(str::to_owned);
    let new = NewMachine {
        id,
        name,
        network: network.id,
        address,
        owner,
        state: MachineState::Starting,
    };
    add_machine(world, new);
    Ok(Started::job(move |run| async move {
        mark_busy(&run, id);
        set_state(&run, id, MachineState::Running);
        result(&run, id)
    })
    .created(INSTANCE, id))
}

/// The machine of a call, which the caller may act on.
fn machine_of(world: &World, call: &Call) -> Result<Uuid, ApiError> {
    let id = call.args.uuid("id").unwrap_or_default();
    let machine = world.machines.get(id);
    let machine = machine.ok_or_else(|| {
        ApiError::invalid(format!(
            "Unable to find UUID for id [{}] of type [VirtualMachine]",
            world.machines.number(id)
        ))
    })?;
    call.must_own(world, machine.owner)?;
    Ok(id)
}

fn set_state(run: &JobRun, id: Uuid, state: MachineState) {
    run.world(|world| {
        if let Some(machine) = world.machines.get_mut(id) {
            machine.state = state;
            machine.updated = Some(Stamp::now());
            if state == MachineState::Stopped || state == MachineState::Destroyed {
                let mut details = machine.shown.get("details").cloned().unwrap_or_else(|| json!({}));
                if let Value::Object(fields) = &mut details {
                    fields.insert(super::machine_list::FREED.into(), json!("false"));
                }
                machine.shown.insert("details".into(), details);
                machine.shown.remove("bootmode");
                machine.shown.remove("boottype");
            }
        }
    });
}

fn mark_busy(run: &JobRun, id: Uuid) {
    run.world(|world| {
        if let Some(machine) = world.machines.get_mut(id) {
            machine.busy = Some(run.id());
        }
    });
}

fn result(run: &JobRun, id: Uuid) -> Result<Value, JobError> {
    run.world(|world| {
        let machine = world.machines.get(id).ok_or_else(|| JobError::failed("the machine is gone"))?;
        Ok(json!({ "virtualmachine": show(world, machine, &Details::everything(), Reader::of(run.caller.kind)) }))
    })
}

fn start(world: &mut World, call: &Call) -> Result<Started, ApiError> {
    let id = machine_of(world, call)?;
    Ok(Started::job(move |run| async move {
        mark_busy(&run, id);
        let name = run.world(|world| {
            let machine = world.machines.get(id).filter(|machine| machine.state == MachineState::Destroyed)?;
            Some(machine.shown.get("instancename").and_then(Value::as_str).unwrap_or_default().to_owned())
        });
        if let Some(name) = name {
            return Err(JobError::failed(format!("Unable to orchestrate the start of VM instance {{\"instanceName\":\"{name}\",\"uuid\":\"{id}\"}}.")));
        }
        set_state(&run, id, MachineState::Running);
        result(&run, id)
    })
    .on(INSTANCE, id))
}

fn stop(world: &mut World, call: &Call) -> Result<Started, ApiError> {
    let id = machine_of(world, call)?;
    Ok(Started::job(move |run| async move {
        mark_busy(&run, id);
        set_state(&run, id, MachineState::Stopped);
        result(&run, id)
    })
    .on(INSTANCE, id))
}

fn reboot(world: &mut World, call: &Call) -> Result<Started, ApiError> {
    let id = machine_of(world, call)?;
    Ok(Started::job(move |run| async move {
        mark_busy(&run, id);
        result(&run, id)
    })
    .on(INSTANCE, id))
}

fn destroy(world: &mut World, call: &Call) -> Result<Started, ApiError> {
    let id = machine_of(world, call)?;
    let for_good = call.args.is("expunge");
    if for_good && call.caller.kind == RoleKind::User {
        return Err(ApiError::denied_because(
            "Parameter expunge can be passed by Admin only. Or when the allow.user.expunge.recover.vm key is set.",
        ));
    }
    Ok(Started::job(move |run| async move {
        mark_busy(&run, id);
        set_state(&run, id, MachineState::Destroyed);
        if for_good {
            leave_rules(&run, id).await;
            run.world(|world| expunge_now(world, id));
            return Ok(json!({ "virtualmachine": { "securitygroup": [], "nic": [], "affinitygroup": [], "tags": [], "deleteprotection": false } }));
        }
        result(&run, id)
    })
    .on(INSTANCE, id))
}

fn expunge(world: &mut World, call: &Call) -> Result<Started, ApiError> {
    let id = machine_of(world, call)?;
    Ok(Started::job(move |run: Arc<JobRun>| async move {
        if run.caller.kind == RoleKind::User {
            return Err(JobError::failed("Expunging a vm can only be done by an Admin. Or when the allow.user.expunge.recover.vm key is set."));
        }
        leave_rules(&run, id).await;
        run.world(|world| expunge_now(world, id));
        Ok(super::job::success())
    })
    .on(INSTANCE, id))
}

/// Takes a machine out of its rules, as the router sees it.
async fn leave_rules(run: &Arc<JobRun>, id: Uuid) {
    let networks = run.world(|world| {
        let mut networks = Vec::new();
        for rule in world.rules.iter_mut() {
            for member in rule.members.iter_mut().filter(|member| member.machine == id) {
                member.leaving = true;
                networks.push(rule.network);
            }
        }
        networks.dedup();
        networks
    });
    for network in networks {
        super::load_balancer::reconfigure(run, network).await;
    }
}

/// Takes a machine out of the database and out of its rules. Its id stays known.
pub(crate) fn expunge_now(world: &mut World, id: Uuid) {
    world.machines.retire(id);
    world.tags.retain(|tag| tag.resource != id);
    let shared: Vec<Uuid> = world
        .addresses
        .iter()
        .filter(|row| row.machine == Some(id))
        .map(|row| row.id)
        .collect();
    for address in shared {
        world.free_address(address, Stamp::now());
    }
    let mut networks = Vec::new();
    for rule in world
        .rules
        .iter_mut()
        .filter(|rule| rule.members.iter().any(|member| member.machine == id))
    {
        rule.members.retain(|member| member.machine != id);
        networks.push(rule.network);
    }
    for network in networks {
        settle(world, network);
    }
}

fn recover(world: &mut World, call: &Call) -> Result<Value, ApiError> {
    let id = machine_of(world, call)?;
    if call.caller.kind == RoleKind::User {
        return Err(ApiError::denied_because(
            "Recovering a vm can only be done by an Admin. Or when the allow.user.expunge.recover.vm key is set.",
        ));
    }
    if let Some(machine) = world.machines.get_mut(id) {
        machine.state = MachineState::Stopped;
        machine.updated = Some(call.now);
    }
    let machine = world.machines.get(id).ok_or_else(|| call.gone("id", id))?;
    Ok(json!({ "virtualmachine": show(world, machine, &Details::everything(), call.reader()) }))
}
