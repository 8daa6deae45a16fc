//! What a node learns of its machine. Pure.

use std::net::IpAddr;

use crate::cloudstack::types::{Machine, MachineState, Nic};

/// Power states that lead to different actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// It runs.
    Running,
    /// It is off.
    Stopped,
    /// On its way from one to the other, or in a state that tells nothing.
    Changing,
}

impl Power {
    /// Of a machine in this state.
    pub fn of(state: &MachineState) -> Self {
        match state {
            MachineState::Running => Self::Running,
            MachineState::Stopped | MachineState::Shutdown => Self::Stopped,
            MachineState::Starting
            | MachineState::Stopping
            | MachineState::Migrating
            | MachineState::Destroyed
            | MachineState::Expunging
            | MachineState::Error
            | MachineState::Unknown
            | MachineState::Other(_) => Self::Changing,
        }
    }
}

/// An address of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Of an interface.
    Internal(IpAddr),
    /// Of static NAT.
    External(IpAddr),
    /// The node's name: `CloudStack`'s field `hostname` is the hypervisor's.
    Hostname(String),
}

/// The addresses in the order in which a node should list them: the default interface, the others, static NAT, the name.
pub fn addresses(machine: &Machine, node_name: &str) -> Vec<Address> {
    let mut addresses = Vec::new();
    let (default, others): (Vec<&Nic>, Vec<&Nic>) = machine.nics.iter().partition(|nic| nic.is_default);
    for nic in default.iter().chain(&others) {
        addresses.extend(nic.ipv4.map(|ip| Address::Internal(ip.into())));
        addresses.extend(nic.ipv6.map(|ip| Address::Internal(ip.into())));
    }
    let nats = machine
        .public_ip
        .into_iter()
        .chain(machine.nics.iter().filter_map(|nic| nic.public_ip));
    addresses.extend(nats.map(Address::External));
    addresses.push(Address::Hostname(node_name.to_owned()));
    let mut seen = Vec::with_capacity(addresses.len());
    for address in addresses {
        if !seen.contains(&address) {
            seen.push(address);
        }
    }
    seen
}
