//! One account for each set of keys at one API, whatever tenants use it.
//!
//! Decides which clusters share an account, and which account lives on when a configuration changes: the one with the same keys, else one that
//! a re-keyed cluster used and nobody uses any more, so that budget, jobs and locks survive a rotation of keys. What was seen through the
//! old keys does not, and calls that run stop before their next step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use secrecy::ExposeSecret as _;
use sha2::{Digest as _, Sha256};
use tokio_util::task::TaskTracker;

use super::{Served, Surroundings};
use crate::cloudstack::{Account, AccountError, ApiKeys, Environment, RateSettings, Settings};
use crate::config::{Access, Config};
use crate::instances::Instances;
use crate::load_balancer::LoadBalancers;
use crate::tenant::ClusterName;

/// What an account has once, for all its tenants.
pub struct Shared {
    /// Budget, breaker, jobs and locks.
    pub cloud: Arc<Account>,
    /// Machines.
    pub instances: Instances,
    /// Load balancers.
    pub balancers: LoadBalancers,
}

/// Makes accounts.
pub(super) struct Accounts {
    surroundings: Surroundings,
    tasks: TaskTracker,
}

impl Accounts {
    pub(super) fn new(surroundings: Surroundings) -> Self {
        let tasks = TaskTracker::new();
        let (drained, waited_for) = (surroundings.host.drained(), tasks.clone());
        surroundings.host.spawn("cloudstack-calls", async move {
            drained.cancelled().await;
            waited_for.close();
            waited_for.wait().await;
        });
        Self { surroundings, tasks }
    }

    /// The account of every cluster. Accounts that were used before are reused, with the new keys where those changed.
    pub(super) fn arrange(
        &self,
        config: &Config,
        before: &BTreeMap<ClusterName, Arc<Served>>,
    ) -> Result<BTreeMap<ClusterName, Arc<Shared>>, AccountError> {
        let mut groups: Vec<(&Access, Vec<&ClusterName>)> = Vec::new();
        for (name, cluster) in &config.clusters {
            match groups
                .iter_mut()
                .find(|(access, _)| access.is_same_account(&cluster.access))
            {
                Some((_, names)) => names.push(name),
                None => groups.push((&cluster.access, vec![name])),
            }
        }
        // Everything is tried before anything changes.
        for (access, _) in &groups {
            Account::new("check", &self.settings(access), self.environment())?;
        }
        // First everybody whose keys stay as they are: nobody else may have their account.
        let mut kept: Vec<Option<Arc<Shared>>> = groups
            .iter()
            .map(|(access, _)| unchanged(access, before))
            .collect();
        for at in 0..groups.len() {
            let taken: Vec<Arc<Shared>> = kept.iter().flatten().cloned().collect();
            if let (Some((access, names)), Some(slot @ None)) = (groups.get(at), kept.get_mut(at)) {
                *slot = rekeyed(access, names, before, &taken);
            }
        }
        let mut used: BTreeSet<String> = kept
            .iter()
            .flatten()
            .map(|shared| shared.cloud.name().to_owned())
            .collect();
        let mut result = BTreeMap::new();
        for ((access, names), kept) in groups.into_iter().zip(kept) {
            let shared = match kept {
                Some(shared) => {
                    if shared.cloud.replace(&self.settings(access))? {
                        shared.forget();
                    }
                    shared
                }
                None => self.make(access, &unused(&name(access), &used))?,
            };
            used.insert(shared.cloud.name().to_owned());
            result.extend(names.into_iter().map(|name| (name.clone(), Arc::clone(&shared))));
        }
        Ok(result)
    }

    fn make(&self, access: &Access, name: &str) -> Result<Arc<Shared>, AccountError> {
        let cloud = Account::new(name, &self.settings(access), self.environment())?;
        let instances = Instances::new(self.surroundings.host.clone());
        let balancers = LoadBalancers::new(Arc::clone(instances.lists()));
        let balancers = balancers.with_drift_period(self.surroundings.drift_period);
        Ok(Arc::new(Shared {
            cloud,
            instances,
            balancers,
        }))
    }

    fn environment(&self) -> Environment {
        Environment {
            tasks: self.tasks.clone(),
            shutdown: self.surroundings.host.shutdown(),
            metrics: self.surroundings.metrics.cloudstack.clone(),
        }
    }

    fn settings(&self, access: &Access) -> Settings {
        let keys = ApiKeys {
            api_key: access.api_key.clone(),
            secret_key: access.secret_key.clone(),
        };
        Settings {
            ca_pem: access.authorities.clone(),
            verify_tls: !access.skip_verification,
            rate: RateSettings {
                per_second: access.calls_per_second,
                burst: access.burst,
            },
            pace: self.surroundings.pace,
            ..Settings::new(access.url.clone(), keys)
        }
    }
}

impl Shared {
    /// Nothing that was seen through other keys counts.
    fn forget(&self) {
        self.balancers.forget(self.cloud.name());
        self.instances.forget();
    }
}

/// The account with the same keys.
fn unchanged(access: &Access, before: &BTreeMap<ClusterName, Arc<Served>>) -> Option<Arc<Shared>> {
    before
        .values()
        .find(|served| served.access.is_same_account(access))
        .map(|served| Arc::clone(&served.shared))
}

/// The account that one of these clusters used under other keys at the same API, unless somebody still has it.
fn rekeyed(
    access: &Access,
    names: &[&ClusterName],
    before: &BTreeMap<ClusterName, Arc<Served>>,
    taken: &[Arc<Shared>],
) -> Option<Arc<Shared>> {
    names
        .iter()
        .filter_map(|name| before.get(*name))
        .filter(|served| !taken.iter().any(|shared| Arc::ptr_eq(shared, &served.shared)))
        .find(|served| served.access.url == access.url)
        .map(|served| Arc::clone(&served.shared))
}

/// A name that no other account has: one whose keys were changed keeps the name that it began with, so that its numbers go on.
fn unused(name: &str, used: &BTreeSet<String>) -> String {
    let numbered = (2_usize..).map(|number| format!("{name}-{number}"));
    std::iter::once(name.to_owned())
        .chain(numbered)
        .find(|name| !used.contains(name))
        .unwrap_or_default()
}

/// A name for logs and metrics: the host and a few digits that tell keys apart and reveal nothing of them.
fn name(access: &Access) -> String {
    let digest = Sha256::digest(format!("account name\n{}", access.api_key.expose_secret()));
    let tail = digest
        .iter()
        .take(3)
        .fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
    format!("{}-{tail:06x}", access.url.host_str().unwrap_or("api"))
}
