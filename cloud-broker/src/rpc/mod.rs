//! The calls of the contract.
//!
//! | file | decides |
//! | --- | --- |
//! | `admission` | who may call at all, before a call is read |
//! | `service` | the way of a call: who asks, how often, what is logged and counted |
//! | `balancers` | in which order writing calls run, and what happens when their caller leaves |
//! | `wire` | how messages become our types and back; what a request must look like |
//! | `fence` | which writer of a cluster may write, and until when |
//! | `slots` | that a balancer has one writing call at a time |
//! | `rate` | how many calls a tenant may make |
//!
//! Leaves to others: everything that a call is about.

mod admission;
mod balancers;
mod fence;
mod rate;
mod service;
mod slots;
mod wire;

use std::sync::Arc;

use crate::directory::Served;
use crate::tenant::{ClusterUids, Identity};

pub use admission::Tenants;
pub use fence::{Fence, Permit, Stop};
pub use service::{Broker, Settings, routes};

/// Who asks.
#[derive(Clone)]
pub struct Call {
    /// The tenant, by the configuration of the moment.
    pub served: Arc<Served>,
    /// What it proved.
    pub identity: Identity,
    /// The UIDs that mark its objects.
    pub uids: ClusterUids,
}
