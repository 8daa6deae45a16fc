//! Public addresses: finding, taking, releasing.

use std::net::IpAddr;

use super::params::Params;
use super::{Api, PagePlace, Started};
use crate::cloudstack::types::{AddressId, JobId, NetworkId, PublicIpAddress, VpcId, ZoneId};
use crate::cloudstack::{ApiError, AssociateTurn, Command, Listing, ReleaseTurn};

/// Which addresses to list. Addresses of other accounts are never visible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddressQuery {
    /// All that are allocated in scope.
    Allocated,
    /// Those allocated for a guest network. Whoever may not see the network is `Denied`.
    OfNetwork(NetworkId),
    /// Those being taken, or left so; other lists don't show them.
    Allocating,
    /// Those being released, or left so; other lists don't show them.
    Releasing,
    /// One by its digits, whatever its state.
    Ip(IpAddr),
}

/// What an address is acquired for; it also decides who owns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AssociateTarget {
    /// An isolated network.
    Network(NetworkId),
    /// A VPC; its tiers can't have addresses of their own.
    Vpc(VpcId),
}

/// The taking of a chosen address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Associate {
    /// What for.
    pub target: AssociateTarget,
    /// Which one. There is no "any": an address must be provable before it is used.
    pub ip: IpAddr,
    /// The id that the job shall have. Never use one for two different takings.
    pub job: JobId,
}

impl Api {
    /// Addresses in scope.
    pub async fn addresses(&self, query: &AddressQuery) -> Result<Listing<PublicIpAddress>, ApiError> {
        let params = match query {
            AddressQuery::Allocated => Params::new(),
            AddressQuery::OfNetwork(id) => Params::new().with("associatednetworkid", id),
            AddressQuery::Allocating => Params::new()
                .with("state", "Allocating")
                .with("allocatedonly", false),
            AddressQuery::Releasing => Params::new()
                .with("state", "Releasing")
                .with("allocatedonly", false),
            AddressQuery::Ip(ip) => Params::new().with("ipaddress", ip).with("allocatedonly", false),
        };
        self.list(Command::ListPublicIpAddresses, params).await
    }

    /// Some addresses of a zone that anybody may take, in the server's order; never evidence that there are no more.
    pub async fn free_addresses(&self, zone: Option<&ZoneId>) -> Result<Vec<PublicIpAddress>, ApiError> {
        self.some(Command::ListPublicIpAddresses, Self::free(zone)).await
    }

    /// One page of the addresses of a zone that anybody may take, where not every address will do; and the place of the next one.
    pub async fn free_addresses_at(
        &self,
        zone: Option<&ZoneId>,
        place: PagePlace,
    ) -> Result<(Vec<PublicIpAddress>, Option<PagePlace>), ApiError> {
        self.page(Command::ListPublicIpAddresses, Self::free(zone), place)
            .await
    }

    fn free(zone: Option<&ZoneId>) -> Params {
        Params::new()
            .with("state", "Free")
            .with("allocatedonly", false)
            .maybe("zoneid", zone)
    }

    /// An address in whatever state; `None` if it is somebody else's or no address at all.
    pub async fn find_address(&self, id: &AddressId) -> Result<Option<PublicIpAddress>, ApiError> {
        self.find(
            Command::ListPublicIpAddresses,
            Params::new().with("id", id).with("allocatedonly", false),
        )
        .await
    }

    /// Takes a chosen address. `NoCapacity` says that it is not free; so does a server that has quarantined it.
    ///
    /// One after the other per owner, which is the server's own order: a caller that finds its lock taken waits there
    /// for five seconds. The owner follows from the network, so no project is sent: with a wrong one the server would
    /// leave the address half taken.
    pub async fn associate(
        &self,
        turn: &AssociateTurn,
        request: &Associate,
    ) -> Result<Started<PublicIpAddress>, ApiError> {
        let params = match &request.target {
            AssociateTarget::Network(id) => Params::new().with("networkid", id),
            AssociateTarget::Vpc(id) => Params::new().with("vpcid", id),
        };
        let params = params.with("ipaddress", request.ip);
        self.start(Command::AssociateIpAddress, params)
            .with_job(&request.job)
            .holding_to_start(turn.0.clone())
            .send()
            .await
    }

    /// Waits for the turn to look for an address and take it.
    pub async fn turn_to_associate(&self) -> AssociateTurn {
        let locks = self.account().locks();
        locks.associating(&self.tenant, self.project()).await
    }

    /// Waits for the turn to look at an address and release it.
    pub async fn turn_to_release(&self, id: &AddressId) -> ReleaseTurn {
        self.account().locks().releasing(id).await
    }

    /// Gives an address back with every rule that is on it, whoever made it. Releasing a free one is `Rejected` (530).
    /// The turn lasts until the job is over.
    pub async fn release(&self, turn: &ReleaseTurn) -> Result<Started<()>, ApiError> {
        let params = Params::new().with("id", turn.address());
        self.start(Command::DisassociateIpAddress, params)
            .holding_to_end(turn.guard.clone())
            .send()
            .await
    }
}
