//! Public IP addresses.

use std::net::IpAddr;

use super::wire::{Entity, Fields};
use super::{AddressId, MachineId, NetworkId, Owner, Tag, Timestamp, VpcId, ZoneId};

/// A public IP address, taken or free.
#[derive(Debug, Clone, PartialEq)]
pub struct PublicIpAddress {
    /// Its id; it never changes, whoever holds the address.
    pub id: AddressId,
    /// The address itself.
    pub ip: IpAddr,
    /// Whether it is taken.
    pub state: AddressState,
    /// When it was taken; only while it is.
    pub allocated: Option<Timestamp>,
    /// Where it is.
    pub zone_id: Option<ZoneId>,
    /// The guest network it belongs to. Addresses of a VPC have one only while rules exist on them.
    pub network_id: Option<NetworkId>,
    /// The VPC it belongs to.
    pub vpc_id: Option<VpcId>,
    /// Whether its network hides behind it; it can't be released then.
    pub is_source_nat: bool,
    /// Whether it stands for one machine.
    pub is_static_nat: bool,
    /// Whether the system made it for itself.
    pub is_system: bool,
    /// Whether it may move between zones; the id of such an address ends with its release.
    pub is_portable: bool,
    /// The machine it stands for.
    pub machine_id: Option<MachineId>,
    /// Whether any rule is on it; older servers don't say.
    pub has_rules: Option<bool>,
    /// Account or project; none while it is free.
    pub owner: Owner,
    /// Its tags.
    pub tags: Vec<Tag>,
    /// Whether a job is at work on it.
    pub busy: bool,
}

/// Whether an address is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddressState {
    /// Anybody may take it.
    Free,
    /// Kept for somebody.
    Reserved,
    /// Being taken. Left over, if no job is at work on it.
    Allocating,
    /// Taken.
    Allocated,
    /// Being released. Left over, if no job is at work on it.
    Releasing,
    /// A word of a newer server, or none at all.
    Other(String),
}

impl AddressState {
    /// The server's word.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Free => "Free",
            Self::Reserved => "Reserved",
            Self::Allocating => "Allocating",
            Self::Allocated => "Allocated",
            Self::Releasing => "Releasing",
            Self::Other(text) => text,
        }
    }

    fn parse(text: Option<String>) -> Self {
        let text = text.unwrap_or_default();
        match text.as_str() {
            "Free" => Self::Free,
            "Reserved" => Self::Reserved,
            "Allocating" => Self::Allocating,
            "Allocated" => Self::Allocated,
            "Releasing" => Self::Releasing,
            _ => Self::Other(text),
        }
    }
}

impl Entity for PublicIpAddress {
    const KEYS: &'static [&'static str] = &["publicipaddress", "ipaddress"];

    fn parse(fields: Fields<'_>) -> Option<Self> {
        Some(Self {
            id: fields.id("id")?,
            ip: fields.ip("ipaddress")?,
            state: AddressState::parse(fields.text("state")),
            allocated: fields.time("allocated"),
            zone_id: fields.id("zoneid"),
            network_id: fields.id("associatednetworkid"),
            vpc_id: fields.id("vpcid"),
            is_source_nat: fields.flag("issourcenat").unwrap_or(false),
            is_static_nat: fields.flag("isstaticnat").unwrap_or(false),
            is_system: fields.flag("issystem").unwrap_or(false),
            is_portable: fields.flag("isportable").unwrap_or(false),
            machine_id: fields.id("virtualmachineid"),
            has_rules: fields.flag("hasrules"),
            owner: Owner::parse(fields),
            tags: fields.tags(),
            busy: fields.raw("jobid").is_some(),
        })
    }

    fn identity(&self) -> &str {
        self.id.as_str()
    }
}
