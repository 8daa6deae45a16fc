//! The state of the simulated cloud for leak checks and assertions: flat rows with names, not the API's shapes.

use serde::Serialize;
use uuid::Uuid;

use crate::state::{AddressState, JobStatus, Owner, Tag, World};

/// Everything that callers can make, and the machines.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Dump {
    /// Public addresses that are not free.
    pub addresses: Vec<AddressRow>,
    /// Load balancer rules.
    pub rules: Vec<RuleRow>,
    /// Firewall rules.
    pub firewall_rules: Vec<FirewallRow>,
    /// Items of ACL lists that are no default lists.
    pub acl_items: Vec<AclRow>,
    /// Tags.
    pub tags: Vec<TagRow>,
    /// Machines.
    pub machines: Vec<MachineRow>,
    /// Jobs that still run.
    pub pending_jobs: usize,
}

/// A public address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AddressRow {
    /// Its id.
    pub id: Uuid,
    /// The address.
    pub address: String,
    /// `Allocating`, `Allocated` or `Releasing`.
    pub state: String,
    /// `account/NAME` or `project/NAME`.
    pub owner: String,
    /// Name of the guest network.
    pub network: Option<String>,
    /// Name of the VPC.
    pub vpc: Option<String>,
    /// Is the source NAT address.
    pub source_nat: bool,
}

/// A load balancer rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleRow {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// Its description.
    pub description: Option<String>,
    /// The public address.
    pub address: String,
    /// Public port.
    pub public_port: u16,
    /// Private port.
    pub private_port: u16,
    /// Algorithm.
    pub algorithm: String,
    /// Protocol, if one was given.
    pub protocol: Option<String>,
    /// Source list as stored.
    pub sources: Option<String>,
    /// `Add`, `Active` or `Deleting`.
    pub state: String,
    /// Owner.
    pub owner: String,
    /// Names of the machines, sorted.
    pub members: Vec<String>,
}

/// A firewall rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FirewallRow {
    /// Its id.
    pub id: Uuid,
    /// The public address.
    pub address: String,
    /// Protocol.
    pub protocol: String,
    /// First and last port.
    pub ports: Option<(u16, u16)>,
    /// Sources.
    pub sources: Vec<String>,
    /// State.
    pub state: String,
    /// Owner.
    pub owner: String,
}

/// An item of an ACL list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AclRow {
    /// Its id.
    pub id: Uuid,
    /// Name of the list.
    pub list: String,
    /// Number.
    pub number: i64,
    /// Protocol.
    pub protocol: String,
    /// First and last port.
    pub ports: Option<(i64, i64)>,
    /// Networks, separated by commas.
    pub sources: String,
    /// Lets through or drops.
    pub allow: bool,
    /// Text.
    pub reason: Option<String>,
}

/// A tag.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TagRow {
    /// The object.
    pub resource: Uuid,
    /// Its kind.
    pub kind: String,
    /// Key.
    pub key: String,
    /// Value.
    pub value: String,
}

/// A machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MachineRow {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// State.
    pub state: String,
    /// Owner.
    pub owner: String,
    /// Network names and addresses of its cards.
    pub cards: Vec<(String, Option<String>)>,
}

impl Dump {
    /// Takes the picture.
    pub(crate) fn of(world: &World) -> Self {
        let tag = |tag: &Tag| TagRow {
            resource: tag.resource,
            kind: tag.kind.into(),
            key: tag.key.clone(),
            value: tag.value.clone(),
        };
        Self {
            addresses: address_rows(world),
            rules: rule_rows(world),
            firewall_rules: firewall_rows(world),
            acl_items: acl_rows(world),
            tags: world.tags.iter().map(tag).collect(),
            machines: machine_rows(world),
            pending_jobs: world
                .jobs
                .iter()
                .filter(|job| matches!(job.status, JobStatus::Pending))
                .count(),
        }
    }

    /// Addresses that somebody took on purpose: all but source NAT ones.
    pub fn acquired(&self) -> impl Iterator<Item = &AddressRow> {
        self.addresses.iter().filter(|row| !row.source_nat)
    }
}

fn address_rows(world: &World) -> Vec<AddressRow> {
    let taken = world
        .addresses
        .iter()
        .filter(|row| row.state != AddressState::Free && !row.system && row.for_virtual_network);
    taken
        .map(|row| AddressRow {
            id: row.id,
            address: row.address.clone(),
            state: row.state.text().into(),
            owner: row
                .owner
                .map(|owner| owner_text(world, owner))
                .unwrap_or_default(),
            network: row
                .network
                .and_then(|id| world.networks.get(id))
                .map(|network| network.name.clone()),
            vpc: row
                .vpc
                .and_then(|id| world.vpcs.get(id))
                .map(|vpc| vpc.name.clone()),
            source_nat: row.source_nat,
        })
        .collect()
}

fn address_text(world: &World, id: Uuid) -> String {
    world
        .addresses
        .get(id)
        .map(|row| row.address.clone())
        .unwrap_or_default()
}

fn rule_rows(world: &World) -> Vec<RuleRow> {
    let machine = |id: Uuid| {
        world
            .machines
            .get(id)
            .map_or_else(|| id.to_string(), |row| row.name.clone())
    };
    let rows = world.rules.iter().map(|row| {
        let mut members: Vec<String> = row.members.iter().map(|member| machine(member.machine)).collect();
        members.sort();
        RuleRow {
            id: row.id,
            name: row.name.clone(),
            description: row.description.clone(),
            address: address_text(world, row.address),
            public_port: row.public_port,
            private_port: row.private_port,
            algorithm: row.algorithm.clone(),
            protocol: row.protocol.clone(),
            sources: row.sources.clone(),
            state: row.state.text().into(),
            owner: owner_text(world, row.owner),
            members,
        }
    });
    rows.collect()
}

fn owner_text(world: &World, owner: Owner) -> String {
    match owner {
        Owner::Account(id) => format!(
            "account/{}",
            world
                .accounts
                .get(id)
                .map(|row| row.name.as_str())
                .unwrap_or_default()
        ),
        Owner::Project(id) => format!(
            "project/{}",
            world
                .projects
                .get(id)
                .map(|row| row.name.as_str())
                .unwrap_or_default()
        ),
        Owner::Domain(id) => format!(
            "domain/{}",
            world
                .domains
                .get(id)
                .map(|row| row.path.as_str())
                .unwrap_or_default()
        ),
    }
}

fn firewall_rows(world: &World) -> Vec<FirewallRow> {
    let rows = world.firewall_rules.iter().map(|row| FirewallRow {
        id: row.id,
        address: world
            .addresses
            .get(row.address)
            .map(|address| address.address.clone())
            .unwrap_or_default(),
        protocol: row.protocol.clone(),
        ports: row.ports,
        sources: row.sources.clone(),
        state: row.state.text().into(),
        owner: owner_text(world, row.owner),
    });
    rows.collect()
}

fn acl_rows(world: &World) -> Vec<AclRow> {
    let rows = world.acl_items.iter().filter_map(|row| {
        let list = world.acl_lists.get(row.list).filter(|list| list.vpc.is_some())?;
        Some(AclRow {
            id: row.id,
            list: list.name.clone(),
            number: row.number,
            protocol: row.protocol.clone(),
            ports: row.ports,
            sources: row.sources.clone(),
            allow: row.allow,
            reason: row.reason.clone(),
        })
    });
    rows.collect()
}

fn machine_rows(world: &World) -> Vec<MachineRow> {
    let rows = world.machines.iter().map(|row| MachineRow {
        id: row.id,
        name: row.name.clone(),
        state: row.state.text().into(),
        owner: owner_text(world, row.owner),
        cards: row
            .nics
            .iter()
            .map(|nic| {
                (
                    world
                        .networks
                        .get(nic.network)
                        .map(|network| network.name.clone())
                        .unwrap_or_default(),
                    nic.address.clone(),
                )
            })
            .collect(),
    });
    rows.collect()
}
