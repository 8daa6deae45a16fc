//! Whose clients are let in: the field, Kubernetes' annotation and CloudStack's annotation made one list.

use std::collections::BTreeSet;

use ipnet::{IpNet, Ipv4Net};
use k8s_openapi::api::core::v1::ServiceSpec;

use crate::events::Reason;
use crate::service::annotations::{self, Networks, Problem, Problems, Settings};
use crate::service::backend::Notice;
use crate::service::members::enumerate;

/// The merged list; empty is everybody.
pub(super) struct Sources {
    pub(super) networks: Result<BTreeSet<Ipv4Net>, Problems>,
    pub(super) notices: Vec<Notice>,
}

/// Merges what a Service says. The field and Kubernetes' annotation are one voice, of which the field wins; CloudStack's
/// annotation is the other; a client must be let in by both.
pub(super) fn of(spec: &ServiceSpec, settings: &Settings) -> Sources {
    let mut merge = Merge {
        problems: Problems::default(),
        notices: Vec::new(),
    };
    let ranges = merge.ranges(spec, settings);
    let cidrs = merge.voice(
        &settings.source_cidrs,
        &annotations::field(annotations::SOURCE_CIDRS),
    );
    let networks = match (ranges, cidrs) {
        (None, None) => BTreeSet::new(),
        (Some(only), None) | (None, Some(only)) => only,
        (Some(ranges), Some(cidrs)) => {
            let both = intersection(&ranges, &cidrs);
            if both.is_empty() {
                merge.problems.push(Problem::of(
                    annotations::SOURCE_CIDRS,
                    "lets in nobody of those that spec.loadBalancerSourceRanges lets in; a client must be in both lists",
                ));
            }
            both
        }
    };
    let everybody = networks.iter().any(|network| network.prefix_len() == 0);
    let networks = if everybody { BTreeSet::new() } else { networks };
    Sources {
        networks: if merge.problems.is_empty() {
            Ok(networks)
        } else {
            Err(merge.problems)
        },
        notices: merge.notices,
    }
}

struct Merge {
    problems: Problems,
    notices: Vec<Notice>,
}

impl Merge {
    fn ranges(&mut self, spec: &ServiceSpec, settings: &Settings) -> Option<BTreeSet<Ipv4Net>> {
        let field = spec.load_balancer_source_ranges.as_deref().unwrap_or_default();
        if field.is_empty() {
            // An empty annotation of Kubernetes is documented as everybody; nothing is worth saying about it.
            return match &settings.source_ranges {
                Networks::Unset | Networks::Empty => None,
                Networks::Listed(_) => self.voice(
                    &settings.source_ranges,
                    &annotations::field(annotations::SOURCE_RANGES),
                ),
            };
        }
        if let Some(text) = annotations::too_many(field.len()) {
            self.problems
                .push(Problem::new("spec.loadBalancerSourceRanges", text));
            return None;
        }
        let mut networks = Vec::with_capacity(field.len());
        for (index, entry) in field.iter().enumerate() {
            match annotations::network(entry) {
                Ok(network) => networks.push(network),
                Err(text) => {
                    self.problems.push(Problem::new(
                        format!("spec.loadBalancerSourceRanges[{index}]"),
                        text,
                    ));
                }
            }
        }
        self.voice(&Networks::Listed(networks), "spec.loadBalancerSourceRanges")
    }

    /// The IPv4 networks of one voice; nothing if it does not restrict.
    fn voice(&mut self, networks: &Networks, field: &str) -> Option<BTreeSet<Ipv4Net>> {
        let listed = match networks {
            Networks::Unset => return None,
            Networks::Empty => {
                self.notices.push(Notice::of(
                    &Reason::SOURCE_CIDRS_EMPTY,
                    field,
                    "is empty, which restricts nothing; remove the annotation, or name networks",
                ));
                return None;
            }
            Networks::Listed(listed) => listed,
        };
        let mut ipv4 = BTreeSet::new();
        let mut ipv6 = Vec::new();
        for network in listed {
            match network {
                IpNet::V4(network) => {
                    ipv4.insert(*network);
                }
                IpNet::V6(network) => ipv6.push(network.to_string()),
            }
        }
        if ipv6.is_empty() {
            return (!ipv4.is_empty()).then_some(ipv4);
        }
        if ipv4.is_empty() {
            self.problems.push(Problem::new(
                field,
                "names IPv6 networks only, and the address is IPv4: nobody could get in; add IPv4 networks",
            ));
        } else {
            self.notices.push(Notice::of(
                &Reason::SOURCE_RANGES_IGNORED,
                field,
                format!("{} left out, since the address is IPv4", enumerate(&ipv6)),
            ));
        }
        Some(ipv4)
    }
}

/// The networks whose addresses are in both lists. Two networks share nothing, or one holds the other.
fn intersection(left: &BTreeSet<Ipv4Net>, right: &BTreeSet<Ipv4Net>) -> BTreeSet<Ipv4Net> {
    let mut both = BTreeSet::new();
    for one in left {
        for other in right {
            if one.contains(other) {
                both.insert(*other);
            } else if other.contains(one) {
                both.insert(*one);
            }
        }
    }
    both
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn network() -> impl Strategy<Value = Ipv4Net> {
        // Few addresses and long prefixes, so that networks meet.
        (any::<u8>(), 24_u8..=32)
            .prop_map(|(host, length)| Ipv4Net::new([10, 0, 0, host].into(), length).unwrap().trunc())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn an_address_is_in_the_intersection_exactly_if_it_is_in_both_lists(
            left in prop::collection::btree_set(network(), 0..5),
            right in prop::collection::btree_set(network(), 0..5),
            host in any::<u8>(),
        ) {
            let address = std::net::Ipv4Addr::new(10, 0, 0, host);
            let within = |networks: &BTreeSet<Ipv4Net>| networks.iter().any(|network| network.contains(&address));
            prop_assert_eq!(within(&intersection(&left, &right)), within(&left) && within(&right));
        }
    }
}
