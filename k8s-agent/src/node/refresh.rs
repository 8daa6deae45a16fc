//! cloud-node-controller, second half: keeps addresses and labels of initialised nodes right.
//!
//! All nodes are asked for at once, at the start and once in every period. Nodes without a provider id are left as they are: they were initialised by
//! somebody who wanted it so.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;

use super::lookup::{Asked, lookup};
use super::plan::{self, Naming, is_uninitialised, provider_id_of};
use super::presence::{Machine, Presence};
use super::provider_id::ProviderId;
use super::writes::{WriteError, Writes};
use crate::broker::Broker;
use crate::contain;
use crate::context::Context;
use crate::events::{Component, Reason, Recorder};

/// After a failed run the next one comes after this time, if the period is not shorter.
const RETRY: Duration = Duration::from_secs(15);

struct Refresh {
    context: Arc<Context>,
    broker: Broker,
    writes: Writes,
    events: Recorder,
    naming: Naming,
}

/// Starts the loop. Nodes must be watched already.
pub fn start(context: &Arc<Context>, broker: &Broker) {
    let settings = &context.settings;
    let refresh = Arc::new(Refresh {
        context: Arc::clone(context),
        broker: broker.clone(),
        writes: Writes::new(context.client.clone(), context.leadership.clone()),
        events: context.events.of(Component::Node),
        naming: Naming {
            provider: settings.provider,
            sanitiser: settings.sanitiser,
        },
    });
    context.keep("node-refresh", move || {
        let refresh = Arc::clone(&refresh);
        async move { refresh.run().await }
    });
}

impl Refresh {
    async fn run(&self) {
        let (stop, period) = (self.context.stop(), self.context.settings.status_period);
        let mut fault = None;
        loop {
            let round = self.context.host.contain("node-refresh", self.once());
            let Some(done) = stop.run_until_cancelled(round).await else {
                return;
            };
            let wait = match done.unwrap_or_else(|| Err(contain::TEXT.to_owned())) {
                Ok(()) => {
                    fault = None;
                    period
                }
                Err(text) => {
                    if fault.as_ref() != Some(&text) {
                        tracing::warn!(fault = %text, "addresses and labels of nodes can't be refreshed, trying again");
                        fault = Some(text);
                    }
                    RETRY.min(period)
                }
            };
            if stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
                return;
            }
        }
    }

    async fn once(&self) -> Result<(), String> {
        let all = self.context.nodes.all();
        self.context
            .machines
            .keep(all.iter().filter_map(|node| node.uid()));
        let asked: Vec<Asked> = all
            .into_iter()
            .filter(|node| is_ours(node))
            .map(|node| Asked {
                node,
                not_ready_for: None,
            })
            .collect();
        let presences = lookup(&self.context, &self.broker, &asked)
            .await
            .map_err(|fault| fault.text)?;
        let each = futures::stream::iter(asked.iter().zip(presences));
        let width = self.context.settings.status_workers;
        each.for_each_concurrent(width, |(asked, presence)| async move {
            let name = asked.node.name_any();
            let work = self.one(&asked.node, presence);
            // A node whose work panics comes again with the next round.
            let _ = self.context.contain("node-refresh", &name, work).await;
        })
        .await;
        Ok(())
    }

    async fn one(&self, node: &Node, presence: Presence) {
        let name = node.name_any();
        let done = match presence {
            Presence::Found(machine) => self.write(node, &machine).await,
            Presence::Gone(_) | Presence::Unknown { .. } => match plan::follow_old_labels(node) {
                Some(patch) => self.writes.main(&name, &patch, None).await.map(|_| ()),
                None => Ok(()),
            },
        };
        match done {
            Ok(()) | Err(WriteError::NoNode | WriteError::NotLeading) => {}
            Err(error) => tracing::warn!(node = %name, fault = %error, "the node was not refreshed"),
        }
    }

    async fn write(&self, node: &Node, machine: &Machine) -> Result<(), WriteError> {
        let name = node.name_any();
        if machine.mismatch {
            let text = "the node's system UUID names another machine than its provider id; it is no member of load balancers until that is mended: join the machine again under its own name";
            self.events.publish(&node.into(), &Reason::MACHINE_MISMATCH, text);
            return Ok(());
        }
        let plan = match plan::refresh(node, machine, self.naming) {
            Ok(plan) => plan,
            Err(fault) => {
                self.events.publish(
                    &node.into(),
                    &Reason::PROVIDED_NODE_IP_NOT_FOUND,
                    fault.to_string(),
                );
                return Ok(());
            }
        };
        if let Some(addresses) = &plan.addresses {
            self.writes.addresses(&name, addresses).await?;
        }
        if let Some(main) = &plan.main {
            self.writes.main(&name, main, None).await?;
            tracing::info!(node = %name, "labels of the node follow its machine");
        }
        Ok(())
    }
}

fn is_ours(node: &Node) -> bool {
    let named = matches!(
        provider_id_of(node),
        ProviderId::Machine(_) | ProviderId::Unresolved
    );
    named && !is_uninitialised(node) && node.metadata.deletion_timestamp.is_none()
}
