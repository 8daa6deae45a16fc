//! The half of the cloud controller that faces Kubernetes. It knows no term of any cloud: what machines and load balancers are is the broker's
//! business.
//!
//! | module | decides |
//! | --- | --- |
//! | [`args`] | what the command line means |
//! | [`lease`], [`election`] | who leads, and whether this process may act |
//! | [`queue`] | which key is worked on next, and when a failed one comes back |
//! | [`watch`] | nothing; it keeps copies of Nodes and Services and tells what changed |
//! | [`events`] | reasons of events, and which are merged |
//! | [`broker`] | nothing; it asks the broker |
//! | [`node`] | what is written to Nodes, and which are deleted |
//! | [`service`] | which Services get a load balancer, and what is written to them |
//! | [`keepalived`] | the second way to serve a Service: an address from a pool |
//! | [`cluster`] | when the cluster's UID is asked for |
//! | [`apiserver`], [`metrics`], [`context`], [`process`] | how all this is put together |

pub mod apiserver;
pub mod args;
pub mod broker;
pub mod cluster;
pub mod conditions;
pub mod contain;
pub mod context;
pub mod election;
pub mod events;
pub mod keepalived;
pub mod lease;
pub mod metrics;
pub mod node;
pub mod process;
pub mod queue;
pub mod service;
pub mod watch;

pub use process::run;
