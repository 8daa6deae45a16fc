//! The agent between a fake API server and a fake broker behind a real socket.

mod election_lease;
mod fake_apiserver;
mod fake_broker;
mod node_init;
mod node_life;
mod node_refresh;
mod node_world;
mod process_life;
mod service_end;
mod service_nodes;
mod service_serving;
mod service_world;
