//! Tests of the broker's parts against things that speak its protocols for real.

mod client_real;
mod client_simulator;
mod client_support;
mod client_wire;
mod load_balancer_crash;
mod load_balancer_shapes;
mod load_balancer_support;
mod server_life;
mod server_nodes;
mod server_pki;
mod server_support;
