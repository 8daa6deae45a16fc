//! Items of network ACL lists: creating, updating, deleting.

use std::sync::Arc;

use serde_json::{Value, json};
use uuid::Uuid;

use super::acl_list::{apply_list, owner_of};
use super::sources::no_network;
use crate::catalog::Spec;
use crate::dispatch::Call;
use crate::error::{ApiError, JobError};
use crate::jobs::{JobRun, Started, new_id};
use crate::request::{Args, Entity, Kind, Param, TEXT, may, need};
use crate::state::{AclItem, RuleState, World};

const CREATE: &[Param] = &[
    need("protocol", TEXT),
    may("startport", Kind::Int),
    may("endport", Kind::Int),
    may("cidrlist", Kind::Names),
    may("icmptype", Kind::Int),
    may("icmpcode", Kind::Int),
    may("aclid", Kind::Id(Entity::AclList)),
    may("networkid", Kind::Id(Entity::Network)),
    may("traffictype", TEXT),
    may("action", TEXT),
    may("number", Kind::Int),
    may("fordisplay", Kind::Flag),
    may("reason", Kind::Text(255, "reason")),
];
const UPDATE: &[Param] = &[
    need("id", Kind::Id(Entity::AclItem)),
    may("protocol", TEXT),
    may("startport", Kind::Int),
    may("endport", Kind::Int),
    may("cidrlist", Kind::Names),
    may("icmptype", Kind::Int),
    may("icmpcode", Kind::Int),
    may("traffictype", TEXT),
    may("action", TEXT),
    may("number", Kind::Int),
    may("reason", Kind::Text(255, "reason")),
    may("partialupgrade", Kind::Flag),
];
const DELETE: &[Param] = &[need("id", Kind::Id(Entity::AclItem))];

pub(super) const SPECS: &[Spec] = &[
    Spec::job(
        "createNetworkACL",
        "user.network.CreateNetworkACLCmd",
        CREATE,
        create,
    ),
    Spec::job(
        "updateNetworkACLItem",
        "user.network.UpdateNetworkACLItemCmd",
        UPDATE,
        update,
    )
    .enveloped("createnetworkaclresponse"),
    Spec::job(
        "deleteNetworkACL",
        "user.network.DeleteNetworkACLCmd",
        DELETE,
        delete,
    ),
];

fn create(world: &mut World, call: &Call) -> Result<Started, ApiError> {
    let args = &call.args;
    let list = list_of(world, call)?;
    let row = world
        .acl_lists
        .get(list)
        .ok_or_else(|| call.gone("aclid", list))?;
    if row.vpc.is_none() {
        return Err(ApiError::invalid("Default ACL cannot be modified"));
    }
    if let Some(owner) = owner_of(world, list) {
        call.must_own(world, owner)?;
    }
    let protocol = args.text("protocol").unwrap_or_default().to_owned();
    let sources = sources(args)?.unwrap_or_else(|| "0.0.0.0/0,::/0".to_owned());
    check_protocol(&protocol)?;
    let number = new_number(world, args, list)?;
    let item = AclItem {
        id: new_id(),
        list,
        number,
        ports: ports(args, &protocol)?,
        icmp: (protocol.eq_ignore_ascii_case("icmp")).then(|| {
            (
                args.int("icmptype").unwrap_or(-1),
                args.int("icmpcode").unwrap_or(-1),
            )
        }),
        protocol,
        sources,
        ingress: is_ingress(args)?,
        allow: is_allow(args)?,
        reason: args.text("reason").map(str::to_owned),
        state: RuleState::Add,
    };
    let id = item.id;
    world.acl_items.insert(item);
    Ok(
        Started::job(move |run| async move { applied(&run, id, "Failed to create network ACL Item").await })
            .created("NetworkAclItem", id),
    )
}

/// The given networks, checked.
fn sources(args: &Args) -> Result<Option<String>, ApiError> {
    let Some(entries) = args.list("cidrlist") else {
        return Ok(None);
    };
    match no_network(&entries) {
        Some(bad) => Err(ApiError::parameter(format!(
            "Source cidrs formatting error {bad}"
        ))),
        None => Ok(Some(entries.join(","))),
    }
}

/// The given number if it is free, else the one after the highest.
fn new_number(world: &World, args: &Args, list: Uuid) -> Result<i64, ApiError> {
    let numbers = || {
        world
            .acl_items
            .iter()
            .filter(|item| item.list == list)
            .map(|item| item.number)
    };
    match args.int("number") {
        Some(number) if number < 1 => Err(ApiError::invalid(format!(
            "Invalid number [{number}]. Number cannot be < 1"
        ))),
        Some(number) if numbers().any(|taken| taken == number) => {
            Err(ApiError::invalid(number_taken(number, list)))
        }
        Some(number) => Ok(number),
        None => Ok(numbers().max().unwrap_or(0) + 1),
    }
}

fn number_taken(number: i64, list: Uuid) -> String {
    format!("ACL item with number {number} already exists in ACL: {list}")
}

/// The list of a call: `aclid`, else that of the tier.
fn list_of(world: &World, call: &Call) -> Result<Uuid, ApiError> {
    if let Some(list) = call.args.uuid("aclid") {
        return Ok(list);
    }
    let Some(id) = call.args.uuid("networkid") else {
        return Err(ApiError::invalid(
            "Cannot create Network ACL Item. ACL Id or network Id is required",
        ));
    };
    let network = world.networks.get(id).ok_or_else(|| call.gone("networkid", id))?;
    call.must_own(world, network.owner)?;
    if network.vpc.is_none() {
        return Err(ApiError::invalid(format!("Network: {id} does not belong to VPC")));
    }
    network
        .acl
        .ok_or_else(|| ApiError::invalid("the tier has no ACL list"))
}

fn check_protocol(protocol: &str) -> Result<(), ApiError> {
    let known = ["tcp", "udp", "icmp", "all"].contains(&protocol.to_lowercase().as_str());
    let number = protocol.parse::<u16>().is_ok_and(|number| number <= 255);
    if known || number {
        return Ok(());
    }
    if protocol.parse::<i64>().is_ok() {
        return Err(ApiError::invalid(format!("Invalid protocol number: {protocol}")));
    }
    Err(ApiError::invalid(format!(
        "Invalid protocol [{protocol}]. Expected one of: [tcp,udp,icmp,all]"
    )))
}

fn ports(args: &Args, protocol: &str) -> Result<Option<(i64, i64)>, ApiError> {
    let start = args.int("startport");
    let end = args.int("endport").or(start);
    let Some((start, end)) = start.zip(end) else {
        return Ok(None);
    };
    let lower = protocol.to_lowercase();
    if lower == "all" {
        return Err(ApiError::invalid(
            "start port and end port must be null if protocol = 'all'",
        ));
    }
    if lower == "icmp" {
        return Err(ApiError::invalid(
            "Can't specify start/end port when protocol is ICMP",
        ));
    }
    let port = |value: i64, name: &str| {
        if u16::try_from(value).is_ok() {
            Ok(())
        } else {
            Err(ApiError::invalid(format!("{name} is an invalid value: {value}")))
        }
    };
    port(start, "publicPort")?;
    port(end, "publicPort")?;
    if start > end {
        return Err(ApiError::invalid(format!(
            "Start port can't be bigger than end port [startport={start},endport={end}]"
        )));
    }
    Ok(Some((start, end)))
}

fn is_ingress(args: &Args) -> Result<bool, ApiError> {
    match args.text("traffictype").map(str::to_lowercase).as_deref() {
        None | Some("ingress") => Ok(true),
        Some("egress") => Ok(false),
        Some(other) => Err(ApiError::invalid(format!("Invalid traffic type {other}"))),
    }
}

fn is_allow(args: &Args) -> Result<bool, ApiError> {
    match args.text("action").map(str::to_lowercase).as_deref() {
        None | Some("allow") => Ok(true),
        Some("deny") => Ok(false),
        Some(_) => Err(ApiError::invalid(format!(
            "Invalid action [{}]. Permitted actions are Allow and Deny",
            args.text("action").unwrap_or_default()
        ))),
    }
}

/// Sends the item's list to the tiers that use it; the answer shows the item.
async fn applied(run: &Arc<JobRun>, id: Uuid, failure: &str) -> Result<Value, JobError> {
    let list = run
        .world(|world| world.acl_items.get(id).map(|item| item.list))
        .ok_or_else(|| JobError::failed(failure))?;
    if !apply_list(run, list).await {
        run.world(|world| world.acl_items.remove(id));
        return Err(JobError::failed(failure));
    }
    run.world(|world| {
        let reader = crate::state::show::Reader::of(run.caller.kind);
        if let Some(item) = world.acl_items.get_mut(id) {
            item.state = RuleState::Active;
        }
        let item = world.acl_items.get(id).ok_or_else(|| JobError::failed(failure))?;
        Ok(json!({ "networkacl": world.show_acl_item(item, reader) }))
    })
}

fn update(_: &mut World, call: &Call) -> Result<Started, ApiError> {
    let id = call.args.uuid("id").unwrap_or_default();
    let args = call.args.clone();
    Ok(Started::job(move |run| async move { change(&run, id, &args).await }).on("NetworkAclItem", id))
}

async fn change(run: &Arc<JobRun>, id: Uuid, args: &Args) -> Result<Value, JobError> {
    let gone = || JobError::invalid("Unable to find network ACL item");
    let item = run
        .world(|world| world.acl_items.get(id).cloned())
        .ok_or_else(gone)?;
    let owner = run
        .world(|world| owner_of(world, item.list))
        .ok_or_else(|| JobError::invalid("Default ACL cannot be modified"))?;
    run.must_own(Some(owner))?;
    let whole = args.flag("partialupgrade") == Some(false);
    if whole && args.int("startport").is_some() != args.int("endport").is_some() {
        return Err(JobError::failed(
            "Cannot invoke \"java.lang.Integer.intValue()\" because \"sourcePortEnd\" is null",
        ));
    }
    let new = run
        .world(|world| merged(world, &item, args))
        .map_err(|error| JobError {
            code: error.code,
            text: error.text,
        })?;
    run.world(|world| {
        if let Some(row) = world.acl_items.get_mut(id) {
            *row = AclItem {
                state: RuleState::Add,
                ..new
            };
        }
    });
    if !apply_list(run, item.list).await {
        return Err(JobError::failed("Failed to update network ACL Item"));
    }
    run.world(|world| {
        let reader = crate::state::show::Reader::of(run.caller.kind);
        let shown = world
            .acl_items
            .get(id)
            .map(|item| world.show_acl_item(item, reader))
            .ok_or_else(gone)?;
        if let Some(row) = world.acl_items.get_mut(id) {
            row.state = RuleState::Active;
        }
        Ok(json!({ "networkacl": shown }))
    })
}

/// The item with what the call gives; the rest stays.
fn merged(world: &World, item: &AclItem, args: &Args) -> Result<AclItem, ApiError> {
    let mut new = item.clone();
    if let Some(number) = args.int("number") {
        if world
            .acl_items
            .iter()
            .any(|other| other.list == item.list && other.number == number && other.id != item.id)
        {
            return Err(ApiError::invalid(number_taken(number, item.list)));
        }
        new.number = number;
    }
    if let Some(protocol) = args.filled("protocol") {
        check_protocol(protocol)?;
        protocol.clone_into(&mut new.protocol);
    }
    if let Some(sources) = sources(args)? {
        new.sources = sources;
    }
    if let Some(ports) = ports(args, &new.protocol)? {
        new.ports = Some(ports);
    }
    if args.text("traffictype").is_some() {
        new.ingress = is_ingress(args)?;
    }
    if args.text("action").is_some() {
        new.allow = is_allow(args)?;
    }
    if let Some(reason) = args.text("reason") {
        new.reason = Some(reason.to_owned());
    }
    Ok(new)
}

fn delete(_: &mut World, call: &Call) -> Result<Started, ApiError> {
    let id = call.args.uuid("id").unwrap_or_default();
    Ok(Started::job(move |run| async move { remove(&run, id).await }).on("NetworkAclItem", id))
}

async fn remove(run: &Arc<JobRun>, id: Uuid) -> Result<Value, JobError> {
    let Some(list) = run.world(|world| world.acl_items.get(id).map(|item| item.list)) else {
        return Ok(super::job::success());
    };
    let owner = run
        .world(|world| owner_of(world, list))
        .ok_or_else(|| JobError::invalid("ACL Items in default ACL cannot be deleted"))?;
    run.must_own(Some(owner))?;
    run.world(|world| {
        if let Some(item) = world.acl_items.get_mut(id) {
            item.state = RuleState::Deleting;
        }
    });
    if !apply_list(run, list).await {
        return Err(JobError::failed("Failed to delete network ACL Item"));
    }
    run.world(|world| {
        world.acl_items.remove(id);
        world.tags.retain(|tag| tag.resource != id);
    });
    Ok(super::job::success())
}
