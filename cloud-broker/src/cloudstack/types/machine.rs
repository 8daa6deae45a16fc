//! Virtual machines and their network interfaces.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::wire::{Entity, Fields};
use super::{AddressId, MachineId, NetworkId, Owner, Tag, Timestamp, ZoneId};

/// A virtual machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// Its id, which is also the system UUID that the guest sees.
    pub id: MachineId,
    /// Its host name; unique inside a network only.
    pub name: String,
    /// The name people see.
    pub display_name: String,
    /// What it is doing.
    pub state: MachineState,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// Where it is.
    pub zone_id: Option<ZoneId>,
    /// Name of that zone.
    pub zone_name: Option<String>,
    /// Name of its service offering.
    pub offering: Option<String>,
    /// Its interfaces, in the server's order; the first one is not special.
    pub nics: Vec<Nic>,
    /// The address that static NAT gives it.
    pub public_ip: Option<IpAddr>,
    /// Account or project.
    pub owner: Owner,
    /// Its tags.
    pub tags: Vec<Tag>,
    /// Whether a job is at work on it.
    pub busy: bool,
}

impl Machine {
    /// The default interface.
    pub fn default_nic(&self) -> Option<&Nic> {
        self.nics.iter().find(|nic| nic.is_default)
    }

    /// The interface in a network.
    pub fn nic_in(&self, network: &NetworkId) -> Option<&Nic> {
        self.nics
            .iter()
            .find(|nic| nic.network_id.as_ref() == Some(network))
    }
}

/// A network interface of a machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Nic {
    /// Its network.
    pub network_id: Option<NetworkId>,
    /// Name of that network.
    pub network_name: Option<String>,
    /// Its first IPv4 address; missing in L2 networks and before the first start.
    pub ipv4: Option<Ipv4Addr>,
    /// Its IPv6 address.
    pub ipv6: Option<Ipv6Addr>,
    /// Further addresses.
    pub secondary: Vec<IpAddr>,
    /// The public address that static NAT gives it (newer servers say it per interface).
    pub public_ip: Option<IpAddr>,
    /// The id of that address.
    pub public_ip_id: Option<AddressId>,
    /// Whether it holds the default route.
    pub is_default: bool,
}

/// What a machine is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the server's own words")]
pub enum MachineState {
    Starting,
    Running,
    Stopping,
    Stopped,
    Shutdown,
    Migrating,
    Destroyed,
    Expunging,
    Error,
    Unknown,
    /// A word of a newer server, or none at all.
    Other(String),
}

impl MachineState {
    fn parse(text: Option<String>) -> Self {
        let text = text.unwrap_or_default();
        match text.as_str() {
            "Starting" => Self::Starting,
            "Running" => Self::Running,
            "Stopping" => Self::Stopping,
            "Stopped" => Self::Stopped,
            "Shutdown" => Self::Shutdown,
            "Migrating" => Self::Migrating,
            "Destroyed" => Self::Destroyed,
            "Expunging" => Self::Expunging,
            "Error" => Self::Error,
            "Unknown" => Self::Unknown,
            _ => Self::Other(text),
        }
    }
}

impl Entity for Machine {
    const KEYS: &'static [&'static str] = &["virtualmachine", "loadbalancerruleinstance"];

    fn parse(fields: Fields<'_>) -> Option<Self> {
        let name = fields
            .text("name")
            .or_else(|| fields.text("displayname"))
            .unwrap_or_default();
        Some(Self {
            id: fields.id("id")?,
            display_name: fields.text("displayname").unwrap_or_else(|| name.clone()),
            name,
            state: MachineState::parse(fields.text("state")),
            created: fields.time("created"),
            zone_id: fields.id("zoneid"),
            zone_name: fields.text("zonename"),
            offering: fields.text("serviceofferingname"),
            nics: fields.list("nic").map(Nic::parse).collect(),
            public_ip: fields.ip("publicip"),
            owner: Owner::parse(fields),
            tags: fields.tags(),
            busy: fields.raw("jobid").is_some(),
        })
    }

    fn identity(&self) -> &str {
        self.id.as_str()
    }
}

impl Nic {
    fn parse(fields: Fields<'_>) -> Self {
        let v4 = |name| match fields.ip(name) {
            Some(IpAddr::V4(ip)) => Some(ip),
            Some(IpAddr::V6(_)) | None => None,
        };
        let v6 = |name| match fields.ip(name) {
            Some(IpAddr::V6(ip)) => Some(ip),
            Some(IpAddr::V4(_)) | None => None,
        };
        Self {
            network_id: fields.id("networkid"),
            network_name: fields.text("networkname"),
            ipv4: v4("ipaddress"),
            ipv6: v6("ip6address"),
            secondary: fields
                .list("secondaryip")
                .filter_map(|entry| entry.ip("ipaddress"))
                .collect(),
            public_ip: fields.ip("publicip"),
            public_ip_id: fields.id("publicipid"),
            is_default: fields.flag("isdefault").unwrap_or(false),
        }
    }
}
