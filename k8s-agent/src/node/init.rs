//! cloud-node-controller, first half: initialises nodes that wait for it.
//!
//! Keys that become due within a few milliseconds are asked for in one batch, so that a hundred new nodes cost the cloud what one costs. Addresses are
//! written first, then provider id, labels and the missing taint in one locked patch. A node that can't be initialised keeps its taint and is tried again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use parking_lot::Mutex;
use runtime::clock;

use super::addresses::{AddressFault, PROVIDED_NODE_IP};
use super::lookup::{Asked, lookup};
use super::plan::{self, Naming, is_uninitialised, provider_id_of};
use super::presence::{Machine, Presence};
use super::provider_id::ProviderId;
use super::writes::{ATTEMPTS, WriteError, Writes, pause};
use crate::apiserver::timestamp;
use crate::broker::Broker;
use crate::context::Context;
use crate::events::{Component, Reason, Recorder, Subject};
use crate::queue::{Backoff, Outcome, Queue, Taken};
use crate::watch::Change;

/// Keys that become due within this time are one batch.
const GATHER: Duration = Duration::from_millis(20);
/// Keys of a batch.
const MOST: usize = 500;
/// Batches at a time.
const BATCHES: usize = 3;

/// How patient the controller is; tests are less.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Waits after failures. Look-ups cost the cloud nothing, so they stay short.
    pub backoff: Backoff,
    /// Failing for less is not worth an event: machine lists lag behind new machines.
    pub patience: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        let backoff = Backoff {
            first: Duration::from_millis(250),
            longest: Duration::from_secs(30),
        };
        Self {
            backoff,
            patience: Duration::from_mins(1),
        }
    }
}

/// Why a node is not initialised yet.
#[derive(Debug, thiserror::Error)]
enum InitError {
    #[error("{0}")]
    Addresses(#[from] AddressFault),
    #[error("{0}")]
    Write(#[from] WriteError),
}

struct Init {
    context: Arc<Context>,
    broker: Broker,
    queue: Queue<String>,
    writes: Writes,
    events: Recorder,
    naming: Naming,
    patience: Duration,
    gathering: tokio::sync::Mutex<()>,
    /// Since when each node fails, by UID.
    failing: Mutex<HashMap<String, Instant>>,
}

/// Starts the controller. Nodes must be watched already.
pub fn start(context: &Arc<Context>, broker: &Broker, pace: Pace) {
    let settings = &context.settings;
    let init = Arc::new(Init {
        context: Arc::clone(context),
        broker: broker.clone(),
        queue: Queue::new("Nodes", pace.backoff, &context.metrics),
        patience: pace.patience,
        writes: Writes::new(context.client.clone(), context.leadership.clone()),
        events: context.events.of(Component::Node),
        naming: Naming {
            provider: settings.provider,
            sanitiser: settings.sanitiser,
        },
        gathering: tokio::sync::Mutex::default(),
        failing: Mutex::default(),
    });
    let (queue, host) = (init.queue.clone(), context.host.clone());
    context.nodes.listen(move |change| {
        // What can't be judged is looked at; there the node alone fails.
        let judged = host.contained("node-init", || to_look_at(change));
        if let Some(name) = judged.unwrap_or_else(|| change.new.as_ref().map(|node| node.name_any())) {
            queue.add(name);
        }
    });
    for _ in 0..BATCHES {
        let init = Arc::clone(&init);
        context.keep("node-init", move || {
            let init = Arc::clone(&init);
            async move { init.work().await }
        });
    }
}

/// The node of a change that may have made a difference to it.
fn to_look_at(change: &Change<Node>) -> Option<String> {
    let matters = |node: &Node| {
        let spec = node.spec.as_ref();
        let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
        (
            node.uid(),
            spec.and_then(|spec| spec.taints.clone()),
            spec.and_then(|spec| spec.provider_id.clone()),
            info.map(|info| info.system_uuid.clone()),
            node.annotations().get(PROVIDED_NODE_IP).cloned(),
        )
    };
    let new = change.new.as_ref().filter(|node| is_uninitialised(node))?;
    let same = change
        .old
        .as_ref()
        .is_some_and(|old| matters(old) == matters(new));
    (!same).then(|| new.name_any())
}

impl Init {
    async fn work(&self) {
        let stop = self.context.stop();
        while let Some(batch) = stop.run_until_cancelled(self.gather()).await {
            let keys: Vec<String> = batch.into_iter().map(|taken| taken.key).collect();
            let work = self.batch(&keys);
            // Whatever panicked outside the work on one node: none of them stays taken.
            if self
                .context
                .contain("node-init", &keys.join(", "), work)
                .await
                .is_none()
            {
                for key in &keys {
                    self.queue.done(key, Outcome::Failed);
                }
            }
        }
    }

    /// One worker gathers at a time, so that the others don't take a batch apart.
    async fn gather(&self) -> Vec<Taken<String>> {
        let _turn = self.gathering.lock().await;
        self.queue.take_batch(GATHER, MOST).await
    }

    async fn batch(&self, keys: &[String]) {
        let mut asked = Vec::new();
        for key in keys {
            match self.context.host.contained("node-init", || self.to_ask(key)) {
                Some(Ok(ask)) => asked.push(ask),
                Some(Err(outcome)) => self.queue.done(key, outcome),
                None => self.queue.done(key, Outcome::Failed),
            }
        }
        match lookup(&self.context, &self.broker, &asked).await {
            Ok(presences) => {
                let each = futures::stream::iter(asked.iter().zip(presences));
                let width = self.context.settings.node_workers;
                each.for_each_concurrent(width, |(asked, presence)| self.contained(&asked.node, presence))
                    .await;
            }
            Err(fault) => {
                for asked in &asked {
                    self.failed(&asked.node, &fault.text);
                }
            }
        }
    }

    /// What the broker is asked about a node; or what becomes of it without.
    fn to_ask(&self, key: &str) -> Result<Asked, Outcome> {
        let node = self.context.nodes.get("", key);
        let node = node.filter(|node| is_uninitialised(node)).ok_or(Outcome::Done)?;
        if provider_id_of(&node) == ProviderId::Foreign {
            tracing::info!(node = %key, "the node waits for another cloud and is left alone");
            return Err(Outcome::Parked);
        }
        Ok(Asked {
            node,
            not_ready_for: None,
        })
    }

    /// A node whose work panics is one that fails, and the others of its batch don't notice.
    async fn contained(&self, node: &Node, presence: Presence) {
        let name = node.name_any();
        let work = self.context.contain("node-init", &name, self.one(node, presence));
        if work.await.is_none() {
            self.queue.done(&name, Outcome::Failed);
        }
    }

    async fn one(&self, node: &Node, presence: Presence) {
        let result = match presence {
            Presence::Found(machine) => self.initialise(node, &machine).await.map_err(|error| {
                if let InitError::Addresses(fault) = &error {
                    self.events.publish(
                        &node.into(),
                        &Reason::PROVIDED_NODE_IP_NOT_FOUND,
                        fault.to_string(),
                    );
                }
                error.to_string()
            }),
            Presence::Gone(_) => Err("its machine does not exist any more".to_owned()),
            Presence::Unknown { text, .. } => Err(text),
        };
        match result {
            Ok(()) => {
                self.failing.lock().remove(&node.uid().unwrap_or_default());
                self.queue.done(&node.name_any(), Outcome::Done);
            }
            Err(text) => self.failed(node, &text),
        }
    }

    /// Writes until the node is initialised, deleted, or somebody else initialised it.
    async fn initialise(&self, node: &Node, machine: &Machine) -> Result<(), InitError> {
        let name = node.name_any();
        let mut live = node.clone();
        for _ in 0..ATTEMPTS {
            let mut plan = plan::initialise(&live, machine, self.naming)?;
            if let Some(addresses) = &plan.addresses {
                live = self.writes.addresses(&name, addresses).await?;
                plan = plan::initialise(&live, machine, self.naming)?;
            }
            let main = plan.main.unwrap_or_default();
            match self
                .writes
                .main(&name, &main, live.resource_version().as_deref())
                .await
            {
                Ok(_) => {
                    self.synced(node, machine, &plan.changed_names);
                    return Ok(());
                }
                Err(WriteError::Conflict) => {}
                Err(WriteError::NoNode) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            pause().await;
            live = match self.writes.read(&name).await {
                Err(WriteError::NoNode) => return Ok(()),
                read => read?,
            };
            if !is_uninitialised(&live) {
                return Ok(());
            }
        }
        Err(WriteError::Conflict.into())
    }

    fn synced(&self, node: &Node, machine: &Machine, changed_names: &[(String, String)]) {
        let subject = Subject::from(node);
        tracing::info!(node = %node.name_any(), machine = %machine.id, "the node is initialised");
        self.events
            .publish(&subject, &Reason::SYNCED, "the node is initialised");
        for (name, value) in changed_names {
            let text = format!("\"{name}\" is no legal label value, so the label says \"{value}\"");
            self.events.publish(&subject, &Reason::LABEL_VALUE_CHANGED, text);
        }
        if let Some(created) = node.creation_timestamp() {
            let age = timestamp().duration_since(created.0).as_secs_f64().max(0.0);
            self.context.metrics.taint_removal_delay.observe(age);
            self.context.metrics.initial_sync_delay.observe(age);
        }
    }

    fn failed(&self, node: &Node, text: &str) {
        let name = node.name_any();
        let now = clock::now();
        let since = *self
            .failing
            .lock()
            .entry(node.uid().unwrap_or_default())
            .or_insert(now);
        tracing::debug!(node = %name, fault = %text, "the node can't be initialised yet");
        if self.queue.failures(&name) == 0 {
            tracing::info!(node = %name, fault = %text, "the node can't be initialised yet, trying again");
        }
        if now.saturating_duration_since(since) >= self.patience {
            self.events
                .publish(&node.into(), &Reason::CLOUD_NODE_INIT_FAILED, text);
        }
        self.queue.done(&name, Outcome::Failed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Taint;

    fn node(tainted: bool) -> Arc<Node> {
        let mut node = Node::default();
        node.metadata.name = Some("n".into());
        node.metadata.uid = Some("u".into());
        let taint = Taint {
            key: plan::UNINITIALIZED.into(),
            effect: "NoSchedule".into(),
            ..Taint::default()
        };
        node.spec.get_or_insert_default().taints = tainted.then(|| vec![taint]);
        Arc::new(node)
    }

    fn with(mut node: Arc<Node>, change: impl FnOnce(&mut Node)) -> Arc<Node> {
        change(Arc::make_mut(&mut node));
        node
    }

    #[test]
    fn a_node_that_waits_is_looked_at_when_it_comes_and_when_something_of_matter_changes() {
        let old = node(true);
        let looked_at = |old: &Arc<Node>, new: Arc<Node>| {
            to_look_at(&Change {
                old: Some(Arc::clone(old)),
                new: Some(new),
            })
            .is_some()
        };
        assert!(
            to_look_at(&Change {
                old: None,
                new: Some(Arc::clone(&old))
            })
            .is_some()
        );
        assert!(!looked_at(
            &old,
            with(Arc::clone(&old), |it| it.metadata.resource_version =
                Some("9".into()))
        ));
        assert!(looked_at(
            &old,
            with(Arc::clone(&old), |it| it.metadata.uid = Some("other".into()))
        ));
        assert!(looked_at(
            &old,
            with(Arc::clone(&old), |it| {
                it.spec.get_or_insert_default().provider_id = Some("external-cloudstack".into());
            })
        ));
        assert!(looked_at(&node(false), node(true)), "the taint came later");
    }

    #[test]
    fn initialised_and_deleted_nodes_are_not_looked_at() {
        // N-04, N-21
        assert_eq!(
            to_look_at(&Change {
                old: None,
                new: Some(node(false))
            }),
            None
        );
        assert_eq!(
            to_look_at(&Change {
                old: Some(node(true)),
                new: None
            }),
            None
        );
    }
}
