//! The lists that balancers share, and which of our own changes shows in which of them. Pure.

use crate::cloudstack::types::AclListId;
use crate::load_balancer::observation::{Change, Observation};

/// A list that several balancers share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::load_balancer) enum Part {
    /// Networks.
    Networks,
    /// Rules.
    Rules,
    /// Allocated addresses.
    Addresses,
    /// Firewall rules.
    Firewall,
    /// Items of an ACL list.
    Acl(AclListId),
    /// Items of all ACL lists.
    AllAcl,
}

impl Part {
    pub(super) fn what(&self) -> &'static str {
        match self {
            Self::Networks => "the list of networks",
            Self::Rules => "the list of load balancer rules",
            Self::Addresses => "the list of public addresses",
            Self::Firewall => "the list of firewall rules",
            Self::Acl(_) | Self::AllAcl => "the list of acl items",
        }
    }

    pub(super) fn move_over(&self, from: Observation, to: &mut Observation) {
        match self {
            Self::Networks => to.networks = from.networks,
            Self::Rules => to.rules = from.rules,
            Self::Addresses => to.addresses = from.addresses,
            Self::Firewall => to.firewall = from.firewall,
            Self::Acl(_) => to.acl.extend(from.acl),
            Self::AllAcl => (to.acl, to.acl_read) = (from.acl, true),
        }
    }

    /// Whether a change shows in this list.
    pub(super) fn shows(&self, change: &Change) -> bool {
        match change {
            Change::Rule(_) | Change::RuleGone(_) | Change::Members(..) => *self == Self::Rules,
            Change::Address(_) => *self == Self::Addresses,
            // What was on an address goes with it.
            Change::AddressGone(_) => matches!(self, Self::Rules | Self::Addresses | Self::Firewall),
            Change::Firewall(_) | Change::FirewallGone(_) => *self == Self::Firewall,
            Change::Acl(item) => match self {
                Self::Acl(list) => item.list_id.as_ref() == Some(list),
                Self::AllAcl => true,
                Self::Networks | Self::Rules | Self::Addresses | Self::Firewall => false,
            },
            Change::AclGone(_) => matches!(self, Self::Acl(_) | Self::AllAcl),
            Change::Job(..) | Change::ReleaseBegun(..) => false,
        }
    }
}
