//! Every metric of the agent, under the names that dashboards of the Go controllers read, and a few of our own.
//!
//! A name lives here and nowhere else; a golden scrape in the tests keeps names and labels from changing unnoticed.
//! The registry appends `_total` to counters by itself.

mod collect;
mod labels;
mod register;

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

use crate::queue::{Outcome, Reading};
use collect::Queues;
use labels::{ApiRequest, ApiVerb, BrokerCall, Build, LeaseName, Managed, Named, Operation, Path};

type Seconds = Histogram;
type SecondsBy<L> = Family<L, Histogram, fn() -> Histogram>;

/// All metrics. Clones share their values.
#[derive(Clone, Debug)]
pub struct Metrics {
    queue_adds: Family<Named, Counter>,
    queue_retries: Family<Named, Counter>,
    queue_waited: SecondsBy<Named>,
    queue_worked: SecondsBy<Named>,
    queues: Queues,
    leader: Family<LeaseName, Gauge>,
    leader_slow: Family<LeaseName, Counter>,
    controllers: Family<Managed, Gauge>,
    api_requests: Family<ApiRequest, Counter>,
    api_seconds: SecondsBy<ApiVerb>,
    broker_calls: Family<BrokerCall, Counter>,
    broker_seconds: SecondsBy<Named>,
    broker_up: Gauge,
    events_dropped: Counter,
    /// Node created until its taint of a node that is not initialised yet is gone.
    pub taint_removal_delay: Seconds,
    /// Node created until it is wholly initialised.
    pub initial_sync_delay: Seconds,
    /// Time of one run over the nodes that are not Ready.
    pub monitor_seconds: Seconds,
    /// Nodes looked at by such runs, by where the answer came from.
    nodes_processed: Family<Path, Counter>,
    /// Nodes that are held back from deletion by the brake.
    pub nodes_held: Gauge,
    /// Nodes that were deleted, since their machine is gone.
    pub nodes_deleted: Counter,
    /// Changes of the set of nodes brought to a load balancer.
    pub node_set_syncs: Counter,
    /// Those that failed.
    pub node_set_errors: Counter,
    /// Time from a change of the set of nodes until all load balancers have it.
    pub node_set_seconds: Seconds,
    /// Time of one such change of one load balancer.
    pub host_update_seconds: Seconds,
    balancer_operations: Family<Operation, Counter>,
    balancer_seconds: SecondsBy<Operation>,
    build: Family<Build, Gauge>,
}

/// The metrics of one queue.
#[derive(Clone, Debug)]
pub struct QueueMeter {
    name: &'static str,
    adds: Counter,
    retries: Counter,
    waited: Histogram,
    worked: Histogram,
}

fn queue_seconds() -> Histogram {
    Histogram::new(exponential_buckets(1e-8, 10.0, 12))
}

fn request_seconds() -> Histogram {
    Histogram::new([0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0])
}

fn node_delay() -> Histogram {
    Histogram::new(exponential_buckets(1.0, 4.0, 6))
}

fn balancer_seconds() -> Histogram {
    Histogram::new(exponential_buckets(1.0, 2.0, 15))
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            queue_adds: Family::default(),
            queue_retries: Family::default(),
            queue_waited: Family::new_with_constructor(queue_seconds),
            queue_worked: Family::new_with_constructor(queue_seconds),
            queues: Queues::default(),
            leader: Family::default(),
            leader_slow: Family::default(),
            controllers: Family::default(),
            api_requests: Family::default(),
            api_seconds: Family::new_with_constructor(request_seconds),
            broker_calls: Family::default(),
            broker_seconds: Family::new_with_constructor(request_seconds),
            broker_up: Gauge::default(),
            events_dropped: Counter::default(),
            taint_removal_delay: node_delay(),
            initial_sync_delay: node_delay(),
            monitor_seconds: Histogram::new(exponential_buckets(0.001, 2.0, 15)),
            nodes_processed: Family::default(),
            nodes_held: Gauge::default(),
            nodes_deleted: Counter::default(),
            node_set_syncs: Counter::default(),
            node_set_errors: Counter::default(),
            node_set_seconds: balancer_seconds(),
            host_update_seconds: balancer_seconds(),
            balancer_operations: Family::default(),
            balancer_seconds: Family::new_with_constructor(request_seconds),
            build: Family::default(),
        }
    }
}

impl Metrics {
    /// The metrics of a queue.
    pub fn queue_meter(&self, name: &'static str) -> QueueMeter {
        let named = Named { name };
        QueueMeter {
            name,
            adds: self.queue_adds.get_or_create_owned(&named),
            retries: self.queue_retries.get_or_create_owned(&named),
            waited: self.queue_waited.get_or_create_owned(&named),
            worked: self.queue_worked.get_or_create_owned(&named),
        }
    }

    /// Reads a queue at each scrape, until `read` answers nothing.
    pub fn watch_queue(
        &self,
        name: &'static str,
        read: impl Fn() -> Option<Reading> + Send + Sync + 'static,
    ) {
        self.queues.watch(name, Arc::new(read));
    }

    /// Whether this process leads.
    pub fn set_leader(&self, lease: &str, leads: bool) {
        self.leader
            .get_or_create(&LeaseName {
                name: lease.to_owned(),
            })
            .set(i64::from(leads));
    }

    /// A renewal of the lease had to read it first.
    pub fn lease_read(&self, lease: &str) {
        self.leader_slow
            .get_or_create(&LeaseName {
                name: lease.to_owned(),
            })
            .inc();
    }

    /// A controller runs from now on.
    pub fn controller_runs(&self, name: &'static str) {
        self.controllers
            .get_or_create(&Managed {
                name,
                manager: "cloud-controller-manager",
            })
            .set(1);
    }

    /// A request to kube-apiserver was answered, or failed with the code `<error>`.
    pub fn api_request(&self, host: &str, method: &str, code: &str, took: Duration) {
        let (host, method) = (host.to_owned(), method.to_owned());
        let labels = ApiVerb {
            verb: method.clone(),
            host: host.clone(),
        };
        self.api_seconds
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
        self.api_requests
            .get_or_create(&ApiRequest {
                code: code.to_owned(),
                method,
                host,
            })
            .inc();
    }

    /// A call to the broker ended: `ok`, or the word of the fault.
    pub fn broker_call(&self, call: &'static str, outcome: &'static str, took: Duration) {
        self.broker_calls
            .get_or_create(&BrokerCall { call, outcome })
            .inc();
        self.broker_seconds
            .get_or_create(&Named { name: call })
            .observe(took.as_secs_f64());
    }

    /// Whether the broker answers.
    pub fn set_broker_up(&self, up: bool) {
        self.broker_up.set(i64::from(up));
    }

    /// An event was not written.
    pub fn event_dropped(&self) {
        self.events_dropped.inc();
    }

    /// A run over the nodes looked at this many: from its own cache, and with the broker's help.
    pub fn nodes_looked_at(&self, cache: u64, cloud: u64) {
        self.nodes_processed
            .get_or_create(&Path { path: "cache" })
            .inc_by(cache);
        self.nodes_processed
            .get_or_create(&Path { path: "cloud" })
            .inc_by(cloud);
    }

    /// An ensure or delete of a load balancer ended.
    pub fn balancer_operation(&self, operation: &'static str, outcome: &'static str, took: Duration) {
        let labels = Operation { operation, outcome };
        self.balancer_operations.get_or_create(&labels).inc();
        self.balancer_seconds
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
    }
}

impl QueueMeter {
    /// Name of the queue.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// A key became due that was not.
    pub fn added(&self) {
        self.adds.inc();
    }

    /// A worker began with a key.
    pub fn started(&self, waited: Duration) {
        self.waited.observe(waited.as_secs_f64());
    }

    /// A worker ended.
    pub fn worked(&self, took: Duration, outcome: Outcome) {
        self.worked.observe(took.as_secs_f64());
        match outcome {
            Outcome::Failed | Outcome::After(_) => {
                self.retries.inc();
            }
            Outcome::Done | Outcome::Parked => {}
        }
    }
}

#[cfg(test)]
mod tests;
