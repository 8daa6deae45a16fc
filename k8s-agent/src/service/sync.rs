//! One look at one Service: observe it, decide, act, and say when to look again.
//!
//! A shell around the pure files: it reads the watch, asks a backend, writes patches and events. It decides nothing about
//! what a Service wants ([`super::intent`]), whether that is news ([`super::ledger`]) or what is written
//! ([`super::status`]). A key is never looked at twice at once, so members and specification travel one road.

mod ensure;
mod errand;
mod interrupts;
mod left_alone;
mod refusal;
mod removal;
mod writes;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Service};
use kube::Client;
use parking_lot::Mutex;
use proto::{Fault, FaultKind, camel};
use runtime::clock;
use tracing::Instrument as _;

use super::annotations;
use super::backend::{Backend, Backends, Notice};
use super::choice::Offer;
use super::controller::Pace;
use super::intent::{self, Circumstances, Ending, Intent, Rules, Skip};
use super::ledger::{Key, Record, Task};
use super::members::{self, Machine, Members};
use crate::broker::{Broker, is_silence};
use crate::election::Leadership;
use crate::events::{Kind, Reason, Recorder, Subject};
use crate::metrics::Metrics;
use crate::queue::Outcome;
use crate::watch::Watch;

pub use interrupts::Interrupts;

/// Drift is looked for this often where the broker does not say.
const USUAL_DRIFT_PERIOD: Duration = Duration::from_mins(10);
/// A Service that waits for the choice of its backend is looked at again after this time.
const CHOICE_RETRY: Duration = Duration::from_secs(5);
/// The watch brings our own write within this time, or it is looked again.
const BEHIND_RETRY: Duration = Duration::from_secs(1);
/// What only a change can mend is looked at again not before this time.
const SELDOM: Duration = Duration::from_mins(1);

/// Tells which machine is behind a node.
pub type MachineOf = Box<dyn Fn(&Node) -> Machine + Send + Sync>;

/// Looks at Services.
pub struct Syncer<C, K> {
    /// For patches.
    pub client: Client,
    /// All Services.
    pub services: Watch<Service>,
    /// All Nodes.
    pub nodes: Watch<Node>,
    /// The machine behind a node.
    pub machine_of: MachineOf,
    /// Events.
    pub events: Recorder,
    /// Metrics.
    pub metrics: Metrics,
    /// Whether this process may act.
    pub leadership: Leadership,
    /// What the broker says of itself.
    pub broker: Option<Broker>,
    /// What the process was started with.
    pub rules: Rules,
    /// Who serves.
    pub backends: Backends<C, K>,
    /// How patient it is.
    pub pace: Pace,
    /// Running orders that a change of their Service ends.
    pub interrupts: Interrupts,
    /// What is remembered.
    pub memory: Memory,
}

/// What is remembered of all Services.
#[derive(Debug, Default)]
pub struct Memory {
    records: Mutex<HashMap<Key, Arc<tokio::sync::Mutex<Record>>>>,
    /// Keys that failed because this one did not answer, and are worth a look as soon as it does.
    unanswered: Mutex<HashMap<Key, Silent>>,
    /// Keys whose next look does not care whether the wish rests.
    urgent: Mutex<HashSet<Key>>,
}

impl Memory {
    /// Keys of all Services that something is remembered of.
    pub fn keys(&self) -> Vec<Key> {
        self.records.lock().keys().cloned().collect()
    }

    /// Keys that failed because one of these did not answer; they are forgotten by this.
    pub fn take_unanswered(&self, answers: &[Silent]) -> Vec<Key> {
        let mut unanswered = self.unanswered.lock();
        let keys: Vec<_> = unanswered
            .iter()
            .filter(|(_, silent)| answers.contains(silent))
            .map(|(key, _)| key.clone())
            .collect();
        unanswered.retain(|_, silent| !answers.contains(silent));
        keys
    }

    /// The next look at this Service asks even if its wish rests.
    pub fn mark_urgent(&self, key: &Key) {
        self.urgent.lock().insert(key.clone());
    }

    pub(super) fn open(&self, key: &Key) -> Arc<tokio::sync::Mutex<Record>> {
        Arc::clone(self.records.lock().entry(key.clone()).or_default())
    }

    fn close(&self, key: &Key, record: &Record) {
        if record.is_blank() {
            self.records.lock().remove(key);
        }
    }
}

/// Who did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silent {
    /// The broker.
    Broker,
    /// The cloud behind it.
    Cloud,
}

/// How one look ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looked {
    /// For the queue.
    pub outcome: Outcome,
    /// When to look again although nothing happened.
    pub again_after: Option<Duration>,
}

impl From<Outcome> for Looked {
    fn from(outcome: Outcome) -> Self {
        Self {
            outcome,
            again_after: None,
        }
    }
}

impl<C: Backend, K: Backend> Syncer<C, K> {
    /// Looks at one Service that failed this often in a row.
    pub async fn look(&self, key: &Key, failures: u32) -> Looked {
        let span = tracing::info_span!("service", service = %key);
        async {
            let cell = self.memory.open(key);
            let mut record = cell.lock().await;
            let urgent = self.memory.urgent.lock().remove(key);
            let looked = Look {
                syncer: self,
                key,
                record: &mut record,
                urgent,
                failures,
            }
            .look()
            .await;
            self.memory.close(key, &record);
            looked
        }
        .instrument(span)
        .await
    }

    /// The nodes as members now.
    pub fn members(&self) -> Members {
        let nodes = self.nodes.all();
        members::pick(nodes.iter().map(AsRef::as_ref), |node| (self.machine_of)(node))
    }

    fn drift_period(&self) -> Duration {
        let told = self
            .broker
            .as_ref()
            .and_then(Broker::description)
            .and_then(|description| description.drift_period);
        told.and_then(|period| Duration::try_from(period).ok())
            .unwrap_or(USUAL_DRIFT_PERIOD)
    }

    /// What the broker says of the network that a Service would use.
    fn offer(&self, service: &Service) -> Offer {
        let asked = service
            .metadata
            .annotations
            .as_ref()
            .and_then(|all| all.get(annotations::NETWORK))
            .map(|name| name.trim())
            .unwrap_or_default();
        let description = self.broker.as_ref().and_then(Broker::description);
        description.map_or(Offer::Unknown, |description| {
            Offer::of(&description.networks, asked)
        })
    }
}

/// One look, while it lasts.
struct Look<'a, C, K> {
    syncer: &'a Syncer<C, K>,
    key: &'a Key,
    record: &'a mut Record,
    urgent: bool,
    failures: u32,
}

impl<C: Backend, K: Backend> Look<'_, C, K> {
    async fn look(&mut self) -> Looked {
        if !self.syncer.leadership.may_write() {
            return Outcome::Done.into();
        }
        let found = self.syncer.services.get(&self.key.namespace, &self.key.name);
        if let Some(old) = self.record.left_behind(found.as_deref()).cloned()
            && let Some(unfinished) = self.remove_vanished(&old).await
        {
            return unfinished;
        }
        let Some(service) = found else {
            *self.record = Record::default();
            return Outcome::Done.into();
        };
        if self.record.is_behind(&service, clock::now()) {
            return Outcome::After(BEHIND_RETRY).into();
        }
        let intent = intent::of(&service, &self.syncer.rules, self.circumstances(&service));
        match intent {
            Intent::Ensure(wanted) => self.ensure(service, *wanted).await,
            Intent::Remove(removal) => self.remove(&service, removal).await,
            Intent::Refuse(refusal) => self.refuse(service, refusal).await,
            Intent::Wait(why) => self.wait(&service, why).await,
            Intent::LeaveTo(backend) => self.leave_to(&service, backend).await,
            Intent::Skip(why) => {
                let again = why == Skip::OtherClass && self.may_be_recorded(&service);
                let looked = self.skip(service, why).await;
                if again {
                    Outcome::After(CHOICE_RETRY).into()
                } else {
                    looked
                }
            }
        }
    }

    fn circumstances(&self, service: &Service) -> Circumstances<'_> {
        Circumstances {
            keepalived_holds: self.syncer.backends.keepalived_holds(service),
            keepalived_records: self.syncer.backends.keepalived_records(service),
            offer: self.syncer.offer(service),
            served_by: self.record.backend,
            asked: self.record.asked.is_some(),
            was_foreign: self.record.was_foreign,
            behind_host_name: &self.record.behind_host_name,
        }
    }

    /// What a fault means for the queue. A fault that only a change can mend is looked at again all the same, seldom: the
    /// change may be one that no watch shows.
    fn after(&self, fault: &Fault) -> Looked {
        if is_silence(fault) {
            self.unanswered(Silent::Broker);
        } else if fault.kind == FaultKind::Unreachable {
            self.unanswered(Silent::Cloud);
        }
        let outcome = Outcome::from(fault);
        let again_after = (outcome == Outcome::Parked).then(|| self.syncer.drift_period().max(SELDOM));
        Looked { outcome, again_after }
    }

    fn unanswered(&self, silent: Silent) {
        self.syncer
            .memory
            .unanswered
            .lock()
            .insert(self.key.clone(), silent);
    }

    fn tell(&self, service: &Service, reason: &Reason, text: impl Into<String>) {
        self.syncer.events.publish(&Subject::from(service), reason, text);
    }

    fn tell_all(&self, service: &Service, notices: Vec<Notice>) {
        for notice in notices {
            let kind = if notice.warning {
                Kind::Warning
            } else {
                Kind::Normal
            };
            tracing::info!(reason = %notice.reason, field = %notice.field, "{}", notice.text);
            self.tell(
                service,
                &Reason::told(kind, camel(&notice.reason)),
                notice.message(),
            );
        }
    }

    /// What a look comes to whose task rests still; nothing if it may be asked for.
    fn rests(&self, task: &Task) -> Option<Looked> {
        let left = self.record.rests(task, clock::now()).filter(|_| !self.urgent)?;
        Some(Outcome::After(left).into())
    }

    /// Nobody asks for the same again before its time.
    fn let_rest(&mut self, task: Task, looked: Looked) {
        let wait = match looked.outcome {
            Outcome::Done => None,
            Outcome::Failed => Some(self.syncer.pace.backoff.after(self.failures.saturating_add(1))),
            Outcome::After(wait) => Some(wait),
            Outcome::Parked => looked.again_after,
        };
        if let Some(wait) = wait {
            self.record.rest(task, clock::now() + wait);
        }
    }

    /// How long it has been waiting, and whether that is worth a word.
    fn waited_too_long(&mut self) -> bool {
        self.record.waiting(clock::now()) >= self.syncer.pace.patience
    }
}

/// A fault as it is recognised when it comes again.
fn signature(fault: &Fault) -> String {
    let field = fault.field.as_deref().unwrap_or_default();
    format!("{} {} {field} {}", fault.kind.word(), fault.reason, fault.text)
}

/// The reason word of a condition for a fault.
fn reason_of(fault: &Fault) -> String {
    if is_silence(fault) {
        "BrokerUnreachable".to_owned()
    } else {
        camel(&fault.reason)
    }
}

/// The word of an ending in logs.
const fn word(ending: Ending) -> &'static str {
    match ending {
        Ending::Deleted => "the Service is deleted",
        Ending::TypeChanged => "the Service is no load balancer any more",
        Ending::ClassChanged => "the Service has another controller's class",
        Ending::Vanished => "the Service vanished",
    }
}
