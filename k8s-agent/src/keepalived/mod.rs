//! The second backend: an address from a pool, announced by keepalived.
//!
//! Decides which address a Service has and writes it to the ConfigMap that kube-keepalived-vip reads; it needs no
//! broker and no cloud. Leaves the Service's life cycle (finalizer, status, events, retries) to the service
//! controller. The ConfigMap stays readable and writable by keepalived-cloud-provider.
//!
//! | file | duty |
//! | --- | --- |
//! | [`address`], [`pool`], [`selector`], [`pools_file`] | addresses, pools, their configuration |
//! | [`method`], [`document`], [`config_map`] | the formats: forward methods, records, entries, patches |
//! | [`claim`], [`allocation`], [`notes`] | Services in, plan and words out; pure |

pub mod address;
pub mod allocation;
pub mod claim;
pub mod config_map;
pub mod document;
pub mod method;
pub mod notes;
pub mod pool;
pub mod pools_file;
pub mod render;
pub mod repairs;
pub mod selector;
pub mod settings;
