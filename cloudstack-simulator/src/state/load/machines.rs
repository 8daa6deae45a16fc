//! Machines of a seed, and machines that appear later.

use std::net::Ipv4Addr;

use serde_json::{Value, json};
use uuid::Uuid;

use super::{defaults, id, owner, text, uuid, with_defaults};
use crate::clock::Stamp;
use crate::seed::{Seed, SeedError};
use crate::state::{Machine, MachineState, Network, Nic, Object, Owner, World};

pub(super) fn load(world: &mut World, seed: &Seed) -> Result<(), SeedError> {
    let mut machines: Vec<&Object> = seed.virtualmachines.iter().collect();
    // The instance name holds the internal number, which decides the order of pages.
    machines.sort_by_key(|machine| {
        text(machine, "instancename")
            .and_then(|name| name.split('-').nth(2))
            .and_then(|number| number.parse::<u64>().ok())
    });
    for machine in machines {
        let row = read(world, machine)?;
        world.machines.insert(row);
    }
    Ok(())
}

fn read(world: &World, machine: &Object) -> Result<Machine, SeedError> {
    let name = text(machine, "name").unwrap_or_default().to_owned();
    let machine_id = id(machine, "machine", &name);
    let mut nics = Vec::new();
    let listed = machine
        .get("nic")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    for (number, nic) in listed.iter().filter_map(Value::as_object).enumerate() {
        let wanted = text(nic, "networkname").unwrap_or_default();
        let network = uuid(nic, "networkid")
            .and_then(|id| world.networks.get(id))
            .or_else(|| world.networks.iter().find(|network| network.name == wanted));
        let network = network.ok_or_else(|| {
            SeedError::Content(format!("network {wanted} of machine {name} is not in the seed"))
        })?;
        let address = text(nic, "ipaddress")
            .map(str::to_owned)
            .or_else(|| next_address(world, network));
        nics.push(card(machine_id, number, network, (address, nic.clone())));
    }
    let first = nics.first().and_then(|nic| world.networks.get(nic.network));
    let network_owner = first
        .map(|network| network.owner)
        .filter(|owner| !matches!(owner, Owner::Domain(_)));
    let owner = owner(world, machine)?
        .or(network_owner)
        .ok_or_else(|| SeedError::Content(format!("machine {name} has no account or project")))?;
    let zone = uuid(machine, "zoneid")
        .or_else(|| first.map(|network| network.zone))
        .unwrap_or_default();
    let state = match text(machine, "state").unwrap_or("Running") {
        "Stopped" => MachineState::Stopped,
        "Starting" => MachineState::Starting,
        "Stopping" => MachineState::Stopping,
        "Destroyed" => MachineState::Destroyed,
        _ => MachineState::Running,
    };
    let updated = text(machine, "lastupdated")
        .and_then(Stamp::parse)
        .or_else(|| text(machine, "created").and_then(Stamp::parse));
    let shown = shown(world, machine.clone(), owner, zone);
    Ok(Machine {
        id: machine_id,
        name,
        owner,
        zone,
        state,
        nics,
        updated: updated.or_else(|| Some(Stamp::now())),
        busy: None,
        shown,
    })
}

fn shown(world: &World, machine: Object, owner: Owner, zone: Uuid) -> Object {
    let name = text(&machine, "name").unwrap_or_default().to_owned();
    let mut shown = with_defaults(machine, defaults::machine());
    let user = match owner {
        Owner::Account(id) => world.accounts.get(id),
        Owner::Project(id) => world
            .projects
            .get(id)
            .and_then(|project| world.accounts.get(*project.members.first()?)),
        Owner::Domain(_) => None,
    };
    let mut set = |name: &str, value: Value| {
        if !value.is_null() {
            shown.entry(name).or_insert(value);
        }
    };
    set("displayname", json!(name));
    set("userid", json!(user.map(|account| account.user)));
    set("username", json!(user.map(|account| account.user_name.as_str())));
    set("created", json!(Stamp::now().text()));
    set("zoneid", json!(zone));
    set(
        "zonename",
        json!(world.zones.get(zone).map(|zone| zone.name.as_str())),
    );
    if let Some(offering) = world.service_offerings.iter().next() {
        set("serviceofferingid", json!(offering.id));
        set("serviceofferingname", json!(offering.name));
        for field in ["cpunumber", "cpuspeed", "memory"] {
            set(field, offering.shown.get(field).cloned().unwrap_or_default());
        }
    }
    for changing in [
        "nic",
        "tags",
        "ipaddress",
        "state",
        "account",
        "project",
        "projectid",
        "domain",
        "domainid",
        "domainpath",
    ] {
        shown.remove(changing);
    }
    shown
}

fn card(machine: Uuid, number: usize, network: &Network, (address, given): (Option<String>, Object)) -> Nic {
    let of_network = |name: &str| network.shown.get(name).cloned();
    let mut shown = given;
    let secondary = shown
        .get("secondaryip")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let secondary = secondary
        .iter()
        .filter_map(|entry| entry.get("ipaddress")?.as_str())
        .map(str::to_owned)
        .collect();
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            shown.entry(name).or_insert(value);
        }
    };
    set(
        "id",
        Some(json!(super::made_up("nic", &format!("{machine}/{number}")))),
    );
    set("networkid", Some(json!(network.id)));
    set("networkname", Some(json!(network.name)));
    for name in ["netmask", "gateway", "traffictype", "type", "broadcasturi"] {
        set(name, of_network(name));
    }
    set("isolationuri", of_network("broadcasturi"));
    set("vpcid", network.vpc.map(|vpc| json!(vpc)));
    set("vpcname", of_network("vpcname"));
    set("isdefault", Some(json!(number == 0)));
    set("deviceid", Some(json!(number.to_string())));
    set("secondaryip", Some(json!([])));
    set("extradhcpoption", Some(json!([])));
    let bytes = machine.as_bytes();
    let byte = |at: usize| bytes.get(at).copied().unwrap_or_default();
    set(
        "macaddress",
        Some(json!(format!(
            "02:01:{:02x}:{:02x}:{:02x}:{:02x}",
            byte(0),
            byte(1),
            byte(2),
            number
        ))),
    );
    shown.retain(|_, value| !value.is_null());
    match &address {
        Some(address) => shown.insert("ipaddress".into(), json!(address)),
        None => shown.remove("ipaddress"),
    };
    Nic {
        network: network.id,
        address,
        secondary,
        shown,
    }
}

/// The next address of a network that no machine has: from .11 on, as the router keeps the first ones.
fn next_address(world: &World, network: &Network) -> Option<String> {
    let net: ipnet::Ipv4Net = network.shown.get("cidr")?.as_str()?.parse().ok()?;
    let taken = |address: &Ipv4Addr| {
        let text = address.to_string();
        world
            .machines
            .iter()
            .any(|machine| machine.address_in(network.id) == Some(text.as_str()))
    };
    net.hosts()
        .skip(10)
        .find(|address| !taken(address))
        .map(|address| address.to_string())
}

/// A machine that appears while the simulator runs.
#[derive(Debug, Clone)]
pub(crate) struct NewMachine {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    pub(crate) network: Uuid,
    pub(crate) address: Option<String>,
    pub(crate) owner: Owner,
    pub(crate) state: MachineState,
}

/// What template, offering and host make of a machine: taken from the last one of the zone.
fn lookalike(world: &World, zone: Uuid) -> Object {
    let other = world.machines.iter().rev().find(|machine| machine.zone == zone);
    let mut shown = other.map(|machine| machine.shown.clone()).unwrap_or_default();
    for own in [
        "userid",
        "username",
        "lastupdated",
        "group",
        "groupid",
        "keypair",
        "keypairs",
        "macaddress",
    ] {
        shown.remove(own);
    }
    shown
}

/// Adds a machine with one card.
pub(crate) fn add_machine(world: &mut World, new: NewMachine) -> Option<Uuid> {
    let network = world.networks.get(new.network)?;
    let address = new.address.or_else(|| next_address(world, network));
    let nic = card(new.id, 0, network, (address, Object::new()));
    let zone = network.zone;
    let mut given = lookalike(world, network.zone);
    let number = world.machines.next_number();
    given.extend(crate::state::show::object(json!({
        "id": new.id, "name": new.name, "displayname": new.name, "created": Stamp::now().text(), "details": {},
        "instancename": format!("i-2-{number}-VM"),
    })));
    let shown = shown(world, given, new.owner, zone);
    world.machines.insert(Machine {
        id: new.id,
        name: new.name,
        owner: new.owner,
        zone,
        state: new.state,
        nics: vec![nic],
        updated: Some(Stamp::now()),
        busy: None,
        shown,
    });
    if let Some(network) = world.networks.get_mut(new.network)
        && network.kind != crate::state::NetworkKind::Shared
    {
        network.implemented = true;
    }
    Some(new.id)
}
