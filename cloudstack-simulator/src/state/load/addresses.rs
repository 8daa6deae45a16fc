//! Public addresses of a seed.

use std::net::Ipv4Addr;

use uuid::Uuid;

use super::{id, made_up, owner, text, uuid};
use crate::clock::Stamp;
use crate::seed::{Seed, SeedError};
use crate::state::{Address, AddressState, NetworkKind, Object, Owner, World};

pub(super) fn load(world: &mut World, seed: &Seed) -> Result<(), SeedError> {
    let zone = world.zones.iter().next().map(|zone| zone.id).unwrap_or_default();
    let public_network = made_up("publicnetwork", "");
    let mut rows: Vec<Address> = Vec::new();
    for taken in &seed.publicips {
        rows.push(read_taken(world, taken)?);
    }
    for free in &seed.publicips_free {
        rows.push(read_free(seed, free, zone));
    }
    for range in &seed.publicipranges {
        let virtual_network = range
            .get("forvirtualnetwork")
            .and_then(serde_json::Value::as_bool)
            .unwrap_or(true);
        if virtual_network && !seed.publicips_free.is_empty() {
            continue;
        }
        let (first, last) = bounds(range)?;
        for address in (first..=last).map(|bits| Ipv4Addr::from_bits(bits).to_string()) {
            if !rows.iter().any(|row| row.address == address) {
                rows.push(Address {
                    zone: uuid(range, "zoneid").unwrap_or(zone),
                    public_network: Some(uuid(range, "networkid").unwrap_or(public_network)),
                    physical_network: uuid(range, "physicalnetworkid")
                        .or_else(|| Some(physical_network(seed))),
                    for_virtual_network: virtual_network,
                    ..free(made_up("address", &address), address)
                });
            }
        }
    }
    for row in &mut rows {
        let range = seed
            .publicipranges
            .iter()
            .find(|range| contains(range, &row.address));
        for (name, from) in [("vlanid", "id"), ("vlanname", "vlan")] {
            if let Some(value) = range.and_then(|range| range.get(from)) {
                row.shown.insert(name.into(), value.clone());
            }
        }
    }
    // The public range has the lowest numbers.
    rows.sort_by_key(|row| (!row.for_virtual_network, row.address.parse::<Ipv4Addr>().ok()));
    for row in rows {
        world.addresses.insert(row);
    }
    give_source_nat(world);
    Ok(())
}

fn free(id: Uuid, address: String) -> Address {
    Address {
        id,
        address,
        zone: Uuid::nil(),
        public_network: None,
        physical_network: None,
        state: AddressState::Free,
        allocated: None,
        owner: None,
        network: None,
        vpc: None,
        source_nat: false,
        static_nat: None,
        system: false,
        for_virtual_network: true,
        machine: None,
        quarantine: None,
        shown: Object::new(),
    }
}

/// The physical network that the addresses of the seed are on.
fn physical_network(seed: &Seed) -> Uuid {
    seed.publicips
        .iter()
        .find_map(|address| uuid(address, "physicalnetworkid"))
        .unwrap_or_else(|| made_up("physicalnetwork", ""))
}

fn contains(range: &Object, address: &str) -> bool {
    let at = address.parse::<Ipv4Addr>().map(Ipv4Addr::to_bits).ok();
    bounds(range)
        .ok()
        .zip(at)
        .is_some_and(|((first, last), at)| first <= at && at <= last)
}

fn bounds(range: &Object) -> Result<(u32, u32), SeedError> {
    let bound = |name: &str| {
        text(range, name)
            .and_then(|value| value.parse::<Ipv4Addr>().ok())
            .map(Ipv4Addr::to_bits)
    };
    bound("startip")
        .zip(bound("endip"))
        .ok_or_else(|| SeedError::Content("a public range needs startip and endip".into()))
}

fn read_taken(world: &World, taken: &Object) -> Result<Address, SeedError> {
    let flag = |name: &str| {
        taken
            .get(name)
            .and_then(serde_json::Value::as_bool)
            .unwrap_or(false)
    };
    let address = text(taken, "ipaddress").unwrap_or_default().to_owned();
    let system = flag("issystem");
    let mut shown = Object::new();
    for name in [
        "purpose",
        "virtualmachineid",
        "virtualmachinename",
        "virtualmachinetype",
        "account",
        "domain",
        "domainid",
        "domainpath",
    ] {
        if let (true, Some(value)) = (system, taken.get(name)) {
            shown.insert(name.into(), value.clone());
        }
    }
    Ok(Address {
        zone: uuid(taken, "zoneid")
            .or_else(|| world.zones.iter().next().map(|zone| zone.id))
            .unwrap_or_default(),
        public_network: uuid(taken, "networkid"),
        physical_network: uuid(taken, "physicalnetworkid"),
        state: AddressState::Allocated,
        allocated: text(taken, "allocated")
            .and_then(Stamp::parse)
            .or_else(|| Some(Stamp::now())),
        owner: if system { None } else { owner(world, taken)? },
        network: uuid(taken, "associatednetworkid"),
        vpc: uuid(taken, "vpcid"),
        source_nat: flag("issourcenat"),
        system,
        shown,
        ..free(id(taken, "address", &address), address)
    })
}

fn read_free(seed: &Seed, entry: &Object, zone: Uuid) -> Address {
    let address = text(entry, "ipaddress").unwrap_or_default().to_owned();
    let range = seed.publicipranges.iter().find(|range| contains(range, &address));
    Address {
        zone: range.and_then(|range| uuid(range, "zoneid")).unwrap_or(zone),
        public_network: range.and_then(|range| uuid(range, "networkid")),
        physical_network: Some(physical_network(seed)),
        ..free(id(entry, "address", &address), address)
    }
}

/// Every network and VPC with a router has a source NAT address.
fn give_source_nat(world: &mut World) {
    let networks: Vec<(Option<Uuid>, Option<Uuid>, Owner)> = world
        .networks
        .iter()
        .filter(|network| {
            network.kind == NetworkKind::Isolated
                && network.implemented
                && network.vpc.is_none()
                && network.has("SourceNat")
        })
        .map(|network| (Some(network.id), None, network.owner))
        .chain(world.vpcs.iter().map(|vpc| (None, Some(vpc.id), vpc.owner)))
        .collect();
    for (network, vpc, owner) in networks {
        let has = world.addresses.iter().any(|row| {
            row.source_nat
                && if vpc.is_some() {
                    row.vpc == vpc
                } else {
                    row.network == network
                }
        });
        let free = world
            .addresses
            .iter_mut()
            .find(|row| row.state == AddressState::Free && row.for_virtual_network);
        if let (false, Some(row)) = (has, free) {
            row.state = AddressState::Allocated;
            row.allocated = Some(Stamp::now());
            row.owner = Some(owner);
            row.network = network;
            row.vpc = vpc;
            row.source_nat = true;
        }
    }
}

/// The addresses of machines in shared networks are addresses of the range too.
pub(super) fn give_cards_their_addresses(world: &mut World) {
    let cards: Vec<(Uuid, Owner, Uuid, Option<String>)> = world
        .machines
        .iter()
        .flat_map(|machine| {
            machine
                .nics
                .iter()
                .map(|nic| (machine.id, machine.owner, nic.network, nic.address.clone()))
        })
        .filter(|(_, _, network, _)| {
            world
                .networks
                .get(*network)
                .is_some_and(|network| network.kind == NetworkKind::Shared)
        })
        .collect();
    for (machine, owner, network, address) in cards {
        let row = world
            .addresses
            .iter_mut()
            .find(|row| !row.for_virtual_network && Some(&row.address) == address.as_ref());
        if let Some(row) = row {
            row.state = AddressState::Allocated;
            row.allocated = Some(Stamp::now());
            row.owner = Some(owner);
            row.network = Some(network);
            row.machine = Some(machine);
        }
    }
}
