//! Metrics of the keepalived backend. They exist only where it runs.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::allocation::{Finding, Plan, Usage};

/// Label of everything that belongs to one pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PoolLabel {
    pool: String,
}

/// All of them. Clones share their values.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    size: Family<PoolLabel, Gauge>,
    in_use: Family<PoolLabel, Gauge>,
    blocked: Family<PoolLabel, Gauge>,
    outside: Gauge,
    waiting: Gauge,
    writes: Counter,
    conflicts: Counter,
    repairs: Counter,
    released: Counter,
    /// Entries that somebody else changes again and again.
    contested: Gauge,
    stale: Gauge,
}

impl Meter {
    /// Puts them into a registry.
    pub fn register(&self, registry: &mut Registry) {
        let gauge = |name: &'static str| format!("k8s_agent_keepalived_{name}");
        registry.register(
            gauge("pool_addresses"),
            "Addresses that a pool can give out, were none taken",
            self.size.clone(),
        );
        registry.register(
            gauge("pool_addresses_in_use"),
            "Addresses of a pool that Services have",
            self.in_use.clone(),
        );
        registry.register(
            gauge("pool_addresses_blocked"),
            "Addresses of a pool that are taken otherwise: entries of others, nodes, statuses",
            self.blocked.clone(),
        );
        registry.register(
            gauge("addresses_outside_pools"),
            "Addresses of Services that lie in no pool",
            self.outside.clone(),
        );
        registry.register(
            gauge("services_waiting"),
            "Services that wait for an address",
            self.waiting.clone(),
        );
        registry.register(
            gauge("config_map_writes"),
            "Writes of the ConfigMap",
            self.writes.clone(),
        );
        registry.register(
            gauge("config_map_conflicts"),
            "Writes of the ConfigMap that had to be planned again, since somebody else wrote",
            self.conflicts.clone(),
        );
        registry.register(
            gauge("entries_repaired"),
            "Entries that somebody changed and that were put right",
            self.repairs.clone(),
        );
        registry.register(
            gauge("entries_contested"),
            "Entries that somebody else changes again and again",
            self.contested.clone(),
        );
        registry.register(
            gauge("entries_stale"),
            "Entries of an earlier program that nobody maintains",
            self.stale.clone(),
        );
        registry.register(
            gauge("records_released"),
            "Records whose Service is gone or no load balancer any more",
            self.released.clone(),
        );
    }

    /// A write went through.
    pub fn written(&self) {
        self.writes.inc();
    }

    /// A write was refused, because somebody else wrote in between.
    pub fn conflict(&self) {
        self.conflicts.inc();
    }

    /// So many Services wait.
    pub fn waiting(&self, services: usize) {
        self.waiting.set(i64::try_from(services).unwrap_or(i64::MAX));
    }

    /// How full the pools are.
    pub fn pools(&self, usage: &[Usage]) {
        for usage in usage {
            let label = PoolLabel {
                pool: usage.pool.clone(),
            };
            self.size.get_or_create(&label).set(whole(usage.size));
            self.in_use.get_or_create(&label).set(whole(usage.in_use));
            self.blocked.get_or_create(&label).set(whole(usage.blocked));
        }
    }

    /// What a plan that was carried out says.
    pub fn planned(&self, plan: &Plan) {
        self.pools(&plan.usage);
        self.outside.set(whole(plan.outside_pools));
        let count = |is_it: fn(&Finding) -> bool| {
            plan.findings.iter().filter(|finding| is_it(finding)).count() as u64
        };
        self.repairs
            .inc_by(count(|finding| matches!(finding, Finding::Repaired(_))));
        self.released
            .inc_by(count(|finding| matches!(finding, Finding::Released(_))));
        self.contested
            .set(whole(count(|finding| matches!(finding, Finding::Contested(_)))));
        self.stale
            .set(whole(count(|finding| matches!(finding, Finding::Stale(..)))));
    }
}

fn whole(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
