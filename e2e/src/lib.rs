//! The whole product as processes against a real kube-apiserver: harness of the end-to-end scenarios (`tests/all`), of
//! the demo and of the benchmarks.
//!
//! | module | what |
//! | --- | --- |
//! | [`control_plane`], [`cluster`], [`service`], [`rbac`] | a Kubernetes cluster, its Nodes and Services, the agent's rights |
//! | [`cloud`], [`proxy`] | the simulator or a real CloudStack, and the counting proxy before it |
//! | [`processes`], [`product`], [`peers`], [`pki`], [`link`], [`traffic`], [`pool`], [`lab`] | the programs under test and how they are joined |
//! | [`manifests`], [`rights`] | the one-file manifests, and the page about the agent's rights |
//! | [`world`], [`runner`] | one scenario's surroundings; running, skipping and counting scenarios |
//!
//! Nothing here decides what the product should do: that is what the scenarios say. Programs are started with the
//! command lines users write, and are seen through Kubernetes, CloudStack's API and their logs alone.

#![expect(
    clippy::indexing_slicing,
    reason = "indexing JSON gives null where nothing is, and a panic of the harness is a failed test"
)]

pub mod cloud;
pub mod cluster;
pub mod control_plane;
pub mod lab;
pub mod link;
pub mod manifests;
pub mod peers;
pub mod pki;
pub mod pool;
pub mod processes;
pub mod product;
pub mod proxy;
pub mod rbac;
pub mod rights;
pub mod runner;
pub mod service;
pub mod settings;
pub mod traffic;
pub mod wait;
pub mod world;

/// To be called once before anything else: the process-wide TLS provider.
pub fn init() {
    // A second call finds it installed, which is what was wanted.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
