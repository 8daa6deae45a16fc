//! What any process of this project needs to live: flags, logs, signals and drain, the HTTPS endpoint for health and
//! metrics, TLS from files with reload, and the gRPC link between agent and broker.
//!
//! | module | decides |
//! | --- | --- |
//! | [`flags`] | how Go's way of writing flags is read |
//! | [`log`] | what log lines look like |
//! | [`host`] | how a process starts, fails and ends |
//! | [`health`] | when a process is alive and ready |
//! | [`admin`] | what the HTTPS endpoint serves, and to whom |
//! | [`tls`] | where certificates come from and when they are read again |
//! | [`link`] | how agent and broker reach each other and who a caller is |
//! | `seats` | which unknown connection makes room when there are too many |
//! | [`secret`] | how secrets are read so that they can't be printed |
//! | [`clock`] | nothing; it reads clocks |
//!
//! It leaves every decision about nodes, load balancers and the cloud to the packages that use it.

pub mod admin;
pub mod clock;
pub mod flags;
pub mod health;
pub mod host;
pub mod link;
pub mod log;
mod seats;
pub mod secret;
pub mod tls;
