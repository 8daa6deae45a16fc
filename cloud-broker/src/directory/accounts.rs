//! One account for each set of keys at one API, whatever tenants use it.
//!
//! Decides which clusters share an account, and which account lives on when a configuration changes: one that an unchanged or re-keyed cluster
//! used, so that budget, jobs, locks and lists survive a rotation of keys.

use std::collections::BTreeMap;
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
        let mut taken: Vec<Arc<Shared>> = Vec::new();
        let mut result = BTreeMap::new();
        for (access, names) in groups {
            let shared = match reusable(access, &names, before, &taken) {
                Some(shared) => {
                    shared.cloud.replace(&self.settings(access))?;
                    if !before
                        .values()
                        .any(|served| served.access.is_same_account(access))
                    {
                        shared.balancers.forget(shared.cloud.name());
                    }
                    shared
                }
                None => self.make(access)?,
            };
            taken.push(Arc::clone(&shared));
            result.extend(names.into_iter().map(|name| (name.clone(), Arc::clone(&shared))));
        }
        Ok(result)
    }

    fn make(&self, access: &Access) -> Result<Arc<Shared>, AccountError> {
        let cloud = Account::new(&name(access), &self.settings(access), self.environment())?;
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

/// The account with the same keys, else the one that one of these clusters used under other keys at the same API.
fn reusable(
    access: &Access,
    names: &[&ClusterName],
    before: &BTreeMap<ClusterName, Arc<Served>>,
    taken: &[Arc<Shared>],
) -> Option<Arc<Shared>> {
    let free = |served: &&Arc<Served>| !taken.iter().any(|shared| Arc::ptr_eq(shared, &served.shared));
    let same = before
        .values()
        .filter(free)
        .find(|served| served.access.is_same_account(access));
    let rekeyed = || {
        let used = names.iter().filter_map(|name| before.get(*name)).filter(free);
        used.into_iter().find(|served| served.access.url == access.url)
    };
    same.or_else(rekeyed).map(|served| Arc::clone(&served.shared))
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
