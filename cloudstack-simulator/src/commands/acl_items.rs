//! Listing the items of network ACL lists.

use serde_json::{Value, json};
use uuid::Uuid;

use super::acl_list::owner_of;
use crate::catalog::Spec;
use crate::dispatch::{self, Call};
use crate::error::ApiError;
use crate::request::{Entity, IdArg, Kind, Param, TEXT, may};
use crate::scope::Scope;
use crate::state::World;

const FILTERS: &[Param] = &[
    may("id", Kind::Id(Entity::AclItem)),
    may("networkid", Kind::Id(Entity::Network)),
    may("traffictype", TEXT),
    may("aclid", Kind::Id(Entity::AclList)),
    may("protocol", TEXT),
    may("action", TEXT),
];

pub(super) const SPECS: &[Spec] = &[Spec::read("listNetworkACLs", FILTERS, list)];

fn list(world: &World, call: &Call) -> Result<Value, ApiError> {
    let args = &call.args;
    let mut wanted = args.uuid("aclid");
    if let Some(id) = args.uuid("networkid") {
        let network = world.networks.get(id).ok_or_else(|| call.gone("networkid", id))?;
        call.must_own(world, network.owner)?;
        match network.acl {
            Some(list) => wanted = Some(list),
            None => return Ok(json!({})),
        }
    }
    if let Some(owner) = wanted.and_then(|list| owner_of(world, list)) {
        call.must_own(world, owner)?;
    }
    let scope = Scope::of(world, call, args.id("id").is_some())?;
    let visible = |list: Uuid| {
        wanted == Some(list)
            || wanted.is_none() && owner_of(world, list).is_none_or(|owner| scope.has(world, owner))
    };
    let rows = world.acl_items.iter().rev().filter(|item| {
        args.id("id").is_none_or(|id| id == IdArg::Is(item.id))
            && visible(item.list)
            && args.filled("traffictype").is_none_or(|wanted| {
                wanted.eq_ignore_ascii_case(if item.ingress { "ingress" } else { "egress" })
            })
            && args
                .filled("action")
                .is_none_or(|wanted| wanted.eq_ignore_ascii_case(if item.allow { "allow" } else { "deny" }))
            && args
                .filled("protocol")
                .is_none_or(|wanted| wanted.eq_ignore_ascii_case(&item.protocol))
            && super::tag::matches(world, call, item.id)
    });
    let shown = rows.map(|item| Value::Object(world.show_acl_item(item, call.reader())));
    dispatch::list(world, call, "networkacl", shown.collect())
}
