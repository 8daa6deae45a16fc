//! What the configuration lets a tenant do. Pure.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;

use ipnet::IpNet;

use super::ClusterName;

/// What a tenant may do inside its scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Ports of machines that a balancer may send to.
    pub member_ports: PortRange,
    /// Most public addresses of this cluster; without one there is no limit.
    pub max_public_ips: Option<u32>,
    /// Addresses that may be asked for or used.
    pub allowed_addresses: AllowedAddresses,
    /// Which Services may share an address.
    pub address_sharing: AddressSharing,
    /// Whether balancers of the controllers that came before are adopted.
    pub take_over: bool,
    /// Restrict the sources of balancers that are adopted at once, not at their Service's next change.
    pub tighten_on_adopt: bool,
    /// Weight of the tenant among those of its account.
    pub share: NonZeroU32,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            member_ports: PortRange::NODE_PORTS,
            max_public_ips: None,
            allowed_addresses: AllowedAddresses::default(),
            address_sharing: AddressSharing::Cluster,
            take_over: true,
            tighten_on_adopt: false,
            share: NonZeroU32::MIN,
        }
    }
}

/// A range of ports with both ends in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// The node ports of a Kubernetes cluster, unless it was told otherwise.
    pub const NODE_PORTS: Self = Self {
        first: 30000,
        last: 32767,
    };

    /// Every port.
    pub const ALL: Self = Self {
        first: 1,
        last: u16::MAX,
    };

    /// The ports that a cluster's machines may be sent to unless its section says so. The cluster on the socket is the only one of
    /// its file as a rule, and may have been given any node ports; clusters that share a broker keep to Kubernetes' own.
    pub fn usual(cluster: &ClusterName) -> Self {
        if *cluster == ClusterName::of_the_socket() {
            Self::ALL
        } else {
            Self::NODE_PORTS
        }
    }

    /// A range of at least one port; port 0 is none.
    pub fn new(first: u16, last: u16) -> Option<Self> {
        (first > 0 && first <= last).then_some(Self { first, last })
    }

    /// The lowest port.
    pub const fn first(self) -> u16 {
        self.first
    }

    /// The highest port.
    pub const fn last(self) -> u16 {
        self.last
    }

    /// Whether the port is in it.
    pub const fn contains(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }
}

/// Networks whose addresses may be used; none named is all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AllowedAddresses(Vec<IpNet>);

impl AllowedAddresses {
    /// Only addresses in these networks.
    pub fn of(networks: Vec<IpNet>) -> Self {
        Self(networks)
    }

    /// Whether the address may be used.
    pub fn admit(&self, address: IpAddr) -> bool {
        self.0.is_empty() || self.0.iter().any(|network| network.contains(&address))
    }

    /// The IPv4 addresses one by one, if they are no more than this; `None` if they are more, or all.
    pub fn few(&self, most: usize) -> Option<BTreeSet<IpAddr>> {
        if self.is_all() {
            return None;
        }
        let networks = self.0.iter().filter_map(|network| match network {
            IpNet::V4(network) => Some(network),
            IpNet::V6(_) => None,
        });
        let mut few = BTreeSet::new();
        for network in networks {
            let (first, last) = (network.network().to_bits(), network.broadcast().to_bits());
            if usize::try_from(last - first).map_or(true, |others| others >= most) {
                return None;
            }
            few.extend((first..=last).map(|bits| IpAddr::from(Ipv4Addr::from_bits(bits))));
        }
        (few.len() <= most).then_some(few)
    }

    /// Whether every address may be used.
    pub const fn is_all(&self) -> bool {
        self.0.is_empty()
    }
}

/// Which Services may have rules on one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressSharing {
    /// All Services of the cluster, as the Go controller lets them.
    Cluster,
    /// Services of one namespace.
    Namespace,
    /// None: one Service, one address.
    None,
}

impl AddressSharing {
    /// The word of the configuration and of the contract.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Namespace => "namespace",
            Self::None => "none",
        }
    }

    /// Reads the word of the configuration.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Cluster, Self::Namespace, Self::None]
            .into_iter()
            .find(|sharing| sharing.word() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case::all(&[], None)]
    #[case::one(&["192.0.2.7/32"], Some(1))]
    #[case::two_that_share_an_address(&["192.0.2.8/30", "192.0.2.11/32", "192.0.2.12/32"], Some(5))]
    #[case::just_as_many(&["192.0.2.0/28"], Some(16))]
    #[case::more(&["192.0.2.0/28", "192.0.2.16/32"], None)]
    #[case::far_more(&["0.0.0.0/0"], None)]
    #[case::ipv6_counts_not(&["2001:db8::/32"], Some(0))]
    fn few_allowed_addresses_can_be_told_one_by_one(
        #[case] networks: &[&str],
        #[case] expected: Option<usize>,
    ) {
        let allowed = AllowedAddresses::of(networks.iter().map(|network| network.parse().unwrap()).collect());
        let few = allowed.few(16);
        assert_eq!(few.as_ref().map(BTreeSet::len), expected);
        assert!(few.iter().flatten().all(|ip| allowed.admit(*ip)));
    }

    #[test]
    fn a_port_range_has_both_its_ends_and_is_never_empty() {
        let range = PortRange::NODE_PORTS;
        assert!(range.contains(30000) && range.contains(32767));
        assert!(!range.contains(29999) && !range.contains(32768));
        assert_eq!(PortRange::new(2, 1), None);
        assert_eq!(PortRange::new(0, 1), None);
        assert!(PortRange::new(7, 7).is_some_and(|range| range.contains(7)));
    }

    #[test]
    fn node_ports_of_any_number_are_served_for_the_cluster_on_the_socket() {
        let usual = PortRange::usual(&ClusterName::of_the_socket());
        assert!(usual.contains(1) && usual.contains(8080) && usual.contains(65535));
        assert_eq!(PortRange::usual(&ClusterName::new("blue")), PortRange::NODE_PORTS);
    }

    #[test]
    fn without_a_list_every_address_is_allowed() {
        let address: IpAddr = "192.0.2.7".parse().unwrap();
        assert!(AllowedAddresses::default().admit(address));
        let only = AllowedAddresses::of(vec!["192.0.2.0/29".parse().unwrap()]);
        assert!(only.admit(address));
        assert!(!only.admit("192.0.2.8".parse().unwrap()));
    }
}
