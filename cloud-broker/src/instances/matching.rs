//! Which machine a node is. Pure.
//!
//! A machine id out of the node's provider id decides alone. Without one the system UUID is looked for, then the name, in any case: as it
//! is, then by its first label. Only machines of the tenant's scope count, machines that were destroyed don't, and two matches
//! are no match.

use std::collections::HashMap;

use super::NodeKey;
use crate::cloudstack::types::{Machine, MachineId, MachineState};
use crate::tenant::Scope;

/// What a list says about a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Match<'m> {
    /// This machine.
    One(&'m Machine),
    /// None that could be it.
    None,
    /// More than one; names of two of them.
    Several(&'m Machine, &'m Machine),
    /// The provider id names a machine that the tenant may not see.
    Outside,
}

/// The machines of a list, found by id and by name.
pub struct Index {
    machines: Vec<Machine>,
    by_id: HashMap<MachineId, usize>,
    by_name: HashMap<String, Vec<usize>>,
}

impl Index {
    /// Machines that were destroyed are left out: to ordinary users they are invisible anyway.
    pub fn new(machines: impl IntoIterator<Item = Machine>) -> Self {
        let machines: Vec<Machine> = machines.into_iter().filter(exists).collect();
        let by_id = machines
            .iter()
            .enumerate()
            .map(|(at, machine)| (machine.id.clone(), at))
            .collect();
        let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
        for (at, machine) in machines.iter().enumerate() {
            by_name.entry(machine.name.to_lowercase()).or_default().push(at);
        }
        Self {
            machines,
            by_id,
            by_name,
        }
    }

    /// All machines that exist.
    pub fn machines(&self) -> &[Machine] {
        &self.machines
    }

    /// The machine with this id.
    pub fn get(&self, id: &MachineId) -> Option<&Machine> {
        self.by_id.get(id).and_then(|at| self.machines.get(*at))
    }

    /// Which machine the node is.
    pub fn find(&self, key: &NodeKey, scope: &Scope) -> Match<'_> {
        if let Some(id) = &key.machine_id {
            return match self.get(id) {
                Some(machine) if admits(scope, machine) => Match::One(machine),
                Some(_) => Match::Outside,
                None => Match::None,
            };
        }
        let by_uuid = key
            .system_uuid
            .as_deref()
            .and_then(|uuid| self.by_system_uuid(uuid));
        if let Some(machine) = by_uuid.filter(|machine| admits(scope, machine)) {
            return Match::One(machine);
        }
        let name = key.node_name.to_lowercase();
        let first_label = name.split('.').next().unwrap_or_default();
        let whole = self.named(&name, scope);
        if whole == Match::None && first_label != name {
            self.named(first_label, scope)
        } else {
            whole
        }
    }

    /// Whether the node says to be another machine than its provider id does. A UUID that names no machine at all says nothing: some
    /// hypervisors give their guests one of their own.
    pub fn is_mismatch(&self, key: &NodeKey, machine: &Machine) -> bool {
        let said = key
            .system_uuid
            .as_deref()
            .and_then(|uuid| self.by_system_uuid(uuid));
        key.machine_id.is_some() && said.is_some_and(|said| said.id != machine.id)
    }

    fn named(&self, name: &str, scope: &Scope) -> Match<'_> {
        let places = self.by_name.get(name).map(Vec::as_slice).unwrap_or_default();
        let mut found = places
            .iter()
            .filter_map(|at| self.machines.get(*at))
            .filter(|machine| admits(scope, machine));
        match (found.next(), found.next()) {
            (None, _) => Match::None,
            (Some(one), None) => Match::One(one),
            (Some(one), Some(other)) => Match::Several(one, other),
        }
    }

    /// A guest sees its machine's id, some of them with the first three groups byte by byte reversed.
    fn by_system_uuid(&self, uuid: &str) -> Option<&Machine> {
        let uuid = uuid::Uuid::try_parse(uuid.trim()).ok()?;
        let swapped = uuid::Uuid::from_bytes(uuid.to_bytes_le());
        [uuid, swapped]
            .iter()
            .filter_map(|uuid| MachineId::parse(&uuid.hyphenated().to_string()).ok())
            .find_map(|id| self.get(&id))
    }
}

/// Whether the tenant may see the machine: its zone, one of its networks, and its name or tags.
pub fn admits(scope: &Scope, machine: &Machine) -> bool {
    let zone_id = machine.zone_id.as_ref().map_or("", |id| id.as_str());
    let in_network = scope.networks.is_empty()
        || machine.nics.iter().any(|nic| {
            let id = nic.network_id.as_ref().map_or("", |id| id.as_str());
            scope.admits_network(id, nic.network_name.as_deref().unwrap_or_default())
        });
    let tags = machine
        .tags
        .iter()
        .map(|tag| (tag.key.as_str(), tag.value.as_str()));
    in_network
        && scope.admits_zone(zone_id, machine.zone_name.as_deref().unwrap_or_default())
        && scope.machines.admit(&machine.name, tags)
}

/// Whether there is a machine at all; destroyed ones are only shown to administrators.
pub fn exists(machine: &Machine) -> bool {
    match machine.state {
        MachineState::Destroyed | MachineState::Expunging => false,
        MachineState::Starting
        | MachineState::Running
        | MachineState::Stopping
        | MachineState::Stopped
        | MachineState::Shutdown
        | MachineState::Migrating
        | MachineState::Error
        | MachineState::Unknown
        | MachineState::Other(_) => true,
    }
}

#[cfg(test)]
mod tests;
