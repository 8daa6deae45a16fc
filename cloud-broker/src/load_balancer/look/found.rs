//! Answers to needs, and where they belong in what was seen. Pure.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::cloudstack::types::{
    AddressId, AddressState, JobId, LoadBalancerRule, MachineId, PublicIpAddress, RuleId,
};
use crate::load_balancer::observation::{Change, Holders, JobView, Observation};

/// Everything that is on an address.
pub(super) struct OnAddress {
    pub(super) id: AddressId,
    pub(super) address: Option<PublicIpAddress>,
    pub(super) rules: Vec<LoadBalancerRule>,
    pub(super) holders: Holders,
}

/// An answer to a need.
pub(super) enum Found {
    Nothing,
    Members(RuleId, BTreeSet<MachineId>),
    RuleGone(RuleId),
    Address(AddressId, Option<PublicIpAddress>),
    Unsettled(Vec<PublicIpAddress>),
    Free(Vec<PublicIpAddress>),
    Digits(IpAddr, Option<PublicIpAddress>),
    Job(JobId, JobView),
    Holders(Box<OnAddress>),
}

impl Found {
    /// Adds it to what was seen.
    pub(super) fn put(self, observation: &mut Observation) {
        match self {
            Self::Nothing => {}
            Self::Members(rule, members) => {
                // The state of the rule stays as it was listed: it may tell of a change that was not applied.
                observation.members.insert(rule, members);
            }
            Self::RuleGone(rule) => observation.apply(&Change::RuleGone(rule)),
            Self::Address(_, Some(address)) => observation.addresses.push(address),
            Self::Address(id, None) => {
                observation.invisible.insert(id);
            }
            Self::Unsettled(list) => observation.unsettled = Some(list),
            Self::Free(list) => observation.free = Some(list),
            Self::Digits(ip, address) => {
                observation.digits.insert(ip, address);
            }
            Self::Job(id, view) => {
                observation.jobs.insert(id, view);
            }
            Self::Holders(found) => {
                let OnAddress {
                    id,
                    address,
                    rules,
                    holders,
                } = *found;
                observation
                    .rules
                    .retain(|rule| rule.address_id.as_ref() != Some(&id));
                observation.rules.extend(rules);
                observation.addresses.retain(|other| other.id != id);
                if let Some(unsettled) = &mut observation.unsettled {
                    unsettled.retain(|other| other.id != id);
                }
                match address {
                    Some(address) if address.state != AddressState::Free => {
                        observation.addresses.push(address);
                    }
                    Some(_) | None => {
                        observation.invisible.insert(id.clone());
                    }
                }
                observation.holders.insert(id, holders);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::cloudstack::types::{Entity, Fields, Timestamp};
    use crate::load_balancer::features::Features;

    fn address(state: &str) -> PublicIpAddress {
        let value = json!({ "id": "ip", "ipaddress": "192.0.2.7", "state": state });
        PublicIpAddress::parse(Fields::of(&value)).unwrap()
    }

    #[rstest]
    #[case::still_being_released(Some("Releasing"), Some(AddressState::Releasing))]
    #[case::somebodys(Some("Allocated"), Some(AddressState::Allocated))]
    #[case::free(Some("Free"), None)]
    #[case::not_visible(None, None)]
    fn what_is_found_on_an_address_in_ones_turn_takes_the_place_of_what_lists_showed(
        #[case] found: Option<&str>,
        #[case] state: Option<AddressState>,
    ) {
        let mut seen = Observation::empty(Timestamp::from_seconds(0), Features::NEWEST);
        seen.unsettled = Some(vec![address("Releasing")]);
        let found = OnAddress {
            id: address("Releasing").id,
            address: found.map(address),
            rules: Vec::new(),
            holders: Holders::default(),
        };
        Found::Holders(Box::new(found)).put(&mut seen);
        assert_eq!(seen.unsettled, Some(Vec::new()));
        let states: Vec<_> = seen
            .addresses
            .iter()
            .map(|address| address.state.clone())
            .collect();
        assert_eq!(states, Vec::from_iter(state));
    }
}
