//! What `CloudStack` answers, as types that can't be wrong.
//!
//! Decides how a JSON value of a server becomes an entity. No value is trusted to have the documented type: numbers
//! arrive as strings, lists are missing or empty, texts are absent or `""`, new states appear in every release. A
//! value that carries no identity (or, for a rule, no port) is no entity: the list it came from is then incomplete
//! and proves nothing. Leaves to others what an entity means for a tenant.

mod address;
mod cidrs;
mod discovery;
mod firewall;
mod ids;
mod job;
mod machine;
mod network;
mod rule;
mod tag;
mod time;
mod wire;

pub use address::{AddressState, PublicIpAddress};
pub use cidrs::CidrList;
pub use discovery::{ApiCommand, Capabilities, Project, ProjectState, Version, Zone};
pub use firewall::{
    AclAction, AclDirection, FirewallRule, NetworkAclItem, NetworkAclList, PortForwardingRule, PortRange,
    RemoteAccessVpn,
};
pub use ids::{
    AclItemId, AclListId, AddressId, FirewallRuleId, JobId, MachineId, MalformedId, NetworkId,
    PortForwardingRuleId, ProjectId, RuleId, VpcId, VpnId, ZoneId,
};
pub use job::{Job, JobStatus};
pub use machine::{Machine, MachineState, Nic};
pub use network::{Network, NetworkKind, NetworkService, ServiceName, Vpc};
pub use rule::{Algorithm, LoadBalancerRule, RuleProtocol, RuleState};
pub use tag::{Tag, TaggedResource};
pub use time::Timestamp;
pub(crate) use wire::{Entity, Fields};

/// Who owns an object: an account by name, or a project.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Owner {
    /// Name of the account; absent for objects of a project.
    pub account: Option<String>,
    /// The project; absent for objects of an account.
    pub project: Option<ProjectId>,
}

impl Owner {
    pub(crate) fn parse(fields: Fields<'_>) -> Self {
        Self {
            account: fields.text("account"),
            project: fields.id("projectid"),
        }
    }
}

#[cfg(test)]
mod tests;
