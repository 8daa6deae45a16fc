//! Load balancer rules.

use std::net::IpAddr;

use super::wire::{Entity, Fields};
use super::{AddressId, CidrList, NetworkId, Owner, RuleId, Tag, ZoneId};

/// A load balancer rule: one public port of one address to one port of a set of machines in one network.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadBalancerRule {
    /// Its id.
    pub id: RuleId,
    /// Its name; not unique.
    pub name: String,
    /// Free text; empty if none.
    pub description: String,
    /// The public address.
    pub address_id: Option<AddressId>,
    /// The same as an IP address.
    pub ip: Option<IpAddr>,
    /// Port on the public address.
    pub public_port: u16,
    /// Port of the machines.
    pub private_port: u16,
    /// How members are picked. Servers store any text that an update gives.
    pub algorithm: Algorithm,
    /// The protocol; `None` if the rule was made without one, which means TCP.
    pub protocol: Option<RuleProtocol>,
    /// The guest network, which may differ from the one asked for.
    pub network_id: Option<NetworkId>,
    /// Sources that the balancer itself lets through; empty is no restriction.
    pub sources: CidrList,
    /// Where it stands.
    pub state: RuleState,
    /// Where it is.
    pub zone_id: Option<ZoneId>,
    /// Account or project.
    pub owner: Owner,
    /// Its tags.
    pub tags: Vec<Tag>,
}

/// How a balancer picks a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Algorithm {
    /// In turn.
    RoundRobin,
    /// The one with the fewest connections.
    LeastConnections,
    /// By the client's address.
    Source,
    /// Anything else, as stored.
    Other(String),
}

impl Algorithm {
    /// Reads the server's word, in any case.
    pub fn parse(text: &str) -> Self {
        match text.to_ascii_lowercase().as_str() {
            "roundrobin" => Self::RoundRobin,
            "leastconn" => Self::LeastConnections,
            "source" => Self::Source,
            _ => Self::Other(text.to_owned()),
        }
    }

    /// The server's word.
    pub fn as_str(&self) -> &str {
        match self {
            Self::RoundRobin => "roundrobin",
            Self::LeastConnections => "leastconn",
            Self::Source => "source",
            Self::Other(text) => text,
        }
    }
}

/// What a rule balances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleProtocol {
    /// TCP.
    Tcp,
    /// UDP; refused by routers.
    Udp,
    /// TCP with a PROXY header towards the machines.
    TcpProxy,
    /// TLS ended at the balancer.
    Ssl,
    /// Anything else; servers before 4.22 store any text.
    Other(String),
}

impl RuleProtocol {
    /// Reads the server's word, in any case.
    pub fn parse(text: &str) -> Self {
        match text.to_ascii_lowercase().as_str() {
            "tcp" => Self::Tcp,
            "udp" => Self::Udp,
            "tcp-proxy" => Self::TcpProxy,
            "ssl" => Self::Ssl,
            _ => Self::Other(text.to_owned()),
        }
    }

    /// The server's word.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::TcpProxy => "tcp-proxy",
            Self::Ssl => "ssl",
            Self::Other(text) => text,
        }
    }
}

/// Where a rule of any sort stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleState {
    /// Not at the router: no member yet, or a job is at work, or the last change failed.
    Add,
    /// At the router.
    Active,
    /// On its way out, or left so by a failure. It never serves.
    Deleting,
    /// Being made.
    Staged,
    /// A word of a newer server, or none at all.
    Other(String),
}

impl RuleState {
    pub(crate) fn parse(text: Option<String>) -> Self {
        let text = text.unwrap_or_default();
        match text.as_str() {
            "Add" => Self::Add,
            "Active" => Self::Active,
            "Deleting" | "Revoke" => Self::Deleting,
            "Staged" => Self::Staged,
            _ => Self::Other(text),
        }
    }
}

impl Entity for LoadBalancerRule {
    const KEYS: &'static [&'static str] = &["loadbalancerrule", "loadbalancer"];

    fn parse(fields: Fields<'_>) -> Option<Self> {
        Some(Self {
            id: fields.id("id")?,
            name: fields.text("name").unwrap_or_default(),
            description: fields.text("description").unwrap_or_default(),
            address_id: fields.id("publicipid"),
            ip: fields.ip("publicip"),
            public_port: fields.small("publicport")?,
            private_port: fields.small("privateport")?,
            algorithm: Algorithm::parse(&fields.text("algorithm").unwrap_or_default()),
            protocol: fields.text("protocol").map(|text| RuleProtocol::parse(&text)),
            network_id: fields.id("networkid"),
            sources: CidrList::parse(&fields.text("cidrlist").unwrap_or_default()),
            state: RuleState::parse(fields.text("state")),
            zone_id: fields.id("zoneid"),
            owner: Owner::parse(fields),
            tags: fields.tags(),
        })
    }

    fn identity(&self) -> &str {
        self.id.as_str()
    }
}
