//! Uses of public addresses other than load balancing. No command makes them here; tests and demos do.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::World;

/// What else uses a public address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AddressUse {
    /// A port forwarding rule for TCP.
    PortForwarding {
        /// Its public and private port.
        port: u16,
    },
    /// A remote access VPN.
    Vpn,
    /// Static NAT to a machine.
    StaticNat {
        /// The machine's name or id.
        machine: String,
    },
}

/// A port forwarding rule, or without a port a VPN.
#[derive(Debug, Clone)]
pub(crate) struct OtherUse {
    pub(crate) id: Uuid,
    pub(crate) address: Uuid,
    pub(crate) port: Option<u16>,
}

impl World {
    /// Uses of an address that have their own row.
    pub(crate) fn uses_of(&self, address: Uuid) -> impl Iterator<Item = &OtherUse> {
        self.uses.iter().filter(move |row| row.address == address)
    }

    /// Ends every use of an address but load balancing.
    pub(crate) fn end_uses(&mut self, address: Uuid) {
        self.uses.retain(|row| row.address != address);
        if let Some(row) = self.addresses.get_mut(address) {
            row.static_nat = None;
        }
    }
}
