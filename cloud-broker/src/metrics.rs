//! The names of everything that this program counts.
//!
//! Decides names, labels and buckets; what is counted when is decided where it happens.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Labels of a `CloudStack` call.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    account: String,
    command: &'static str,
    class: &'static str,
    outcome: &'static str,
}

/// Labels of a command's duration.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Duty {
    account: String,
    command: &'static str,
}

/// Labels of a wait for the rate budget.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Turn {
    account: String,
    tenant: String,
    class: &'static str,
}

/// Labels of what an account has once.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PerAccount {
    account: String,
}

/// How the buckets of a histogram are laid out.
#[derive(Debug, Clone, Copy)]
struct Seconds(&'static [f64]);

impl MetricConstructor<Histogram> for Seconds {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

const CALL: Seconds = Seconds(&[0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0]);
const WAIT: Seconds = Seconds(&[0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 30.0]);
const JOB: Seconds = Seconds(&[0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0]);

/// What is counted about calls of the `CloudStack` API. Clones share their numbers.
#[derive(Debug, Clone)]
pub struct CloudStackMetrics {
    calls: Family<Call, Counter>,
    call_seconds: Family<Duty, Histogram, Seconds>,
    job_seconds: Family<Duty, Histogram, Seconds>,
    budget_seconds: Family<Turn, Histogram, Seconds>,
    breaker_open: Family<PerAccount, Gauge>,
    jobs_running: Family<PerAccount, Gauge>,
}

impl Default for CloudStackMetrics {
    fn default() -> Self {
        Self {
            calls: Family::default(),
            call_seconds: Family::new_with_constructor(CALL),
            job_seconds: Family::new_with_constructor(JOB),
            budget_seconds: Family::new_with_constructor(WAIT),
            breaker_open: Family::default(),
            jobs_running: Family::default(),
        }
    }
}

impl CloudStackMetrics {
    /// Makes the numbers appear in a registry.
    pub fn register(&self, registry: &mut Registry) {
        let calls = "Calls of the CloudStack API by command and outcome";
        registry.register("cloudstack_api_calls", calls, self.calls.clone());
        let name = "cloudstack_api_call_duration";
        registry.register_with_unit(
            name,
            "Time until the answer",
            Unit::Seconds,
            self.call_seconds.clone(),
        );
        let name = "cloudstack_api_job_duration";
        let help = "Time from the start of a job until its end was seen";
        registry.register_with_unit(name, help, Unit::Seconds, self.job_seconds.clone());
        let name = "cloudstack_api_budget_wait";
        let help = "Time that calls waited for their turn in the account's rate budget";
        registry.register_with_unit(name, help, Unit::Seconds, self.budget_seconds.clone());
        let help = "1 while calls are held back because the API did not answer";
        registry.register("cloudstack_api_breaker_open", help, self.breaker_open.clone());
        registry.register(
            "cloudstack_api_jobs_running",
            "Jobs that are waited for",
            self.jobs_running.clone(),
        );
    }

    /// One call was answered, or not. `outcome` is a constant word: `ok`, or the class of the error.
    pub fn called(&self, account: &str, call: CallLabels, took: Duration) {
        let CallLabels {
            command,
            class,
            outcome,
        } = call;
        let account = account.to_owned();
        self.calls
            .get_or_create(&Call {
                account: account.clone(),
                command,
                class,
                outcome,
            })
            .inc();
        self.call_seconds
            .get_or_create(&Duty { account, command })
            .observe(took.as_secs_f64());
    }

    /// A call got its turn in the budget.
    pub fn waited(&self, account: &str, tenant: &str, class: &'static str, waited: Duration) {
        let turn = Turn {
            account: account.to_owned(),
            tenant: tenant.to_owned(),
            class,
        };
        self.budget_seconds
            .get_or_create(&turn)
            .observe(waited.as_secs_f64());
    }

    /// A job was seen to end.
    pub fn job_ended(&self, account: &str, command: &'static str, took: Duration) {
        let duty = Duty {
            account: account.to_owned(),
            command,
        };
        self.job_seconds.get_or_create(&duty).observe(took.as_secs_f64());
    }

    /// So many jobs are waited for.
    pub fn jobs_running(&self, account: &str, jobs: usize) {
        let labels = PerAccount {
            account: account.to_owned(),
        };
        self.jobs_running
            .get_or_create(&labels)
            .set(i64::try_from(jobs).unwrap_or(i64::MAX));
    }

    /// The breaker holds calls back, or does so no more.
    pub fn breaker_open(&self, account: &str, open: bool) {
        self.breaker_open
            .get_or_create(&PerAccount {
                account: account.to_owned(),
            })
            .set(i64::from(open));
    }
}

/// What a call was and how it ended.
#[derive(Debug, Clone, Copy)]
pub struct CallLabels {
    /// The command.
    pub command: &'static str,
    /// `read`, `poll` or `write`.
    pub class: &'static str,
    /// `ok`, or the class of the error.
    pub outcome: &'static str,
}

/// Labels of a call of the contract.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Rpc {
    call: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RpcCall {
    call: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PerPresence {
    presence: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PerSeverity {
    tenant: String,
    severity: &'static str,
}

/// What a call of the contract was and how it ended.
#[derive(Debug, Clone, Copy)]
pub struct RpcLabels {
    /// Name of the call.
    pub call: &'static str,
    /// `ok`, or the kind of the fault.
    pub outcome: &'static str,
}

/// What is counted about calls of agents.
#[derive(Debug, Clone)]
pub struct RpcMetrics {
    calls: Family<Rpc, Counter>,
    seconds: Family<RpcCall, Histogram, Seconds>,
    lookups: Family<PerPresence, Counter>,
}

impl Default for RpcMetrics {
    fn default() -> Self {
        Self {
            calls: Family::default(),
            seconds: Family::new_with_constructor(CALL),
            lookups: Family::default(),
        }
    }
}

impl RpcMetrics {
    fn register(&self, registry: &mut Registry) {
        registry.register(
            "cloud_broker_rpc",
            "Calls of agents by their end",
            self.calls.clone(),
        );
        let name = "cloud_broker_rpc_duration";
        registry.register_with_unit(name, "Time until the answer", Unit::Seconds, self.seconds.clone());
        let help = "Nodes that were looked up, by what was found";
        registry.register("cloud_broker_instance_lookups", help, self.lookups.clone());
    }

    /// A call ended.
    pub fn served(&self, labels: RpcLabels, took: Duration) {
        let RpcLabels { call, outcome } = labels;
        self.calls.get_or_create(&Rpc { call, outcome }).inc();
        self.seconds
            .get_or_create(&RpcCall { call })
            .observe(took.as_secs_f64());
    }

    /// A node was looked up: `found`, `gone` or `unknown`.
    pub fn looked_up(&self, presence: &'static str) {
        self.lookups.get_or_create(&PerPresence { presence }).inc();
    }
}

/// What is counted about the configuration and what it leads to.
#[derive(Debug, Clone, Default)]
pub struct ConfigMetrics {
    reloads: Family<Reload, Counter>,
    good: Gauge,
    findings: Family<PerSeverity, Gauge>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reload {
    outcome: &'static str,
}

impl ConfigMetrics {
    fn register(&self, registry: &mut Registry) {
        let help = "Changes of the configuration that were read, by their outcome";
        registry.register("cloud_broker_config_reloads", help, self.reloads.clone());
        let help = "1 if the configuration files as they are now are in use, 0 if they are broken and older ones are";
        registry.register("cloud_broker_config_good", help, self.good.clone());
        let help = "Findings about a tenant's set-up";
        registry.register("cloud_broker_findings", help, self.findings.clone());
    }

    /// The configuration in use is the one in the files.
    pub fn is_good(&self) {
        self.good.set(1);
    }

    /// A change was read, and is in use or refused.
    pub fn reloaded(&self, good: bool) {
        let outcome = if good { "applied" } else { "refused" };
        self.reloads.get_or_create(&Reload { outcome }).inc();
        self.good.set(i64::from(good));
    }

    /// So many findings of this severity.
    pub fn findings(&self, tenant: &str, severity: &'static str, count: usize) {
        let labels = PerSeverity {
            tenant: tenant.to_owned(),
            severity,
        };
        self.findings
            .get_or_create(&labels)
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}

/// Everything that this program counts. Clones share their numbers.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    /// Calls of the `CloudStack` API.
    pub cloudstack: CloudStackMetrics,
    /// Calls of agents.
    pub rpc: RpcMetrics,
    /// The configuration.
    pub config: ConfigMetrics,
}

impl Metrics {
    /// Makes all numbers appear in a registry.
    pub fn register(&self, registry: &mut Registry) {
        self.cloudstack.register(registry);
        self.rpc.register(registry);
        self.config.register(registry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names, kinds and labels are what dashboards and alerts are made of.
    #[test]
    fn the_scrape_has_these_names_and_labels() {
        let metrics = Metrics::default();
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let took = Duration::from_millis(30);
        let call = CallLabels {
            command: "listZones",
            class: "read",
            outcome: "ok",
        };
        metrics.cloudstack.called("a", call, took);
        metrics.cloudstack.waited("a", "t", "read", took);
        metrics.cloudstack.job_ended("a", "associateIpAddress", took);
        metrics.cloudstack.jobs_running("a", 1);
        metrics.cloudstack.breaker_open("a", true);
        metrics.rpc.served(
            RpcLabels {
                call: "Describe",
                outcome: "ok",
            },
            took,
        );
        metrics.rpc.looked_up("found");
        metrics.config.reloaded(false);
        metrics.config.reloaded(true);
        metrics.config.findings("t", "error", 2);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let is_told = |line: &&str| {
            !line.starts_with("# HELP") && !line.contains("_bucket{") && !line.contains("_sum{")
        };
        let mut told: Vec<&str> = text.lines().filter(is_told).collect();
        // The rows of one name come in the order of a hash map.
        told.sort_unstable();
        insta::assert_snapshot!(told.join("\n"));
    }
}
