//! Fills the database from a seed. What the seed leaves out gets a usual value.

mod accounts;
mod addresses;
mod defaults;
mod machines;
mod networks;

use serde_json::Value;
use uuid::Uuid;

use super::{Object, Owner, Plain, World};
use crate::seed::{Seed, SeedError};

pub(crate) use self::machines::{NewMachine, add_machine};

impl World {
    /// The world that a seed describes.
    pub(crate) fn from_seed(seed: &Seed) -> Result<Self, SeedError> {
        let mut world = Self {
            version: seed.version.clone().unwrap_or_else(|| "4.22.0.0".into()),
            ..Self::default()
        };
        world.settings = defaults::settings();
        for (name, value) in &seed.settings {
            world.settings.insert(
                name.clone(),
                value.as_str().map_or_else(|| value.to_string(), str::to_owned),
            );
        }
        accounts::load(&mut world, seed)?;
        for zone in if seed.zones.is_empty() {
            vec![defaults::zone()]
        } else {
            seed.zones.clone()
        } {
            let shown = with_defaults(zone, defaults::zone());
            let row = plain("zone", shown);
            world.zones.insert(row);
        }
        for offering in if seed.serviceofferings.is_empty() {
            vec![defaults::service_offering()]
        } else {
            seed.serviceofferings.clone()
        } {
            world.service_offerings.insert(plain("serviceoffering", offering));
        }
        for offering in &seed.networkofferings {
            world
                .network_offerings
                .insert(plain("networkoffering", offering.clone()));
        }
        if let Some(id) = seed.ids.get("template").and_then(|id| Uuid::try_parse(id).ok()) {
            world.templates.insert(Plain {
                id,
                name: "template".into(),
                shown: Object::new(),
            });
        }
        networks::load(&mut world, seed)?;
        addresses::load(&mut world, seed)?;
        machines::load(&mut world, seed)?;
        addresses::give_cards_their_addresses(&mut world);
        Ok(world)
    }
}

fn plain(kind: &str, mut shown: Object) -> Plain {
    let name = text(&shown, "name").unwrap_or_default().to_owned();
    let id = id(&shown, kind, &name);
    shown.insert("id".into(), Value::String(id.to_string()));
    Plain { id, name, shown }
}

/// Adds what is missing.
fn with_defaults(mut given: Object, defaults: Object) -> Object {
    for (name, value) in defaults {
        given.entry(name).or_insert(value);
    }
    given
}

fn text<'a>(object: &'a Object, name: &str) -> Option<&'a str> {
    object.get(name)?.as_str()
}

fn uuid(object: &Object, name: &str) -> Option<Uuid> {
    Uuid::try_parse(text(object, name)?).ok()
}

/// The id that an object gives, else one made from its kind and name, the same at every start.
fn id(object: &Object, kind: &str, name: &str) -> Uuid {
    uuid(object, "id").unwrap_or_else(|| made_up(kind, name))
}

/// An id made from a kind and a name.
pub(crate) fn made_up(kind: &str, name: &str) -> Uuid {
    Uuid::new_v5(
        &Uuid::NAMESPACE_OID,
        format!("cloudstack-simulator/{kind}/{name}").as_bytes(),
    )
}

/// The owner that an object names: `project` or `account`.
fn owner(world: &World, object: &Object) -> Result<Option<Owner>, SeedError> {
    if let Some(name) = text(object, "project") {
        let found = world.projects.iter().find(|project| project.name == name);
        return found
            .map(|project| Some(Owner::Project(project.id)))
            .ok_or_else(|| SeedError::Content(format!("project {name} is not in the seed")));
    }
    let Some(name) = text(object, "account") else {
        return Ok(None);
    };
    let found = world.account_named(name);
    found
        .map(|account| Some(Owner::Account(account.id)))
        .ok_or_else(|| SeedError::Content(format!("account {name} is not in the seed")))
}
