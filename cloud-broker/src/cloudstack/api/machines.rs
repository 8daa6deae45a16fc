//! Virtual machines.

use super::Api;
use super::params::Params;
use crate::cloudstack::types::{Machine, MachineId, NetworkId, ZoneId};
use crate::cloudstack::{ApiError, Command, Listing};

/// Enough for names, states, interfaces and the offering; leaves out the statistics, which are expensive. Without
/// `nics` a machine with several interfaces shows an arbitrary one of them.
const DETAILS: &str = "min,nics,servoff";

/// Which machines to list; everything in scope by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachineQuery {
    /// Only those with an interface in this network.
    pub network: Option<NetworkId>,
    /// Only those in this zone.
    pub zone: Option<ZoneId>,
    /// Only those with this host name. Old servers find parts of names, too: compare again.
    pub name: Option<String>,
}

impl Api {
    /// Machines in scope. Destroyed ones are hidden from ordinary users, as if gone.
    pub async fn machines(&self, query: &MachineQuery) -> Result<Listing<Machine>, ApiError> {
        let params = Params::new()
            .with("details", DETAILS)
            .maybe("networkid", query.network.as_ref())
            .maybe("zoneid", query.zone.as_ref())
            .maybe("name", query.name.as_ref());
        self.list(Command::ListVirtualMachines, params).await
    }

    /// A machine; `None` if it is gone, destroyed, or not in scope.
    pub async fn find_machine(&self, id: &MachineId) -> Result<Option<Machine>, ApiError> {
        self.find(
            Command::ListVirtualMachines,
            Params::new().with("id", id).with("details", DETAILS),
        )
        .await
    }
}
