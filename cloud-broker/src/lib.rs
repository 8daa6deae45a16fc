//! The half that faces `CloudStack`: it holds the API keys, keeps the rate under the account's limit, answers questions about
//! machines and makes load balancers real. It knows no Kubernetes object.
//!
//! | module | decides |
//! | --- | --- |
//! | [`cloudstack`] | how `CloudStack`'s API is spoken: signing, paging, jobs, budget, errors |
//! | [`config`] | what the configuration file means, and when it is read again |
//! | [`instances`] | where the machines behind nodes are |
//! | [`tenant`] | who is calling, and what that allows |

pub mod cloudstack;
pub mod config;
pub mod instances;
pub mod metrics;
pub mod tenant;
