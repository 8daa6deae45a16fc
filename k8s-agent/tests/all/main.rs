//! The agent between a fake API server and a fake broker behind a real socket.

mod fake_apiserver;
mod fake_broker;
mod service_end;
mod service_nodes;
mod service_serving;
mod service_world;
