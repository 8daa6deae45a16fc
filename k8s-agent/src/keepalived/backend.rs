//! The backend itself: observes, plans and writes, one pass at a time.
//!
//! A pass looks at the ConfigMap, all Services and all nodes, and answers every order that came before it began, so that
//! three hundred new Services cost a few writes. Passes also run at the start, when somebody else changes the
//! ConfigMap, and once in a while. Decides nothing about addresses ([`super::allocation`]); only that a refused write is
//! planned again. May be dropped at any point: the next pass looks anew.

mod keep;
mod news;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Service};
use parking_lot::Mutex;
use proto::{Advice, Fault, FaultKind};
use runtime::clock;

use super::allocation::{IpMode, Outcome, Plan, Situation, plan};
use super::claim::{Claim, Standing};
use super::config_map::Observed;
use super::desk::{Batch, Desk, Verdict, Want};
use super::meter::Meter;
use super::notes::Note;
use super::ownership::{Known, Owner};
use super::repairs::Repairs;
use super::settings::KeepalivedSettings;
use super::store::{Store, StoreError};
use crate::election::Leadership;
use crate::events::Recorder;
use crate::service::backend::{
    Answer, Backend, EnsureOrder, Holds, Outcome as Progress, Reached, RemoveOrder, Removed, Settled, Wake,
};

/// So often is a write tried that somebody else's writes keep refusing.
const TRIES: u32 = 8;
/// Longest wait between two of them.
const JITTER: Duration = Duration::from_millis(40);
/// A pass runs at least this often.
const PERIOD: Duration = Duration::from_mins(1);

/// Where the backend reads Services and nodes.
pub struct Sources {
    /// All Services, as a complete watch has them.
    pub services: Box<dyn Fn() -> Vec<Arc<Service>> + Send + Sync>,
    /// All nodes.
    pub nodes: Box<dyn Fn() -> Vec<Arc<Node>> + Send + Sync>,
}

/// What the backend is made of.
pub struct Parts {
    /// What it was told.
    pub settings: KeepalivedSettings,
    /// The ConfigMap.
    pub store: Store,
    /// Services and nodes.
    pub sources: Sources,
    /// Which Services are its own.
    pub owner: Owner,
    /// Whether this process may act.
    pub leadership: Leadership,
    /// Events.
    pub events: Recorder,
    /// Metrics.
    pub meter: Meter,
}

/// The backend. Clones share it.
#[derive(Clone)]
pub struct Keepalived {
    shared: Arc<Shared>,
}

struct Shared {
    parts: Parts,
    desk: Desk,
    /// Held by the pass that runs.
    turn: tokio::sync::Mutex<Memory>,
    /// What the ConfigMap said last.
    known: Mutex<Option<Known>>,
    waiting: Mutex<BTreeMap<String, (String, String)>>,
    wake: Mutex<Option<Wake>>,
}

/// What one pass remembers for the next.
#[derive(Default)]
struct Memory {
    repairs: Repairs,
    told: BTreeMap<String, BTreeSet<Note>>,
    findings: BTreeSet<String>,
    taken: BTreeSet<String>,
}

/// One look.
struct Look {
    observed: Observed,
    services: Vec<Arc<Service>>,
    nodes: BTreeSet<Ipv4Addr>,
    is_listed_after: bool,
}

impl Keepalived {
    /// A backend that has not looked at anything yet.
    pub fn new(parts: Parts) -> Self {
        let shared = Shared {
            parts,
            desk: Desk::default(),
            turn: tokio::sync::Mutex::default(),
            known: Mutex::default(),
            waiting: Mutex::default(),
            wake: Mutex::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    async fn pass_alone(&self) -> Result<(), Fault> {
        let pass = async {
            let mut memory = self.shared.turn.lock().await;
            self.pass(&mut memory).await
        };
        self.shared.parts.leadership.hold(pass).await.unwrap_or(Ok(()))
    }

    /// Waits for a pass that began after this order.
    async fn decide(&self, uid: &str, want: Want) -> Verdict {
        let order = self.shared.desk.order(uid, want);
        loop {
            let mut memory = self.shared.turn.lock().await;
            if let Some(verdict) = order.answer() {
                return verdict;
            }
            // Its failure is everybody's answer.
            let _answered = self.pass(&mut memory).await;
        }
    }

    /// Looks, plans and writes until it is done, and answers.
    async fn pass(&self, memory: &mut Memory) -> Result<(), Fault> {
        let batch = self.shared.desk.batch();
        match self.carry_out(&batch, memory).await {
            Ok((look, plan)) => {
                self.remember(&look, &plan);
                self.tell(&batch, &look, &plan, memory);
                self.shared
                    .desk
                    .answer(&batch, |uid| Ok(plan.outcomes.get(uid).cloned()));
                self.wake_waiting(&plan, memory);
                Ok(())
            }
            Err(fault) => {
                self.shared.desk.answer(&batch, |_| Err(fault.clone()));
                Err(fault)
            }
        }
    }

    async fn carry_out(&self, batch: &Batch, memory: &mut Memory) -> Result<(Look, Plan), Fault> {
        for attempt in 0..TRIES {
            if attempt > 0 {
                self.shared.parts.meter.conflict();
                tokio::time::sleep(JITTER.mul_f64(rand::random_range(0.1..1.0))).await;
            }
            let (mut look, plan) = self.look(batch, memory).await?;
            let written = self.write(&plan).await;
            match written {
                Ok(Some(observed)) => {
                    look.observed = observed;
                    return Ok((look, plan));
                }
                Ok(None) => return Ok((look, plan)),
                Err(StoreError::Stale) => {}
                Err(StoreError::Refused(fault)) => return Err(fault),
            }
        }
        let text =
            format!("the ConfigMap was changed by somebody else {TRIES} times while it was to be written");
        Err(Fault::new(FaultKind::Conflict, "ConfigMapConflict", text))
    }

    /// Looks and plans; where a recorded Service is unknown, with a list of Services that is newer than the record.
    async fn look(&self, batch: &Batch, memory: &mut Memory) -> Result<(Look, Plan), Fault> {
        let parts = &self.shared.parts;
        let contested = memory.repairs.contested(clock::now());
        let observed = parts.store.read().await?;
        *self.shared.known.lock() = Some(Known::of(&observed));
        let nodes = (parts.sources.nodes)();
        let mut look = Look {
            observed,
            services: (parts.sources.services)(),
            nodes: nodes.iter().flat_map(|node| addresses_of(node)).collect(),
            is_listed_after: false,
        };
        loop {
            let claims = self.claims(&look.services, batch);
            let situation = Situation {
                config_map: &look.observed,
                claims: &claims,
                nodes: &look.nodes,
                is_listed_after: look.is_listed_after,
                contested: &contested,
            };
            if let Ok(plan) = plan(situation, &parts.settings.rules) {
                return Ok((look, plan));
            }
            look.services = parts.store.services().await?;
            look.is_listed_after = true;
        }
    }

    fn claims(&self, services: &[Arc<Service>], batch: &Batch) -> Vec<Claim> {
        let owner = &self.shared.parts.owner;
        services
            .iter()
            .map(|service| {
                let uid = service.metadata.uid.as_deref().unwrap_or_default();
                let standing = if batch.leaving.contains(uid) || owner.is_leaving(service) {
                    Standing::Leaving
                } else if batch.asked.contains(uid) {
                    Standing::Asked
                } else if owner.owns(service) {
                    Standing::Held
                } else {
                    Standing::Elsewhere
                };
                Claim::of(service, standing)
            })
            .collect()
    }

    async fn write(&self, plan: &Plan) -> Result<Option<Observed>, StoreError> {
        let parts = &self.shared.parts;
        if plan.create {
            if !parts.settings.create {
                let text = format!(
                    "the ConfigMap {}/{} does not exist; create it, or allow it with --keepalived-create-config-map",
                    parts.settings.namespace, parts.settings.config_map
                );
                return Err(StoreError::Refused(Fault::new(
                    FaultKind::NotFound,
                    "ConfigMapMissing",
                    text,
                )));
            }
            tracing::info!("the ConfigMap does not exist and is created");
            parts.store.create().await?;
            // The content follows as a change, which is all that the consumer notices.
            return if plan.patch.is_none() {
                Ok(None)
            } else {
                Err(StoreError::Stale)
            };
        }
        let Some(patch) = &plan.patch else { return Ok(None) };
        let written = parts.store.write(patch).await?;
        parts.meter.written();
        for change in &patch.changes {
            let (from, to) = (change.from.as_deref(), change.to.as_deref());
            tracing::info!(address = %change.key, from, to, "entry written");
        }
        Ok(Some(written))
    }
}

fn addresses_of(node: &Node) -> Vec<Ipv4Addr> {
    let addresses = node
        .status
        .as_ref()
        .and_then(|status| status.addresses.as_deref())
        .unwrap_or_default();
    addresses
        .iter()
        .filter_map(|address| address.address.parse().ok())
        .collect()
}

/// The name of what a refused Service is told; the same word as its event.
fn fault_of(note: &Note) -> Fault {
    let word = note.reason.word();
    if note.reason.may_pass() {
        Fault::new(FaultKind::Quota, word, note.text.clone())
    } else {
        Fault::new(FaultKind::Invalid, word, note.text.clone()).with_advice(Advice::NeverUntilChanged)
    }
}

fn settled(address: Ipv4Addr, mode: IpMode, published: &[String]) -> Settled {
    let ip = address.to_string();
    let changes = u32::from(!published.contains(&ip));
    let ingress = vec![Reached {
        ip,
        proxy: mode == IpMode::Proxy,
    }];
    Settled {
        ingress,
        leaving: Vec::new(),
        outputs: None,
        changes,
    }
}

impl Backend for Keepalived {
    async fn ensure(&self, order: EnsureOrder) -> Result<Answer<Settled>, Fault> {
        let uid = &order.reference.uid;
        match self.decide(uid, Want::Ensure).await? {
            Some(Outcome::Serve { address, mode }) => {
                let settled = settled(address, mode, &order.published);
                Ok(Answer {
                    outcome: Progress::Settled(settled),
                    notes: Vec::new(),
                })
            }
            Some(Outcome::Refuse(note)) => Err(fault_of(&note)),
            None => {
                let text = "the Service is being deleted or has changed; it is looked at again";
                Err(Fault::new(FaultKind::Conflict, "ServiceChanged", text))
            }
        }
    }

    async fn remove(&self, order: RemoveOrder) -> Result<Answer<Removed>, Fault> {
        let uid = &order.reference.uid;
        let before = self
            .shared
            .known
            .lock()
            .as_ref()
            .and_then(|known| known.address(uid));
        self.decide(uid, Want::Remove).await?;
        self.shared.waiting.lock().remove(uid);
        let released: Vec<String> = before.into_iter().collect();
        let changes = u32::from(!released.is_empty());
        let removed = Removed {
            released,
            kept: Vec::new(),
            changes,
        };
        Ok(Answer {
            outcome: Progress::Settled(removed),
            notes: Vec::new(),
        })
    }

    fn holds(&self, service: &Service) -> Holds {
        match &*self.shared.known.lock() {
            None => Holds::Unknown,
            Some(known) if known.names(service) => Holds::Yes,
            Some(_) => Holds::No,
        }
    }

    fn records(&self, service: &Service) -> bool {
        let uid = service.metadata.uid.as_deref().unwrap_or_default();
        let known = self.shared.known.lock();
        known.as_ref().is_some_and(|known| known.address(uid).is_some())
    }

    fn wake_with(&self, wake: Wake) {
        *self.shared.wake.lock() = Some(wake);
    }
}

#[cfg(test)]
mod tests;
