//! The contract between agent and broker: `cloudstack.broker.v1`, generated, and [`Fault`], the one error that crosses it.
//!
//! The comments of the `.proto` files under `cloudstack/broker/v1` are the reference of the calls. This package decides
//! how a fault becomes a gRPC status and back; it knows neither Kubernetes nor CloudStack.

pub mod fault;
pub mod reason;

pub use fault::{Advice, Fault, FaultKind};
pub use reason::camel;

/// Version of the contract that this package is, for `Describe`.
pub const CONTRACT_VERSION: u32 = 1;

/// Messages, client and server of `cloudstack.broker.v1`.
#[allow(
    missing_docs,
    clippy::all,
    clippy::pedantic,
    clippy::nursery,
    clippy::restriction,
    reason = "generated code"
)]
#[allow(unused_qualifications, unreachable_pub, reason = "generated code")]
pub mod v1 {
    tonic::include_proto!("cloudstack.broker.v1");
}

/// The contract as an encoded `google.protobuf.FileDescriptorSet`, for gRPC reflection and for tests.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/broker.bin"));
