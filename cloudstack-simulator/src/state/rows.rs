//! The rows of the database. Fields that no command changes stay as the JSON of the seed (`shown`).

use serde_json::{Map, Value};
use uuid::Uuid;

use super::table::Row;
use crate::clock::Stamp;

/// Fields of an object as callers see them.
pub(crate) type Object = Map<String, Value>;

/// Whom an object belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    /// An account.
    Account(Uuid),
    /// A project.
    Project(Uuid),
    /// Everybody of a domain and below (shared networks).
    Domain(Uuid),
}

macro_rules! row {
    ($($kind:ty),*) => { $(impl Row for $kind { fn id(&self) -> Uuid { self.id } })* };
}
row!(
    Domain,
    Role,
    Account,
    Project,
    Plain,
    Network,
    Vpc,
    Address,
    Rule,
    FirewallRule,
    AclList,
    AclItem,
    Machine,
    Job,
    Policy
);

/// A domain.
#[derive(Debug, Clone)]
pub(crate) struct Domain {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    /// `ROOT/lab`.
    pub(crate) path: String,
}

/// What kind of caller a role makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RoleKind {
    Root,
    DomainAdmin,
    User,
}

/// A role with its permissions, first match wins.
#[derive(Debug, Clone)]
pub(crate) struct Role {
    pub(crate) id: Uuid,
    pub(crate) kind: RoleKind,
    pub(crate) permissions: Vec<(String, bool)>,
}

impl Role {
    /// Whether the role may call the command.
    pub(crate) fn allows(&self, command: &str) -> bool {
        self.permissions
            .iter()
            .find(|(name, _)| name == "*" || name == command)
            .is_some_and(|(_, allow)| *allow)
    }
}

/// An account with its one user.
#[derive(Debug, Clone)]
pub(crate) struct Account {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    pub(crate) domain: Uuid,
    pub(crate) role: Uuid,
    pub(crate) user: Uuid,
    pub(crate) user_name: String,
    pub(crate) enabled: bool,
    pub(crate) user_shown: Object,
    /// Most public addresses; none: no limit.
    pub(crate) address_limit: Option<u64>,
}

/// A project.
#[derive(Debug, Clone)]
pub(crate) struct Project {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    pub(crate) domain: Uuid,
    /// Name of the account behind it, which error texts show.
    pub(crate) account_name: String,
    pub(crate) members: Vec<Uuid>,
    pub(crate) shown: Object,
    pub(crate) address_limit: Option<u64>,
}

/// An object of the seed that no command changes: zones, offerings.
#[derive(Debug, Clone)]
pub(crate) struct Plain {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    pub(crate) shown: Object,
}

/// Kind of a guest network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NetworkKind {
    Isolated,
    Shared,
    L2,
}

/// A guest network.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    pub(crate) owner: Owner,
    pub(crate) kind: NetworkKind,
    pub(crate) zone: Uuid,
    pub(crate) vpc: Option<Uuid>,
    pub(crate) acl: Option<Uuid>,
    /// `Implemented`: it has a router.
    pub(crate) implemented: bool,
    pub(crate) services: Vec<String>,
    pub(crate) shown: Object,
}

impl Network {
    /// Whether the network's offering has the service.
    pub(crate) fn has(&self, service: &str) -> bool {
        self.services.iter().any(|name| name == service)
    }
}

/// A virtual private cloud.
#[derive(Debug, Clone)]
pub(crate) struct Vpc {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    pub(crate) owner: Owner,
    pub(crate) zone: Uuid,
    pub(crate) shown: Object,
}

/// State of a public address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AddressState {
    Free,
    Allocating,
    Allocated,
    Releasing,
}

impl AddressState {
    /// As callers see it.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Free => "Free",
            Self::Allocating => "Allocating",
            Self::Allocated => "Allocated",
            Self::Releasing => "Releasing",
        }
    }
}

/// A public address. Its row and id stay when it is released.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_field_names,
    reason = "the address of an address is its address"
)]
pub(crate) struct Address {
    pub(crate) id: Uuid,
    pub(crate) address: String,
    pub(crate) zone: Uuid,
    /// The public network it belongs to (for shared networks: that network).
    pub(crate) public_network: Option<Uuid>,
    pub(crate) physical_network: Option<Uuid>,
    pub(crate) state: AddressState,
    pub(crate) allocated: Option<Stamp>,
    pub(crate) owner: Option<Owner>,
    /// The guest network it serves.
    pub(crate) network: Option<Uuid>,
    pub(crate) vpc: Option<Uuid>,
    pub(crate) source_nat: bool,
    pub(crate) static_nat: Option<Uuid>,
    pub(crate) system: bool,
    /// False for addresses of shared networks.
    pub(crate) for_virtual_network: bool,
    /// Machine that uses an address of a shared network.
    pub(crate) machine: Option<Uuid>,
    /// Until when only this former owner may take it.
    pub(crate) quarantine: Option<(Owner, Stamp)>,
    pub(crate) shown: Object,
}

/// State of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuleState {
    Add,
    Active,
    Deleting,
}

impl RuleState {
    /// As callers see it.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Add => "Add",
            Self::Active => "Active",
            Self::Deleting => "Deleting",
        }
    }
}

/// A machine behind a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) machine: Uuid,
    pub(crate) address: String,
    /// A remove is on its way; lists still show it.
    pub(crate) leaving: bool,
    /// An assign is on its way; lists don't show it yet.
    pub(crate) coming: bool,
}

/// A load balancer rule.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    pub(crate) address: Uuid,
    pub(crate) public_port: u16,
    pub(crate) private_port: u16,
    pub(crate) algorithm: String,
    pub(crate) protocol: Option<String>,
    /// As stored and listed: blanks after create, commas after update.
    pub(crate) sources: Option<String>,
    pub(crate) network: Uuid,
    pub(crate) owner: Owner,
    pub(crate) state: RuleState,
    pub(crate) members: Vec<Member>,
}

/// A firewall rule.
#[derive(Debug, Clone)]
pub(crate) struct FirewallRule {
    pub(crate) id: Uuid,
    pub(crate) protocol: String,
    pub(crate) ports: Option<(u16, u16)>,
    pub(crate) icmp: Option<(i64, i64)>,
    pub(crate) address: Uuid,
    pub(crate) network: Uuid,
    pub(crate) owner: Owner,
    pub(crate) sources: Vec<String>,
    pub(crate) state: RuleState,
    /// The load balancer rule that made it with `openfirewall`.
    pub(crate) related: Option<Uuid>,
}

/// A list of network ACL items.
#[derive(Debug, Clone)]
pub(crate) struct AclList {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    /// None: a default list, which nobody can change.
    pub(crate) vpc: Option<Uuid>,
}

/// One item of a list.
#[derive(Debug, Clone)]
pub(crate) struct AclItem {
    pub(crate) id: Uuid,
    pub(crate) list: Uuid,
    pub(crate) number: i64,
    pub(crate) protocol: String,
    pub(crate) ports: Option<(i64, i64)>,
    pub(crate) icmp: Option<(i64, i64)>,
    pub(crate) sources: String,
    pub(crate) ingress: bool,
    pub(crate) allow: bool,
    pub(crate) reason: Option<String>,
    pub(crate) state: RuleState,
}

/// A network card of a machine.
#[derive(Debug, Clone)]
pub(crate) struct Nic {
    pub(crate) network: Uuid,
    pub(crate) address: Option<String>,
    pub(crate) secondary: Vec<String>,
    pub(crate) shown: Object,
}

/// State of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MachineState {
    Starting,
    Running,
    Stopping,
    Stopped,
    Destroyed,
}

impl MachineState {
    /// As callers see it.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Starting => "Starting",
            Self::Running => "Running",
            Self::Stopping => "Stopping",
            Self::Stopped => "Stopped",
            Self::Destroyed => "Destroyed",
        }
    }
}

/// A virtual machine.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    pub(crate) owner: Owner,
    pub(crate) zone: Uuid,
    pub(crate) state: MachineState,
    pub(crate) nics: Vec<Nic>,
    pub(crate) updated: Option<Stamp>,
    /// The job that works on it, with its status for lists.
    pub(crate) busy: Option<Uuid>,
    pub(crate) shown: Object,
}

impl Machine {
    /// Address of the card in a network.
    pub(crate) fn address_in(&self, network: Uuid) -> Option<&str> {
        self.nics
            .iter()
            .find(|nic| nic.network == network)?
            .address
            .as_deref()
    }
}

/// How a job ended.
#[derive(Debug, Clone)]
pub(crate) enum JobStatus {
    Pending,
    Done(Value),
    Failed { code: u16, text: String },
}

/// An asynchronous job.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) id: Uuid,
    pub(crate) account: Uuid,
    pub(crate) user: Uuid,
    /// Java class of the command.
    pub(crate) class: String,
    /// What it works on; some kinds are shown without an id.
    pub(crate) instance: Option<(&'static str, Option<Uuid>)>,
    pub(crate) created: Stamp,
    pub(crate) completed: Option<Stamp>,
    pub(crate) status: JobStatus,
}

/// A tag of an object.
#[derive(Debug, Clone)]
pub(crate) struct Tag {
    pub(crate) resource: Uuid,
    pub(crate) kind: &'static str,
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) owner: Owner,
}

/// A stickiness policy of a rule.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    pub(crate) id: Uuid,
    pub(crate) rule: Uuid,
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    pub(crate) method: String,
    pub(crate) params: Vec<(String, String)>,
    pub(crate) state: RuleState,
}
