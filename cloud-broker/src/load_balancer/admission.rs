//! Whether a rule lies inside a tenant's fence that no mark gives to a cluster. Pure.
//!
//! Names are no secret: whoever knows a Service's UID, or its name and the name of its cluster, can ask for its balancer. So among clusters
//! that share keys a rule may only be taken over by the one whose networks and machines it serves. A mark that names a cluster needs
//! no such proof, and a tenant without a fence is alone with its keys.

use super::observation::Observation;
use crate::cloudstack::types::LoadBalancerRule;
use crate::instances::matching;
use crate::tenant::{ClusterUids, Machines, Scope};

/// What the fence says of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It is inside.
    Inside,
    /// It is not, or nothing shows that it is.
    Outside(Fence),
    /// Its members tell, and have to be looked at first.
    AskMembers,
}

/// What keeps a rule outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fence {
    /// Its network is not one of the tenant's.
    Networks,
    /// A machine behind it is not one of the tenant's.
    Machines,
    /// No machine behind it can be seen.
    NoMachine,
}

impl Fence {
    /// The same for people.
    pub(crate) fn why(self) -> &'static str {
        match self {
            Self::Networks => "its network is not among the `networks` of the cluster's section",
            Self::Machines => {
                "a machine that it balances to is not among the `machines` of the cluster's section"
            }
            Self::NoMachine => {
                "it balances to no machine that can be seen, so nothing shows that it is for the `machines` of the cluster's \
                 section"
            }
        }
    }
}

/// Whether a rule is in a network of the tenant and, where machines tell tenants of one network apart, serves machines of its own.
pub(crate) fn admission(scope: &Scope, rule: &LoadBalancerRule, observation: &Observation) -> Admission {
    if !scope.networks.is_empty() && !is_in_networks(scope, rule, observation) {
        return Admission::Outside(Fence::Networks);
    }
    if scope.machines == Machines::Any {
        return Admission::Inside;
    }
    let Some(members) = observation.members.get(&rule.id) else {
        return Admission::AskMembers;
    };
    let mut visible = members
        .iter()
        .filter_map(|id| observation.machines.get(id))
        .map(|machine| matching::admits(scope, machine))
        .peekable();
    if visible.peek().is_none() {
        Admission::Outside(Fence::NoMachine)
    } else if visible.all(|is_inside| is_inside) {
        Admission::Inside
    } else {
        Admission::Outside(Fence::Machines)
    }
}

/// The same of a rule whose mark names no cluster. One that has its keys for itself may have made it just now, without members.
pub(crate) fn admission_of_nameless(
    uids: &ClusterUids,
    scope: &Scope,
    rule: &LoadBalancerRule,
    observation: &Observation,
) -> Admission {
    let found = admission(scope, rule, observation);
    if found == Admission::Outside(Fence::NoMachine) && uids.is_alone() {
        return Admission::Inside;
    }
    found
}

/// A network that is not visible can still be named by its id.
fn is_in_networks(scope: &Scope, rule: &LoadBalancerRule, observation: &Observation) -> bool {
    rule.network_id.as_ref().is_some_and(|id| {
        let seen = observation.networks.iter().find(|network| network.id == *id);
        scope.admits_network(id.as_str(), seen.map_or("", |network| network.name.as_str()))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rstest::rstest;
    use serde_json::json;

    use super::super::features::Features;
    use super::*;
    use crate::cloudstack::types::{Entity, Fields, MachineId, Timestamp};
    use crate::tenant::{NameOrId, Pattern};

    fn entity<T: Entity>(value: &serde_json::Value) -> T {
        T::parse(Fields::of(value)).unwrap()
    }

    /// Networks `n1` (named blue) and `n2` (green), machines `prod-1` and `test-1`, and rule `r`.
    fn seen(network: Option<&str>, members: Option<&str>) -> Observation {
        let mut seen = Observation::empty(Timestamp::from_seconds(0), Features::NEWEST);
        seen.networks = [("n1", "blue"), ("n2", "green")]
            .map(|(id, name)| {
                entity(&json!({ "id": id, "name": name, "type": "Isolated", "state": "Implemented" }))
            })
            .into();
        for name in ["prod-1", "test-1"] {
            let id = MachineId::parse(name).unwrap();
            let nics = json!([{ "networkid": "n1", "networkname": "blue", "isdefault": true }]);
            let machine = json!({ "id": name, "name": name, "state": "Running", "nic": nics });
            seen.machines.insert(id, entity(&machine));
        }
        let rule: LoadBalancerRule = entity(&json!({
            "id": "r", "name": "x", "publicport": "80", "privateport": "30080", "algorithm": "roundrobin",
            "networkid": network, "state": "Active",
        }));
        if let Some(members) = members {
            let ids = members.split_whitespace();
            let members: BTreeSet<_> = ids.map(|id| MachineId::parse(id).unwrap()).collect();
            seen.members.insert(rule.id.clone(), members);
        }
        seen.rules = vec![rule];
        seen
    }

    fn scope(networks: &[&str], machines: Option<&str>) -> Scope {
        Scope {
            networks: networks.iter().copied().map(NameOrId::new).collect(),
            machines: machines.map_or(Machines::Any, |pattern| Machines::Named(Pattern::new(pattern))),
            ..Scope::default()
        }
    }

    #[rstest]
    #[case::no_fence(&[], None, Some("n9"), None, Admission::Inside)]
    #[case::no_fence_and_no_network(&[], None, None, None, Admission::Inside)]
    #[case::its_network_by_name(&["blue"], None, Some("n1"), None, Admission::Inside)]
    #[case::its_network_by_id(&["n9"], None, Some("n9"), None, Admission::Inside)]
    #[case::another_network(&["blue"], None, Some("n2"), None, Admission::Outside(Fence::Networks))]
    #[case::a_network_that_is_not_visible(&["blue"], None, Some("n9"), None, Admission::Outside(Fence::Networks))]
    #[case::no_network(&["blue"], None, None, None, Admission::Outside(Fence::Networks))]
    #[case::members_not_known(&["blue"], Some("prod-*"), Some("n1"), None, Admission::AskMembers)]
    #[case::another_network_needs_no_members(&["blue"], Some("prod-*"), Some("n2"), None, Admission::Outside(Fence::Networks))]
    #[case::its_machines(&["blue"], Some("prod-*"), Some("n1"), Some("prod-1"), Admission::Inside)]
    #[case::its_machines_and_one_that_is_gone(&["blue"], Some("prod-*"), Some("n1"), Some("prod-1 gone"), Admission::Inside)]
    #[case::machines_of_another(&["blue"], Some("prod-*"), Some("n1"), Some("test-1"), Admission::Outside(Fence::Machines))]
    #[case::machines_of_both(&["blue"], Some("prod-*"), Some("n1"), Some("prod-1 test-1"), Admission::Outside(Fence::Machines))]
    #[case::no_machines(&["blue"], Some("prod-*"), Some("n1"), Some(""), Admission::Outside(Fence::NoMachine))]
    #[case::machines_that_nobody_sees(&["blue"], Some("prod-*"), Some("n1"), Some("gone"), Admission::Outside(Fence::NoMachine))]
    fn a_rule_is_inside_by_its_network_and_its_machines(
        #[case] networks: &[&str],
        #[case] machines: Option<&str>,
        #[case] network: Option<&str>,
        #[case] members: Option<&str>,
        #[case] expected: Admission,
    ) {
        let seen = seen(network, members);
        let found = admission(&scope(networks, machines), &seen.rules[0], &seen);
        assert_eq!(found, expected);
    }
}
