//! Network ACL lists: making, attaching, listing.

use std::sync::Arc;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::catalog::Spec;
use crate::dispatch::{self, Call};
use crate::error::{ApiError, JobError};
use crate::jobs::{JobRun, Started, new_id};
use crate::request::{Entity, IdArg, Kind, Param, TEXT, may, need};
use crate::router::Command;
use crate::scope::Scope;
use crate::state::{AclList, Owner, World};

const CREATE: &[Param] = &[
    need("name", TEXT),
    may("description", TEXT),
    need("vpcid", Kind::Id(Entity::Vpc)),
    may("fordisplay", Kind::Flag),
];
const DELETE: &[Param] = &[need("id", Kind::Id(Entity::AclList))];
const REPLACE: &[Param] = &[
    need("aclid", Kind::Id(Entity::AclList)),
    may("networkid", Kind::Id(Entity::Network)),
    may("gatewayid", Kind::Id(Entity::Other)),
];
const FILTERS: &[Param] = &[
    may("id", Kind::Id(Entity::AclList)),
    may("networkid", Kind::Id(Entity::Network)),
    may("vpcid", Kind::Id(Entity::Vpc)),
    may("name", TEXT),
    may("fordisplay", Kind::Flag),
];

pub(super) const SPECS: &[Spec] = &[
    Spec::job(
        "createNetworkACLList",
        "user.network.CreateNetworkACLListCmd",
        CREATE,
        create,
    ),
    Spec::job(
        "deleteNetworkACLList",
        "user.network.DeleteNetworkACLListCmd",
        DELETE,
        delete,
    ),
    Spec::job(
        "replaceNetworkACLList",
        "user.network.ReplaceNetworkACLListCmd",
        REPLACE,
        replace,
    ),
    Spec::read("listNetworkACLLists", FILTERS, list),
];

/// Owner of a list; default lists have none.
pub(super) fn owner_of(world: &World, list: Uuid) -> Option<Owner> {
    world
        .vpcs
        .get(world.acl_lists.get(list)?.vpc?)
        .map(|vpc| vpc.owner)
}

/// Sends a list to every tier that uses it.
pub(super) async fn apply_list(run: &Arc<JobRun>, list: Uuid) -> bool {
    let tiers: Vec<Uuid> = run.world(|world| {
        world
            .networks
            .iter()
            .filter(|network| network.acl == Some(list) && network.implemented)
            .map(|network| network.id)
            .collect()
    });
    for tier in tiers {
        if !send_acl(run, tier).await {
            return false;
        }
    }
    true
}

async fn send_acl(run: &Arc<JobRun>, tier: Uuid) -> bool {
    if !run.world(|world| world.has_router(tier)) {
        return true;
    }
    let (router, command) = run.world(|world| (world.router_of(tier), Command::acl(world, tier)));
    run.send(router, command).await
}

fn create(world: &mut World, call: &Call) -> Result<Started, ApiError> {
    let vpc = call.args.uuid("vpcid").unwrap_or_default();
    let owner = world.vpcs.get(vpc).ok_or_else(|| call.gone("vpcid", vpc))?.owner;
    call.must_own(world, owner)?;
    let id = new_id();
    let text = |name: &str| call.args.text(name).map(str::to_owned);
    world.acl_lists.insert(AclList {
        id,
        name: text("name").unwrap_or_default(),
        description: text("description"),
        vpc: Some(vpc),
    });
    Ok(Started::job(move |run| async move {
        let reader = crate::state::show::Reader::of(run.caller.kind);
        run.world(|world| {
            let list = world
                .acl_lists
                .get(id)
                .ok_or_else(|| JobError::failed("Failed to create network ACL"))?;
            Ok(json!({ "networkacllist": world.show_acl_list(list, reader) }))
        })
    })
    .created("NetworkAcl", id))
}

fn delete(_: &mut World, call: &Call) -> Result<Started, ApiError> {
    let id = call.args.uuid("id").unwrap_or_default();
    Ok(Started::job(move |run| async move {
        let owner = run
            .world(|world| owner_of(world, id))
            .ok_or_else(|| JobError::invalid("Default ACL cannot be removed"))?;
        run.must_own(Some(owner))?;
        run.world(|world| {
            let used = world
                .networks
                .iter()
                .filter(|network| network.acl == Some(id))
                .count();
            if used > 0 {
                return Err(JobError::failed(format!(
                    "ACL is still associated with {used} tier(s). Cannot delete network ACL: {id}"
                )));
            }
            let items: Vec<Uuid> = world
                .acl_items
                .iter()
                .filter(|item| item.list == id)
                .map(|item| item.id)
                .collect();
            for item in items {
                world.acl_items.remove(item);
                world.tags.retain(|tag| tag.resource != item);
            }
            world.acl_lists.remove(id);
            Ok(super::job::success())
        })
    })
    .on("NetworkAcl", id))
}

fn replace(world: &mut World, call: &Call) -> Result<Started, ApiError> {
    let list = call.args.uuid("aclid").unwrap_or_default();
    let Some(network) = call.args.uuid("networkid") else {
        return Err(ApiError::invalid(
            "Network ID and private gateway can't be null at the same time",
        ));
    };
    let owner = world
        .networks
        .get(network)
        .ok_or_else(|| call.gone("networkid", network))?
        .owner;
    let list_owner = owner_of(world, list);
    if let Some(owner) = list_owner {
        call.must_own(world, owner)?;
    }
    Ok(Started::job(move |run| async move {
        run.must_own(Some(owner))?;
        let before = run.world(|world| {
            let row = world.networks.get_mut(network)?;
            row.vpc?;
            row.acl.replace(list).or(Some(list))
        });
        let before = before.ok_or_else(|| JobError::invalid("Network is not part of a VPC"))?;
        if send_acl(&run, network).await {
            return Ok(super::job::success());
        }
        run.world(|world| {
            if let Some(row) = world.networks.get_mut(network) {
                row.acl = Some(before);
            }
        });
        Err(JobError::failed("Failed to replace network ACL"))
    }))
}

fn list(world: &World, call: &Call) -> Result<Value, ApiError> {
    let args = &call.args;
    let mut vpc = args.uuid("vpcid");
    if let Some(id) = vpc {
        let row = world.vpcs.get(id).ok_or_else(|| call.gone("vpcid", id))?;
        call.must_own(world, row.owner)?;
    }
    let mut only = args.id("id").map(|_| args.uuid("id"));
    if let Some(id) = args.uuid("networkid") {
        let network = world.networks.get(id).ok_or_else(|| call.gone("networkid", id))?;
        only = Some(network.acl);
        vpc = vpc.or(network.vpc);
    }
    let scope = Scope::of(world, call, args.id("id").is_some())?;
    let keyword = args.filled("keyword").map(str::to_lowercase);
    let rows = world.acl_lists.iter().rev().filter(|list| {
        let visible = match (list.vpc, vpc) {
            (None, _) => true,
            (Some(own), Some(vpc)) => own == vpc,
            (Some(_), None) => owner_of(world, list.id).is_some_and(|owner| scope.has(world, owner)),
        };
        visible
            && only.is_none_or(|only| only == Some(list.id))
            && args.id("id").is_none_or(|id| id == IdArg::Is(list.id))
            && args
                .filled("name")
                .is_none_or(|name| list.name.eq_ignore_ascii_case(name))
            && keyword.as_ref().is_none_or(|keyword| {
                super::rule_list::like(&list.name, keyword)
                    || list
                        .description
                        .as_ref()
                        .is_some_and(|text| super::rule_list::like(text, keyword))
            })
    });
    let shown = rows.map(|list| Value::Object(world.show_acl_list(list, call.reader())));
    dispatch::list(world, call, "networkacllist", shown.collect())
}
