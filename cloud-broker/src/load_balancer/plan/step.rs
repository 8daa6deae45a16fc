//! Steps of a plan: what is done, to what, why, and what traffic notices.

use std::net::IpAddr;

use crate::cloudstack::types::{
    AclItemId, AddressId, FirewallRuleId, LoadBalancerRule, MachineId, RuleId, Tag,
};
use crate::cloudstack::{Associate, CreateAclItem, CreateFirewallRule, CreateRule, RuleChange};

/// What traffic notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Impact {
    /// Nothing.
    None,
    /// Single connections may break.
    Brief,
    /// A port or address stops serving.
    Outage,
}

/// When a step has its turn. What of it begins together is in `beside`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// What was left half done.
    Repair,
    /// Marks and whatever a rule's own fields say.
    Update,
    /// An address.
    Acquire,
    /// Rules and what lets traffic in to them, port by port.
    Build,
    /// New members.
    Assign,
    /// Rules that are in the way of their successors, one at a time: each successor serves before the next one goes.
    Replace,
    /// Old members.
    Unassign,
    /// What let traffic in to what is no longer wanted.
    Close,
    /// Rules that are no longer wanted.
    Clear,
    /// Marks that speak of what is closed now.
    Settle,
    /// Addresses that nobody is sent to any more.
    Leave,
}

/// One change to the cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Take a chosen address.
    Associate {
        /// The request.
        request: Associate,
        /// The address's id.
        address: AddressId,
    },
    /// Make a rule.
    CreateRule {
        /// The rule.
        rule: CreateRule,
        /// The address it is on.
        ip: IpAddr,
        /// The server may put it into another network than is meant, as it does in VPCs.
        check_network: bool,
    },
    /// Change a rule.
    UpdateRule {
        /// The rule.
        rule: RuleId,
        /// Its present name.
        name: String,
        /// The change.
        change: RuleChange,
    },
    /// Delete a rule.
    DeleteRule {
        /// The rule.
        rule: RuleId,
        /// Its name.
        name: String,
        /// The address it is on.
        address: Option<AddressId>,
    },
    /// Add members.
    Assign {
        /// The rule.
        rule: RuleId,
        /// Its name.
        name: String,
        /// The machines.
        machines: Vec<MachineId>,
    },
    /// Remove members.
    Remove {
        /// The rule.
        rule: RuleId,
        /// Its name.
        name: String,
        /// The machines.
        machines: Vec<MachineId>,
    },
    /// Open the firewall.
    OpenFirewall {
        /// The rule.
        rule: CreateFirewallRule,
        /// The address it is for.
        ip: IpAddr,
    },
    /// Close the firewall.
    CloseFirewall {
        /// The rule.
        rule: FirewallRuleId,
        /// What it opened, for people.
        what: String,
    },
    /// Make an ACL item.
    AllowInAcl(CreateAclItem),
    /// Delete an ACL item.
    DropFromAcl {
        /// The item.
        item: AclItemId,
        /// What it allowed, for people.
        what: String,
    },
    /// Tag an address.
    Tag {
        /// The address.
        address: AddressId,
        /// Its digits.
        ip: IpAddr,
        /// The tag.
        tag: Tag,
    },
    /// Remove our tag.
    Untag {
        /// The address.
        address: AddressId,
        /// Its digits.
        ip: IpAddr,
        /// The tag.
        tag: Tag,
    },
    /// Give an address back.
    Release {
        /// The address.
        address: AddressId,
        /// Its digits.
        ip: IpAddr,
    },
}

impl Step {
    /// The end of a rule.
    pub(super) fn delete(rule: &LoadBalancerRule) -> Self {
        Self::DeleteRule {
            rule: rule.id.clone(),
            name: rule.name.clone(),
            address: rule.address_id.clone(),
        }
    }

    /// What is done.
    pub(crate) fn action(&self) -> &'static str {
        match self {
            Self::Associate { .. } => "associate address",
            Self::CreateRule { .. } => "create rule",
            Self::UpdateRule { .. } => "update rule",
            Self::DeleteRule { .. } => "delete rule",
            Self::Assign { .. } => "assign members",
            Self::Remove { .. } => "remove members",
            Self::OpenFirewall { .. } => "open firewall",
            Self::CloseFirewall { .. } => "close firewall",
            Self::AllowInAcl(_) => "allow in acl",
            Self::DropFromAcl { .. } => "drop from acl",
            Self::Tag { .. } => "tag address",
            Self::Untag { .. } => "untag address",
            Self::Release { .. } => "release address",
        }
    }

    /// To what.
    pub(crate) fn object(&self) -> String {
        let members = |name: &str, machines: &[MachineId]| {
            let ids: Vec<&str> = machines.iter().map(MachineId::as_str).collect();
            format!("{} of rule {name}", ids.join(", "))
        };
        match self {
            Self::Associate { request, .. } => request.ip.to_string(),
            Self::CreateRule { rule, ip, .. } => format!("rule {} on {ip}", rule.name),
            Self::UpdateRule { name, change, .. } => format!("{} of rule {name}", fields(change)),
            Self::DeleteRule { name, .. } => format!("rule {name}"),
            Self::Assign { name, machines, .. } | Self::Remove { name, machines, .. } => {
                members(name, machines)
            }
            Self::OpenFirewall { rule, ip } => {
                format!(
                    "{}/{} of {ip} for {}",
                    rule.protocol.as_str(),
                    rule.ports.start,
                    rule.sources
                )
            }
            Self::CloseFirewall { what, .. } | Self::DropFromAcl { what, .. } => what.clone(),
            Self::AllowInAcl(item) => {
                let protocol = item.protocol.as_str();
                format!(
                    "{protocol}/{} for {} as number {}",
                    item.ports.start, item.sources, item.number
                )
            }
            Self::Tag { ip, .. } | Self::Untag { ip, .. } | Self::Release { ip, .. } => ip.to_string(),
        }
    }

    /// The rule whose confirmed membership the step puts in doubt.
    pub(crate) fn rule(&self) -> Option<&RuleId> {
        match self {
            Self::UpdateRule { rule, .. }
            | Self::DeleteRule { rule, .. }
            | Self::Assign { rule, .. }
            | Self::Remove { rule, .. } => Some(rule),
            Self::Associate { .. }
            | Self::CreateRule { .. }
            | Self::OpenFirewall { .. }
            | Self::CloseFirewall { .. }
            | Self::AllowInAcl(_)
            | Self::DropFromAcl { .. }
            | Self::Tag { .. }
            | Self::Untag { .. }
            | Self::Release { .. } => None,
        }
    }
}

fn fields(change: &RuleChange) -> String {
    let mut named = Vec::new();
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            named.push(if value.is_empty() {
                name.to_owned()
            } else {
                format!("{name} {value}")
            });
        }
    };
    add("name", change.name.clone());
    add(
        "protocol",
        change
            .protocol
            .as_ref()
            .map(|protocol| protocol.as_str().to_owned()),
    );
    add(
        "algorithm",
        change
            .algorithm
            .as_ref()
            .map(|algorithm| algorithm.as_str().to_owned()),
    );
    add("sources", change.sources.as_ref().map(ToString::to_string));
    add("mark", change.description.clone().map(|_| String::new()));
    named.join(", ")
}

/// A step with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    /// When it has its turn.
    pub phase: Phase,
    /// The step.
    pub step: Step,
    /// Why.
    pub reason: String,
    /// What traffic notices.
    pub impact: Impact,
}
