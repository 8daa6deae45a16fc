//! The tenants of the present configuration, and the account that each of them uses.
//!
//! | file | decides |
//! | --- | --- |
//! | `accounts` | which clusters share an account, and which account lives on when keys change |
//! | `claims` | which cluster a UID belongs to that only an agent says |
//!
//! A new configuration replaces everything at once: calls that run end on what they began with, new ones see the new tenants.
//! What must not be done twice (rate, jobs, locks, lists) belongs to the account and outlives a reload.

mod accounts;
mod claims;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use proto::{Fault, FaultKind};
use runtime::host::Host;
use runtime::link::Peer;
use tokio_util::sync::CancellationToken;

use crate::cloudstack::types::Version;
use crate::cloudstack::{AccountError, Api, ApiError, Pace};
use crate::config::{Access, Cluster, Config};
use crate::describe::Survey;
use crate::instances::View;
use crate::metrics::Metrics;
use crate::tenant::{ClusterName, ClusterUid, ClusterUids, Identities, Identity, Tenant};
use accounts::Accounts;
pub use accounts::Shared;
use claims::Claims;

/// A tenant that is served.
pub struct Served {
    /// Fence, policy and UIDs.
    pub tenant: Tenant,
    /// Its account, in its project and with its share of the rate.
    pub api: Api,
    /// What the account has once for all its tenants.
    pub shared: Arc<Shared>,
    /// What is known of its surroundings.
    pub survey: Arc<Survey>,
    /// How old a machine list may be.
    pub machines_ttl: Duration,
    /// The way to its API.
    pub access: Access,
    /// Names that stand for it.
    pub identities: Vec<String>,
    /// Ends when the account gets other keys: what a call has seen until then says nothing of what these show.
    pub rekeyed: CancellationToken,
}

impl Served {
    /// The server's version: as configured, else as the server says; `None` where the key may not ask and nothing shows it.
    pub async fn version(&self) -> Result<Option<Version>, ApiError> {
        match self.access.version {
            Some(version) => Ok(Some(version)),
            None => self.survey.version(&self.api).await,
        }
    }

    /// Machines through this tenant's eyes.
    pub fn view(&self) -> View<'_> {
        View {
            api: &self.api,
            cluster: &self.tenant.cluster,
            scope: &self.tenant.scope,
            ttl: self.machines_ttl,
        }
    }
}

#[derive(Default)]
struct Snapshot {
    identities: Identities,
    served: BTreeMap<ClusterName, Arc<Served>>,
}

/// What a directory needs of the process it lives in.
#[derive(Clone)]
pub struct Surroundings {
    /// Tasks and shutdown.
    pub host: Host,
    /// What is counted.
    pub metrics: Metrics,
    /// How long waits are.
    pub pace: Pace,
    /// How often a balancer without changes is looked at again.
    pub drift_period: Duration,
    /// Whether sources of adopted balancers are restricted at once.
    pub tighten_on_adopt: bool,
}

/// Who is served at present.
pub struct Directory {
    snapshot: ArcSwap<Snapshot>,
    accounts: Accounts,
    claims: Claims,
    tighten_on_adopt: bool,
}

impl Directory {
    /// Serves the clusters of a configuration. Must be called inside a runtime.
    pub fn new(surroundings: Surroundings, config: &Config) -> Result<Self, AccountError> {
        let directory = Self {
            snapshot: ArcSwap::default(),
            tighten_on_adopt: surroundings.tighten_on_adopt,
            accounts: Accounts::new(surroundings),
            claims: Claims::default(),
        };
        directory.apply(config)?;
        Ok(directory)
    }

    /// Serves the clusters of another configuration from now on. If that fails nothing changes.
    pub fn apply(&self, config: &Config) -> Result<(), AccountError> {
        let before = self.snapshot.load_full();
        let shared = self.accounts.arrange(config, &before.served)?;
        let served = config.clusters.iter().filter_map(|(name, cluster)| {
            let shared = Arc::clone(shared.get(name)?);
            Some((
                name.clone(),
                Arc::new(self.serve(cluster, shared, before.served.get(name))),
            ))
        });
        let served: BTreeMap<_, _> = served.collect();
        let names = served.values().flat_map(|served| {
            served
                .identities
                .iter()
                .map(|identity| (identity.clone(), served.tenant.cluster.clone()))
        });
        let has_default = served.contains_key(&ClusterName::of_the_socket());
        let identities = Identities::new(names.collect::<Vec<_>>(), has_default);
        self.snapshot.store(Arc::new(Snapshot { identities, served }));
        Ok(())
    }

    /// Who is calling, by the present configuration.
    pub fn identify(&self, peer: Option<&Peer>) -> Result<(Identity, Arc<Served>), Fault> {
        let snapshot = self.snapshot.load();
        let refuse = |reason: &'static str, text: String| Fault::new(FaultKind::Denied, reason, text);
        let identity = snapshot
            .identities
            .identify(peer, seconds(runtime::clock::unix()))
            .map_err(|stranger| refuse("STRANGER", stranger.to_string()))?;
        let served = snapshot.served.get(&identity.cluster);
        let served =
            served.ok_or_else(|| refuse("STRANGER", format!("there is no cluster {}", identity.cluster)))?;
        Ok((identity, Arc::clone(served)))
    }

    /// The UIDs that count for a caller that says it is `said`.
    pub fn uids(&self, served: &Served, said: Option<ClusterUid>) -> Result<ClusterUids, Fault> {
        let refuse = |text: String| {
            let hint =
                "set uid in the cluster's section to all UIDs that its objects carry, the present one first";
            Fault::new(FaultKind::Denied, "OTHER_CLUSTER_UID", format!("{text}; {hint}"))
                .with_field("caller.cluster_uid")
        };
        let snapshot = self.snapshot.load();
        let others = snapshot
            .served
            .values()
            .filter(|other| other.tenant.cluster != served.tenant.cluster);
        if let Some(said) = &said
            && let Some(other) = others
                .into_iter()
                .find(|other| other.tenant.uids.are_ours(said.as_str()))
        {
            // Whose it is is nothing that the caller should learn.
            tracing::debug!(%said, of = %other.tenant.cluster, "a caller says another cluster's uid");
            return Err(refuse(format!("uid {said} is another cluster's")));
        }
        let uids = served
            .tenant
            .uids
            .for_caller(said)
            .map_err(|other| refuse(other.to_string()))?;
        if served.tenant.uids.is_unknown()
            && let Some(uid) = uids.written()
        {
            self.claims
                .claim(uid, &served.tenant.cluster, |name| {
                    snapshot.served.contains_key(name)
                })
                .map_err(refuse)?;
        }
        Ok(uids)
    }

    fn serve(&self, cluster: &Cluster, shared: Arc<Shared>, before: Option<&Arc<Served>>) -> Served {
        let mut tenant = cluster.tenant.clone();
        tenant.policy.tighten_on_adopt = self.tighten_on_adopt;
        let api = Api::new(
            Arc::clone(&shared.cloud),
            tenant.cluster.as_str(),
            tenant.scope.project.clone(),
        )
        .with_share(tenant.policy.share.get());
        // What was learned stays true as long as the way to the API and the fence are the same.
        let same = before.filter(|before| {
            before.tenant.scope == tenant.scope
                && before.access.is_same_account(&cluster.access)
                && Arc::ptr_eq(&before.shared, &shared)
        });
        let survey = same.map_or_else(
            || Arc::new(Survey::default()),
            |before| Arc::clone(&before.survey),
        );
        Served {
            api,
            rekeyed: shared.cloud.rekeyed(),
            shared,
            survey,
            machines_ttl: cluster.machines_ttl,
            access: cluster.access.clone(),
            identities: cluster.identities.clone(),
            tenant,
        }
    }

    /// Everybody that is served.
    pub fn served(&self) -> Vec<Arc<Served>> {
        self.snapshot.load().served.values().cloned().collect()
    }
}

fn seconds(since: Duration) -> i64 {
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
