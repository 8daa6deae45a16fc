//! Workers, clock and metrics around [`State`].

use std::fmt::Display;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use runtime::clock;
use runtime::host::Host;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{Backoff, Outcome, State, Taken};
use crate::metrics::{Metrics, QueueMeter};

/// After a panic in a worker its key fails, and the worker takes the next one only after this time.
const PAUSE_AFTER_PANIC: Duration = Duration::from_secs(1);

/// A queue that many tasks share. Clones are the same queue.
#[derive(Debug)]
pub struct Queue<K> {
    shared: Arc<Shared<K>>,
}

#[derive(Debug)]
struct Shared<K> {
    state: Mutex<State<K>>,
    changed: Notify,
    meter: QueueMeter,
}

/// What the metrics say of a queue at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// Keys that are due.
    pub depth: usize,
    /// Seconds of work in progress, summed over all workers.
    pub unfinished: f64,
    /// Seconds of the longest work in progress.
    pub longest: f64,
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<K: Clone + Eq + Hash + Send + 'static> Queue<K> {
    /// An empty queue whose metrics carry this name.
    pub fn new(name: &'static str, backoff: Backoff, metrics: &Metrics) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new(backoff)),
            changed: Notify::new(),
            meter: metrics.queue_meter(name),
        });
        let read = Arc::downgrade(&shared);
        metrics.watch_queue(name, move || read.upgrade().map(|shared| shared.read()));
        Self { shared }
    }

    /// Makes a key due now.
    pub fn add(&self, key: K) {
        if self.shared.state.lock().add(key, clock::now()) {
            self.shared.meter.added();
        }
        self.shared.changed.notify_one();
    }

    /// Makes a key due after `wait`, or when it is due anyway if that is earlier.
    pub fn add_after(&self, key: K, wait: Duration) {
        self.shared.state.lock().add_after(key, wait, clock::now());
        self.shared.changed.notify_one();
    }

    /// Gives a key back that was taken.
    pub fn done(&self, key: &K, outcome: Outcome) {
        let took = self.shared.state.lock().done(key, outcome, clock::now());
        if let Some(took) = took {
            self.shared.meter.worked(took, outcome);
        }
        self.shared.changed.notify_one();
    }

    /// Failures in a row of a key.
    pub fn failures(&self, key: &K) -> u32 {
        self.shared.state.lock().failures(key)
    }

    /// Waits for the next key that is due. A key taken must be given back with [`Queue::done`].
    pub async fn take(&self) -> Taken<K> {
        loop {
            let next = {
                let mut state = self.shared.state.lock();
                let now = clock::now();
                if let Some(taken) = state.take(now) {
                    let more = state.depth() > 0;
                    drop(state);
                    if more {
                        self.shared.changed.notify_one();
                    }
                    self.shared.meter.started(taken.waited);
                    return taken;
                }
                state.next_due(now)
            };
            self.wait_until(next).await;
        }
    }

    /// Waits for a key, gives others `gather` to become due too, and takes at most `most` of them.
    pub async fn take_batch(&self, gather: Duration, most: usize) -> Vec<Taken<K>> {
        let first = self.take().await;
        tokio::time::sleep(gather).await;
        let mut batch = vec![first];
        let mut state = self.shared.state.lock();
        while batch.len() < most {
            let Some(taken) = state.take(clock::now()) else {
                break;
            };
            self.shared.meter.started(taken.waited);
            batch.push(taken);
        }
        batch
    }

    /// Works on one key after the other until `stop`; what runs then is finished. Several of these may run at once.
    /// `work` gets the key and its failures in a row. A panic in it is logged and counts as a failure.
    pub async fn work<F, Fut>(&self, host: &Host, stop: &CancellationToken, work: F)
    where
        K: Display,
        F: Fn(K, u32) -> Fut + Send + Sync,
        Fut: Future<Output = Outcome> + Send,
    {
        while let Some(taken) = stop.run_until_cancelled(self.take()).await {
            let running = async { work(taken.key.clone(), taken.failures).await };
            let (name, key) = (self.shared.meter.name(), taken.key.to_string());
            if let Some(outcome) = host.contain_on(name, &key, running).await {
                self.done(&taken.key, outcome);
            } else {
                self.done(&taken.key, Outcome::Failed);
                stop.run_until_cancelled(tokio::time::sleep(PAUSE_AFTER_PANIC))
                    .await;
            }
        }
    }

    async fn wait_until(&self, at: Option<Instant>) {
        match at {
            Some(at) => {
                let due = tokio::time::sleep_until(at.into());
                tokio::select! {
                    () = due => {}
                    () = self.shared.changed.notified() => {}
                }
            }
            None => self.shared.changed.notified().await,
        }
    }
}

impl<K: Clone + Eq + Hash> Shared<K> {
    fn read(&self) -> Reading {
        let now = clock::now();
        let state = self.state.lock();
        let running = state
            .running()
            .map(|since| now.saturating_duration_since(since).as_secs_f64());
        running.fold(
            Reading {
                depth: state.depth(),
                ..Reading::default()
            },
            |sum, seconds| Reading {
                unfinished: sum.unfinished + seconds,
                longest: sum.longest.max(seconds),
                ..sum
            },
        )
    }
}
