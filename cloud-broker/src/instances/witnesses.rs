//! Machines that show that it is looked in the right place.
//!
//! Decides who can be a witness for a cluster: a visible machine of its scope that a node was found to be, now or before. Not just
//! any machine, or other keys would prove that all machines of the old ones are gone.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;

use super::lists::MachineList;
use super::matching;
use super::question::View;
use crate::cloudstack::types::{Machine, MachineId};
use crate::tenant::ClusterName;

/// Machines of one cluster that are remembered as its nodes.
const MOST_NODES: usize = 20_000;

/// Machines that nodes of clusters were found to be.
#[derive(Debug, Default)]
pub(super) struct Witnesses(Mutex<HashMap<ClusterName, HashSet<MachineId>>>);

impl Witnesses {
    /// A node of the cluster was found to be this machine.
    pub(super) fn is_a_node(&self, cluster: &ClusterName, machine: &MachineId) {
        let mut nodes = self.0.lock();
        let of_cluster = nodes.entry(cluster.clone()).or_default();
        if of_cluster.len() > MOST_NODES {
            of_cluster.clear();
        }
        if !of_cluster.contains(machine) {
            of_cluster.insert(machine.clone());
        }
    }

    /// A witness in a list, for anything but itself.
    pub(super) fn of(
        &self,
        view: View<'_>,
        list: &MachineList,
        missing: Option<&MachineId>,
    ) -> Option<MachineId> {
        let nodes = self.0.lock();
        let of_cluster = nodes.get(view.cluster)?;
        let is_witness = |machine: &&Machine| {
            Some(&machine.id) != missing
                && of_cluster.contains(&machine.id)
                && matching::admits(view.scope, machine)
        };
        let mut machines = list.index.machines().iter();
        machines.find(is_witness).map(|machine| machine.id.clone())
    }

    /// Forgets all of them.
    pub(super) fn forget(&self) {
        self.0.lock().clear();
    }
}
