//! Nodes: initialised once, kept right, and removed when their machine is gone.
//!
//! | module | decides |
//! | --- | --- |
//! | [`provider_id`] | which spellings of a provider id mean what |
//! | [`presence`] | what a broker's answer says |
//! | [`machines`] | which member of load balancers a node stands for |
//! | [`labels`] | which labels, and how values become legal |
//! | [`addresses`] | which addresses a node lists |
//! | [`plan`] | what to write to a node, given its machine |
//! | [`lifecycle`] | which nodes are deleted, tainted or held |
//!
//! The shells around them look up, write and repeat: [`init`] for nodes that wait to be initialised, [`refresh`] for the others, [`monitor`] for
//! those that are not Ready; they share [`lookup`] and [`writes`].

pub mod addresses;
pub mod init;
pub mod labels;
pub mod lifecycle;
pub mod lookup;
pub mod machines;
pub mod monitor;
pub mod plan;
pub mod presence;
pub mod provider_id;
pub mod refresh;
pub mod writes;
