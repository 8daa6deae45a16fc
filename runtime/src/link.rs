//! How agent and broker reach each other, and who a caller is.
//!
//! Inside one pod the link is a Unix socket; between machines it is TCP, always with TLS and certificates on both sides. Both ends ask for a
//! sign of life every [`KEEP_ALIVE`] and give the other up after [`KEEP_ALIVE_TIMEOUT`]. What a caller may do is decided elsewhere; this module
//! says who it is, and how much one of them may hold at once.

mod address;
mod admission;
mod client;
mod connection;
mod peer;
mod server;
mod unix;
mod wire;

use std::time::Duration;

pub use address::{AddressError, LinkAddress};
pub use admission::{Authorizer, EveryPeer, Limits};
pub use client::{Brokers, Link, was_not_sent};
pub use peer::{Certificate, Peer};
pub use server::{LinkServer, serve};

/// How often a quiet connection is tested.
pub const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// How long an answer to that may take.
pub const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);
