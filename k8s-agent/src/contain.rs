//! What a panic ends: the work on the one object that it came from, or one round of a loop, and never the process.
//!
//! Catching, logging and counting is [`Host`](runtime::host::Host)'s. Here is what follows for the controllers: the object comes again after a
//! back-off, and a loop that panicked between two objects begins again. Work that has a queue comes again by it; [`Resting`] is for work that comes
//! round by itself.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proto::{Fault, FaultKind};
use runtime::clock;

use crate::context::Context;
use crate::queue::Backoff;

/// When a loop that panicked begins again.
const LOOPS: Backoff = Backoff {
    first: Duration::from_secs(1),
    longest: Duration::from_mins(1),
};

/// What is told of work that panicked.
pub const TEXT: &str = "this agent panicked, which is a fault of it; it is tried again";

/// The same where a fault is expected.
pub fn fault() -> Fault {
    Fault::new(FaultKind::Internal, "AGENT_PANICKED", TEXT)
}

impl Context {
    /// Does the work on one object; nothing if it panicked, which is logged and counted.
    pub fn contain<T>(
        &self,
        task: &'static str,
        object: &str,
        work: impl Future<Output = T>,
    ) -> impl Future<Output = Option<T>> {
        self.host.contain_on(task, object, work)
    }

    /// Runs a loop that ends soon after [`Context::stop`]; the lease is given up only after it ended. If it panics, it begins again, after an ever
    /// longer time if that happens again and again.
    pub fn keep<F, Fut>(self: &Arc<Self>, name: &'static str, mut run: F)
    where
        F: FnMut() -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let (host, stop) = (self.host.clone(), self.stop());
        let kept = async move {
            let mut panics = 0;
            loop {
                let began = clock::now();
                if host.contain(name, async { run().await }).await.is_some() {
                    return;
                }
                let ran = clock::now().saturating_duration_since(began);
                panics = if ran > LOOPS.longest { 1 } else { panics + 1 };
                let pause = tokio::time::sleep(LOOPS.after(panics));
                if stop.run_until_cancelled(pause).await.is_none() {
                    return;
                }
            }
        };
        self.host.spawn(name, self.work.track_future(kept));
    }
}

/// Objects whose work panicked, by a key, and from when on each is worked on again.
#[derive(Debug)]
pub struct Resting {
    backoff: Backoff,
    until: HashMap<String, (u32, Instant)>,
}

impl Resting {
    /// Nothing panicked yet.
    pub fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            until: HashMap::new(),
        }
    }

    /// Whether it is too early to work on this one again.
    pub fn rests(&self, key: &str, now: Instant) -> bool {
        self.until.get(key).is_some_and(|(_, until)| now < *until)
    }

    /// The work on this one ended, or panicked.
    pub fn ended(&mut self, key: &str, panicked: bool, now: Instant) {
        if panicked {
            let times = self
                .until
                .get(key)
                .map_or(1, |(times, _)| times.saturating_add(1));
            self.until
                .insert(key.to_owned(), (times, now + self.backoff.after(times)));
        } else {
            self.until.remove(key);
        }
    }

    /// Forgets those that are not there any more.
    pub fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.until.retain(|key, _| is_there(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_rests_longer_after_every_panic_and_no_more_after_it_went_well() {
        let (now, second) = (clock::now(), Duration::from_secs(1));
        let mut resting = Resting::new(LOOPS);
        assert!(!resting.rests("a", now));
        resting.ended("a", true, now);
        assert!(resting.rests("a", now) && !resting.rests("a", now + second));
        assert!(!resting.rests("b", now), "only the one that panicked");
        resting.ended("a", true, now);
        assert!(resting.rests("a", now + second) && !resting.rests("a", now + 2 * second));
        resting.ended("a", false, now);
        assert!(!resting.rests("a", now));
        resting.ended("a", true, now);
        resting.retain(|_| false);
        assert!(!resting.rests("a", now), "it is not there any more");
    }
}
