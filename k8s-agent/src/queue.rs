//! Which key is worked on next, by whom, and when a failed one comes back.
//!
//! [`State`] is pure: it takes the time as an argument and does no IO; [`Queue`] in `driver` gives it tasks, a clock and
//! metrics. The laws, which are those of client-go's work queues:
//!
//! * a key is waiting at most once, and never with two workers; added while it is worked on, it runs once more after;
//! * an add is due at once, also for a key that waits after a failure;
//! * the n-th failure in a row of one key waits `first * 2^(n-1)`, at most `longest`; success starts over; no key is given up;
//! * first in, first out, with no priorities.
//!
//! One thing differs: taking a key drops what it was still waiting for, since the run that begins now answers for that too.

mod driver;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;
use std::time::{Duration, Instant};

use proto::{Advice, Fault};

pub use driver::{Queue, Reading};

/// How long a key waits after failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Wait after the first failure.
    pub first: Duration,
    /// No wait is longer.
    pub longest: Duration,
}

impl Backoff {
    /// The wait after this many failures in a row.
    pub fn after(self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        self.first.saturating_mul(1_u32 << doublings).min(self.longest)
    }
}

/// How work on a key ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is left to do until the key is added again. Failures are forgotten.
    Done,
    /// It failed: again, later and ever later.
    Failed,
    /// It waits for something: again after this time, and neither a failure nor a success is counted.
    After(Duration),
    /// It can't succeed until somebody changes something; that change adds the key again. Failures are forgotten.
    Parked,
}

impl From<&Fault> for Outcome {
    fn from(fault: &Fault) -> Self {
        match fault.advice {
            Advice::NeverUntilChanged => Self::Parked,
            Advice::BackOff => Self::Failed,
            Advice::After(wait) => Self::After(wait),
        }
    }
}

/// A key that a worker may work on now; it must be given back with [`State::done`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken<K> {
    /// The key.
    pub key: K,
    /// Failures in a row before this run.
    pub failures: u32,
    /// How long it was due before it was taken.
    pub waited: Duration,
}

/// The queue without time and tasks.
#[derive(Debug)]
pub struct State<K> {
    backoff: Backoff,
    due: VecDeque<K>,
    keys: HashMap<K, Entry>,
    waiting: BTreeMap<(Instant, u64), K>,
    sequence: u64,
}

#[derive(Debug, Default)]
struct Entry {
    due_since: Option<Instant>,
    running_since: Option<Instant>,
    added_while_running: bool,
    waits_for: Option<(Instant, u64)>,
    failures: u32,
}

impl Entry {
    fn is_idle(&self) -> bool {
        self.due_since.is_none()
            && self.running_since.is_none()
            && self.waits_for.is_none()
            && self.failures == 0
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    /// An empty queue.
    pub fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            due: VecDeque::new(),
            keys: HashMap::new(),
            waiting: BTreeMap::new(),
            sequence: 0,
        }
    }

    /// Makes a key due now. False if it was due already.
    pub fn add(&mut self, key: K, now: Instant) -> bool {
        let entry = self.keys.entry(key.clone()).or_default();
        if entry.running_since.is_some() {
            return !std::mem::replace(&mut entry.added_while_running, true);
        }
        if entry.due_since.is_some() {
            return false;
        }
        entry.due_since = Some(now);
        self.due.push_back(key);
        true
    }

    /// Makes a key due after `wait`, or earlier if it already waits for an earlier time.
    pub fn add_after(&mut self, key: K, wait: Duration, now: Instant) {
        if wait.is_zero() {
            self.add(key, now);
            return;
        }
        let at = now + wait;
        let entry = self.keys.entry(key.clone()).or_default();
        if entry.waits_for.is_some_and(|(earlier, _)| earlier <= at) {
            return;
        }
        if let Some(later) = entry.waits_for.take() {
            self.waiting.remove(&later);
        }
        self.sequence += 1;
        entry.waits_for = Some((at, self.sequence));
        self.waiting.insert((at, self.sequence), key);
    }

    /// The next key that is due, for one worker.
    pub fn take(&mut self, now: Instant) -> Option<Taken<K>> {
        self.wake(now);
        let key = self.due.pop_front()?;
        let entry = self.keys.entry(key.clone()).or_default();
        let waited = entry
            .due_since
            .take()
            .map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        entry.running_since = Some(now);
        if let Some(slot) = entry.waits_for.take() {
            self.waiting.remove(&slot);
        }
        Some(Taken {
            key,
            failures: entry.failures,
            waited,
        })
    }

    /// Gives a key back. Answers how long the work took; nothing if nobody worked on it.
    pub fn done(&mut self, key: &K, outcome: Outcome, now: Instant) -> Option<Duration> {
        let entry = self.keys.get_mut(key)?;
        let took = now.saturating_duration_since(entry.running_since.take()?);
        match outcome {
            Outcome::Done | Outcome::Parked => entry.failures = 0,
            Outcome::Failed => entry.failures = entry.failures.saturating_add(1),
            Outcome::After(_) => {}
        }
        let (failures, again) = (entry.failures, std::mem::take(&mut entry.added_while_running));
        let wait = match outcome {
            Outcome::Done | Outcome::Parked => None,
            Outcome::Failed => Some(self.backoff.after(failures)),
            Outcome::After(wait) => Some(wait),
        };
        if again {
            self.add(key.clone(), now);
        } else if let Some(wait) = wait {
            self.add_after(key.clone(), wait, now);
        }
        if self.keys.get(key).is_some_and(Entry::is_idle) {
            self.keys.remove(key);
        }
        Some(took)
    }

    /// When [`State::take`] may have something to give, if nothing is added before; now, if something is due.
    pub fn next_due(&self, now: Instant) -> Option<Instant> {
        if self.due.is_empty() {
            self.waiting.keys().next().map(|(at, _)| *at)
        } else {
            Some(now)
        }
    }

    /// Keys that are due.
    pub fn depth(&self) -> usize {
        self.due.len()
    }

    /// Since when each key that is worked on now is worked on.
    pub fn running(&self) -> impl Iterator<Item = Instant> {
        self.keys.values().filter_map(|entry| entry.running_since)
    }

    /// Failures in a row of a key.
    pub fn failures(&self, key: &K) -> u32 {
        self.keys.get(key).map_or(0, |entry| entry.failures)
    }

    fn wake(&mut self, now: Instant) {
        while let Some(slot) = self.waiting.first_entry().filter(|slot| slot.key().0 <= now) {
            let key = slot.remove();
            if let Some(entry) = self.keys.get_mut(&key) {
                entry.waits_for = None;
            }
            self.add(key, now);
        }
    }
}

#[cfg(test)]
mod tests;
