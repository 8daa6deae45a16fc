//! The rate budget as something to wait at.
//!
//! Decides nothing; wakes the calls that `budget` lets go. A call that is given up while it waits costs nothing.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use runtime::clock;
use tokio::sync::oneshot;

use super::budget::{Budget, Claim, Rate, Ticket};

#[derive(Debug)]
struct Inner {
    budget: Budget,
    waiting: HashMap<Ticket, oneshot::Sender<()>>,
}

/// Where calls wait for their turn.
#[derive(Debug)]
pub(super) struct Turnstile(Mutex<Inner>);

/// Leaves the line when dropped.
struct Place<'a> {
    turnstile: &'a Turnstile,
    ticket: Ticket,
}

impl Turnstile {
    pub(super) fn new(rate: Rate) -> Self {
        Self(Mutex::new(Inner {
            budget: Budget::new(rate, clock::now()),
            waiting: HashMap::new(),
        }))
    }

    pub(super) fn configure(&self, rate: Rate) {
        self.0.lock().budget.configure(rate);
    }

    pub(super) fn server_grants(&self, rate: Option<Rate>) {
        self.0.lock().budget.server_grants(rate);
    }

    pub(super) fn throttled(&self, after: Duration) {
        self.0.lock().budget.throttled(clock::now(), after);
    }

    /// Waits for a turn.
    pub(super) async fn pass(&self, claim: &Claim) {
        let (sender, mut turn) = oneshot::channel();
        let place = {
            let mut inner = self.0.lock();
            let ticket = inner.budget.enqueue(claim);
            inner.waiting.insert(ticket, sender);
            Place {
                turnstile: self,
                ticket,
            }
        };
        while let Some(wait) = self.advance(place.ticket) {
            tokio::select! {
                biased;
                _ = &mut turn => break,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Lets go whoever may; returns how long this one should wait before it looks again, `None` if its turn has come.
    fn advance(&self, ticket: Ticket) -> Option<Duration> {
        let mut inner = self.0.lock();
        let now = clock::now();
        for granted in inner.budget.grant(now) {
            if let Some(sender) = inner.waiting.remove(&granted) {
                // A receiver that is gone has left the line in the same moment; its turn is lost, as if it had called.
                let _ = sender.send(());
            }
        }
        if !inner.waiting.contains_key(&ticket) {
            return None;
        }
        inner
            .budget
            .next_grant(now)
            .map(|at| at.saturating_duration_since(now))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut inner = self.turnstile.0.lock();
        if inner.waiting.remove(&self.ticket).is_some() {
            inner.budget.cancel(self.ticket);
        }
    }
}
