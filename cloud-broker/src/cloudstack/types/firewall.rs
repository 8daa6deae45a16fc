//! What lets traffic through besides a balancer: firewall rules, network ACLs, and other uses of an address.

use super::wire::{Entity, Fields};
use super::{
    AclItemId, AclListId, AddressId, CidrList, FirewallRuleId, NetworkId, PortForwardingRuleId, RuleState,
    Tag, VpcId, VpnId,
};

/// First and last port, both inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortRange {
    /// First port.
    pub start: u16,
    /// Last port.
    pub end: u16,
}

impl PortRange {
    /// A range of one port.
    pub fn single(port: u16) -> Self {
        Self {
            start: port,
            end: port,
        }
    }

    /// Whether a port is inside.
    pub fn contains(self, port: u16) -> bool {
        (self.start..=self.end).contains(&port)
    }

    fn parse(fields: Fields<'_>) -> Option<Self> {
        let start = fields.small("startport")?;
        Some(Self {
            start,
            end: fields.small("endport").unwrap_or(start),
        })
    }
}

/// A firewall rule of a public address in an isolated network.
#[derive(Debug, Clone, PartialEq)]
pub struct FirewallRule {
    /// Its id.
    pub id: FirewallRuleId,
    /// The address it opens.
    pub address_id: Option<AddressId>,
    /// Protocol, lower case: `tcp`, `udp`, `icmp`.
    pub protocol: String,
    /// The ports; all of them if absent.
    pub ports: Option<PortRange>,
    /// Sources that may enter; servers before 4.19 store an empty list as empty.
    pub sources: CidrList,
    /// The guest network.
    pub network_id: Option<NetworkId>,
    /// Where it stands.
    pub state: RuleState,
    /// Its tags.
    pub tags: Vec<Tag>,
}

impl Entity for FirewallRule {
    const KEYS: &'static [&'static str] = &["firewallrule"];

    fn parse(fields: Fields<'_>) -> Option<Self> {
        Some(Self {
            id: fields.id("id")?,
            address_id: fields.id("ipaddressid"),
            protocol: fields.text("protocol").unwrap_or_default().to_ascii_lowercase(),
            ports: PortRange::parse(fields),
            sources: CidrList::parse(&fields.text("cidrlist").unwrap_or_default()),
            network_id: fields.id("networkid"),
            state: RuleState::parse(fields.text("state")),
            tags: fields.tags(),
        })
    }

    fn identity(&self) -> &str {
        self.id.as_str()
    }
}

/// A list of network ACL items. The two default lists belong to no VPC and can't be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkAclList {
    /// Its id.
    pub id: AclListId,
    /// Its name.
    pub name: String,
    /// Free text; empty if none.
    pub description: String,
    /// The VPC it belongs to.
    pub vpc_id: Option<VpcId>,
}

impl Entity for NetworkAclList {
    const KEYS: &'static [&'static str] = &["networkacllist"];

    fn parse(fields: Fields<'_>) -> Option<Self> {
        Some(Self {
            id: fields.id("id")?,
            name: fields.text("name").unwrap_or_default(),
            description: fields.text("description").unwrap_or_default(),
            vpc_id: fields.id("vpcid"),
        })
    }

    fn identity(&self) -> &str {
        self.id.as_str()
    }
}

/// One item of a network ACL list.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkAclItem {
    /// Its id.
    pub id: AclItemId,
    /// The list it is in.
    pub list_id: Option<AclListId>,
    /// Place in the list; the lowest number that fits decides.
    pub number: Option<u32>,
    /// Protocol, lower case: `tcp`, `udp`, `icmp`, `all` or a number.
    pub protocol: String,
    /// The ports; all of them if absent.
    pub ports: Option<PortRange>,
    /// Sources (of ingress); an empty list matches nothing.
    pub sources: CidrList,
    /// Which way.
    pub direction: AclDirection,
    /// What happens to a packet that fits.
    pub action: AclAction,
    /// Free text; empty if none.
    pub reason: String,
    /// Where it stands.
    pub state: RuleState,
}

/// Which way the traffic of an ACL item goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AclDirection {
    /// Into the tier.
    Ingress,
    /// Out of it.
    Egress,
}

/// What an ACL item does to traffic that fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AclAction {
    /// Lets it through.
    Allow,
    /// Drops it.
    Deny,
}

impl Entity for NetworkAclItem {
    const KEYS: &'static [&'static str] = &["networkacl"];

    fn parse(fields: Fields<'_>) -> Option<Self> {
        let is = |name, word: &str| {
            fields
                .text(name)
                .is_some_and(|text| text.eq_ignore_ascii_case(word))
        };
        Some(Self {
            id: fields.id("id")?,
            list_id: fields.id("aclid"),
            number: fields.small("number"),
            protocol: fields.text("protocol").unwrap_or_default().to_ascii_lowercase(),
            ports: PortRange::parse(fields),
            sources: CidrList::parse(&fields.text("cidrlist").unwrap_or_default()),
            direction: if is("traffictype", "egress") {
                AclDirection::Egress
            } else {
                AclDirection::Ingress
            },
            action: if is("action", "deny") {
                AclAction::Deny
            } else {
                AclAction::Allow
            },
            reason: fields.text("reason").unwrap_or_default(),
            state: RuleState::parse(fields.text("state")),
        })
    }

    fn identity(&self) -> &str {
        self.id.as_str()
    }
}

/// A port forwarding rule; here only as a use of an address that holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortForwardingRule {
    /// Its id.
    pub id: PortForwardingRuleId,
    /// The address.
    pub address_id: Option<AddressId>,
    /// First public port.
    pub public_port: Option<u16>,
    /// Last public port.
    pub public_end_port: Option<u16>,
}

impl Entity for PortForwardingRule {
    const KEYS: &'static [&'static str] = &["portforwardingrule"];

    fn parse(fields: Fields<'_>) -> Option<Self> {
        Some(Self {
            id: fields.id("id")?,
            address_id: fields.id("ipaddressid"),
            public_port: fields.small("publicport"),
            public_end_port: fields.small("publicendport"),
        })
    }

    fn identity(&self) -> &str {
        self.id.as_str()
    }
}

/// A remote access VPN; here only as a use of an address that holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteAccessVpn {
    /// Its id.
    pub id: VpnId,
    /// The address.
    pub address_id: Option<AddressId>,
}

impl Entity for RemoteAccessVpn {
    const KEYS: &'static [&'static str] = &["remoteaccessvpn"];

    fn parse(fields: Fields<'_>) -> Option<Self> {
        Some(Self {
            id: fields.id("id")?,
            address_id: fields.id("publicipid"),
        })
    }

    fn identity(&self) -> &str {
        self.id.as_str()
    }
}
