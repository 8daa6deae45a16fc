//! Guest networks and VPCs.

use super::Api;
use super::params::Params;
use crate::cloudstack::types::{Network, NetworkId, Vpc, VpcId, ZoneId};
use crate::cloudstack::{ApiError, Command, Listing};

/// Which networks to list; everything in scope by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkQuery {
    /// Only those in this zone.
    pub zone: Option<ZoneId>,
    /// Only the tiers of this VPC.
    pub vpc: Option<VpcId>,
    /// Only those with this name. Servers before 4.22 don't know that and answer all.
    pub name: Option<String>,
}

impl Api {
    /// Networks in scope, shared ones that the caller may use included.
    pub async fn networks(&self, query: &NetworkQuery) -> Result<Listing<Network>, ApiError> {
        let params = Params::new()
            .maybe("zoneid", query.zone.as_ref())
            .maybe("vpcid", query.vpc.as_ref())
            .maybe("name", query.name.as_ref());
        self.list(Command::ListNetworks, params).await
    }

    /// A network with its services; `None` if it is gone or not in scope.
    pub async fn find_network(&self, id: &NetworkId) -> Result<Option<Network>, ApiError> {
        self.find(Command::ListNetworks, Params::new().with("id", id))
            .await
    }

    /// VPCs in scope. May be `Denied`.
    pub async fn vpcs(&self) -> Result<Listing<Vpc>, ApiError> {
        self.list(Command::ListVpcs, Params::new()).await
    }

    /// A VPC; `None` if it is gone or not in scope. May be `Denied`.
    pub async fn find_vpc(&self, id: &VpcId) -> Result<Option<Vpc>, ApiError> {
        self.find(Command::ListVpcs, Params::new().with("id", id)).await
    }
}
