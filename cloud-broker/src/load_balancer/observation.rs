//! What was seen of the cloud, and how one change shows in it.
//!
//! Decides nothing. An observation is data for the plan: what was not looked at is absent, and the plan says what it needs
//! ([`Need`]). After a step its effect is folded in ([`Change`]), so that the next plan sees it without another read.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::features::Features;
use super::namespaces::Namespaces;
use crate::cloudstack::types::{
    AclItemId, AclListId, AddressId, AddressState, FirewallRule, FirewallRuleId, JobId, LoadBalancerRule,
    Machine, MachineId, Network, NetworkAclItem, PublicIpAddress, RuleId, RuleState, Timestamp, ZoneId,
};
use crate::tenant::AllowedAddresses;

/// What the plan wants to be looked at before it goes on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Need {
    /// The rules again, since what was seen is too surprising to act on.
    SecondLook,
    /// The firewall rules in scope.
    Firewall,
    /// The items of an ACL list.
    Acl(AclListId),
    /// The items of all ACL lists in scope, those that no network has any more included.
    AllAcl,
    /// The members of a rule.
    Members(RuleId),
    /// An address that the lists don't show.
    Address(AddressId),
    /// Addresses that are being taken or released, or were left so.
    Unsettled,
    /// Some free addresses of a zone that may be used.
    Free {
        /// The zone.
        zone: Option<ZoneId>,
        /// Which may be used.
        among: AllowedAddresses,
    },
    /// An address by its digits, whatever its state.
    Digits(IpAddr),
    /// A job by its id.
    Job(JobId),
    /// What else is on an address, read while nobody else changes it.
    Holders(AddressId),
}

/// What is known of a job that has a chosen id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JobView {
    /// Nobody ever used the id, or the record expired.
    Unknown,
    /// It runs.
    Running,
    /// It succeeded on this address, which was taken then.
    Succeeded {
        /// The address.
        address: Option<AddressId>,
        /// When the address was taken, as the result says.
        allocated: Option<Timestamp>,
    },
    /// It failed, with this text.
    Failed(String),
}

/// An address that this process took, or is just taking, for a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// UID of its cluster.
    pub cluster: String,
    /// UID of the Service.
    pub service: String,
    /// So short ago that no list need show it.
    pub lately: bool,
}

/// What else is on an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holders {
    /// Port forwarding rules; `None` if the key may not see them.
    pub port_forwarding: Option<usize>,
    /// Remote access VPNs; `None` if the key may not see them.
    pub vpns: Option<usize>,
}

/// A release that was begun and that nobody saw end. It may have taken the rules, which were the proof of whose the address is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BegunRelease {
    /// UID of the Service that gave the address back.
    pub service: String,
    /// When the address was taken: whoever takes it after the release has another one.
    pub allocated: Option<Timestamp>,
}

impl BegunRelease {
    /// Whether an address that was taken then is the one that it speaks of.
    pub(crate) fn is_of(&self, allocated: Option<Timestamp>) -> bool {
        allocated.is_some() && self.allocated == allocated
    }
}

/// What was seen.
#[derive(Clone, Debug)]
pub(crate) struct Observation {
    /// The server's time, for ages.
    pub now: Timestamp,
    /// What the server can do.
    pub features: Features,
    /// Networks in scope.
    pub networks: Vec<Network>,
    /// Machines in scope.
    pub machines: BTreeMap<MachineId, Machine>,
    /// Rules in scope, everybody's.
    pub rules: Vec<LoadBalancerRule>,
    /// Allocated addresses in scope, and others that were looked up.
    pub addresses: Vec<PublicIpAddress>,
    /// Firewall rules in scope, as far as looked at.
    pub firewall: Vec<FirewallRule>,
    /// Whether all firewall rules in scope were looked at.
    pub firewall_read: bool,
    /// Items by ACL list, once looked at.
    pub acl: BTreeMap<AclListId, Vec<NetworkAclItem>>,
    /// Whether the items of all lists in scope were looked at; a list that is not there has none.
    pub acl_read: bool,
    /// Members by rule, once looked at or remembered.
    pub members: BTreeMap<RuleId, BTreeSet<MachineId>>,
    /// Addresses being taken or released, once looked at.
    pub unsettled: Option<Vec<PublicIpAddress>>,
    /// Some free addresses, once looked at.
    pub free: Option<Vec<PublicIpAddress>>,
    /// Addresses looked up by their digits; `None` inside is "not visible".
    pub digits: BTreeMap<IpAddr, Option<PublicIpAddress>>,
    /// Addresses looked up by id and not visible.
    pub invisible: BTreeSet<AddressId>,
    /// Jobs looked up.
    pub jobs: BTreeMap<JobId, JobView>,
    /// What else is on addresses, once looked at.
    pub holders: BTreeMap<AddressId, Holders>,
    /// Releases that this process began and did not see end.
    pub begun: BTreeMap<AddressId, BegunRelease>,
    /// Addresses taken in this call: nothing of ours is on them that is not here.
    pub fresh: BTreeSet<AddressId>,
    /// Addresses that this process took for Services and that no rule of it is on yet.
    pub taken: BTreeMap<AddressId, Taken>,
    /// Namespaces by Service, as far as this process has heard of them.
    pub namespaces: Namespaces,
    /// How often the rules were read for this call.
    pub looks: u32,
    /// Associates of this call that did not get their address.
    pub lost_associates: u32,
}

impl Observation {
    /// Of nothing yet.
    pub(crate) fn empty(now: Timestamp, features: Features) -> Self {
        Self {
            now,
            features,
            networks: Vec::new(),
            machines: BTreeMap::new(),
            rules: Vec::new(),
            addresses: Vec::new(),
            firewall: Vec::new(),
            firewall_read: false,
            acl: BTreeMap::new(),
            acl_read: false,
            members: BTreeMap::new(),
            unsettled: None,
            free: None,
            digits: BTreeMap::new(),
            invisible: BTreeSet::new(),
            jobs: BTreeMap::new(),
            holders: BTreeMap::new(),
            begun: BTreeMap::new(),
            fresh: BTreeSet::new(),
            taken: BTreeMap::new(),
            namespaces: Namespaces::default(),
            looks: 1,
            lost_associates: 0,
        }
    }

    /// An address by id.
    pub(crate) fn address(&self, id: &AddressId) -> Option<&PublicIpAddress> {
        self.addresses.iter().find(|address| address.id == *id)
    }

    /// Addresses that are allocated, being taken or being released, as far as looked at, each once.
    pub(crate) fn all_addresses(&self) -> impl Iterator<Item = &PublicIpAddress> {
        let unsettled = self.unsettled.iter().flatten();
        let other = unsettled.filter(|address| self.address(&address.id).is_none());
        self.addresses.iter().chain(other)
    }

    /// A rule by id.
    pub(crate) fn rule(&self, id: &RuleId) -> Option<&LoadBalancerRule> {
        self.rules.iter().find(|rule| rule.id == *id)
    }

    /// Rules on an address, everybody's, those on their way out included.
    pub(crate) fn rules_on<'o>(&'o self, id: &'o AddressId) -> impl Iterator<Item = &'o LoadBalancerRule> {
        self.rules
            .iter()
            .filter(move |rule| rule.address_id.as_ref() == Some(id))
    }

    /// Firewall rules of an address; `None` if that was not looked at. An address taken in this call has none but ours.
    pub(crate) fn firewall_of(&self, id: &AddressId) -> Option<Vec<&FirewallRule>> {
        (self.firewall_read || self.fresh.contains(id)).then(|| {
            self.firewall
                .iter()
                .filter(|rule| rule.address_id.as_ref() == Some(id))
                .collect()
        })
    }

    /// Whether anything of the scope was visible, so that what is missing counts as absent.
    pub(crate) fn shows_anything(&self) -> bool {
        !(self.networks.is_empty()
            && self.machines.is_empty()
            && self.rules.is_empty()
            && self.addresses.is_empty())
    }

    /// Forgets what was looked at for one plan only, so that it is looked at again.
    pub(crate) fn forget_looks(&mut self) {
        self.unsettled = None;
        self.free = None;
        self.digits.clear();
        self.invisible.clear();
        self.holders.clear();
        self.jobs.clear();
    }

    /// Folds in what changed.
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::Rule(rule) => upsert(&mut self.rules, rule, |other| other.id == rule.id),
            Change::RuleGone(id) => {
                self.rules.retain(|rule| rule.id != *id);
                self.members.remove(id);
            }
            Change::Address(address) => {
                upsert(&mut self.addresses, address, |other| other.id == address.id);
                self.digits.insert(address.ip, Some((**address).clone()));
                // Whoever took it since has another proof.
                self.begun
                    .retain(|id, begun| *id != address.id || begun.allocated == address.allocated);
                retain_others(&mut self.unsettled, &address.id);
                retain_others(&mut self.free, &address.id);
            }
            Change::AddressGone(id) => self.address_gone(id),
            Change::ReleaseBegun(id, begun) => {
                self.begun.insert(id.clone(), begun.clone());
            }
            Change::Firewall(rule) => upsert(&mut self.firewall, rule, |other| other.id == rule.id),
            Change::FirewallGone(id) => self.firewall.retain(|rule| rule.id != *id),
            Change::Acl(item) => {
                let Some(list) = &item.list_id else { return };
                if self.acl_read {
                    self.acl.entry(list.clone()).or_default();
                }
                if let Some(items) = self.acl.get_mut(list) {
                    upsert(items, item, |other| other.id == item.id);
                }
            }
            Change::AclGone(id) => {
                self.acl
                    .values_mut()
                    .for_each(|items| items.retain(|item| item.id != *id));
            }
            Change::Members(id, members) => {
                let state = if members.is_empty() {
                    RuleState::Add
                } else {
                    RuleState::Active
                };
                if let Some(rule) = self.rules.iter_mut().find(|rule| rule.id == *id)
                    && rule.state != RuleState::Deleting
                {
                    rule.state = state;
                }
                self.members.insert(id.clone(), members.clone());
            }
            Change::Job(id, view) => {
                self.jobs.insert(id.clone(), view.clone());
            }
        }
    }

    fn address_gone(&mut self, id: &AddressId) {
        if let Some(address) = self.address(id).cloned() {
            let free = PublicIpAddress {
                state: AddressState::Free,
                allocated: None,
                ..address
            };
            self.digits.insert(free.ip, Some(free));
        }
        self.addresses.retain(|address| address.id != *id);
        self.rules.retain(|rule| rule.address_id.as_ref() != Some(id));
        self.firewall.retain(|rule| rule.address_id.as_ref() != Some(id));
        retain_others(&mut self.unsettled, id);
        self.fresh.remove(id);
        self.begun.remove(id);
    }
}

fn upsert<T: Clone>(list: &mut Vec<T>, item: &T, same: impl Fn(&T) -> bool) {
    match list.iter_mut().find(|other| same(other)) {
        Some(other) => *other = item.clone(),
        None => list.push(item.clone()),
    }
}

fn retain_others(list: &mut Option<Vec<PublicIpAddress>>, id: &AddressId) {
    if let Some(list) = list {
        list.retain(|address| address.id != *id);
    }
}

/// How one step shows in what was seen.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// A rule is there, like this.
    Rule(Box<LoadBalancerRule>),
    /// A rule is gone.
    RuleGone(RuleId),
    /// An address is ours, like this.
    Address(Box<PublicIpAddress>),
    /// An address is given back, and all that was on it gone.
    AddressGone(AddressId),
    /// An address is about to be given back.
    ReleaseBegun(AddressId, BegunRelease),
    /// A firewall rule is there, like this.
    Firewall(Box<FirewallRule>),
    /// A firewall rule is gone.
    FirewallGone(FirewallRuleId),
    /// An ACL item is there, like this.
    Acl(Box<NetworkAclItem>),
    /// An ACL item is gone.
    AclGone(AclItemId),
    /// A rule has these members.
    Members(RuleId, BTreeSet<MachineId>),
    /// A job of ours ended, or is known by now.
    Job(JobId, JobView),
}
