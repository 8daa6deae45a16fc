//! Virtual routers: what the server sends them, and what they really have, which may differ from the database.

pub(crate) mod haproxy;
mod process;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::state::{AddressState, Member, RuleState, World};

/// A load balancer rule as a router has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RouterRule {
    /// Id of the rule.
    pub id: Uuid,
    /// Public address.
    pub address: String,
    /// Public port.
    pub port: u16,
    /// `tcp`, `tcp-proxy` and so on; none was given: plain TCP.
    pub protocol: Option<String>,
    /// Algorithm as sent.
    pub algorithm: String,
    /// Allowed sources, separated by blanks; none: everybody.
    pub sources: Option<String>,
    /// Method of the stickiness policy.
    pub stickiness: Option<String>,
    /// Members: address and port.
    pub members: Vec<(String, u16)>,
    /// Members that the command takes away.
    #[serde(skip)]
    leaving: Vec<(String, u16)>,
    /// The command takes the rule away.
    #[serde(skip)]
    revoked: bool,
}

/// A firewall rule as a router has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RouterFirewallRule {
    /// Id of the rule.
    pub id: Uuid,
    /// `tcp`, `udp` or `icmp`.
    pub protocol: String,
    /// First and last port; none: all.
    pub ports: Option<(u16, u16)>,
    /// Allowed sources.
    pub sources: Vec<String>,
    #[serde(skip)]
    known: bool,
    #[serde(skip)]
    revoked: bool,
}

/// An item of a network ACL as a router has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RouterAclItem {
    /// Its number.
    pub number: i64,
    /// Protocol.
    pub protocol: String,
    /// First and last port.
    pub ports: Option<(i64, i64)>,
    /// Networks, separated by commas.
    pub sources: String,
    /// Incoming or outgoing.
    pub ingress: bool,
    /// Lets through or drops.
    pub allow: bool,
}

/// What one router has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Router {
    /// Load balancer rules by network.
    pub balancers: BTreeMap<Uuid, Vec<RouterRule>>,
    /// Firewall rules by public address. Only isolated networks drop what no rule allows.
    pub firewall: BTreeMap<String, Vec<RouterFirewallRule>>,
    /// ACL items by tier.
    pub acls: BTreeMap<Uuid, Vec<RouterAclItem>>,
    /// A VPC's router: ACLs instead of a firewall.
    pub vpc: bool,
}

/// Something that a router was told to do wrong.
#[derive(Debug, Clone)]
pub(crate) struct Behaviour {
    pub(crate) command: String,
    pub(crate) wait: Duration,
    pub(crate) refuse: bool,
    pub(crate) number: u64,
}

/// A command that was sent, for tests.
#[derive(Debug, Clone, Serialize)]
pub struct Sent {
    /// The job that sent it.
    pub job: Uuid,
    /// The command with its main fields.
    pub command: Value,
}

/// A public address in a command.
#[derive(Debug, Clone)]
pub(crate) struct SentAddress {
    address: String,
    source_nat: bool,
    add: bool,
}

/// What goes to a router.
#[derive(Debug, Clone)]
pub(crate) enum Command {
    Addresses {
        vpc: bool,
        addresses: Vec<SentAddress>,
    },
    Balancers {
        network: Uuid,
        vpc: bool,
        rules: Vec<RouterRule>,
    },
    Firewall {
        address: String,
        rules: Vec<RouterFirewallRule>,
    },
    Acl {
        network: Uuid,
        items: Vec<RouterAclItem>,
    },
}

impl Command {
    /// All public addresses of a network, or of the tiers of a VPC that have rules.
    pub(crate) fn addresses(world: &World, network: Uuid) -> Self {
        let vpc = world.networks.get(network).and_then(|network| network.vpc);
        let mut addresses: Vec<SentAddress> = world
            .addresses
            .iter()
            .filter(|row| row.network == Some(network) && row.state != AddressState::Free)
            .map(|row| SentAddress {
                address: row.address.clone(),
                source_nat: row.source_nat,
                add: row.state != AddressState::Releasing,
            })
            .collect();
        addresses.sort_by_key(|address| !address.source_nat);
        Self::Addresses {
            vpc: vpc.is_some(),
            addresses,
        }
    }

    /// The whole load balancer configuration of a network.
    pub(crate) fn balancers(world: &World, network: Uuid) -> Self {
        let vpc = world
            .networks
            .get(network)
            .is_some_and(|network| network.vpc.is_some());
        let rules = world
            .rules
            .iter()
            .filter(|rule| rule.network == network)
            .map(|rule| {
                let member = |member: &Member| (member.address.clone(), rule.private_port);
                let revoked = rule.state == RuleState::Deleting;
                RouterRule {
                    id: rule.id,
                    address: world
                        .addresses
                        .get(rule.address)
                        .map(|row| row.address.clone())
                        .unwrap_or_default(),
                    port: rule.public_port,
                    protocol: rule.protocol.clone(),
                    algorithm: rule.algorithm.clone(),
                    sources: rule
                        .sources
                        .as_ref()
                        .filter(|sources| !sources.is_empty())
                        .map(|sources| sources.replace(',', " ")),
                    stickiness: world
                        .policies
                        .iter()
                        .rev()
                        .find(|policy| policy.rule == rule.id && policy.state != RuleState::Deleting)
                        .map(|policy| policy.method.clone()),
                    members: rule
                        .members
                        .iter()
                        .filter(|of| !of.leaving && !revoked)
                        .map(member)
                        .collect(),
                    leaving: rule
                        .members
                        .iter()
                        .filter(|of| of.leaving || revoked)
                        .map(member)
                        .collect(),
                    revoked,
                }
            });
        Self::Balancers {
            network,
            vpc,
            rules: rules.collect(),
        }
    }

    /// All firewall rules of a public address.
    pub(crate) fn firewall(world: &World, address: Uuid) -> Self {
        let rules = world.firewall_on(address).map(|rule| RouterFirewallRule {
            id: rule.id,
            protocol: rule.protocol.clone(),
            ports: rule.ports,
            sources: rule.sources.clone(),
            known: rule.state == RuleState::Active,
            revoked: rule.state == RuleState::Deleting,
        });
        Self::Firewall {
            address: world
                .addresses
                .get(address)
                .map(|row| row.address.clone())
                .unwrap_or_default(),
            rules: rules.collect(),
        }
    }

    /// All items of the list that a tier uses.
    pub(crate) fn acl(world: &World, network: Uuid) -> Self {
        let list = world.networks.get(network).and_then(|network| network.acl);
        let mut items: Vec<RouterAclItem> = world
            .acl_items
            .iter()
            .filter(|item| Some(item.list) == list && item.state != RuleState::Deleting)
            .map(|item| RouterAclItem {
                number: item.number,
                protocol: item.protocol.clone(),
                ports: item.ports,
                sources: item.sources.clone(),
                ingress: item.ingress,
                allow: item.allow,
            })
            .collect();
        items.sort_by_key(|item| item.number);
        Self::Acl { network, items }
    }

    /// Name of the command, which faults refer to.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Addresses { vpc: false, .. } => "IpAssocCommand",
            Self::Addresses { vpc: true, .. } => "IpAssocVpcCommand",
            Self::Balancers { .. } => "LoadBalancerConfigCommand",
            Self::Firewall { .. } => "SetFirewallRulesCommand",
            Self::Acl { .. } => "SetNetworkACLCommand",
        }
    }

    /// The command with its main fields; numbers and flags are texts there.
    pub(crate) fn shown(&self) -> Value {
        match self {
            Self::Addresses { addresses, .. } => {
                let shown: Vec<Value> = addresses
                    .iter()
                    .map(|row| json!({ "publicIp": row.address, "sourceNat": row.source_nat.to_string(), "add": row.add.to_string() }))
                    .collect();
                json!({ "command": self.name(), "ipAddresses": shown })
            }
            Self::Balancers { rules, .. } => {
                json!({ "command": self.name(), "loadBalancers": rules.iter().map(RouterRule::shown).collect::<Vec<_>>() })
            }
            Self::Firewall { address, rules } => {
                let shown: Vec<Value> = rules
                    .iter()
                    .map(|rule| {
                        json!({
                            "srcIp": address, "protocol": rule.protocol, "revoked": rule.revoked.to_string(), "alreadyAdded": rule.known.to_string(),
                            "srcPortRange": rule.ports.map(|ports| [ports.0.to_string(), ports.1.to_string()]), "sourceCidrList": rule.sources,
                        })
                    })
                    .collect();
                json!({ "command": self.name(), "rules": shown })
            }
            Self::Acl { items, .. } => json!({ "command": self.name(), "rules": items }),
        }
    }
}

impl RouterRule {
    fn shown(&self) -> Value {
        let member = |revoked: bool| move |(address, port): &(String, u16)| json!({ "destIp": address, "destPort": port.to_string(), "revoked": revoked.to_string() });
        let members: Vec<Value> = self
            .members
            .iter()
            .map(member(false))
            .chain(self.leaving.iter().map(member(true)))
            .collect();
        let mut shown = json!({
            "srcIp": self.address, "srcPort": self.port.to_string(), "algorithm": self.algorithm, "revoked": self.revoked.to_string(), "destinations": members,
        });
        if let Value::Object(fields) = &mut shown {
            if let Some(protocol) = &self.protocol {
                fields.insert("lbProtocol".into(), json!(protocol));
            }
            if let Some(sources) = &self.sources {
                fields.insert("cidrList".into(), json!(sources));
            }
        }
        shown
    }
}

impl Router {
    /// Takes a command in. True when something changed that packets see.
    pub(crate) fn apply(&mut self, command: Command) -> bool {
        match command {
            Command::Addresses { vpc, addresses } => {
                self.vpc |= vpc;
                let before = self.firewall.len();
                self.firewall
                    .retain(|address, _| !addresses.iter().any(|row| !row.add && row.address == *address));
                self.firewall.len() < before
            }
            Command::Balancers { network, vpc, rules } => {
                self.vpc |= vpc;
                let rules: Vec<RouterRule> = rules
                    .into_iter()
                    .filter(|rule| !rule.revoked)
                    .map(|rule| RouterRule {
                        leaving: Vec::new(),
                        ..rule
                    })
                    .collect();
                if self.balancers.get(&network) == Some(&rules) {
                    return false;
                }
                self.balancers.insert(network, rules);
                true
            }
            Command::Firewall { address, rules } => {
                let rules: Vec<RouterFirewallRule> = rules.into_iter().filter(|rule| !rule.revoked).collect();
                if rules.is_empty() {
                    self.firewall.remove(&address)
                } else {
                    self.firewall.insert(address, rules)
                };
                true
            }
            Command::Acl { network, items } => {
                self.acls.insert(network, items);
                true
            }
        }
    }
}
