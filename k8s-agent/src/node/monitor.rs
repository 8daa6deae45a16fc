//! cloud-node-lifecycle-controller: looks at nodes that are not Ready, and carries out what [`super::lifecycle`] judges.

use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use runtime::clock;
use tokio::sync::Mutex;

use super::lifecycle::{CONFIRM_DELETION, Held, History, Moment, Sight, Verdict};
use super::lookup::{Asked, lookup, scope};
use super::plan::{self, provider_id_of};
use super::presence::Presence;
use super::provider_id::ProviderId;
use super::writes::{WriteError, Writes};
use crate::broker::Broker;
use crate::contain::Resting;
use crate::context::Context;
use crate::events::{Component, Reason, Recorder, is_due_again};

struct Monitor {
    context: Arc<Context>,
    broker: Broker,
    writes: Writes,
    events: Recorder,
    history: History,
    told: Told,
    fault: Option<String>,
    panicked: Resting,
}

/// Starts the loop. Nodes must be watched already.
pub fn start(context: &Arc<Context>, broker: &Broker) {
    let monitor = Monitor {
        context: Arc::clone(context),
        broker: broker.clone(),
        writes: Writes::new(context.client.clone(), context.leadership.clone()),
        events: context.events.of(Component::NodeLifecycle),
        history: History::default(),
        told: Told::default(),
        fault: None,
        panicked: Resting::new(context.settings.rules.retry),
    };
    // What it remembers outlives a panic of its loop.
    let monitor = Arc::new(Mutex::new(monitor));
    context.keep("node-monitor", move || {
        let monitor = Arc::clone(&monitor);
        async move { monitor.lock().await.run().await }
    });
}

impl Monitor {
    async fn run(&mut self) {
        let (stop, period) = (self.context.stop(), self.context.settings.monitor_period);
        loop {
            let began = clock::now();
            if stop.run_until_cancelled(self.once()).await.is_none() {
                return;
            }
            let took = clock::now().saturating_duration_since(began);
            self.context.metrics.monitor_seconds.observe(took.as_secs_f64());
            if stop
                .run_until_cancelled(tokio::time::sleep(period))
                .await
                .is_none()
            {
                return;
            }
        }
    }

    async fn once(&mut self) {
        let nodes = self.context.nodes.all();
        let sights: Vec<Sight> = nodes.iter().map(|node| sight(node)).collect();
        let ask: HashMap<_, _> = self.history.observe(&sights, clock::now()).into_iter().collect();
        for sight in &sights {
            self.history
                .found(&sight.uid, self.context.machines.scope_of(&sight.uid).as_deref());
        }
        let asked: Vec<Asked> = nodes
            .iter()
            .zip(&sights)
            .filter_map(|(node, sight)| {
                ask.get(&sight.uid).map(|time| Asked {
                    node: Arc::clone(node),
                    not_ready_for: *time,
                })
            })
            .collect();
        let presences = self.ask(&asked).await;
        self.panicked
            .retain(|uid| sights.iter().any(|sight| sight.uid == uid));
        let (cloud, all) = (presences.len() as u64, nodes.len() as u64);
        self.context
            .metrics
            .nodes_looked_at(all.saturating_sub(cloud), cloud);
        let (rules, scope) = (self.context.settings.rules, scope(&self.broker));
        let moment = Moment {
            rules: &rules,
            scope: scope.as_deref(),
            now: clock::now(),
        };
        let verdicts = self.history.judge(&sights, &presences, moment);
        let held = verdicts
            .iter()
            .filter(|verdict| matches!(verdict, Verdict::Hold(_)))
            .count();
        self.context
            .metrics
            .nodes_held
            .set(i64::try_from(held).unwrap_or(i64::MAX));
        // What was told is told again only after the node was well, or its machine was seen.
        self.told.0.retain(|uid, _| {
            let held = sights.iter().any(|sight| sight.uid == *uid && !sight.ready);
            held && !matches!(presences.get(uid), Some(Presence::Found(_)))
        });
        for (node, verdict) in nodes.iter().zip(verdicts) {
            self.contained(node, verdict).await;
        }
    }

    /// A node whose work panics rests for a while, and the others have their turn.
    async fn contained(&mut self, node: &Node, verdict: Verdict) {
        let (name, uid) = (node.name_any(), node.uid().unwrap_or_default());
        if verdict == Verdict::Leave || self.panicked.rests(&uid, clock::now()) {
            return;
        }
        let may_be_deleted = matches!(verdict, Verdict::Delete(_));
        let context = Arc::clone(&self.context);
        let work = context.contain("node-monitor", &name, self.carry_out(node, verdict));
        let panicked = work.await.is_none();
        self.panicked.ended(&uid, panicked, clock::now());
        if panicked && may_be_deleted {
            // Nobody knows whether it came about.
            self.history.deleted(clock::now());
        }
    }

    /// Answers by UID; none while the broker is away.
    async fn ask(&mut self, asked: &[Asked]) -> HashMap<String, Presence> {
        match lookup(&self.context, &self.broker, asked).await {
            Ok(presences) => {
                self.fault = None;
                asked
                    .iter()
                    .map(|asked| asked.node.uid().unwrap_or_default())
                    .zip(presences)
                    .collect()
            }
            Err(fault) => {
                if self.fault.as_ref() != Some(&fault.text) {
                    tracing::warn!(fault = %fault.text, "nothing is known of nodes that are not Ready, so they stay as they are");
                    self.fault = Some(fault.text);
                }
                HashMap::new()
            }
        }
    }

    async fn carry_out(&mut self, node: &Node, verdict: Verdict) {
        let name = node.name_any();
        let done = match verdict {
            Verdict::Leave => Ok(()),
            Verdict::Taint => {
                let done = self.writes.main_locked(node, plan::add_shutdown_taint).await;
                if done.is_ok() {
                    tracing::info!(node = %name, "the node's machine is switched off, so nothing is scheduled on it");
                    self.events.publish(
                        &node.into(),
                        &Reason::NODE_SHUTDOWN,
                        "the machine is switched off",
                    );
                }
                done
            }
            Verdict::Untaint => self.writes.main_locked(node, plan::remove_shutdown_taint).await,
            Verdict::Delete(proof) => {
                tracing::info!(node = %name, witness = proof.witness(), "the node's machine is gone, deleting the node");
                return self.delete(node).await;
            }
            Verdict::Hold(held) => return self.hold(node, held),
        };
        match done {
            Ok(()) | Err(WriteError::NoNode | WriteError::NotLeading) => {}
            Err(error) => {
                tracing::warn!(node = %name, fault = %error, "the node's taint was not changed, trying again");
            }
        }
    }

    async fn delete(&mut self, node: &Node) {
        let uid = node.uid().unwrap_or_default();
        // Said once; why it is not done is said by the failures.
        if self.history.failures(&uid) == 0 {
            self.events.publish(
                &node.into(),
                &Reason::DELETING_NODE,
                "the machine behind the node does not exist any more",
            );
        }
        let retry = self.context.settings.rules.retry;
        match self.writes.delete(node).await {
            Ok(()) => {
                self.history.deleted(clock::now());
                self.context.metrics.nodes_deleted.inc();
            }
            Err(WriteError::NoNode | WriteError::NotLeading) => {}
            // It changed meanwhile: it is judged again.
            Err(WriteError::Conflict) => self.history.failed(&uid, retry, clock::now()),
            Err(error @ WriteError::Failed(_)) => {
                self.history.failed(&uid, retry, clock::now());
                tracing::warn!(node = %node.name_any(), fault = %error, "the node was not deleted, trying again");
                self.events
                    .publish(&node.into(), &Reason::DELETING_NODE_FAILED, error.to_string());
            }
        }
    }

    fn hold(&mut self, node: &Node, held: Held) {
        let uid = node.uid().unwrap_or_default();
        if !self.told.is_news(uid, held, clock::now()) {
            return;
        }
        tracing::warn!(node = %node.name_any(), "{}", held.text());
        if held != Held::ThisMinute {
            self.events
                .publish(&node.into(), &Reason::NODE_DELETION_HELD, held.text());
        }
    }
}

/// Holds that were told, by UID: which, and when.
#[derive(Default)]
struct Told(HashMap<String, (Discriminant<Held>, Instant)>);

impl Told {
    /// Whether this was not told lately; then it counts as told. What lasts is told again before Kubernetes forgets its event.
    fn is_news(&mut self, uid: String, held: Held, now: Instant) -> bool {
        let kind = discriminant(&held);
        let is_told = self
            .0
            .get(&uid)
            .is_some_and(|(told, at)| *told == kind && !is_due_again(*at, now));
        if !is_told {
            self.0.insert(uid, (kind, now));
        }
        !is_told
    }
}

fn sight(node: &Node) -> Sight {
    let conditions = node
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    Sight {
        uid: node.uid().unwrap_or_default(),
        // No condition is as good as Unknown.
        ready: conditions
            .iter()
            .any(|it| it.type_ == "Ready" && it.status == "True"),
        tainted: plan::has_shutdown_taint(node),
        foreign: provider_id_of(node) == ProviderId::Foreign,
        deleting: node.metadata.deletion_timestamp.is_some(),
        confirmed: node
            .annotations()
            .get(CONFIRM_DELETION)
            .is_some_and(|value| value == "true"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::REMINDER;
    use k8s_openapi::api::core::v1::NodeCondition;
    use rstest::rstest;

    #[test]
    fn a_hold_that_lasts_is_told_again_before_kubernetes_forgets_its_event() {
        let (mut told, now) = (Told::default(), clock::now());
        let many = |candidates| Held::TooMany { candidates, limit: 3 };
        let mut is_news = |held, after| told.is_news("u".to_owned(), held, now + after);
        let second = std::time::Duration::from_secs(1);
        assert!(is_news(many(5), second));
        assert!(!is_news(many(6), 2 * second), "another count is the same hold");
        assert!(is_news(Held::ScopeChanged, 3 * second));
        assert!(!is_news(Held::ScopeChanged, REMINDER));
        assert!(is_news(Held::ScopeChanged, 3 * second + REMINDER));
    }

    #[rstest]
    #[case::ready(Some("True"), true)]
    #[case::not_ready(Some("False"), false)]
    #[case::unknown(Some("Unknown"), false)] // L-04
    #[case::missing(None, false)] // L-41
    fn only_ready_true_is_ready(#[case] status: Option<&str>, #[case] ready: bool) {
        let mut node = Node::default();
        let condition = |status: &str| NodeCondition {
            type_: "Ready".into(),
            status: status.into(),
            ..NodeCondition::default()
        };
        node.status.get_or_insert_default().conditions = status.map(|status| vec![condition(status)]);
        assert_eq!(sight(&node).ready, ready);
    }
}
