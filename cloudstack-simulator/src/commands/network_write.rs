//! Making and removing networks and VPCs, as far as a test needs a fresh one.

use serde_json::{Value, json};
use uuid::Uuid;

use super::job::success;
use crate::catalog::Spec;
use crate::clock::Stamp;
use crate::dispatch::Call;
use crate::error::{ApiError, JobError};
use crate::jobs::{Started, new_id};
use crate::request::{Entity, Kind, Param, TEXT, may, need};
use crate::state::show::{Reader, object, strip};
use crate::state::{AddressState, Network, NetworkKind, Object, Owner, Vpc, World};

const CREATE: &[Param] = &[
    need("name", TEXT),
    may("displaytext", TEXT),
    need("networkofferingid", Kind::Id(Entity::NetworkOffering)),
    need("zoneid", Kind::Id(Entity::Zone)),
    may("gateway", TEXT),
    may("netmask", TEXT),
    may("vpcid", Kind::Id(Entity::Vpc)),
    may("aclid", Kind::Id(Entity::AclList)),
    may("projectid", Kind::Id(Entity::Project)),
];
const DELETE: &[Param] = &[need("id", Kind::Id(Entity::Network)), may("forced", Kind::Flag)];
const CREATE_VPC: &[Param] = &[
    need("name", TEXT),
    may("displaytext", TEXT),
    need("zoneid", Kind::Id(Entity::Zone)),
    may("vpcofferingid", TEXT),
    need("cidr", TEXT),
    may("projectid", Kind::Id(Entity::Project)),
];
const DELETE_VPC: &[Param] = &[need("id", Kind::Id(Entity::Vpc))];
const OFFERINGS: &[Param] = &[may("name", TEXT), may("id", TEXT)];

pub(super) const SPECS: &[Spec] = &[
    Spec::change("createNetwork", CREATE, create),
    Spec::job("deleteNetwork", "user.network.DeleteNetworkCmd", DELETE, delete),
    Spec::job("createVPC", "user.vpc.CreateVPCCmd", CREATE_VPC, create_vpc),
    Spec::job("deleteVPC", "user.vpc.DeleteVPCCmd", DELETE_VPC, delete_vpc),
    Spec::read("listVPCOfferings", OFFERINGS, vpc_offerings),
];

fn owner_of(call: &Call) -> Owner {
    call.args
        .uuid("projectid")
        .map_or(Owner::Account(call.caller.account), Owner::Project)
}

/// Fields of one network that another one does not share.
const OWN: [&str; 12] = [
    "id",
    "name",
    "related",
    "vlan",
    "broadcasturi",
    "vpcid",
    "vpcname",
    "created",
    "receivedbytes",
    "sentbytes",
    "aclid",
    "aclname",
];

fn create(world: &mut World, call: &Call) -> Result<Value, ApiError> {
    let args = &call.args;
    let offering = args.uuid("networkofferingid").unwrap_or_default();
    let vpc = args.uuid("vpcid");
    let owner = vpc
        .and_then(|id| world.vpcs.get(id))
        .map_or_else(|| owner_of(call), |vpc| vpc.owner);
    call.must_own(world, owner)?;
    let offered = |network: &&Network| network.shown.get("networkofferingid") == Some(&json!(offering));
    // One of the same owner first: the network domain goes by owner.
    let sample = world
        .networks
        .iter()
        .filter(offered)
        .find(|network| network.owner == owner);
    let like = sample
        .or_else(|| world.networks.iter().find(offered))
        .map(|network| (network.shown.clone(), network.services.clone()));
    let (mut shown, services) =
        like.ok_or_else(|| ApiError::invalid("only offerings of networks that exist are simulated"))?;
    strip(&mut shown, &OWN);
    let id = new_id();
    let name = args.text("name").unwrap_or_default().to_owned();
    shown.extend(object(json!({
        "related": id, "displaytext": args.filled("displaytext").unwrap_or(&name), "created": call.now.text(), "state": "Allocated",
        "receivedbytes": 0, "sentbytes": 0, "vpcid": vpc, "vpcname": vpc.and_then(|id| world.vpcs.get(id)).map(|vpc| vpc.name.as_str()),
    })));
    shown.extend(addresses(args.filled("gateway"), args.filled("netmask")));
    world.networks.insert(Network {
        id,
        name,
        owner,
        kind: NetworkKind::Isolated,
        zone: args.uuid("zoneid").unwrap_or_default(),
        vpc,
        acl: args.uuid("aclid"),
        implemented: false,
        services,
        shown,
    });
    let network = world
        .networks
        .get(id)
        .map(|network| world.show_network(network, call.reader()));
    Ok(json!({ "network": network }))
}

/// Gateway, mask and range of a network that names its own.
fn addresses(gateway: Option<&str>, netmask: Option<&str>) -> Object {
    let given = gateway.zip(netmask).and_then(|(gateway, mask)| {
        let net = ipnet::Ipv4Net::with_netmask(gateway.parse().ok()?, mask.parse().ok()?).ok()?;
        Some(object(
            json!({ "gateway": gateway, "netmask": mask, "cidr": net.trunc().to_string() }),
        ))
    });
    given.unwrap_or_default()
}

fn delete(_: &mut World, call: &Call) -> Result<Started, ApiError> {
    let id = call.args.uuid("id").unwrap_or_default();
    Ok(Started::job(move |run| async move {
        let owner = run.world(|world| world.networks.get(id).map(|network| network.owner));
        run.must_own(owner)?;
        run.world(|world| {
            if world
                .machines
                .iter()
                .any(|machine| machine.nics.iter().any(|nic| nic.network == id))
            {
                return Err(JobError::failed("Failed to delete network: machines use it"));
            }
            let used: Vec<Uuid> = world
                .addresses
                .iter()
                .filter(|row| row.network == Some(id))
                .map(|row| row.id)
                .collect();
            for address in used {
                give_back(world, address);
            }
            world.networks.retire(id);
            Ok(success())
        })
    })
    .on("Network", id))
}

/// Frees an address with everything on it, without a router.
fn give_back(world: &mut World, address: Uuid) {
    let rules: Vec<Uuid> = world.rules_on(address).map(|rule| rule.id).collect();
    let firewall: Vec<Uuid> = world.firewall_on(address).map(|rule| rule.id).collect();
    for rule in rules {
        super::rule_delete::drop_rule(world, rule);
    }
    for rule in firewall {
        world.firewall_rules.remove(rule);
    }
    world.free_address(address, Stamp::now());
}

fn create_vpc(world: &mut World, call: &Call) -> Result<Started, ApiError> {
    let owner = owner_of(call);
    let like = world.vpcs.iter().next().map(|vpc| vpc.shown.clone());
    let mut shown =
        like.ok_or_else(|| ApiError::invalid("a VPC can only be made where there is one already"))?;
    let id = new_id();
    let name = call.args.text("name").unwrap_or_default().to_owned();
    shown.extend(object(
        json!({ "displaytext": name, "cidr": call.args.text("cidr"), "created": call.now.text() }),
    ));
    let own = world.networks.iter().find(|network| network.owner == owner);
    if let Some(domain) = own.and_then(|network| network.shown.get("networkdomain")) {
        shown.insert("networkdomain".into(), domain.clone());
    }
    let zone = call.args.uuid("zoneid").unwrap_or_default();
    world.vpcs.insert(Vpc {
        id,
        name,
        owner,
        zone,
        shown,
    });
    let now = call.now;
    let free = world
        .addresses
        .iter_mut()
        .find(|row| row.state == AddressState::Free && row.for_virtual_network && row.zone == zone);
    if let Some(row) = free {
        row.state = AddressState::Allocated;
        row.allocated = Some(now);
        row.owner = Some(owner);
        row.vpc = Some(id);
        row.source_nat = true;
    }
    Ok(Started::job(move |run| async move {
        run.world(|world| {
            let vpc = world
                .vpcs
                .get(id)
                .ok_or_else(|| JobError::failed("Failed to create VPC"))?;
            Ok(json!({ "vpc": world.show_vpc(vpc, Reader::of(run.caller.kind)) }))
        })
    })
    .created("None", id))
}

fn delete_vpc(_: &mut World, call: &Call) -> Result<Started, ApiError> {
    let id = call.args.uuid("id").unwrap_or_default();
    Ok(Started::job(move |run| async move {
        let owner = run.world(|world| world.vpcs.get(id).map(|vpc| vpc.owner));
        run.must_own(owner)?;
        run.world(|world| {
            if world.networks.iter().any(|network| network.vpc == Some(id)) {
                return Err(JobError::failed("Can't delete VPC: it has tiers"));
            }
            let used: Vec<Uuid> = world
                .addresses
                .iter()
                .filter(|row| row.vpc == Some(id))
                .map(|row| row.id)
                .collect();
            for address in used {
                give_back(world, address);
            }
            let lists: Vec<Uuid> = world
                .acl_lists
                .iter()
                .filter(|list| list.vpc == Some(id))
                .map(|list| list.id)
                .collect();
            for list in lists {
                let items: Vec<Uuid> = world
                    .acl_items
                    .iter()
                    .filter(|item| item.list == list)
                    .map(|item| item.id)
                    .collect();
                for item in items {
                    world.acl_items.remove(item);
                }
                world.acl_lists.remove(list);
            }
            world.vpcs.retire(id);
            Ok(success())
        })
    })
    .on("Vpc", id))
}

/// The offerings of the VPCs that exist.
fn vpc_offerings(world: &World, call: &Call) -> Result<Value, ApiError> {
    let mut rows: Vec<Value> = world
        .vpcs
        .iter()
        .filter_map(|vpc| {
            let (id, name) = (vpc.shown.get("vpcofferingid")?, vpc.shown.get("vpcofferingname")?);
            let wanted = call
                .args
                .filled("name")
                .is_none_or(|wanted| name.as_str() == Some(wanted));
            wanted.then(|| json!({ "id": id, "name": name, "displaytext": name, "state": "Enabled" }))
        })
        .collect();
    rows.dedup();
    crate::dispatch::list(world, call, "vpcoffering", rows)
}
