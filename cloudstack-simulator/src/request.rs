//! The parameters of a call: taken from the query or the form, checked against what the command declares.

use std::collections::BTreeMap;

use uuid::Uuid;

use crate::error::ApiError;
use crate::state::World;

/// What an id parameter must name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entity {
    Zone,
    Domain,
    Project,
    Network,
    Vpc,
    Address,
    Rule,
    FirewallRule,
    AclList,
    AclItem,
    Machine,
    Job,
    ServiceOffering,
    NetworkOffering,
    Template,
    Policy,
    User,
    /// Anything with a UUID (hosts, physical networks): not modelled, so never known.
    Other,
}

/// Type of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Text of at most so many characters; the name is the server's internal one, which shows in the error.
    Text(usize, &'static str),
    Int,
    Flag,
    Id(Entity),
    /// A list of ids; each must name something.
    Ids(Entity),
    /// A list of ids; what is no UUID vanishes.
    LooseIds(Entity),
    Names,
    Map,
}

/// A parameter that a command declares.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Param {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) required: bool,
}

/// A parameter that must be given.
pub(crate) const fn need(name: &'static str, kind: Kind) -> Param {
    Param {
        name,
        kind,
        required: true,
    }
}

/// A parameter that may be given.
pub(crate) const fn may(name: &'static str, kind: Kind) -> Param {
    Param {
        name,
        kind,
        required: false,
    }
}

/// Text of usual length.
pub(crate) const TEXT: Kind = Kind::Text(255, "value");

/// The values of one call, by parameter name in lower case.
#[derive(Debug, Clone, Default)]
pub(crate) struct Args {
    values: BTreeMap<String, String>,
    maps: BTreeMap<String, BTreeMap<u32, BTreeMap<String, String>>>,
}

/// An id parameter. `-1` is accepted wherever an id is and names nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdArg {
    /// `-1`.
    Nothing,
    /// An object.
    Is(Uuid),
}

impl Args {
    /// Takes the parameters apart: names in lower case, `name[0].field` into maps.
    pub(crate) fn unpack(pairs: &[(String, String)]) -> Result<Self, ApiError> {
        let mut args = Self::default();
        for (name, value) in pairs {
            match name.find('[') {
                None => {
                    args.values.insert(name.to_lowercase(), value.clone());
                }
                Some(open) => {
                    let (index, field) = indexed(name, open).ok_or_else(|| bad_name(pairs, name))?;
                    let map = name.get(..open).unwrap_or_default().to_lowercase();
                    args.maps
                        .entry(map)
                        .or_default()
                        .entry(index)
                        .or_default()
                        .insert(field, value.clone());
                }
            }
        }
        Ok(args)
    }

    /// Checks every declared parameter, in the order of the declaration.
    pub(crate) fn check(&mut self, command: &str, params: &[Param], world: &World) -> Result<(), ApiError> {
        for (name, value) in &self.values {
            if value
                .chars()
                .any(|c| c.is_ascii_control() && c != '\n' && c != '\r')
            {
                return Err(ApiError::parameter(format!(
                    "Received value containing illegal ASCII non-printable characters for parameter {name}"
                )));
            }
        }
        params
            .iter()
            .try_for_each(|param| self.check_one(command, param, world))?;
        // Old parameters take the internal number of an object too.
        for param in params {
            if let (Kind::Id(entity), Some(value)) = (param.kind, self.values.get_mut(param.name))
                && value != "-1"
                && let Some(id) = find(world, entity, value)
            {
                *value = id.to_string();
            }
        }
        Ok(())
    }

    fn check_one(&self, command: &str, param: &Param, world: &World) -> Result<(), ApiError> {
        if param.kind == Kind::Map {
            return if param.required && !self.maps.contains_key(param.name) {
                Err(missing(command, param.name))
            } else {
                Ok(())
            };
        }
        let Some(value) = self.values.get(param.name) else {
            return if param.required {
                Err(missing(command, param.name))
            } else {
                Ok(())
            };
        };
        match param.kind {
            Kind::Text(most, field) => {
                if param.required && value.is_empty() {
                    return Err(ApiError::invalid(format!(
                        "Invalid value provided for API arg: {}",
                        param.name
                    )));
                }
                if value.chars().count() > most {
                    return Err(ApiError::parameter(format!(
                        "Unable to execute API command {command} due to invalid value. Value greater than max allowed length {most} for param: {field}"
                    )));
                }
                Ok(())
            }
            Kind::Int => check_int(command, param, value),
            Kind::Id(entity) => {
                if value == "-1" || find(world, entity, value).is_some() {
                    Ok(())
                } else {
                    Err(ApiError::no_entity(command, param.name, value))
                }
            }
            Kind::Ids(entity) => {
                let unknown = value
                    .split(',')
                    .find(|id| !id.is_empty() && find(world, entity, id).is_none());
                unknown.map_or(Ok(()), |id| Err(ApiError::no_entity(command, param.name, id)))
            }
            Kind::LooseIds(entity) => {
                let unknown = value
                    .split(',')
                    .find(|id| Uuid::try_parse(id).is_ok() && find(world, entity, id).is_none());
                unknown.map_or(Ok(()), |id| Err(ApiError::no_entity(command, param.name, id)))
            }
            Kind::Flag | Kind::Names | Kind::Map => Ok(()),
        }
    }

    /// A text, also an empty one.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// A text that is not empty.
    pub(crate) fn filled(&self, name: &str) -> Option<&str> {
        self.text(name).filter(|value| !value.is_empty())
    }

    /// A number; checked before, so what is no number was not given.
    pub(crate) fn int(&self, name: &str) -> Option<i64> {
        self.values.get(name)?.parse().ok()
    }

    /// A flag: anything but `true` in any case is false.
    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        self.values
            .get(name)
            .map(|value| value.eq_ignore_ascii_case("true"))
    }

    /// Whether a flag is given and true.
    pub(crate) fn is(&self, name: &str) -> bool {
        self.flag(name) == Some(true)
    }

    /// An id.
    pub(crate) fn id(&self, name: &str) -> Option<IdArg> {
        let value = self.values.get(name)?;
        if value == "-1" {
            Some(IdArg::Nothing)
        } else {
            Uuid::try_parse(value).ok().map(IdArg::Is)
        }
    }

    /// An id that names an object.
    pub(crate) fn uuid(&self, name: &str) -> Option<Uuid> {
        match self.id(name)? {
            IdArg::Is(id) => Some(id),
            IdArg::Nothing => None,
        }
    }

    /// Ids of a list; malformed ones vanish. None when the list is not given or empty.
    pub(crate) fn ids(&self, name: &str) -> Option<Vec<Uuid>> {
        let value = self.filled(name)?;
        Some(
            value
                .split(',')
                .filter_map(|id| Uuid::try_parse(id).ok())
                .collect(),
        )
    }

    /// Entries of a list; empty ones vanish. None when it is not given.
    pub(crate) fn list(&self, name: &str) -> Option<Vec<String>> {
        let value = self.text(name)?;
        Some(
            value
                .split(',')
                .filter(|entry| !entry.is_empty())
                .map(str::to_owned)
                .collect(),
        )
    }

    /// Entries of an object list, by index.
    pub(crate) fn map(&self, name: &str) -> Vec<&BTreeMap<String, String>> {
        self.maps
            .get(name)
            .map(|entries| entries.values().collect())
            .unwrap_or_default()
    }

    /// Key and value pairs of an object list.
    pub(crate) fn pairs(&self, name: &str) -> Vec<(Option<String>, Option<String>)> {
        self.map(name)
            .into_iter()
            .map(|entry| (entry.get("key").cloned(), entry.get("value").cloned()))
            .collect()
    }
}

fn check_int(command: &str, param: &Param, value: &str) -> Result<(), ApiError> {
    if value.is_empty() {
        let text = if param.required || param.name != "page" && param.name != "pagesize" {
            return Err(ApiError::invalid(format!(
                "Invalid value provided for API arg: {}",
                param.name
            )));
        } else {
            "For input string: \"\""
        };
        return Err(ApiError::parameter(text));
    }
    value.parse::<i32>().map(|_| ()).map_err(|_| {
        ApiError::parameter(format!(
            "Unable to execute API command {} due to invalid value {value} for parameter {}",
            command, param.name
        ))
    })
}

fn missing(command: &str, name: &str) -> ApiError {
    ApiError::parameter(format!(
        "Unable to execute API command {command} due to missing parameter {name}"
    ))
}

/// `tags[0].key` as index and field.
fn indexed(name: &str, open: usize) -> Option<(u32, String)> {
    let rest = name.get(open + 1..)?;
    let (index, field) = rest.split_once("].")?;
    if field.is_empty() || field.contains('[') {
        return None;
    }
    Some((index.parse().ok()?, field.to_owned()))
}

/// Of several bad names the server complains about the first one in its hash map.
fn bad_name(pairs: &[(String, String)], one: &str) -> ApiError {
    let mut bad: Vec<&str> = pairs
        .iter()
        .map(|pair| pair.0.as_str())
        .filter(|name| bad_index(name))
        .collect();
    bad.sort_by_key(|name| {
        let hash = name.encode_utf16().fold(0_u32, |hash, unit| {
            hash.wrapping_mul(31).wrapping_add(u32::from(unit))
        });
        (hash ^ (hash >> 16)) & 15
    });
    ApiError::with_code(
        430,
        format!(
            "Unable to decode parameter {}; if specifying an object array, please use parameter[index].field=XXX, e.g. \
             userGroupList[0].group=httpGroup",
            bad.first().copied().unwrap_or(one)
        ),
    )
}

fn bad_index(name: &str) -> bool {
    name.find('[').is_some_and(|open| indexed(name, open).is_none())
}

/// The object that an id names; old rows are known by their internal number too.
pub(crate) fn find(world: &World, entity: Entity, value: &str) -> Option<Uuid> {
    if let (Entity::Address, Ok(number)) = (entity, value.parse()) {
        return world.addresses.by_number(number).map(|row| row.id);
    }
    let id = Uuid::try_parse(value).ok()?;
    let known = match entity {
        Entity::Zone => world.zones.knows(id),
        Entity::Domain => world.domains.knows(id),
        Entity::Project => world.projects.knows(id),
        Entity::Network => {
            world.networks.knows(id)
                || world
                    .addresses
                    .iter()
                    .any(|address| address.public_network == Some(id))
        }
        Entity::Vpc => world.vpcs.knows(id),
        Entity::Address => world.addresses.knows(id),
        // One table holds all rules of an address, so the id of a firewall rule passes here and is refused later.
        Entity::Rule | Entity::FirewallRule => world.rules.knows(id) || world.firewall_rules.knows(id),
        Entity::AclList => world.acl_lists.knows(id),
        Entity::AclItem => world.acl_items.knows(id),
        Entity::Machine => world.machines.knows(id),
        Entity::Job => world.jobs.knows(id),
        Entity::ServiceOffering => world.service_offerings.knows(id),
        Entity::NetworkOffering => world.network_offerings.knows(id),
        Entity::Template => world.templates.knows(id),
        Entity::Policy => world.policies.knows(id),
        Entity::User => world.accounts.iter().any(|account| account.user == id),
        Entity::Other => false,
    };
    known.then_some(id)
}
