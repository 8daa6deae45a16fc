//! What is wanted of a balancer, as types that can't be wrong.
//!
//! Decides nothing: how a wish is read and checked is in `wish_wire`, what depends on the network in `network`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use super::sources::Sources;
use crate::cloudstack::FirewallProtocol;
use crate::cloudstack::types::{Algorithm, MachineId, RuleProtocol};
use crate::tenant::NameOrId;

/// UID of a Service, with dashes, lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceUid(String);

impl ServiceUid {
    /// Letters, digits and dashes, at most 64; the rest would break a mark.
    pub fn parse(text: &str) -> Option<Self> {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let sound = !text.is_empty() && text.len() <= 64 && text.bytes().all(legal);
        sound.then(|| Self(text.to_ascii_lowercase()))
    }

    /// The UID itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServiceUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which Service a balancer is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceRef {
    /// Its UID.
    pub uid: ServiceUid,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// What goes over IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// TCP, with or without a PROXY header.
    Tcp,
    /// UDP.
    Udp,
}

impl Transport {
    /// The protocol of firewall rules and ACL items.
    pub const fn firewall(self) -> FirewallProtocol {
        match self {
            Self::Tcp => FirewallProtocol::Tcp,
            Self::Udp => FirewallProtocol::Udp,
        }
    }

    /// The server's word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// What a rule of ours balances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// TCP with a PROXY header towards the machines.
    TcpProxy,
}

impl Protocol {
    /// The word in rule names, which is also the server's.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::TcpProxy => "tcp-proxy",
        }
    }

    /// Reads the word of a rule name.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Tcp, Self::Udp, Self::TcpProxy]
            .into_iter()
            .find(|protocol| protocol.word() == word)
    }

    /// For a rule.
    pub fn rule(self) -> RuleProtocol {
        match self {
            Self::Tcp => RuleProtocol::Tcp,
            Self::Udp => RuleProtocol::Udp,
            Self::TcpProxy => RuleProtocol::TcpProxy,
        }
    }

    /// What goes over IP.
    pub const fn transport(self) -> Transport {
        match self {
            Self::Tcp | Self::TcpProxy => Transport::Tcp,
            Self::Udp => Transport::Udp,
        }
    }
}

/// What goes over IP for a rule as a server shows it; no protocol means TCP.
pub(crate) fn transport_of(protocol: Option<&RuleProtocol>) -> Transport {
    match protocol {
        Some(RuleProtocol::Udp) => Transport::Udp,
        Some(RuleProtocol::Tcp | RuleProtocol::TcpProxy | RuleProtocol::Ssl | RuleProtocol::Other(_))
        | None => Transport::Tcp,
    }
}

/// Whose names rules carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// The Go controller's.
    Apache,
    /// The Leaseweb line's.
    Leaseweb,
}

/// A port that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WishPort {
    /// Name of the Service's port, for messages.
    pub name: String,
    /// What the rule balances.
    pub protocol: Protocol,
    /// The public port.
    pub port: u16,
    /// Port of the machines.
    pub node_port: u16,
}

/// The nodes that may serve.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WishMembers {
    /// Machines behind nodes, with the node's name.
    pub machines: BTreeMap<MachineId, String>,
    /// Nodes whose machine is not known yet.
    pub unresolved: Vec<String>,
    /// Machines that are proved gone.
    pub gone: BTreeSet<MachineId>,
}

impl WishMembers {
    /// Whether no node at all was named.
    pub fn is_empty(&self) -> bool {
        self.machines.is_empty() && self.unresolved.is_empty() && self.gone.is_empty()
    }
}

/// What a controller that came before says of the address it used. A hint: anybody in the namespace can edit it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdoptionHint {
    /// The address that was asked for, as it stands.
    pub load_balancer_ip: String,
    /// That controller noted that it took the address.
    pub ip_associated_by_controller: bool,
}

/// The dialect of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DialectWish {
    /// For rules of a Service that has none yet.
    pub kind: Dialect,
    /// Part of Leaseweb names; empty if there is none.
    pub cluster_name: String,
}

/// What is wanted of a balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// At least one; no public port twice.
    pub ports: Vec<WishPort>,
    /// The nodes.
    pub members: WishMembers,
    /// Who may reach it.
    pub sources: Sources,
    /// The address asked for.
    pub requested: Option<IpAddr>,
    /// Never release the address.
    pub keep_address: bool,
    /// The network asked for.
    pub network: Option<NameOrId>,
    /// How members are picked.
    pub algorithm: Algorithm,
    /// Whose names.
    pub dialect: DialectWish,
    /// Id of a plan that replaces all running members, which a person accepted.
    pub accept_replace: String,
    /// Looked at when rules are adopted.
    pub adoption: AdoptionHint,
}

impl Wish {
    /// The wanted port with this number.
    pub fn port(&self, number: u16) -> Option<&WishPort> {
        self.ports.iter().find(|port| port.port == number)
    }

    /// Whether any port sends a PROXY header.
    pub fn is_proxy(&self) -> bool {
        self.ports.iter().any(|port| port.protocol == Protocol::TcpProxy)
    }
}
