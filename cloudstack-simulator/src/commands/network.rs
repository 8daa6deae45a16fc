//! Listing networks and VPCs.

use serde_json::Value;

use crate::catalog::Spec;
use crate::dispatch::{self, Call};
use crate::error::ApiError;
use crate::request::{Entity, IdArg, Kind, Param, TEXT, may};
use crate::scope::Scope;
use crate::state::{Network, NetworkKind, Owner, RoleKind, World, within};

const NETWORKS: &[Param] = &[
    may("id", Kind::Id(Entity::Network)),
    may("zoneid", Kind::Id(Entity::Zone)),
    may("type", TEXT),
    may("issystem", Kind::Flag),
    may("acltype", TEXT),
    may("traffictype", TEXT),
    may("physicalnetworkid", Kind::Id(Entity::Other)),
    may("supportedservices", Kind::Names),
    may("restartrequired", Kind::Flag),
    may("specifyipranges", Kind::Flag),
    may("vpcid", Kind::Id(Entity::Vpc)),
    may("canusefordeploy", Kind::Flag),
    may("forvpc", Kind::Flag),
    may("networkofferingid", Kind::Id(Entity::NetworkOffering)),
    may("name", TEXT),
    may("networkfilter", TEXT),
];
const VPCS: &[Param] = &[
    may("id", Kind::Id(Entity::Vpc)),
    may("zoneid", Kind::Id(Entity::Zone)),
    may("name", TEXT),
    may("displaytext", TEXT),
    may("cidr", TEXT),
    may("state", TEXT),
    may("supportedservices", Kind::Names),
];

pub(super) const SPECS: &[Spec] = &[
    Spec::read("listNetworks", NETWORKS, networks),
    Spec::read("listVPCs", VPCS, vpcs),
];

/// Services that a filter may name.
const SERVICES: [&str; 15] = [
    "Vpn",
    "Dhcp",
    "Dns",
    "Gateway",
    "Firewall",
    "Lb",
    "UserData",
    "SourceNat",
    "StaticNat",
    "PortForwarding",
    "SecurityGroup",
    "NetworkACL",
    "Connectivity",
    "BaremetalPxeService",
    "CustomAction",
];

fn networks(world: &World, call: &Call) -> Result<Value, ApiError> {
    let args = &call.args;
    if let Some(service) = args
        .list("supportedservices")
        .into_iter()
        .flatten()
        .find(|name| !SERVICES.contains(&name.as_str()))
    {
        return Err(ApiError::invalid(format!("Invalid service specified {service}")));
    }
    let filter = args.filled("networkfilter").map(str::to_lowercase);
    if let Some(name) = &filter
        && !["account", "domain", "accountdomain", "shared", "all"].contains(&name.as_str())
    {
        return Err(ApiError::invalid(format!(
            "Invalid value of networkfilter: {}",
            args.text("networkfilter").unwrap_or_default()
        )));
    }
    let rows = world.networks.iter().rev().filter(|network| {
        is_visible(world, call, network)
            && fits(call, network)
            && by_filter(network, filter.as_deref())
            && super::tag::matches(world, call, network.id)
    });
    let shown = rows.map(|network| Value::Object(world.show_network(network, call.reader())));
    dispatch::list(world, call, "network", shown.collect())
}

fn by_filter(network: &Network, filter: Option<&str>) -> bool {
    let shared = matches!(network.owner, Owner::Domain(_));
    match filter {
        Some("account") => !shared,
        Some("domain" | "shared") => shared,
        _ => true,
    }
}

/// Networks have their own rule: shared ones of the caller's domains are always there; project ones only with `projectid`.
fn is_visible(world: &World, call: &Call, network: &Network) -> bool {
    let caller = call.caller.account;
    let all = call.args.is("listall") || call.args.id("id").is_some();
    match network.owner {
        Owner::Domain(domain) => {
            let own = world
                .domain_of(Owner::Account(caller))
                .map(|domain| domain.path.clone())
                .unwrap_or_default();
            world.domains.get(domain).is_some_and(|domain| {
                within(&own, &domain.path) || call.caller.kind != RoleKind::User && within(&domain.path, &own)
            })
        }
        Owner::Account(of) => match call.args.id("projectid") {
            Some(IdArg::Is(_)) => false,
            Some(IdArg::Nothing) | None => {
                of == caller
                    || all && call.caller.kind != RoleKind::User && world.may_use(caller, network.owner)
            }
        },
        Owner::Project(of) => match call.args.id("projectid") {
            Some(IdArg::Is(project)) => project == of,
            Some(IdArg::Nothing) => world
                .projects
                .get(of)
                .is_some_and(|project| project.members.contains(&caller)),
            None => false,
        },
    }
}

fn fits(call: &Call, network: &Network) -> bool {
    let args = &call.args;
    let text = |name: &str| {
        network
            .shown
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let kind = match network.kind {
        NetworkKind::Isolated => "isolated",
        NetworkKind::Shared => "shared",
        NetworkKind::L2 => "l2",
    };
    let flag = |name: &str| {
        args.flag(name)
            .is_none_or(|flag| network.shown.get(name) == Some(&Value::Bool(flag)))
    };
    args.id("id").is_none_or(|id| id == IdArg::Is(network.id))
        && args.id("zoneid").is_none_or(|id| id == IdArg::Is(network.zone))
        && args
            .id("vpcid")
            .is_none_or(|id| Some(id) == network.vpc.map(IdArg::Is))
        && args.id("networkofferingid").is_none_or(|id| {
            IdArg::Is(uuid::Uuid::try_parse(text("networkofferingid")).unwrap_or_default()) == id
        })
        && args
            .filled("type")
            .is_none_or(|wanted| wanted.eq_ignore_ascii_case(kind))
        && args
            .filled("traffictype")
            .is_none_or(|wanted| wanted.eq_ignore_ascii_case(text("traffictype")))
        && args
            .filled("acltype")
            .is_none_or(|wanted| wanted.eq_ignore_ascii_case(text("acltype")))
        && args
            .filled("name")
            .is_none_or(|name| network.name.eq_ignore_ascii_case(name))
        && args
            .filled("keyword")
            .is_none_or(|word| super::rule_list::like(&network.name, &word.to_lowercase()))
        && args
            .flag("forvpc")
            .is_none_or(|flag| network.vpc.is_some() == flag)
        && args
            .list("supportedservices")
            .is_none_or(|services| services.iter().all(|service| network.has(service)))
        && flag("canusefordeploy")
        && flag("issystem")
        && flag("restartrequired")
        && flag("specifyipranges")
}

fn vpcs(world: &World, call: &Call) -> Result<Value, ApiError> {
    let args = &call.args;
    let scope = Scope::of(world, call, args.id("id").is_some())?;
    let rows = world.vpcs.iter().filter(|vpc| {
        args.id("id").is_none_or(|id| id == IdArg::Is(vpc.id))
            && args.id("zoneid").is_none_or(|id| id == IdArg::Is(vpc.zone))
            && args
                .filled("name")
                .is_none_or(|name| vpc.name.eq_ignore_ascii_case(name))
            && args
                .filled("keyword")
                .is_none_or(|word| super::rule_list::like(&vpc.name, &word.to_lowercase()))
            && super::tag::matches(world, call, vpc.id)
            && scope.has(world, vpc.owner)
    });
    let shown = rows.map(|vpc| Value::Object(world.show_vpc(vpc, call.reader())));
    dispatch::list(world, call, "vpc", shown.collect())
}
