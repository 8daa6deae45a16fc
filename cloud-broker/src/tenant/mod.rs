//! Who is calling, and what that allows.
//!
//! | file | decides |
//! | --- | --- |
//! | `scope` | what a cluster may see and use |
//! | `policy` | what it may do there |
//! | `uids` | which marks in the cloud are its own |
//! | `identity` | which cluster a proof of identity stands for |
//! | `fences` | whether the clusters of one account are kept apart |
//!
//! Leaves to others: reading the configuration, and everything that is asked of the cloud.

mod fences;
mod identity;
mod pattern;
mod policy;
mod scope;
mod uids;

use std::fmt;

pub use fences::{Entanglement, entanglements};
pub use identity::{Identities, Identity, Stranger, normal as normal_identity};
pub use pattern::Pattern;
pub use policy::{AddressSharing, AllowedAddresses, Policy, PortRange};
pub use scope::{Machines, NameOrId, Scope};
pub use uids::{ClusterUid, ClusterUids, OtherUid};

/// Name of a cluster: its section of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterName(String);

impl ClusterName {
    /// The cluster of the caller on the Unix socket.
    pub const DEFAULT: &'static str = "default";

    /// A name as it stands in the configuration.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// The cluster of the caller on the Unix socket.
    pub fn of_the_socket() -> Self {
        Self::new(Self::DEFAULT)
    }

    /// The name itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One cluster as the configuration describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Its section.
    pub cluster: ClusterName,
    /// Its fence.
    pub scope: Scope,
    /// What it may do inside.
    pub policy: Policy,
    /// The UIDs that the configuration gives it.
    pub uids: ClusterUids,
    /// Region that its nodes are labelled with, where one is configured.
    pub region: Option<String>,
}
