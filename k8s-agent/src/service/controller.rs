//! Wakes the looks at Services: what changed, which keys that concerns, and who works on them.
//!
//! Decides only who is woken. Every key goes through one queue, so that a Service is never looked at twice at once; a change of the
//! nodes wakes every Service that has a load balancer, once for all nodes that change together.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Service;
use parking_lot::Mutex;
use proto::v1::DescribeResponse;
use runtime::clock;
use tokio::sync::{Notify, watch};

use super::backend::{Backend, Backends, Wake};
use super::fingerprint::members_print;
use super::intent::{Rules, has_finalizer};
use super::ledger::Key;
use super::members::Machine;
use super::orphans;
use super::status::has_condition;
use super::sync::{Interrupts, Looked, MachineOf, Memory, Silent, Syncer};
use crate::context::Context;
use crate::events::Component;
use crate::node::machines::{Machines, Member};
use crate::queue::{Backoff, Outcome, Queue};
use crate::watch::Change;

/// Nodes that change within this time wake the Services once.
const GATHER: Duration = Duration::from_millis(100);

/// Two ages of the same list differ by no more than this: calls take their time, and ages are rounded.
const SAME_LIST: Duration = Duration::from_secs(2);

/// How patient the controller is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Waits after failures.
    pub backoff: Backoff,
    /// What is waited for longer than this is worth a word.
    pub patience: Duration,
}

impl Default for Pace {
    /// The waits of Kubernetes' service controller, and a minute.
    fn default() -> Self {
        Self {
            backoff: Backoff {
                first: Duration::from_secs(5),
                longest: Duration::from_mins(5),
            },
            patience: Duration::from_mins(1),
        }
    }
}

/// Starts the controller. Its tasks end soon after the context says so.
pub fn start<C: Backend, K: Backend>(
    context: &Arc<Context>,
    rules: Rules,
    backends: Backends<C, K>,
    pace: Pace,
) {
    let controller = Arc::new(Controller::new(context, rules, backends, pace));
    controller.listen(context);
    for _ in 0..context.settings.service_workers.max(1) {
        let (controller, stop) = (Arc::clone(&controller), context.stop());
        let host = context.host.clone();
        context.keep("service", move || {
            let (controller, host, stop) = (Arc::clone(&controller), host.clone(), stop.clone());
            async move {
                let queue = controller.queue.clone();
                let work = |key, failures| controller.work(key, failures);
                queue.work(&host, &stop, work).await;
            }
        });
    }
    let (watching, stop) = (Arc::clone(&controller), context.stop());
    context.keep("service-nodes", move || {
        let (watching, stop) = (Arc::clone(&watching), stop.clone());
        async move {
            stop.run_until_cancelled(watching.watch_nodes()).await;
        }
    });
    if let Some(broker) = context.broker.clone() {
        let (returning, stop, descriptions) =
            (Arc::clone(&controller), context.stop(), broker.descriptions());
        context.keep("service-broker", move || {
            let (returning, stop, descriptions) =
                (Arc::clone(&returning), stop.clone(), descriptions.clone());
            async move {
                stop.run_until_cancelled(returning.watch_broker(descriptions))
                    .await;
            }
        });
        let (stop, services) = (context.stop(), context.services.clone());
        context.keep("service-orphans", move || {
            let (broker, services, stop) = (broker.clone(), services.clone(), stop.clone());
            async move {
                stop.run_until_cancelled(orphans::keep_listing(broker, services))
                    .await;
            }
        });
    }
    context.metrics.controller_runs("service");
}

struct Controller<C, K> {
    syncer: Syncer<C, K>,
    queue: Queue<Key>,
    /// A node or what is known of a machine changed.
    nodes_changed: Arc<Notify>,
    /// The members that the Services were last woken for; at the start those before any Service is looked at.
    members: Mutex<[u8; 32]>,
    /// Services that a change of the nodes woke and that are not done with it.
    node_set: Mutex<NodeSet>,
}

#[derive(Default)]
struct NodeSet {
    since: Option<Instant>,
    outstanding: HashSet<Key>,
}

impl<C: Backend, K: Backend> Controller<C, K> {
    fn new(context: &Context, rules: Rules, backends: Backends<C, K>, pace: Pace) -> Self {
        let syncer = Syncer {
            client: context.client.clone(),
            services: context.services.clone(),
            nodes: context.nodes.clone(),
            machine_of: machine_of(context.machines.clone()),
            events: context.events.of(Component::Service),
            metrics: context.metrics.clone(),
            leadership: context.leadership.clone(),
            broker: context.broker.clone(),
            rules,
            backends,
            pace,
            interrupts: Interrupts::default(),
            memory: Memory::default(),
        };
        Self {
            members: Mutex::new(members_print(&syncer.members().wish)),
            syncer,
            queue: Queue::new("service", pace.backoff, &context.metrics),
            nodes_changed: context.machines.changed(),
            node_set: Mutex::default(),
        }
    }

    fn listen(self: &Arc<Self>, context: &Context) {
        let controller = Arc::downgrade(self);
        let wake: Wake = Arc::new(move |namespace, name| {
            if let Some(controller) = controller.upgrade() {
                let key = Key {
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                };
                controller.syncer.memory.mark_urgent(&key);
                controller.queue.add(key);
            }
        });
        self.syncer.backends.wake_with(&wake);
        let (queue, interrupts) = (self.queue.clone(), self.syncer.interrupts.clone());
        let host = context.host.clone();
        context.services.listen(move |change| {
            // What can't be judged is looked at; there the Service alone fails.
            let woken = host.contained("service", || woken(change));
            if let Some(key) = woken.unwrap_or_else(|| key_of(change)) {
                queue.add(key);
            }
            let _ = host.contained("service", || interrupts.heard(change));
        });
        let changed = Arc::clone(&self.nodes_changed);
        context.nodes.listen(move |_| changed.notify_one());
    }

    async fn work(&self, key: Key, failures: u32) -> Outcome {
        let Looked { outcome, again_after } = self.syncer.look(&key, failures).await;
        if let Some(wait) = again_after {
            self.queue.add_after(key.clone(), wait);
        }
        if matches!(outcome, Outcome::Done | Outcome::Parked) {
            self.has_the_nodes(&key);
        }
        outcome
    }

    /// Wakes every Service when the set of members is another one.
    async fn watch_nodes(&self) {
        let mut since = clock::now();
        loop {
            tokio::time::sleep(GATHER).await;
            let now = members_print(&self.syncer.members().wish);
            if *self.members.lock() == now {
                self.nodes_changed.notified().await;
                since = clock::now();
                continue;
            }
            let keys: Vec<_> = self.syncer.memory.keys();
            tracing::info!(services = keys.len(), "the nodes that may serve have changed");
            {
                let mut node_set = self.node_set.lock();
                node_set.since.get_or_insert(since);
                node_set.outstanding.extend(keys.iter().cloned());
            }
            for key in keys {
                self.queue.add(key);
            }
            *self.members.lock() = now;
            since = clock::now();
        }
    }

    /// A Service was looked at since the nodes changed. The last one ends the measurement.
    fn has_the_nodes(&self, key: &Key) {
        let mut node_set = self.node_set.lock();
        if node_set.outstanding.remove(key)
            && node_set.outstanding.is_empty()
            && let Some(since) = node_set.since.take()
        {
            let took = clock::now().saturating_duration_since(since);
            self.syncer.metrics.node_set_seconds.observe(took.as_secs_f64());
        }
    }

    /// Whoever waits for an answer is looked at as soon as the broker answers again, not when its back-off is over; the same for the
    /// cloud behind it, of which a newer machine list is the sign.
    async fn watch_broker(&self, mut descriptions: watch::Receiver<Option<Arc<DescribeResponse>>>) {
        let mut read_before = None;
        while descriptions.changed().await.is_ok() {
            let age = descriptions
                .borrow_and_update()
                .as_ref()
                .and_then(|description| description.data_age);
            let age = age.and_then(|age| Duration::try_from(age).ok());
            let read = age.and_then(|age| clock::now().checked_sub(age));
            let is_newer = match (read_before, read) {
                (Some(before), Some(read)) => read > before + SAME_LIST,
                (None, Some(_)) => true,
                (_, None) => false,
            };
            let answers: &[Silent] = if is_newer {
                read_before = read;
                &[Silent::Broker, Silent::Cloud]
            } else {
                &[Silent::Broker]
            };
            for key in self.syncer.memory.take_unanswered(answers) {
                self.syncer.memory.mark_urgent(&key);
                self.queue.add(key);
            }
        }
    }
}

/// The Service that a change concerns; nothing if neither before nor after it has to do with load balancers.
fn woken(change: &Change<Service>) -> Option<Key> {
    let matters = |service: &&Arc<Service>| {
        service.spec.as_ref().and_then(|spec| spec.type_.as_deref()) == Some("LoadBalancer")
            || has_finalizer(service)
            || has_condition(service)
    };
    let before = change.old.as_ref().filter(matters);
    let after = change.new.as_ref().filter(matters);
    after.or(before).and_then(|service| Key::of(service))
}

fn key_of(change: &Change<Service>) -> Option<Key> {
    change
        .new
        .as_ref()
        .or(change.old.as_ref())
        .and_then(|service| Key::of(service))
}

fn machine_of(machines: Machines) -> MachineOf {
    Box::new(move |node| match machines.member(node) {
        Member::Machine(id) => Machine::Known(id.to_string()),
        Member::Gone(id) => Machine::Gone(id.to_string()),
        Member::Unresolved => Machine::Unresolved,
        Member::Foreign => Machine::Foreign(
            node.spec
                .as_ref()
                .and_then(|spec| spec.provider_id.clone())
                .unwrap_or_default(),
        ),
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::args::{CommandLine, Settings};
    use crate::election::Leadership;
    use crate::events::Recorder;
    use crate::metrics::Metrics;
    use crate::service::backend::{Absent, BackendName};
    use crate::service::choice::Running;
    use crate::service::intent::FINALIZER;
    use crate::watch::Watch;

    fn context() -> Context {
        let argv = [
            "k8s-agent",
            "--cloud-provider=external-cloudstack",
            "--broker=unix:///nowhere/broker.sock",
        ];
        let flags = CommandLine::read(argv.map(std::ffi::OsString::from))
            .unwrap()
            .flags;
        let metrics = Metrics::default();
        let (_, leadership) = Leadership::contested();
        let (events, _) = Recorder::new(metrics.clone());
        let away = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("away"))
        });
        Context {
            host: runtime::host::Host::new(),
            settings: Settings::try_from(flags).unwrap(),
            client: kube::Client::new(away, "default"),
            nodes: Watch::default(),
            services: Watch::default(),
            broker: None,
            machines: Machines::default(),
            events,
            metrics,
            leadership,
            work: tokio_util::task::TaskTracker::new(),
        }
    }

    fn node(name: &str) -> k8s_openapi::api::core::v1::Node {
        serde_json::from_value(json!({"metadata": {"name": name, "uid": name}})).unwrap()
    }

    #[tokio::test]
    async fn a_node_that_comes_while_the_controller_starts_wakes_the_services() {
        let context = context();
        context.nodes.put(node("a"));
        let rules = Rules {
            running: Running::One(BackendName::Cloud),
            dialect: proto::v1::Dialect::default(),
        };
        let backends = Backends::<Absent, Absent> {
            cloud: None,
            keepalived: None,
        };
        let controller = Arc::new(Controller::new(&context, rules, backends, Pace::default()));
        let key = Key {
            namespace: "default".to_owned(),
            name: "web".to_owned(),
        };
        // A worker looked at it with the node that was there then.
        controller.syncer.memory.open(&key);
        context.nodes.put(node("b"));
        controller.listen(&context);
        let woken = tokio::select! {
            () = controller.watch_nodes() => panic!("it watches for good"),
            woken = tokio::time::timeout(Duration::from_secs(10), controller.queue.take()) => woken,
        };
        assert_eq!(woken.map(|taken| taken.key), Ok(key));
    }

    #[expect(clippy::unnecessary_wraps, reason = "a side of a change")]
    #[expect(clippy::needless_pass_by_value, reason = "json! at the call")]
    fn service(kind: &str, finalizers: Value) -> Option<Arc<Service>> {
        let value = json!({
            "metadata": {"uid": "u", "namespace": "default", "name": "web", "finalizers": finalizers},
            "spec": {"type": kind},
        });
        Some(Arc::new(serde_json::from_value(value).unwrap()))
    }

    #[rstest]
    #[case::new(None, service("LoadBalancer", json!([])), true)]
    #[case::changed(service("LoadBalancer", json!([])), service("LoadBalancer", json!([])), true)]
    #[case::type_changed_away(service("LoadBalancer", json!([])), service("ClusterIP", json!([])), true)]
    #[case::gone(service("LoadBalancer", json!([])), None, true)]
    #[case::left_with_our_finalizer(None, service("ClusterIP", json!([FINALIZER])), true)]
    #[case::never_a_load_balancer(service("ClusterIP", json!(["a"])), service("NodePort", json!([])), false)]
    #[case::gone_and_never_one(service("ClusterIP", json!([])), None, false)]
    fn which_changes_wake_a_service(
        #[case] old: Option<Arc<Service>>,
        #[case] new: Option<Arc<Service>>,
        #[case] expected: bool,
    ) {
        assert_eq!(woken(&Change { old, new }).is_some(), expected);
    }
}
