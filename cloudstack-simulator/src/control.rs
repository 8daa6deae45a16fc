//! Controls that code and the HTTP side have in common.

use std::time::Duration;

use uuid::Uuid;

use crate::commands::expunge_now;
use crate::jobs::new_id;
use crate::router::Behaviour;
use crate::server::Server;
use crate::simulator::ControlError;
use crate::state::load::{NewMachine, add_machine};
use crate::state::{AddressUse, MachineState, OtherUse, Owner, World};

impl Server {
    pub(crate) fn add_machine(
        &self,
        name: &str,
        network: &str,
        address: Option<&str>,
    ) -> Result<Uuid, ControlError> {
        let mut world = self.world.lock();
        let found = world
            .networks
            .iter()
            .find(|row| row.name == network || row.id.to_string() == network);
        let (network_id, owner) = found
            .map(|row| (row.id, row.owner))
            .ok_or_else(|| ControlError::NoNetwork(network.to_owned()))?;
        if matches!(owner, Owner::Domain(_)) {
            return Err(ControlError::NoOwner(network.to_owned()));
        }
        let new = NewMachine {
            id: new_id(),
            name: name.to_owned(),
            network: network_id,
            address: address.map(str::to_owned),
            owner,
            state: MachineState::Running,
        };
        add_machine(&mut world, new).ok_or_else(|| ControlError::NoNetwork(network.to_owned()))
    }

    fn machine_named(world: &World, name: &str) -> Result<Uuid, ControlError> {
        let found = world
            .machines
            .iter()
            .find(|row| row.name == name || row.id.to_string() == name);
        found
            .map(|row| row.id)
            .ok_or_else(|| ControlError::NoMachine(name.to_owned()))
    }

    pub(crate) fn set_machine(&self, name: &str, state: MachineState) -> Result<(), ControlError> {
        let mut world = self.world.lock();
        let id = Self::machine_named(&world, name)?;
        if let Some(machine) = world.machines.get_mut(id) {
            machine.state = state;
            machine.updated = Some(crate::clock::Stamp::now());
        }
        Ok(())
    }

    pub(crate) fn expunge_machine(&self, name: &str) -> Result<(), ControlError> {
        let mut world = self.world.lock();
        let id = Self::machine_named(&world, name)?;
        expunge_now(&mut world, id);
        Ok(())
    }

    fn acquired(world: &World, address: &str) -> Result<Uuid, ControlError> {
        let mut rows = world.addresses.iter();
        rows.find(|row| row.address == address && row.owner.is_some())
            .map(|row| row.id)
            .ok_or_else(|| ControlError::NoAddress(address.to_owned()))
    }

    pub(crate) fn use_address(&self, address: &str, usage: &AddressUse) -> Result<(), ControlError> {
        let mut world = self.world.lock();
        let id = Self::acquired(&world, address)?;
        let port = match usage {
            AddressUse::PortForwarding { port } => Some(*port),
            AddressUse::Vpn => None,
            AddressUse::StaticNat { machine } => {
                let machine = Self::machine_named(&world, machine)?;
                if let Some(row) = world.addresses.get_mut(id) {
                    row.static_nat = Some(machine);
                }
                return Ok(());
            }
        };
        world.uses.push(OtherUse {
            id: new_id(),
            address: id,
            port,
        });
        Ok(())
    }

    pub(crate) fn end_uses(&self, address: &str) -> Result<(), ControlError> {
        let mut world = self.world.lock();
        let id = Self::acquired(&world, address)?;
        world.end_uses(id);
        Ok(())
    }

    pub(crate) fn refuse_in_router(&self, command: &str, refuse: bool) {
        let mut known = self.behaviour.lock();
        known.retain(|behaviour| behaviour.command != command);
        if refuse {
            let number = known.len() as u64 + 1;
            known.push(Behaviour {
                command: command.to_owned(),
                wait: Duration::ZERO,
                refuse,
                number,
            });
        }
    }
}
