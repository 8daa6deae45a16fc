//! Tests of the broker's parts against things that speak its protocols for real.

#[cfg(test)]
mod client_real;
#[cfg(test)]
mod client_simulator;
#[cfg(test)]
mod client_support;
#[cfg(test)]
mod client_wire;
#[cfg(test)]
mod load_balancer_acl;
#[cfg(test)]
mod load_balancer_beside;
#[cfg(test)]
mod load_balancer_crash;
#[cfg(test)]
mod load_balancer_fences;
#[cfg(test)]
mod load_balancer_first;
#[cfg(test)]
mod load_balancer_free;
#[cfg(test)]
mod load_balancer_laws;
#[cfg(test)]
mod load_balancer_leaving;
#[cfg(test)]
mod load_balancer_others;
#[cfg(test)]
mod load_balancer_plans;
#[cfg(test)]
mod load_balancer_real;
#[cfg(test)]
mod load_balancer_shapes;
#[cfg(test)]
mod load_balancer_support;
#[cfg(test)]
mod load_balancer_taking;
#[cfg(test)]
mod load_balancer_version;
#[cfg(test)]
mod server_accounts;
#[cfg(test)]
mod server_admission;
#[cfg(test)]
mod server_balancers;
#[cfg(test)]
mod server_hygiene;
#[cfg(test)]
mod server_life;
#[cfg(test)]
mod server_nodes;
#[cfg(test)]
mod server_pki;
#[cfg(test)]
mod server_process;
#[cfg(test)]
mod server_real;
#[cfg(test)]
mod server_reasons;
#[cfg(test)]
mod server_reference;
#[cfg(test)]
mod server_support;
