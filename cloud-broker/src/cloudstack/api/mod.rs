//! The typed commands.
//!
//! Decides which parameters a call carries. A project is named in every list, look-ups by id included (a server hides
//! a project's objects silently otherwise), and never in a write: there the object decides who owns the result.

mod acl;
mod addresses;
mod call;
mod discovery;
mod firewall;
mod jobs;
mod machines;
mod networks;
mod params;
mod rules;
mod start;
mod tags;

use std::sync::Arc;

pub use acl::CreateAclItem;
pub use addresses::{AddressQuery, Associate, AssociateTarget};
pub use call::PagePlace;
pub use firewall::{CreateFirewallRule, FirewallProtocol};
pub use machines::MachineQuery;
pub use networks::NetworkQuery;
pub(super) use params::Params;
pub use rules::{CreateRule, RuleChange, RuleQuery};
pub use start::{Created, Outcome, Started};
use tokio_util::sync::CancellationToken;

use super::Account;
use super::types::ProjectId;

/// An account as one tenant sees it. Cheap to clone.
#[derive(Clone)]
pub struct Api {
    account: Arc<Account>,
    tenant: Arc<str>,
    share: u32,
    project: Option<ProjectId>,
    work: Option<Arc<str>>,
    rekeyed: CancellationToken,
}

impl Api {
    /// An account for a tenant. The tenant's name decides whose turn it is in the budget; the project, if any, is the
    /// scope of every list. Once the account has other keys nothing is written for the tenant any more: it needs another one of these.
    pub fn new(account: Arc<Account>, tenant: &str, project: Option<ProjectId>) -> Self {
        Self {
            rekeyed: account.rekeyed(),
            account,
            tenant: tenant.into(),
            share: 1,
            project,
            work: None,
        }
    }

    /// The same with another share of the budget: so many turns in a row, at least one.
    #[must_use]
    pub fn with_share(self, share: u32) -> Self {
        Self {
            share: share.max(1),
            ..self
        }
    }

    /// The same for one piece of work, such as one balancer: its jobs can be waited for together, also after the caller
    /// that started them has left.
    #[must_use]
    pub fn for_work(&self, work: &str) -> Self {
        Self {
            work: Some(work.into()),
            ..self.clone()
        }
    }

    /// What is shared with the other tenants: locks, jobs, breaker.
    pub fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// The tenant's name.
    pub fn tenant(&self) -> &str {
        &self.tenant
    }

    /// The piece of work that jobs are started for.
    pub fn work(&self) -> Option<&str> {
        self.work.as_deref()
    }

    /// The project that every list is limited to.
    pub fn project(&self) -> Option<&ProjectId> {
        self.project.as_ref()
    }
}
