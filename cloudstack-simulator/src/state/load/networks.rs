//! Networks, VPCs and ACL lists of a seed.

use serde_json::{Value, json};
use uuid::Uuid;

use super::{defaults, id, owner, text, uuid, with_defaults};
use crate::seed::{Seed, SeedError};
use crate::state::{AclItem, AclList, Network, NetworkKind, Object, Owner, RuleState, Vpc, World};

pub(super) fn load(world: &mut World, seed: &Seed) -> Result<(), SeedError> {
    for vpc in &seed.vpcs {
        let row = read_vpc(world, vpc)?;
        world.vpcs.insert(row);
    }
    let mut lists = seed.networkacllists.clone();
    for list in defaults::acl_lists() {
        if !lists
            .iter()
            .any(|known| text(known, "name") == text(&list, "name"))
        {
            lists.push(list);
        }
    }
    // The server numbers the default list that denies first.
    lists.sort_by_key(|list| text(list, "name") == Some("default_allow"));
    for list in &lists {
        read_acl_list(world, list);
    }
    // Lists of the server come newest first.
    for network in seed.networks.iter().rev() {
        let row = read_network(world, network)?;
        world.networks.insert(row);
    }
    Ok(())
}

fn read_vpc(world: &World, vpc: &Object) -> Result<Vpc, SeedError> {
    let name = text(vpc, "name").unwrap_or_default().to_owned();
    let id = id(vpc, "vpc", &name);
    let zone = uuid(vpc, "zoneid")
        .or_else(|| world.zones.iter().next().map(|zone| zone.id))
        .unwrap_or_default();
    let owner = owner(world, vpc)?
        .ok_or_else(|| SeedError::Content(format!("VPC {name} has no account or project")))?;
    let zone_name = world.zones.get(zone).map(|zone| zone.name.clone());
    let mut shown = with_defaults(vpc.clone(), defaults::vpc(zone, zone_name.as_deref()));
    shown.remove("network");
    shown.remove("account");
    shown.remove("project");
    shown.entry("displaytext").or_insert_with(|| name.clone().into());
    Ok(Vpc {
        id,
        name,
        owner,
        zone,
        shown,
    })
}

fn read_acl_list(world: &mut World, list: &Object) {
    let name = text(list, "name").unwrap_or_default().to_owned();
    let list_id = id(list, "acl", &name);
    let vpc = uuid(list, "vpcid").or_else(|| {
        let wanted = text(list, "vpcname")?;
        world.vpcs.iter().find(|vpc| vpc.name == wanted).map(|vpc| vpc.id)
    });
    world.acl_lists.insert(AclList {
        id: list_id,
        description: text(list, "description").map(str::to_owned),
        vpc,
        name,
    });
    let mut items = list
        .get("items")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    items.sort_by_key(|item| item.get("number").and_then(Value::as_i64));
    for item in items.iter().filter_map(Value::as_object) {
        let number = item.get("number").and_then(Value::as_i64).unwrap_or(1);
        let port = |name: &str| text(item, name).and_then(|port| port.parse::<i64>().ok());
        world.acl_items.insert(AclItem {
            id: id(item, "aclitem", &format!("{list_id}/{number}")),
            list: list_id,
            number,
            protocol: text(item, "protocol").unwrap_or("all").to_owned(),
            ports: port("startport").zip(port("endport")),
            icmp: None,
            sources: text(item, "cidrlist").unwrap_or("0.0.0.0/0").to_owned(),
            ingress: text(item, "traffictype") != Some("Egress"),
            allow: text(item, "action") != Some("Deny"),
            reason: text(item, "reason").map(str::to_owned),
            state: RuleState::Active,
        });
    }
}

fn read_network(world: &World, network: &Object) -> Result<Network, SeedError> {
    let name = text(network, "name").unwrap_or_default().to_owned();
    let network_id = id(network, "network", &name);
    let kind = match text(network, "type").unwrap_or("Isolated") {
        "Isolated" => NetworkKind::Isolated,
        "Shared" => NetworkKind::Shared,
        "L2" => NetworkKind::L2,
        other => {
            return Err(SeedError::Content(format!(
                "network {name} has the unknown type {other}"
            )));
        }
    };
    let vpc = uuid(network, "vpcid").or_else(|| {
        let wanted = text(network, "vpcname")?;
        world.vpcs.iter().find(|vpc| vpc.name == wanted).map(|vpc| vpc.id)
    });
    let owner = match (owner(world, network)?, vpc.and_then(|id| world.vpcs.get(id))) {
        (Some(owner), _) => owner,
        (None, Some(vpc)) => vpc.owner,
        (None, None) => {
            let domain =
                uuid(network, "domainid").or_else(|| world.domains.iter().next().map(|domain| domain.id));
            Owner::Domain(domain.unwrap_or_default())
        }
    };
    let acl = uuid(network, "aclid").or_else(|| {
        let wanted = text(network, "aclname")?;
        world
            .acl_lists
            .iter()
            .find(|list| list.name == wanted)
            .map(|list| list.id)
    });
    let zone = uuid(network, "zoneid")
        .or_else(|| world.zones.iter().next().map(|zone| zone.id))
        .unwrap_or_default();
    let shown = shown(world, network, &name, (network_id, zone, vpc));
    let services = shown
        .get("service")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let services = services
        .iter()
        .filter_map(|service| service.get("name")?.as_str())
        .map(str::to_owned)
        .collect();
    let implemented = text(network, "state").unwrap_or("Implemented") == "Implemented";
    Ok(Network {
        id: network_id,
        owner,
        kind,
        zone,
        vpc,
        acl,
        implemented,
        services,
        shown,
        name,
    })
}

fn shown(world: &World, network: &Object, name: &str, (id, zone, vpc): (Uuid, Uuid, Option<Uuid>)) -> Object {
    let kind = text(network, "type").unwrap_or("Isolated");
    let mut shown = with_defaults(network.clone(), defaults::network(kind, vpc.is_some()));
    let mut set = |name: &str, value: Value| {
        shown.entry(name).or_insert(value);
    };
    set("displaytext", json!(name));
    set("related", json!(id));
    set("zoneid", json!(zone));
    set(
        "zonename",
        json!(world.zones.get(zone).map(|zone| zone.name.as_str())),
    );
    if let Some(vpc) = vpc.and_then(|id| world.vpcs.get(id)) {
        set("vpcid", json!(vpc.id));
        set("vpcname", json!(vpc.name));
    }
    if let Some(net) = text(network, "cidr").and_then(|cidr| cidr.parse::<ipnet::Ipv4Net>().ok()) {
        set("gateway", json!(net.hosts().next()));
        set("netmask", json!(net.netmask()));
    }
    for owned in [
        "account",
        "project",
        "projectid",
        "domain",
        "domainid",
        "domainpath",
    ] {
        shown.remove(owned);
    }
    shown
}
