//! The service controller: one load balancer for every Service that asks for one.
//!
//! | file | duty |
//! | --- | --- |
//! | [`annotations`] | the table of annotations, and their strict reading |
//! | [`intent`] | which Services are ours, and what one wants |
//! | [`choice`] | which backend serves it |
//! | [`members`] | which nodes are members |
//! | [`fingerprint`] | whether anything that matters has changed |
//! | [`ledger`] | what is remembered of a Service, and whether it is news |
//! | [`status`] | what is written on a Service |
//! | [`backend`] | what a backend is |
//!
//! The files down to `status` are pure. What a load balancer is in the cloud, and how its address is found, is the broker's
//! business.

pub mod annotations;
pub mod backend;
pub mod choice;
pub mod fingerprint;
pub mod intent;
pub mod ledger;
pub mod members;
pub mod status;
