//! Guest networks, their services, and VPCs.

use super::wire::{Entity, Fields};
use super::{AclListId, NetworkId, Owner, Tag, VpcId, ZoneId};

/// A guest network.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    /// Its id.
    pub id: NetworkId,
    /// Its name; not unique.
    pub name: String,
    /// What sort of network it is.
    pub kind: NetworkKind,
    /// The server's word, such as `Allocated` (never used), `Implemented`, `Setup`.
    pub state: String,
    /// Where it is.
    pub zone_id: Option<ZoneId>,
    /// Name of that zone.
    pub zone_name: Option<String>,
    /// The VPC it is a tier of.
    pub vpc_id: Option<VpcId>,
    /// The ACL list attached to a tier.
    pub acl_id: Option<AclListId>,
    /// Name of that list; `default_allow` and `default_deny` can't be changed.
    pub acl_name: Option<String>,
    /// Whether one address may serve several purposes.
    pub conserve_mode: Option<bool>,
    /// What its router does.
    pub services: Vec<NetworkService>,
    /// Account or project.
    pub owner: Owner,
    /// Its tags.
    pub tags: Vec<Tag>,
}

impl Network {
    /// A service of the network, if it has it.
    pub fn service(&self, name: ServiceName) -> Option<&NetworkService> {
        self.services.iter().find(|service| service.name == name.as_str())
    }

    /// Whether the network has a service.
    pub fn has(&self, name: ServiceName) -> bool {
        self.service(name).is_some()
    }
}

/// The sort of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkKind {
    /// Behind a router of its own (a tier of a VPC included).
    Isolated,
    /// Shared between accounts.
    Shared,
    /// A bare segment.
    L2,
    /// A word of a newer server, or none at all.
    Other(String),
}

/// Services that this program asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceName {
    /// Load balancing.
    LoadBalancer,
    /// Firewall rules of public addresses.
    Firewall,
    /// Network ACLs (tiers of a VPC).
    NetworkAcl,
    /// A router that hides the network behind one address.
    SourceNat,
    /// One public address for one machine.
    StaticNat,
    /// Name service; port 53 of the source NAT address is taken by it.
    Dns,
}

impl ServiceName {
    /// The server's spelling.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LoadBalancer => "Lb",
            Self::Firewall => "Firewall",
            Self::NetworkAcl => "NetworkACL",
            Self::SourceNat => "SourceNat",
            Self::StaticNat => "StaticNat",
            Self::Dns => "Dns",
        }
    }
}

/// A service of a network with what its provider says it can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkService {
    /// The server's name of it; the case matters.
    pub name: String,
    /// Who provides it, such as `VirtualRouter`; older servers don't say.
    pub providers: Vec<String>,
    /// Names and values, such as `SupportedProtocols` and `tcp, udp, tcp-proxy`. Not everything promised is kept:
    /// routers advertise `udp` and refuse it.
    pub capabilities: Vec<(String, String)>,
}

impl NetworkService {
    /// The words of a capability, lower case, separated by commas or blanks.
    pub fn words(&self, capability: &str) -> Vec<String> {
        self.capabilities
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case(capability))
            .flat_map(|(_, value)| value.split([',', ' ']))
            .filter(|word| !word.is_empty())
            .map(str::to_ascii_lowercase)
            .collect()
    }

    fn parse(fields: Fields<'_>) -> Option<Self> {
        let capability =
            |entry: Fields<'_>| Some((entry.text("name")?, entry.text("value").unwrap_or_default()));
        Some(Self {
            name: fields.text("name")?,
            providers: fields
                .list("provider")
                .filter_map(|entry| entry.text("name"))
                .collect(),
            capabilities: fields.list("capability").filter_map(capability).collect(),
        })
    }
}

impl Entity for Network {
    const KEYS: &'static [&'static str] = &["network"];

    fn parse(fields: Fields<'_>) -> Option<Self> {
        Some(Self {
            id: fields.id("id")?,
            name: fields.text("name").unwrap_or_default(),
            kind: NetworkKind::parse(fields.text("type")),
            state: fields.text("state").unwrap_or_default(),
            zone_id: fields.id("zoneid"),
            zone_name: fields.text("zonename"),
            vpc_id: fields.id("vpcid"),
            acl_id: fields.id("aclid"),
            acl_name: fields.text("aclname"),
            conserve_mode: fields.flag("networkofferingconservemode"),
            services: fields.list("service").filter_map(NetworkService::parse).collect(),
            owner: Owner::parse(fields),
            tags: fields.tags(),
        })
    }

    fn identity(&self) -> &str {
        self.id.as_str()
    }
}

impl NetworkKind {
    fn parse(text: Option<String>) -> Self {
        let text = text.unwrap_or_default();
        match text.to_ascii_lowercase().as_str() {
            "isolated" => Self::Isolated,
            "shared" => Self::Shared,
            "l2" => Self::L2,
            _ => Self::Other(text),
        }
    }
}

/// A virtual private cloud.
#[derive(Debug, Clone, PartialEq)]
pub struct Vpc {
    /// Its id.
    pub id: VpcId,
    /// Its name.
    pub name: String,
    /// The server's word, such as `Enabled`.
    pub state: String,
    /// Where it is.
    pub zone_id: Option<ZoneId>,
    /// Its tiers, as far as the server lists them with it.
    pub tiers: Vec<NetworkId>,
    /// Account or project.
    pub owner: Owner,
}

impl Entity for Vpc {
    const KEYS: &'static [&'static str] = &["vpc"];

    fn parse(fields: Fields<'_>) -> Option<Self> {
        Some(Self {
            id: fields.id("id")?,
            name: fields.text("name").unwrap_or_default(),
            state: fields.text("state").unwrap_or_default(),
            zone_id: fields.id("zoneid"),
            tiers: fields.list("network").filter_map(|tier| tier.id("id")).collect(),
            owner: Owner::parse(fields),
        })
    }

    fn identity(&self) -> &str {
        self.id.as_str()
    }
}
