//! Holding the lease, and telling everybody in the process whether it may act.
//!
//! A thin loop around [`Candidate`]: get, create and update of one Lease, never a patch, since the `ClusterRole` grants no more.
//! What it leaves to others: to stop when the lease is lost. [`Leadership`] makes that easy: it gives a [`Fence`] only while
//! the lease can't have run out by this process's own clock, and cancels what runs longer.

mod standing;

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, PostParams};
use runtime::clock;
use runtime::host::Host;
use tokio_util::sync::CancellationToken;

use crate::apiserver::{self, Explained, timestamp};
use crate::contain;
use crate::events::{Reason, Recorder, Subject};
use crate::lease::{Act, Candidate, Fence, Timing};
use crate::metrics::Metrics;

pub use standing::{Leadership, NotLeading, Standing, Throne};

/// How an election ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was told to stop; the lease, if held, was given up.
    Stopped,
    /// The lease was lost, and why.
    Lost(String),
}

/// One election.
pub struct Election {
    /// Access to leases in the lease's namespace, through a client that no other work can block.
    pub leases: Api<Lease>,
    /// Name of the lease.
    pub name: String,
    /// We ourselves.
    pub candidate: Candidate,
    /// Where the standing is published.
    pub throne: Throne,
    /// Writes the events on the lease.
    pub events: Recorder,
    /// Counts.
    pub metrics: Metrics,
    /// The process.
    pub host: Host,
}

/// What one attempt came to.
enum Attempt {
    Held(Box<Lease>),
    Other(String),
    Fault(String),
}

impl Election {
    /// Tries to lead, leads, and renews until `stop`, then gives the lease up. Returns early only when the lease is lost.
    pub async fn run(mut self, stop: CancellationToken) -> Ended {
        self.metrics.set_leader(&self.name, false);
        let Some((lease, sent)) = stop.run_until_cancelled(self.acquire()).await else {
            return Ended::Stopped;
        };
        self.began(&lease, sent);
        let subject = Subject::of(&lease);
        let ended = self.hold(lease, sent, &stop).await;
        self.throne.end();
        self.metrics.set_leader(&self.name, false);
        let identity = self.candidate.identity();
        tracing::info!(lease = %self.name, identity, "this process stopped leading");
        let text = format!("{identity} stopped leading");
        self.events.publish(&subject, &Reason::LEADER_ELECTION, text);
        ended
    }

    fn began(&self, lease: &Lease, sent: Instant) {
        self.throne
            .lead(Fence::of(lease), Some(sent + self.timing().lease));
        self.metrics.set_leader(&self.name, true);
        let identity = self.candidate.identity();
        tracing::info!(lease = %self.name, identity, transitions = Fence::of(lease).transitions, "this process leads");
        self.events.publish(
            &Subject::of(lease),
            &Reason::LEADER_ELECTION,
            format!("{identity} became leader"),
        );
    }

    fn timing(&self) -> Timing {
        self.candidate.timing()
    }

    async fn acquire(&mut self) -> (Lease, Instant) {
        let mut told = String::new();
        loop {
            let sent = clock::now();
            let news = match self.attempt(None).await {
                Attempt::Held(lease) => return (*lease, sent),
                Attempt::Other(holder) => format!("the lease is held by {holder}, standing by"),
                Attempt::Fault(fault) => format!("the lease can't be taken: {fault}"),
            };
            if news != told {
                tracing::info!(lease = %self.name, "{news}");
                told = news;
            }
            let jitter = 1.0 + rand::random_range(0.0..1.2);
            tokio::time::sleep(self.timing().retry.mul_f64(jitter)).await;
        }
    }

    async fn hold(&mut self, mut lease: Lease, mut renewed: Instant, stop: &CancellationToken) -> Ended {
        let mut known = Some(lease.clone());
        let mut fault = String::new();
        loop {
            let deadline = renewed + self.timing().renew_deadline;
            let next = deadline.min(clock::now() + self.timing().retry);
            if stop
                .run_until_cancelled(tokio::time::sleep_until(next.into()))
                .await
                .is_none()
            {
                self.give_up(&lease).await;
                return Ended::Stopped;
            }
            if clock::now() >= deadline {
                return Ended::Lost(format!("it could not be renewed in time{fault}"));
            }
            let sent = clock::now();
            let attempt = tokio::time::timeout_at(deadline.into(), self.attempt(known.take())).await;
            match attempt.unwrap_or_else(|_| Attempt::Fault("no answer in time".to_owned())) {
                Attempt::Held(held) => {
                    renewed = sent;
                    fault.clear();
                    self.throne
                        .lead(Fence::of(&held), Some(sent + self.timing().lease));
                    known = Some((*held).clone());
                    lease = *held;
                }
                Attempt::Other(holder) if holder.is_empty() => {
                    return Ended::Lost("somebody took it away".to_owned());
                }
                Attempt::Other(holder) => return Ended::Lost(format!("{holder} holds it now")),
                Attempt::Fault(why) => {
                    tracing::warn!(lease = %self.name, fault = %why, "the lease could not be renewed, trying again");
                    fault = format!(": {why}");
                }
            }
        }
    }

    /// One attempt to get or keep the lease: by a write alone if it is known as we wrote it, otherwise by reading first.
    async fn attempt(&mut self, known: Option<Lease>) -> Attempt {
        let patience = (self.timing().renew_deadline / 2).max(Duration::from_secs(1));
        let host = self.host.clone();
        let attempt = tokio::time::timeout(patience, self.attempt_now(known));
        match host.contain("leader-election", attempt).await {
            Some(Ok(Ok(attempt))) => attempt,
            Some(Ok(Err(fault))) => Attempt::Fault(fault),
            None => Attempt::Fault(contain::TEXT.to_owned()),
            Some(Err(_)) => Attempt::Fault(format!(
                "kube-apiserver did not answer within {} s",
                patience.as_secs()
            )),
        }
    }

    async fn attempt_now(&mut self, known: Option<Lease>) -> Result<Attempt, String> {
        if let Some(lease) = known {
            let renewal = self.candidate.renewal(&lease, timestamp());
            match self
                .leases
                .replace(&self.name, &PostParams::default(), &renewal)
                .await
            {
                Ok(written) => return Ok(self.held(written)),
                Err(error) if apiserver::is_conflict(&error) || apiserver::is_not_found(&error) => {
                    self.metrics.lease_read(&self.name);
                }
                Err(error) => return Err(error.explain("update", "leases.coordination.k8s.io")),
            }
        }
        let read = clock::now();
        let lease = self
            .leases
            .get_opt(&self.name)
            .await
            .map_err(|e| e.explain("get", "leases.coordination.k8s.io"))?;
        let written = match self.candidate.decide(lease.as_ref(), read, timestamp()) {
            Act::Wait { holder } | Act::StepDown { holder } => return Ok(Attempt::Other(holder)),
            Act::Create(lease) => (self.leases.create(&PostParams::default(), &lease).await, "create"),
            Act::Take(lease) | Act::Renew(lease) => (
                self.leases
                    .replace(&self.name, &PostParams::default(), &lease)
                    .await,
                "update",
            ),
        };
        match written {
            (Ok(written), _) => Ok(self.held(written)),
            (Err(error), verb) => Err(error.explain(verb, "leases.coordination.k8s.io")),
        }
    }

    fn held(&mut self, lease: Lease) -> Attempt {
        self.candidate.written(&lease, clock::now());
        Attempt::Held(Box::new(lease))
    }

    async fn give_up(&self, lease: &Lease) {
        let identity = self.candidate.identity();
        self.throne.end();
        let released = Candidate::release(lease, timestamp());
        let params = PostParams::default();
        let write = self.leases.replace(&self.name, &params, &released);
        match tokio::time::timeout(Duration::from_secs(3), write).await {
            Ok(Ok(_)) => tracing::info!(lease = %self.name, identity, "gave the lease up"),
            Ok(Err(error)) => {
                tracing::warn!(lease = %self.name, fault = %error.explain("update", "leases"), "the lease was not given up");
            }
            Err(_) => tracing::warn!(lease = %self.name, "the lease was not given up: no answer in time"),
        }
    }
}
