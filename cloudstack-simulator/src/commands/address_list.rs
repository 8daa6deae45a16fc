//! Listing public addresses.

use serde_json::Value;

use crate::catalog::Spec;
use crate::dispatch::{self, Call};
use crate::error::ApiError;
use crate::request::{Entity, IdArg, Kind, Param, TEXT, may};
use crate::scope::Scope;
use crate::state::{Address, AddressState, Owner, RoleKind, World};

const FILTERS: &[Param] = &[
    may("allocatedonly", Kind::Flag),
    may("state", TEXT),
    may("forvirtualnetwork", Kind::Flag),
    may("id", Kind::Id(Entity::Address)),
    may("ipaddress", TEXT),
    may("physicalnetworkid", Kind::Id(Entity::Other)),
    may("vlanid", Kind::Id(Entity::Other)),
    may("zoneid", Kind::Id(Entity::Zone)),
    may("forloadbalancing", Kind::Flag),
    may("associatednetworkid", Kind::Id(Entity::Network)),
    may("networkid", Kind::Id(Entity::Network)),
    may("issourcenat", Kind::Flag),
    may("isstaticnat", Kind::Flag),
    may("vpcid", Kind::Id(Entity::Vpc)),
    may("fordisplay", Kind::Flag),
    may("retrieveonlyresourcecount", Kind::Flag),
];

pub(super) const SPECS: &[Spec] = &[Spec::read("listPublicIpAddresses", FILTERS, list)];

fn list(world: &World, call: &Call) -> Result<Value, ApiError> {
    let args = &call.args;
    let state = args.filled("state").map(str::to_lowercase);
    let of_free = state
        .as_deref()
        .is_some_and(|state| state == "free" || state == "reserved");
    if of_free && args.flag("allocatedonly") == Some(true) {
        return Err(ApiError::invalid(format!(
            "Conflict: allocatedonly is true but state is {}",
            args.text("state").unwrap_or_default()
        )));
    }
    let allocated_only = args.flag("allocatedonly").unwrap_or(!of_free);
    check_filters(world, call)?;
    let scope = Scope::of(
        world,
        call,
        args.id("id").is_some() || args.filled("ipaddress").is_some(),
    )?;
    let rows = world.addresses.iter().filter(|row| {
        let in_state = match &state {
            Some(state) => row.state.text().to_lowercase() == *state,
            None => !allocated_only || row.state == AddressState::Allocated,
        };
        in_state
            && is_visible(world, call, row, &scope)
            && fits(world, call, row)
            && super::tag::matches(world, call, row.id)
    });
    let shown = rows.map(|row| {
        let mut fields = world.show_address(row, call.reader());
        fields.extend(world.busy_address(row));
        Value::Object(fields)
    });
    dispatch::list(world, call, "publicipaddress", shown.collect())
}

/// Network and VPC of a filter must be the caller's.
fn check_filters(world: &World, call: &Call) -> Result<(), ApiError> {
    let network = call
        .args
        .uuid("associatednetworkid")
        .and_then(|id| world.networks.get(id))
        .map(|network| network.owner);
    let vpc = call
        .args
        .uuid("vpcid")
        .and_then(|id| world.vpcs.get(id))
        .map(|vpc| vpc.owner);
    let mut owners = network.into_iter().chain(vpc);
    owners.try_for_each(|owner| {
        if matches!(owner, Owner::Domain(_)) {
            Ok(())
        } else {
            call.must_own(world, owner)
        }
    })
}

/// Taken addresses by their owner; free ones for everybody who could take them.
fn is_visible(world: &World, call: &Call, row: &Address, scope: &Scope) -> bool {
    if let Some(owner) = row.owner {
        return scope.has(world, owner);
    }
    if row.system {
        return call.caller.kind == RoleKind::Root
            && !matches!(
                scope,
                Scope::Account(_) | Scope::Project(_) | Scope::Projects { .. }
            );
    }
    let kept_for = row
        .quarantine
        .filter(|(_, until)| *until > call.now)
        .map(|(owner, _)| owner);
    match kept_for {
        None => true,
        Some(owner) => {
            let me = call
                .args
                .uuid("projectid")
                .map_or(Owner::Account(call.caller.account), Owner::Project);
            owner == me
        }
    }
}

fn fits(world: &World, call: &Call, row: &Address) -> bool {
    let args = &call.args;
    let is = |name: &str, id| args.id(name).is_none_or(|wanted| Some(wanted) == id);
    let free = row.owner.is_none() && !row.system;
    let serves = |name: &str, id: Option<uuid::Uuid>| free || is(name, id.map(IdArg::Is));
    is("id", Some(IdArg::Is(row.id)))
        && is("zoneid", Some(IdArg::Is(row.zone)))
        && is("networkid", row.public_network.map(IdArg::Is))
        && serves("associatednetworkid", row.network)
        && serves("vpcid", row.vpc)
        && args
            .filled("ipaddress")
            .is_none_or(|address| row.address == address)
        && (args.filled("ipaddress").is_some()
            || args
                .filled("keyword")
                .is_none_or(|keyword| row.address.contains(keyword)))
        && row.for_virtual_network == args.flag("forvirtualnetwork").unwrap_or(true)
        && args.flag("issourcenat").is_none_or(|flag| row.source_nat == flag)
        && args
            .flag("isstaticnat")
            .is_none_or(|flag| row.static_nat.is_some() == flag)
        && (!args.is("forloadbalancing") || world.rules_on(row.id).next().is_some())
}
