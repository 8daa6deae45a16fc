//! The typed commands.
//!
//! Decides which parameters a call carries. A project is named in every list, look-ups by id included (a server hides
//! a project's objects silently otherwise), and never in a write: there the object decides who owns the result.

mod acl;
mod addresses;
mod call;
mod discovery;
mod firewall;
mod machines;
mod networks;
mod params;
mod rules;
mod tags;

use std::sync::Arc;

pub use acl::CreateAclItem;
pub use addresses::{AddressQuery, Associate, AssociateTarget};
pub use call::Started;
pub use firewall::{CreateFirewallRule, FirewallProtocol};
pub use machines::MachineQuery;
pub use networks::NetworkQuery;
pub use rules::{CreateRule, RuleChange, RuleQuery};

use super::Account;
use super::types::ProjectId;

/// An account as one tenant sees it. Cheap to clone.
#[derive(Clone)]
pub struct Api {
    account: Arc<Account>,
    tenant: Arc<str>,
    project: Option<ProjectId>,
}

impl Api {
    /// An account for a tenant. The tenant's name decides whose turn it is in the budget; the project, if any, is the
    /// scope of every list.
    pub fn new(account: Arc<Account>, tenant: &str, project: Option<ProjectId>) -> Self {
        Self { account, tenant: tenant.into(), project }
    }

    /// What is shared with the other tenants: locks, jobs, breaker.
    pub fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// The tenant's name.
    pub fn tenant(&self) -> &str {
        &self.tenant
    }

    /// The project that every list is limited to.
    pub fn project(&self) -> Option<&ProjectId> {
        self.project.as_ref()
    }
}
