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
        registry.register_with_unit(name, "Time until the answer", Unit::Seconds, self.call_seconds.clone());
        let name = "cloudstack_api_job_duration";
        let help = "Time from the start of a job until its end was seen";
        registry.register_with_unit(name, help, Unit::Seconds, self.job_seconds.clone());
        let name = "cloudstack_api_budget_wait";
        let help = "Time that calls waited for their turn in the account's rate budget";
        registry.register_with_unit(name, help, Unit::Seconds, self.budget_seconds.clone());
        let help = "1 while calls are held back because the API did not answer";
        registry.register("cloudstack_api_breaker_open", help, self.breaker_open.clone());
        registry.register("cloudstack_api_jobs_running", "Jobs that are waited for", self.jobs_running.clone());
    }

    /// One call was answered, or not. `outcome` is a constant word: `ok`, or the class of the error.
    pub fn called(&self, account: &str, call: CallLabels, took: Duration) {
        let CallLabels { command, class, outcome } = call;
        let account = account.to_owned();
        self.calls.get_or_create(&Call { account: account.clone(), command, class, outcome }).inc();
        self.call_seconds.get_or_create(&Duty { account, command }).observe(took.as_secs_f64());
    }

    /// A call got its turn in the budget.
    pub fn waited(&self, account: &str, tenant: &str, class: &'static str, waited: Duration) {
        let turn = Turn { account: account.to_owned(), tenant: tenant.to_owned(), class };
        self.budget_seconds.get_or_create(&turn).observe(waited.as_secs_f64());
    }

    /// A job was seen to end.
    pub fn job_ended(&self, account: &str, command: &'static str, took: Duration) {
        let duty = Duty { account: account.to_owned(), command };
        self.job_seconds.get_or_create(&duty).observe(took.as_secs_f64());
    }

    /// So many jobs are waited for.
    pub fn jobs_running(&self, account: &str, jobs: usize) {
        let labels = PerAccount { account: account.to_owned() };
        self.jobs_running.get_or_create(&labels).set(i64::try_from(jobs).unwrap_or(i64::MAX));
    }

    /// The breaker holds calls back, or does so no more.
    pub fn breaker_open(&self, account: &str, open: bool) {
        self.breaker_open.get_or_create(&PerAccount { account: account.to_owned() }).set(i64::from(open));
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
