//! How a step shows in what was seen, once it succeeded.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::Step;
use crate::cloudstack::types::{
    AclAction, AclDirection, AclItemId, AddressId, AddressState, CidrList, FirewallRule, FirewallRuleId,
    LoadBalancerRule, MachineId, NetworkAclItem, NetworkId, Owner, PublicIpAddress, RuleId, RuleState, Tag,
};
use crate::cloudstack::{
    Associate, AssociateTarget, CreateAclItem, CreateFirewallRule, CreateRule, RuleChange,
};
use crate::load_balancer::observation::{BegunRelease, Change, JobView, Observation};
use crate::load_balancer::ownership::Identity;

/// What a server answered to a step that succeeded, as far as it matters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answered {
    /// The rule that was made.
    pub rule: Option<LoadBalancerRule>,
    /// Its id, or that of another object that was made, if only that is known.
    pub id: Option<String>,
    /// The address that was taken.
    pub address: Option<PublicIpAddress>,
    /// The firewall rule that was made.
    pub firewall: Option<FirewallRule>,
    /// The ACL item that was made.
    pub acl: Option<NetworkAclItem>,
}

impl Step {
    /// How the step shows before it is known to have succeeded.
    pub(crate) fn begins(&self, identity: &Identity, observation: &Observation) -> Option<Change> {
        let Self::Release { address, .. } = self else {
            return None;
        };
        let seen = observation.all_addresses().find(|seen| seen.id == *address)?;
        let begun = BegunRelease {
            service: identity.service.uid.to_string(),
            allocated: seen.allocated,
        };
        Some(Change::ReleaseBegun(address.clone(), begun))
    }

    /// How the step shows once it succeeded. What the answer does not say is as the step meant it.
    pub(crate) fn effect(&self, answered: &Answered, observation: &Observation) -> Vec<Change> {
        match self {
            Self::Associate { request, address } => taken(request, address, answered, observation),
            Self::CreateRule { rule, ip, .. } => created(rule, *ip, answered, observation),
            Self::UpdateRule { rule, change, .. } => updated(rule, change, observation),
            Self::DeleteRule { rule, .. } => vec![Change::RuleGone(rule.clone())],
            Self::Assign { rule, machines, .. } => {
                let mut members = members(observation, rule);
                members.extend(machines.iter().cloned());
                vec![Change::Members(rule.clone(), members)]
            }
            Self::Remove { rule, machines, .. } => {
                let mut members = members(observation, rule);
                members.retain(|id| !machines.contains(id));
                vec![Change::Members(rule.clone(), members)]
            }
            Self::OpenFirewall { rule, .. } => opened(rule, answered),
            Self::CloseFirewall { rule, .. } => vec![Change::FirewallGone(rule.clone())],
            Self::AllowInAcl(item) => allowed(item, answered),
            Self::DropFromAcl { item, .. } => vec![Change::AclGone(item.clone())],
            Self::Tag { address, tag, .. } => retagged(observation, address, |tags| tags.push(tag.clone())),
            Self::Untag { address, tag, .. } => retagged(observation, address, |tags| {
                tags.retain(|other| !other.key.eq_ignore_ascii_case(&tag.key));
            }),
            Self::Release { address, .. } => vec![Change::AddressGone(address.clone())],
        }
    }
}

fn members(observation: &Observation, rule: &RuleId) -> BTreeSet<MachineId> {
    observation.members.get(rule).cloned().unwrap_or_default()
}

fn retagged(observation: &Observation, id: &AddressId, edit: impl FnOnce(&mut Vec<Tag>)) -> Vec<Change> {
    let Some(address) = observation.address(id) else {
        return Vec::new();
    };
    let mut address = address.clone();
    edit(&mut address.tags);
    vec![Change::Address(Box::new(address))]
}

/// The result of the job calls the address `Allocating` still.
fn taken(request: &Associate, id: &AddressId, answered: &Answered, seen: &Observation) -> Vec<Change> {
    let free = || {
        let pages = seen
            .free
            .iter()
            .flatten()
            .chain(seen.digits.values().flatten())
            .chain(seen.unsettled.iter().flatten());
        pages.clone().find(|address| address.id == *id).cloned()
    };
    let Some(mut address) = answered.address.clone().or_else(free) else {
        return Vec::new();
    };
    address.state = AddressState::Allocated;
    address.allocated = address.allocated.or(Some(seen.now));
    match &request.target {
        AssociateTarget::Network(network) => address.network_id = Some(network.clone()),
        AssociateTarget::Vpc(vpc) => address.vpc_id = Some(vpc.clone()),
    }
    let proof = JobView::Succeeded {
        address: Some(id.clone()),
        allocated: address.allocated,
    };
    vec![
        Change::Address(Box::new(address)),
        Change::Job(request.job.clone(), proof),
    ]
}

fn created(rule: &CreateRule, ip: IpAddr, answered: &Answered, seen: &Observation) -> Vec<Change> {
    let by_id = || {
        let id = RuleId::parse(answered.id.as_deref()?).ok()?;
        Some(LoadBalancerRule {
            id,
            name: rule.name.clone(),
            description: rule.description.clone(),
            address_id: Some(rule.address.clone()),
            ip: Some(ip),
            public_port: rule.public_port,
            private_port: rule.private_port,
            algorithm: rule.algorithm.clone(),
            protocol: Some(rule.protocol.clone()),
            network_id: Some(rule.network.clone()),
            sources: rule.sources.clone().unwrap_or_default(),
            state: RuleState::Add,
            zone_id: None,
            owner: Owner::default(),
            tags: Vec::new(),
        })
    };
    let Some(made) = answered.rule.clone().or_else(by_id) else {
        return Vec::new();
    };
    let id = made.id.clone();
    let network: Option<NetworkId> = made.network_id.clone();
    let mut changes = vec![Change::Rule(Box::new(made)), Change::Members(id, BTreeSet::new())];
    // An address of a VPC belongs to the tier of its first rule.
    if let Some(address) = seen.address(&rule.address)
        && address.network_id.is_none()
    {
        let address = PublicIpAddress {
            network_id: network,
            ..address.clone()
        };
        changes.push(Change::Address(Box::new(address)));
    }
    changes
}

fn updated(id: &RuleId, change: &RuleChange, seen: &Observation) -> Vec<Change> {
    let Some(rule) = seen.rule(id) else {
        return Vec::new();
    };
    let mut rule = rule.clone();
    if let Some(name) = &change.name {
        rule.name.clone_from(name);
    }
    if let Some(description) = &change.description {
        rule.description.clone_from(description);
    }
    if let Some(algorithm) = &change.algorithm {
        rule.algorithm = algorithm.clone();
    }
    if let Some(protocol) = &change.protocol {
        rule.protocol = Some(protocol.clone());
    }
    if let Some(sources) = &change.sources {
        rule.sources = sources.clone();
    }
    if seen.members.get(id).is_some_and(|members| !members.is_empty()) {
        rule.state = RuleState::Active;
    }
    vec![Change::Rule(Box::new(rule))]
}

fn opened(rule: &CreateFirewallRule, answered: &Answered) -> Vec<Change> {
    let by_id = || {
        let id = FirewallRuleId::parse(answered.id.as_deref()?).ok()?;
        Some(FirewallRule {
            id,
            address_id: Some(rule.address.clone()),
            protocol: rule.protocol.as_str().to_owned(),
            ports: Some(rule.ports),
            sources: CidrList::verbatim(rule.sources.entries().iter().cloned()),
            network_id: None,
            state: RuleState::Active,
            tags: Vec::new(),
        })
    };
    let made = answered.firewall.clone().or_else(by_id);
    made.map(|rule| FirewallRule {
        state: RuleState::Active,
        ..rule
    })
    .map(|rule| Change::Firewall(Box::new(rule)))
    .into_iter()
    .collect()
}

fn allowed(item: &CreateAclItem, answered: &Answered) -> Vec<Change> {
    let by_id = || {
        let id = AclItemId::parse(answered.id.as_deref()?).ok()?;
        Some(NetworkAclItem {
            id,
            list_id: Some(item.list.clone()),
            number: Some(item.number),
            protocol: item.protocol.as_str().to_owned(),
            ports: Some(item.ports),
            sources: item.sources.clone(),
            direction: AclDirection::Ingress,
            action: AclAction::Allow,
            reason: item.reason.clone(),
            state: RuleState::Active,
        })
    };
    let made = answered.acl.clone().or_else(by_id);
    made.map(|item| NetworkAclItem {
        state: RuleState::Active,
        ..item
    })
    .map(|item| Change::Acl(Box::new(item)))
    .into_iter()
    .collect()
}
