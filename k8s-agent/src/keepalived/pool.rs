//! Pools: which addresses may be given to which Service.
//!
//! Decides what a pool holds, which pools a Service may draw from and in which order, and whether an address that
//! was asked for by name may be had at all. Leaves to [`super::allocation`] which addresses are taken. Stable: the same
//! Services and pools give the same order.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv4Addr;

use super::address::{self, ItemError, Ranges};
use super::selector::{BadSelector, Selector};

/// A pool as it is written in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSpec {
    /// Its name, unique.
    pub name: String,
    /// Comma list of CIDRs, ranges and addresses.
    pub addresses: String,
    /// Namespaces that may use it, comma list; empty for all.
    pub namespaces: String,
    /// Label selector for Services; empty for all.
    pub services: String,
    /// Whether Services get an address from it without asking for the pool.
    pub auto_assign: bool,
    /// Lower is tried first; pools without one come last.
    pub priority: Option<u32>,
}

impl PoolSpec {
    /// A pool for everybody.
    pub fn open(name: &str, addresses: &str) -> Self {
        Self {
            name: name.to_owned(),
            addresses: addresses.to_owned(),
            namespaces: String::new(),
            services: String::new(),
            auto_assign: true,
            priority: None,
        }
    }
}

/// A pool that can be drawn from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Its name.
    pub name: String,
    addresses: Ranges,
    size: u64,
    namespaces: BTreeSet<String>,
    services: Selector,
    auto_assign: bool,
    priority: Option<u32>,
}

impl Pool {
    /// How many addresses it can give out, were none taken.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The addresses that it can give out.
    pub const fn addresses(&self) -> &Ranges {
        &self.addresses
    }

    fn serves(&self, namespace: &str, labels: &BTreeMap<String, String>) -> bool {
        (self.namespaces.is_empty() || self.namespaces.contains(namespace)) && self.services.matches(labels)
    }

    fn is_restricted(&self) -> bool {
        !self.namespaces.is_empty() || !self.services.is_empty()
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}; {} usable)", self.name, self.addresses, self.size)
    }
}

/// How all pools are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Habits {
    /// Never give out addresses that end in 0 or 255.
    pub avoid_edges: bool,
    /// Allow a requested address that lies in no pool.
    pub outside: bool,
}

impl Default for Habits {
    fn default() -> Self {
        Self {
            avoid_edges: false,
            outside: true,
        }
    }
}

/// What is wrong with the configuration of the pools.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// An item of a pool's addresses.
    #[error("pool {pool}: {error}")]
    Item {
        /// The pool.
        pool: String,
        /// What is wrong.
        error: ItemError,
    },
    /// An item of the reserved addresses.
    #[error("reserved addresses: {0}")]
    Reserved(ItemError),
    /// The selector of a pool.
    #[error("pool {pool}: {error}")]
    Selector {
        /// The pool.
        pool: String,
        /// What is wrong.
        error: BadSelector,
    },
    /// Everything in it is reserved, or nothing was in it.
    #[error("pool {0} has no address that could be given out")]
    Empty(String),
    /// Two pools of one name.
    #[error("there are two pools of the name {0}")]
    Duplicate(String),
    /// Two pools share addresses.
    #[error("the pools {0} and {1} overlap at {2}")]
    Overlap(String, String, String),
}

/// Why a Service can't draw from a pool or have the address that it asks for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolRefusal {
    /// No pool has the name that was asked for.
    #[error("there is no address pool of the name \"{0}\"")]
    Unknown(String),
    /// The pool is for other namespaces or Services.
    #[error("the address pool {0} is not for this Service (namespace or labels)")]
    NotForService(String),
    /// No pool gives addresses to this Service by itself.
    #[error("no address pool gives addresses to this Service")]
    NoPool,
    /// Reserved in the configuration.
    #[error("the address {0} is reserved")]
    Reserved(Ipv4Addr),
    /// Network or broadcast address of a pool's CIDR.
    #[error("{0} is the network or broadcast address of the pool {1}")]
    NetworkEdge(Ipv4Addr, String),
    /// In no pool, and only pool addresses are allowed.
    #[error("the address {0} lies in no pool, and addresses outside of the pools are not allowed")]
    Outside(Ipv4Addr),
    /// In another pool than the one that was asked for.
    #[error("the address {0} does not lie in the address pool {1}")]
    NotInPool(Ipv4Addr, String),
}

/// All pools, in the order in which they are tried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pools {
    ranked: Vec<Pool>,
    edges: Vec<(String, Ranges)>,
    reserved: Ranges,
    habits: Habits,
}

/// Who asks for an address.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// Namespace of the Service.
    pub namespace: &'a str,
    /// Labels of the Service.
    pub labels: &'a BTreeMap<String, String>,
    /// The pool that it names.
    pub pool: Option<&'a str>,
}

impl Pools {
    /// Reads the configuration; all faults are reported at once.
    pub fn build(specs: &[PoolSpec], reserved: &str, habits: Habits) -> Result<Self, Vec<PoolError>> {
        let mut errors = Vec::new();
        let mut built = Self {
            habits,
            ..Self::default()
        };
        match address::parse_list(reserved) {
            Ok(items) => items.iter().for_each(|item| built.reserved.add(item.whole)),
            Err(bad) => errors.extend(bad.into_iter().map(PoolError::Reserved)),
        }
        for spec in specs {
            match built.read(spec) {
                Ok((pool, edges)) => {
                    built.edges.push((pool.name.clone(), edges));
                    built.ranked.push(pool);
                }
                Err(bad) => errors.extend(bad),
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        // A stable sort: within one rank the order of the configuration stays.
        built
            .ranked
            .sort_by_key(|pool| (!pool.is_restricted(), pool.priority.is_none(), pool.priority));
        Ok(built)
    }

    fn read(&self, spec: &PoolSpec) -> Result<(Pool, Ranges), Vec<PoolError>> {
        let item_error = |error| PoolError::Item {
            pool: spec.name.clone(),
            error,
        };
        let items = address::parse_list(&spec.addresses)
            .map_err(|bad| bad.into_iter().map(item_error).collect::<Vec<_>>())?;
        let services = Selector::parse(&spec.services).map_err(|error| {
            vec![PoolError::Selector {
                pool: spec.name.clone(),
                error,
            }]
        })?;
        let (mut usable, mut whole) = (Ranges::default(), Ranges::default());
        for item in &items {
            usable.add(item.usable);
            whole.add(item.whole);
        }
        let addresses = usable.without(&self.reserved);
        let size = addresses.size(self.habits.avoid_edges);
        let namespaces = spec
            .namespaces
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty());
        let pool = Pool {
            name: spec.name.clone(),
            addresses,
            size,
            namespaces: namespaces.map(ToOwned::to_owned).collect(),
            services,
            auto_assign: spec.auto_assign,
            priority: spec.priority,
        };
        let mut errors = Vec::new();
        if pool.size == 0 {
            errors.push(PoolError::Empty(pool.name.clone()));
        }
        for known in &self.ranked {
            if known.name == pool.name {
                errors.push(PoolError::Duplicate(pool.name.clone()));
            } else if let Some(range) = known.addresses.overlap(&pool.addresses) {
                errors.push(PoolError::Overlap(
                    known.name.clone(),
                    pool.name.clone(),
                    range.to_string(),
                ));
            }
        }
        if errors.is_empty() {
            Ok((pool, whole.without(&usable)))
        } else {
            Err(errors)
        }
    }

    /// The pools in the order in which they are tried.
    pub fn iter(&self) -> impl Iterator<Item = &Pool> {
        self.ranked.iter()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ranked.is_empty()
    }

    /// The pool that an address belongs to.
    pub fn of_address(&self, address: Ipv4Addr) -> Option<&Pool> {
        self.ranked.iter().find(|pool| pool.addresses.contains(address))
    }

    /// The pools that a Service may draw from, best first.
    pub fn for_service(&self, asker: Asker<'_>) -> Result<Vec<&Pool>, PoolRefusal> {
        let serves = |pool: &&Pool| pool.serves(asker.namespace, asker.labels);
        if let Some(name) = asker.pool {
            let pool = self.named(name)?;
            return if serves(&pool) {
                Ok(vec![pool])
            } else {
                Err(PoolRefusal::NotForService(name.to_owned()))
            };
        }
        let pools: Vec<&Pool> = self
            .ranked
            .iter()
            .filter(|pool| pool.auto_assign)
            .filter(serves)
            .collect();
        if pools.is_empty() {
            Err(PoolRefusal::NoPool)
        } else {
            Ok(pools)
        }
    }

    /// The lowest address of a pool that is not taken.
    pub fn first_free(&self, pool: &Pool, taken: &BTreeSet<Ipv4Addr>) -> Option<Ipv4Addr> {
        pool.addresses.first_free(taken, self.habits.avoid_edges)
    }

    /// Whether the configuration lets a Service have this very address.
    pub fn admit(&self, address: Ipv4Addr, asker: Asker<'_>) -> Result<(), PoolRefusal> {
        if self.reserved.contains(address) {
            return Err(PoolRefusal::Reserved(address));
        }
        let pool = self.of_address(address);
        if let Some(name) = asker.pool {
            let named = self.named(name)?;
            if pool.is_none_or(|pool| pool.name != named.name) {
                return Err(PoolRefusal::NotInPool(address, name.to_owned()));
            }
        }
        match pool {
            Some(pool) if pool.serves(asker.namespace, asker.labels) => Ok(()),
            Some(pool) => Err(PoolRefusal::NotForService(pool.name.clone())),
            None => {
                if let Some((name, _)) = self.edges.iter().find(|(_, edges)| edges.contains(address)) {
                    Err(PoolRefusal::NetworkEdge(address, name.clone()))
                } else if self.habits.outside {
                    Ok(())
                } else {
                    Err(PoolRefusal::Outside(address))
                }
            }
        }
    }

    fn named(&self, name: &str) -> Result<&Pool, PoolRefusal> {
        let found = self.ranked.iter().find(|pool| pool.name == name);
        found.ok_or_else(|| PoolRefusal::Unknown(name.to_owned()))
    }
}

#[cfg(test)]
mod tests;
