//! What is remembered of each Service between two looks at it, and what follows from that.
//!
//! Pure. Decides whether a backend must be asked again, and whether something was told already, so that a Service which has
//! not changed causes neither a call nor an event. Nothing here is needed to be right: a process that forgets it asks once
//! more, and the answer is the same.

mod meanwhile;

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Service;

use super::backend::{BackendName, Notice, Reached, RemoveOrder};
use super::fingerprint::Fingerprint;
use super::intent::{Ending, Wanted};
use super::status::{IpModes, Shown};
use super::texts::essence;
use crate::events::is_due_again;

/// Time between two repairs of what a Service shows.
const REPAIR_PAUSE: Duration = Duration::from_secs(10);
/// Different faults in a row that are remembered as told.
const FAULTS: usize = 16;
/// A watch is never further behind our own writes than this.
const BEHIND_AT_MOST: Duration = Duration::from_secs(30);

/// Which Service: its namespace and name, as queues and logs have it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Key {
    /// The key of a Service that came from an API server.
    pub fn of(service: &Service) -> Option<Self> {
        Some(Self {
            namespace: service.metadata.namespace.clone()?,
            name: service.metadata.name.clone()?,
        })
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// What is remembered of one Service.
#[derive(Debug, Default)]
pub struct Record {
    /// The Service for which a backend was asked, as it was then. Its load balancer must be removed even if it vanishes.
    pub asked: Option<Arc<Service>>,
    /// Who was asked.
    pub backend: Option<BackendName>,
    /// The last time that everything was as wanted.
    pub served: Option<Served>,
    /// The wish to go on with while the present one can't be read whole.
    pub valid: Option<Valid>,
    /// Addresses that the status stood for when it was written, which a host name in it does not tell.
    pub behind_host_name: Vec<String>,
    /// It had a class of somebody else when it was looked at last.
    pub was_foreign: bool,
    /// Since when something is waited for.
    pub waiting_since: Option<Instant>,
    /// The end of the load balancer was announced.
    pub removal_announced: bool,
    /// Work was announced, and its end was not yet.
    pub work_announced: bool,
    told: BTreeMap<Notice, Instant>,
    faults: Told,
    refusals: Told,
    modes_dropped: Option<Vec<Reached>>,
    resting: Option<Resting>,
    written: Option<(u64, Instant)>,
    repaired: Option<Instant>,
}

/// What a backend is asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Task {
    /// A load balancer.
    Wish(Fingerprint),
    /// The end of one.
    End(Ending, Box<RemoveOrder>),
}

/// A task that is not to be asked for again before its time, whoever looks meanwhile.
#[derive(Clone, Debug)]
struct Resting {
    task: Task,
    until: Instant,
}

/// The last time that everything was as wanted.
#[derive(Debug)]
pub struct Served {
    /// What was wanted.
    pub fingerprint: Fingerprint,
    /// What the Service shows since then.
    pub shown: Shown,
    /// When to look for drift; nothing if never.
    pub next_look: Option<Instant>,
}

/// A wish that could be read.
#[derive(Clone, Debug)]
pub struct Valid {
    /// What was wanted.
    pub wanted: Wanted,
    /// Of the Service that wanted it.
    pub service: [u8; 32],
}

/// What was told, and when.
#[derive(Debug, Default)]
struct Told(BTreeMap<String, Instant>);

impl Told {
    /// Whether this was not told lately; then it counts as told. Times in it make no difference.
    fn is_new(&mut self, text: &str, now: Instant) -> bool {
        let text = essence(text);
        if self.0.get(&text).is_some_and(|at| !is_due_again(*at, now)) {
            return false;
        }
        self.0.retain(|_, at| !is_due_again(*at, now));
        if self.0.len() >= FAULTS {
            self.0.clear();
        }
        self.0.insert(text, now);
        true
    }

    /// Forgets all. Whether there was anything.
    fn clear(&mut self) -> bool {
        !std::mem::take(&mut self.0).is_empty()
    }
}

/// Why a backend is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// This process has not asked yet, or the last answer was not the end.
    First,
    /// The Service is not what it was.
    Changed,
    /// Only the nodes or their machines are not what they were.
    Nodes,
    /// Nothing has changed, and it is time to look for drift.
    Drift,
}

impl Record {
    /// Why a backend must be asked; nothing if all is as it was.
    pub fn due(&self, fingerprint: Fingerprint, now: Instant) -> Option<Why> {
        match &self.served {
            None => Some(Why::First),
            Some(served) if served.fingerprint.service != fingerprint.service => Some(Why::Changed),
            Some(served) if served.fingerprint.members != fingerprint.members => Some(Why::Nodes),
            Some(served) => served
                .next_look
                .is_some_and(|next| next <= now)
                .then_some(Why::Drift),
        }
    }

    /// Another wish is sent than the one that was served, so what was served is not known to hold any more, whatever becomes of the new
    /// one: who takes the change back asks, too.
    pub fn doubt(&mut self, now: Instant) {
        if let Some(served) = &mut self.served {
            served.next_look = Some(now);
        }
    }

    /// The end of the load balancer is asked for. Who wants it again begins anew.
    pub fn begin_removal(&mut self) {
        self.served = None;
        self.valid = None;
    }

    /// Remembers a wish that could be read. The end that may have been begun is no longer wanted.
    pub fn wanted(&mut self, wanted: &Wanted, service: [u8; 32]) {
        let wanted = wanted.clone();
        self.valid = Some(Valid { wanted, service });
        self.refusals.clear();
        self.removal_announced = false;
    }

    /// Whether the API server keeps the modes of these addresses, as far as it was seen.
    pub fn ip_modes(&self, ingress: &[Reached]) -> IpModes {
        match &self.modes_dropped {
            Some(dropped) if dropped == ingress => IpModes::Dropped,
            Some(_) | None => IpModes::Kept,
        }
    }

    /// The API server dropped the modes of these addresses.
    pub fn saw_modes_dropped(&mut self, ingress: &[Reached]) {
        self.modes_dropped = Some(ingress.to_vec());
    }

    /// What is left to know when nothing of the Service is ours any more: how old a watch may be.
    #[must_use]
    pub fn ended(&self) -> Self {
        Self {
            written: self.written,
            ..Self::default()
        }
    }

    /// The backend that was asked before another one was chosen, and may have begun.
    pub fn other_backend(&self, chosen: BackendName) -> Option<BackendName> {
        self.backend.filter(|before| *before != chosen)
    }

    /// How long a repair of what the Service shows must wait; nothing if it may be made now, and then it counts as made. Somebody
    /// who writes something else each time, such as a second controller, is not answered in the same breath.
    pub fn repair_pauses(&mut self, now: Instant) -> Option<Duration> {
        let next = self
            .repaired
            .map(|last| last + REPAIR_PAUSE)
            .filter(|next| *next > now);
        if next.is_none() {
            self.repaired = Some(now);
        }
        next.map(|next| next.saturating_duration_since(now))
    }

    /// Remembers what a write of ours made of the Service.
    pub fn wrote(&mut self, answer: &Service, now: Instant) {
        self.written = version(answer).map(|version| (version, now));
    }

    /// Whether the watch is behind our own last write, so that this is the Service as it was before. Only for a while: versions
    /// begin anew when a cluster is restored.
    pub fn is_behind(&self, found: &Service, now: Instant) -> bool {
        match (self.written, version(found)) {
            (Some((written, at)), Some(found)) => {
                found < written && now.saturating_duration_since(at) < BEHIND_AT_MOST
            }
            _ => false,
        }
    }

    /// How long this very task still rests; nothing if it may be asked for. Our own writes wake a Service, too, and must not shorten a
    /// back-off or the time that a backend asked for.
    pub fn rests(&self, task: &Task, now: Instant) -> Option<Duration> {
        let resting = self
            .resting
            .as_ref()
            .filter(|resting| resting.task == *task && resting.until > now)?;
        Some(resting.until.saturating_duration_since(now))
    }

    /// Lets this task rest.
    pub fn rest(&mut self, task: Task, until: Instant) {
        self.resting = Some(Resting { task, until });
    }

    /// Whether the load balancer of another Service, which had this name before, is still to be removed.
    pub fn left_behind(&self, found: Option<&Service>) -> Option<&Arc<Service>> {
        let asked = self.asked.as_ref()?;
        let same = found.is_some_and(|found| found.metadata.uid == asked.metadata.uid);
        (!same).then_some(asked)
    }

    /// The notices that were not told lately. Those that no longer hold may be told again later.
    pub fn news(&mut self, notices: impl IntoIterator<Item = Notice>, now: Instant) -> Vec<Notice> {
        let before = std::mem::take(&mut self.told);
        let mut news = Vec::new();
        for notice in notices {
            let told = before
                .get(&key(&notice))
                .filter(|at| !needs_reminder(&notice, **at, now));
            let at = told.copied().unwrap_or(now);
            let is_first = self.told.insert(key(&notice), at).is_none();
            if is_first && told.is_none() {
                news.push(notice);
            }
        }
        news
    }

    /// The same while a backend is still at work: what it told in between counts as told until it ends.
    pub fn news_meanwhile(&mut self, notices: impl IntoIterator<Item = Notice>, now: Instant) -> Vec<Notice> {
        let mut news = Vec::new();
        for notice in notices {
            let told = self.told.get(&key(&notice));
            if told.is_none_or(|at| needs_reminder(&notice, *at, now)) {
                self.told.insert(key(&notice), now);
                news.push(notice);
            }
        }
        news
    }

    /// Whether a fault was not told lately. Times in its text make no difference.
    pub fn is_new_fault(&mut self, text: &str, now: Instant) -> bool {
        self.faults.is_new(text, now)
    }

    /// The same for what is wrong with the Service itself, which lasts while its backend does well.
    pub fn is_new_refusal(&mut self, text: &str, now: Instant) -> bool {
        self.refusals.is_new(text, now)
    }

    /// The last faults are over. Whether there was one.
    pub fn recovered(&mut self) -> bool {
        self.waiting_since = None;
        self.faults.clear()
    }

    /// How long something is waited for, counted from the first time that this is asked.
    pub fn waiting(&mut self, now: Instant) -> Duration {
        now.saturating_duration_since(*self.waiting_since.get_or_insert(now))
    }

    /// Whether anything is remembered that the next look needs.
    pub fn is_blank(&self) -> bool {
        self.asked.is_none()
            && self.served.is_none()
            && !self.was_foreign
            && self.faults.0.is_empty()
            && self.refusals.0.is_empty()
            && self.told.is_empty()
            && self.written.is_none()
    }
}

/// A notice as it is recognised: times in it make no difference.
fn key(notice: &Notice) -> Notice {
    Notice {
        text: essence(&notice.text),
        ..notice.clone()
    }
}

/// Trouble is told again while it lasts, what is only worth knowing is not.
fn needs_reminder(notice: &Notice, at: Instant, now: Instant) -> bool {
    notice.warning && is_due_again(at, now)
}

/// The version of an object as a number, by which its versions are in order.
fn version(service: &Service) -> Option<u64> {
    service.metadata.resource_version.as_ref()?.parse().ok()
}

/// When to look for drift next: about every `period`, a fifth sooner or later, so that Services that began together don't stay
/// together. The same Service has the same place in each period.
pub fn next_look(period: Duration, uid: &str, now: Instant) -> Option<Instant> {
    if period.is_zero() {
        return None;
    }
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    let thousandths = u32::try_from(hasher.finish() % 401).unwrap_or_default();
    Some(now + period * (800 + thousandths) / 1000)
}

#[cfg(test)]
mod tests;
