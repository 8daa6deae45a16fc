//! Tests of the broker's parts against things that speak its protocols for real.

mod client_real;
mod client_support;
mod client_wire;
mod server_nodes;
mod server_support;
