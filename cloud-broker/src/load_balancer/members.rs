//! Members: which machines a rule should have, and which differences are safe to act on.
//!
//! Decides that nothing is removed on a guess: not while a node is unresolved (except what is proved gone), not because the
//! list of nodes is empty, and never all running members at once while no Node claims them.

use std::collections::BTreeSet;

use sha2::{Digest as _, Sha256};

use super::observation::Observation;
use super::outcome::{Note, enumerate};
use super::sources::hex;
use super::wish::{ServiceUid, Wish};
use crate::cloudstack::types::{MachineId, MachineState, Network};
use crate::tenant::Scope;

/// The members that every rule of a balancer should have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WantedMembers {
    /// Machines that should be members.
    pub machines: BTreeSet<MachineId>,
    /// Machines that the caller's nodes claim, whatever else speaks against them.
    pub claimed: BTreeSet<MachineId>,
    /// Only these may be removed; everything else that is not wanted may be, too, if `None`.
    pub removable: Option<BTreeSet<MachineId>>,
}

/// What is to do about one rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    /// To assign.
    pub missing: Vec<MachineId>,
    /// To remove afterwards.
    pub surplus: Vec<MachineId>,
}

impl WantedMembers {
    /// What a wish means in a network.
    pub(crate) fn of(
        wish: &Wish,
        scope: &Scope,
        network: &Network,
        observation: &Observation,
    ) -> (Self, Vec<Note>) {
        let mut wanted = Self {
            claimed: wish.members.machines.keys().cloned().collect(),
            ..Self::default()
        };
        let (mut elsewhere, mut unseen) = (Vec::new(), Vec::new());
        for (id, node) in &wish.members.machines {
            match observation.machines.get(id) {
                Some(machine) if machine.nic_in(&network.id).is_none() => elsewhere.push(node.as_str()),
                Some(machine) => {
                    let tags = machine
                        .tags
                        .iter()
                        .map(|tag| (tag.key.as_str(), tag.value.as_str()));
                    if scope.machines.admit(&machine.name, tags) {
                        wanted.machines.insert(id.clone());
                    } else {
                        elsewhere.push(node.as_str());
                    }
                }
                None => unseen.push(node.as_str()),
            }
        }
        let mut notes = Vec::new();
        if !elsewhere.is_empty() {
            let text = format!(
                "nodes without an interface in network {} are left out: {}",
                network.name,
                enumerate(&elsewhere)
            );
            notes.push(Note::warning("NodesOutsideNetwork", text).about("members"));
        }
        if !unseen.is_empty() {
            let text = format!(
                "machines of these nodes are not visible and are left as they are: {}",
                enumerate(&unseen)
            );
            notes.push(Note::warning("MachinesNotVisible", text).about("members"));
        }
        let unresolved: Vec<&str> = wish.members.unresolved.iter().map(String::as_str).collect();
        if !unresolved.is_empty() {
            let text = format!(
                "no machine is known yet for these nodes, so no member is removed: {}",
                enumerate(&unresolved)
            );
            notes.push(Note::normal("NodesUnresolved", text).about("members"));
        }
        if wish.members.is_empty() {
            notes.push(
                Note::warning("NoNodes", "no node may serve; the members stay as they are").about("members"),
            );
        }
        if !unresolved.is_empty() || wish.members.is_empty() || wanted.machines.is_empty() {
            wanted.removable = Some(wish.members.gone.clone());
        }
        (wanted, notes)
    }

    /// What is to do about a rule with these members.
    pub(crate) fn difference(&self, present: &BTreeSet<MachineId>) -> Difference {
        let may_go = |id: &&MachineId| match &self.removable {
            Some(only) => only.contains(*id),
            None => !self.claimed.contains(*id),
        };
        // A machine that left the network but is claimed by a node is no member any more on the server's side either.
        Difference {
            missing: self.machines.difference(present).cloned().collect(),
            surplus: present
                .difference(&self.machines)
                .filter(may_go)
                .cloned()
                .collect(),
        }
    }

    /// The members that all would be replaced although some of them run and no node claims them: a restored clone of
    /// the cluster may serve this balancer.
    pub(crate) fn replaced_wholesale<'a>(
        &self,
        present: &'a BTreeSet<MachineId>,
        observation: &Observation,
    ) -> Option<&'a BTreeSet<MachineId>> {
        let all_go = !present.is_empty()
            && !self.machines.is_empty()
            && self.difference(present).surplus.len() == present.len();
        let runs = |id: &MachineId| {
            observation
                .machines
                .get(id)
                .is_some_and(|machine| machine.state == MachineState::Running)
        };
        (all_go && present.iter().any(runs)).then_some(present)
    }
}

/// The id under which a person accepts that all running members are replaced.
pub(crate) fn replace_id(
    service: &ServiceUid,
    wanted: &WantedMembers,
    replaced: &BTreeSet<MachineId>,
) -> String {
    let ids = |set: &BTreeSet<MachineId>| set.iter().map(MachineId::as_str).collect::<Vec<_>>().join(",");
    let text = format!("{service}/{}/{}", ids(&wanted.machines), ids(replaced));
    hex(&Sha256::digest(text.as_bytes()), 6)
}
