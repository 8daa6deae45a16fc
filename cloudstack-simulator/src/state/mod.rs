//! The database of the simulated management server: what commands read and change. No clock, no network, no async.

pub(crate) mod load;
pub(crate) mod rows;
pub(crate) mod show;
pub(crate) mod table;
mod uses;

use std::collections::BTreeMap;

use uuid::Uuid;

pub(crate) use self::rows::{
    Account, AclItem, AclList, Address, AddressState, Domain, FirewallRule, Job, JobStatus, Machine,
    MachineState, Member, Network, NetworkKind, Nic, Object, Owner, Plain, Policy, Project, Role, RoleKind,
    Rule, RuleState, Tag, Vpc,
};
pub(crate) use self::table::Table;
pub use self::uses::AddressUse;
pub(crate) use self::uses::OtherUse;
use crate::clock::Stamp;
use crate::router::Router;

/// Everything the server knows.
#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) version: String,
    pub(crate) settings: BTreeMap<String, String>,
    pub(crate) domains: Table<Domain>,
    pub(crate) roles: Table<Role>,
    pub(crate) accounts: Table<Account>,
    pub(crate) projects: Table<Project>,
    pub(crate) zones: Table<Plain>,
    pub(crate) service_offerings: Table<Plain>,
    pub(crate) network_offerings: Table<Plain>,
    pub(crate) templates: Table<Plain>,
    pub(crate) networks: Table<Network>,
    pub(crate) vpcs: Table<Vpc>,
    pub(crate) addresses: Table<Address>,
    pub(crate) rules: Table<Rule>,
    pub(crate) firewall_rules: Table<FirewallRule>,
    pub(crate) acl_lists: Table<AclList>,
    pub(crate) acl_items: Table<AclItem>,
    pub(crate) machines: Table<Machine>,
    pub(crate) jobs: Table<Job>,
    pub(crate) policies: Table<Policy>,
    pub(crate) tags: Vec<Tag>,
    pub(crate) uses: Vec<OtherUse>,
    pub(crate) domain_address_limits: BTreeMap<Uuid, u64>,
    pub(crate) routers: BTreeMap<Uuid, Router>,
    /// The management server refuses new jobs.
    pub(crate) shutting_down: bool,
}

impl World {
    /// A setting that is true.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        self.settings.get(name).is_some_and(|value| value == "true")
    }

    /// A setting that is a number.
    pub(crate) fn number_setting(&self, name: &str) -> Option<i64> {
        self.settings.get(name)?.parse().ok()
    }

    /// The account with this name.
    pub(crate) fn account_named(&self, name: &str) -> Option<&Account> {
        self.accounts.iter().find(|account| account.name == name)
    }

    /// The domain of an owner.
    pub(crate) fn domain_of(&self, owner: Owner) -> Option<&Domain> {
        let domain = match owner {
            Owner::Account(id) => self.accounts.get(id)?.domain,
            Owner::Project(id) => self.projects.get(id)?.domain,
            Owner::Domain(id) => id,
        };
        self.domains.get(domain)
    }

    /// The kind of an account's role.
    pub(crate) fn role_kind(&self, account: Uuid) -> RoleKind {
        self.accounts
            .get(account)
            .and_then(|account| self.roles.get(account.role))
            .map_or(RoleKind::User, |role| role.kind)
    }

    /// Whether an account may see and act on what belongs to an owner.
    pub(crate) fn may_use(&self, account: Uuid, owner: Owner) -> bool {
        let own_domain = self.domain_of(Owner::Account(account));
        match (self.role_kind(account), owner) {
            (RoleKind::Root, _) => true,
            (RoleKind::DomainAdmin, _) => match (own_domain, self.domain_of(owner)) {
                (Some(own), Some(of)) => within(&of.path, &own.path),
                _ => false,
            },
            (RoleKind::User, Owner::Account(id)) => id == account,
            (RoleKind::User, Owner::Project(id)) => self
                .projects
                .get(id)
                .is_some_and(|project| project.members.contains(&account)),
            (RoleKind::User, Owner::Domain(_)) => false,
        }
    }

    /// Whether rules of a network go to a router that runs.
    pub(crate) fn has_router(&self, network: Uuid) -> bool {
        self.networks
            .get(network)
            .is_some_and(|network| network.implemented)
    }

    /// The router that serves a network: its own, or that of its VPC.
    pub(crate) fn router_of(&self, network: Uuid) -> Uuid {
        self.networks
            .get(network)
            .and_then(|network| network.vpc)
            .unwrap_or(network)
    }

    /// Tags of an object.
    pub(crate) fn tags_of(&self, resource: Uuid) -> impl Iterator<Item = &Tag> {
        self.tags.iter().filter(move |tag| tag.resource == resource)
    }

    /// Rules of an address that count for conflicts and lists, whatever their state.
    pub(crate) fn rules_on(&self, address: Uuid) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(move |rule| rule.address == address)
    }

    /// Firewall rules of an address.
    pub(crate) fn firewall_on(&self, address: Uuid) -> impl Iterator<Item = &FirewallRule> {
        self.firewall_rules
            .iter()
            .filter(move |rule| rule.address == address)
    }

    /// Gives an address back: the row stays, all that tied it to an owner goes.
    pub(crate) fn free_address(&mut self, id: Uuid, now: Stamp) {
        let minutes = self
            .number_setting("public.ip.address.quarantine.duration")
            .unwrap_or(0);
        self.tags.retain(|tag| tag.resource != id);
        self.end_uses(id);
        let Some(address) = self.addresses.get_mut(id) else {
            return;
        };
        if let (Some(owner), Ok(minutes @ 1..)) = (address.owner, u64::try_from(minutes)) {
            address.quarantine = Some((owner, now.plus(std::time::Duration::from_secs(minutes * 60))));
        }
        address.state = AddressState::Free;
        address.allocated = None;
        address.owner = None;
        address.network = None;
        address.vpc = None;
        address.source_nat = false;
        address.machine = None;
    }

    /// A VPC's address without rules belongs to no tier.
    pub(crate) fn detach_unused(&mut self, address: Uuid) {
        let used = self.rules_on(address).next().is_some()
            || self.firewall_on(address).next().is_some()
            || self.uses_of(address).next().is_some();
        if let Some(row) = self.addresses.get_mut(address)
            && row.vpc.is_some()
            && !used
            && row.static_nat.is_none()
        {
            row.network = None;
        }
    }
}

/// Whether a domain path is at or below another one.
pub(crate) fn within(path: &str, root: &str) -> bool {
    path == root || path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'))
}
