//! The agent between a fake API server and a fake broker behind a real socket.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

mod broker_calls;
mod election_lease;
mod fake_apiserver;
mod fake_broker;
mod fake_pool;
mod hygiene;
mod node_init;
mod node_life;
mod node_refresh;
mod node_world;
mod panics;
mod process_life;
mod reference;
mod service_backends;
mod service_end;
mod service_nodes;
mod service_reverts;
mod service_serving;
mod service_trouble;
mod service_world;
