//! Lists of what uses public addresses besides load balancing.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::catalog::Spec;
use crate::dispatch::{self, Call};
use crate::error::ApiError;
use crate::request::{Entity, Kind, Param, may};
use crate::scope::Scope;
use crate::state::{Address, Object, OtherUse, World};

const FORWARDING: &[Param] = &[
    may("id", Kind::Id(Entity::Rule)),
    may("ipaddressid", Kind::Id(Entity::Address)),
    may("networkid", Kind::Id(Entity::Network)),
    may("virtualmachineid", Kind::Id(Entity::Machine)),
];
const VPN: &[Param] = &[
    may("id", Kind::Id(Entity::Other)),
    may("publicipid", Kind::Id(Entity::Address)),
    may("networkid", Kind::Id(Entity::Network)),
    may("fordisplay", Kind::Flag),
];

pub(super) const SPECS: &[Spec] = &[
    Spec::read("listPortForwardingRules", FORWARDING, list_forwarding),
    Spec::read("listIpForwardingRules", FORWARDING, list_static),
    Spec::read("listRemoteAccessVpns", VPN, list_vpns),
];

fn list_forwarding(world: &World, call: &Call) -> Result<Value, ApiError> {
    let rows = found(world, call, "ipaddressid")?;
    let shown = rows.into_iter().filter_map(|(usage, address)| {
        let port = usage.port?.to_string();
        let mut fields = Object::new();
        for name in ["privateport", "privateendport", "publicport", "publicendport"] {
            fields.insert(name.into(), Value::String(port.clone()));
        }
        for (name, value) in [
            ("id", json!(usage.id)),
            ("protocol", json!("tcp")),
            ("ipaddressid", json!(address.id)),
            ("ipaddress", json!(address.address)),
            ("state", json!("Active")),
            ("networkid", json!(address.network)),
            ("fordisplay", json!(true)),
            ("tags", json!([])),
        ] {
            fields.insert(name.into(), value);
        }
        Some(Value::Object(fields))
    });
    dispatch::list(world, call, "portforwardingrule", shown.collect())
}

/// Rules of static NAT are not simulated: nobody has any.
fn list_static(world: &World, call: &Call) -> Result<Value, ApiError> {
    found(world, call, "ipaddressid").map(|_| json!({}))
}

fn list_vpns(world: &World, call: &Call) -> Result<Value, ApiError> {
    let rows = found(world, call, "publicipid")?;
    let vpns = rows.into_iter().filter(|(usage, _)| usage.port.is_none());
    let shown = vpns.map(|(usage, address)| {
        let mut fields = address
            .owner
            .map(|owner| world.owner_fields(owner))
            .unwrap_or_default();
        for (name, value) in [
            ("id", json!(usage.id)),
            ("publicipid", json!(address.id)),
            ("publicip", json!(address.address)),
            ("state", json!("Running")),
            ("fordisplay", json!(true)),
        ] {
            fields.insert(name.into(), value);
        }
        Value::Object(fields)
    });
    dispatch::list(world, call, "remoteaccessvpn", shown.collect())
}

/// Uses that the caller sees and asks for.
fn found<'a>(
    world: &'a World,
    call: &Call,
    by_address: &str,
) -> Result<Vec<(&'a OtherUse, &'a Address)>, ApiError> {
    let address = call.args.uuid(by_address);
    let owner = address
        .and_then(|id| world.addresses.get(id))
        .and_then(|row| row.owner);
    if let Some(owner) = owner {
        call.must_own(world, owner)?;
    }
    let scope = Scope::of(world, call, false)?;
    let is = |wanted: Option<Uuid>, id: Option<Uuid>| wanted.is_none() || wanted == id;
    let rows = world
        .uses
        .iter()
        .filter_map(|usage| Some((usage, world.addresses.get(usage.address)?)));
    Ok(rows
        .filter(|(usage, row)| {
            is(call.args.uuid("id"), Some(usage.id))
                && is(address, Some(row.id))
                && is(call.args.uuid("networkid"), row.network)
                && row.owner.is_some_and(|owner| scope.has(world, owner))
        })
        .collect())
}
