//! What is asked about nodes, and what is answered. Pure.

use std::time::{Duration, SystemTime};

use crate::cloudstack::Api;
use crate::cloudstack::types::{Machine, MachineId};
use crate::tenant::{ClusterName, Scope};

/// What a caller knows of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeKey {
    /// UID of the Node.
    pub node_uid: String,
    /// Out of its provider id.
    pub machine_id: Option<MachineId>,
    /// What the guest says.
    pub system_uuid: Option<String>,
    /// Name of the Node.
    pub node_name: String,
    /// How long it has not been Ready; absent while it is.
    pub not_ready_for: Option<Duration>,
}

/// The answer for one node.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Whether there is a machine.
    pub presence: Presence,
    /// The list it was read from; empty if there is none.
    pub list_id: String,
    /// When that list began to be read.
    pub observed_at: Option<SystemTime>,
}

/// Whether there is a machine behind a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Presence {
    /// This one.
    Found {
        /// The machine.
        machine: Box<Machine>,
        /// The node's system UUID names another one.
        is_mismatch: bool,
    },
    /// None any more.
    Gone(Proof),
    /// Nothing can be said.
    Unknown(Why, String),
}

impl Presence {
    /// The word for metrics.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Found { .. } => "found",
            Self::Gone(_) => "gone",
            Self::Unknown(..) => "unknown",
        }
    }
}

/// Why a machine is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Two complete lists without it, the older one first.
    pub lists: (String, String),
    /// When it was looked up by id and not found.
    pub looked_up_at: SystemTime,
    /// Another machine that was found right after.
    pub witness: MachineId,
}

/// Why nothing can be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The cloud does not answer.
    Unreachable,
    /// Not in the list, and not proved gone.
    NotFoundYet,
    /// Two machines match.
    Ambiguous,
    /// The machine is not the tenant's.
    OutOfScope,
    /// No machine of the tenant is visible.
    NothingVisible,
}

/// Through whose eyes machines are seen.
#[derive(Clone, Copy)]
pub struct View<'v> {
    /// The account, in the tenant's project.
    pub api: &'v Api,
    /// The tenant.
    pub cluster: &'v ClusterName,
    /// Its fence.
    pub scope: &'v Scope,
    /// How old a list may be.
    pub ttl: Duration,
}
