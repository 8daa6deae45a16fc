//! Who leads, decided from the lease as it was read last.
//!
//! Pure: no clock, no client. The rules are client-go's, so that this program and the Go controllers that use the same lease
//! never lead together: a holder is believed as long as its record changes, measured by the *local* clock from when the change
//! was first seen, against the duration in the record. Times of other machines are never compared with ours.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;

/// The three times of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long a holder is believed after its last sign of life.
    pub lease: Duration,
    /// A leader that could not renew for this long gives up.
    pub renew_deadline: Duration,
    /// Time between two attempts.
    pub retry: Duration,
}

/// Why times make no election.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// One of them is zero.
    #[error("--leader-elect-{0} must be more than zero")]
    Zero(&'static str),
    /// A follower could take over while the leader still tries.
    #[error("--leader-elect-lease-duration must be longer than --leader-elect-renew-deadline")]
    LeaseTooShort,
    /// The leader would give up before it tried twice.
    #[error("--leader-elect-renew-deadline must be longer than 1.2 times --leader-elect-retry-period")]
    DeadlineTooShort,
}

impl Timing {
    /// Refuses times that can't work.
    pub fn check(self) -> Result<Self, TimingError> {
        let named = [
            ("lease-duration", self.lease),
            ("renew-deadline", self.renew_deadline),
            ("retry-period", self.retry),
        ];
        if let Some((name, _)) = named.into_iter().find(|(_, time)| time.is_zero()) {
            return Err(TimingError::Zero(name));
        }
        if self.lease <= self.renew_deadline {
            return Err(TimingError::LeaseTooShort);
        }
        if self.renew_deadline <= self.retry.mul_f64(1.2) {
            return Err(TimingError::DeadlineTooShort);
        }
        Ok(self)
    }
}

/// Orders writers of one cluster. A lower one of the same lease is refused by the broker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    /// UID of the lease; without election the id of the process.
    pub lease_uid: String,
    /// How often the lease changed hands; without election the start of the process in Unix milliseconds.
    pub transitions: u64,
}

impl Fence {
    /// The fence that a lease stands for.
    pub fn of(lease: &Lease) -> Self {
        let transitions = lease
            .spec
            .as_ref()
            .and_then(|spec| spec.lease_transitions)
            .unwrap_or_default();
        Self {
            lease_uid: lease.metadata.uid.clone().unwrap_or_default(),
            transitions: u64::try_from(transitions).unwrap_or_default(),
        }
    }
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Create the lease with ourselves as holder.
    Create(Box<Lease>),
    /// Write ourselves in; the holder before is gone or there was none.
    Take(Box<Lease>),
    /// Write a new sign of life.
    Renew(Box<Lease>),
    /// Another one holds it.
    Wait {
        /// Its identity.
        holder: String,
    },
    /// Another one holds it although we lead: stop at once.
    StepDown {
        /// Its identity.
        holder: String,
    },
}

/// One process that wants to lead.
#[derive(Clone, Debug)]
pub struct Candidate {
    name: String,
    namespace: String,
    identity: String,
    timing: Timing,
    seen: Option<(LeaseSpec, Instant)>,
    leads: bool,
}

impl Candidate {
    /// A candidate that has seen nothing yet.
    pub fn new(namespace: &str, name: &str, identity: String, timing: Timing) -> Self {
        Self {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            identity,
            timing,
            seen: None,
            leads: false,
        }
    }

    /// What this process calls itself.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// The times of the election.
    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// Whether our last write made or kept us the leader.
    pub fn leads(&self) -> bool {
        self.leads
    }

    /// Our write was accepted: we lead.
    pub fn written(&mut self, lease: &Lease, now: Instant) {
        self.leads = true;
        self.look(lease, now);
    }

    /// What to do about the lease as it was just read; `None`: there is none. `now` is the local clock when the read began,
    /// `wall` goes into the record.
    pub fn decide(&mut self, lease: Option<&Lease>, now: Instant, wall: Timestamp) -> Act {
        let Some(lease) = lease else {
            return Act::Create(Box::new(self.first_record(wall)));
        };
        self.look(lease, now);
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.clone().unwrap_or_default();
        if holder == self.identity {
            return Act::Renew(Box::new(self.renewal(lease, wall)));
        }
        if holder.is_empty() || self.is_over(&spec, now) {
            return if self.leads {
                // Somebody wrote us out; going on could mean two leaders.
                Act::StepDown { holder }
            } else {
                Act::Take(Box::new(self.takeover(lease, wall)))
            };
        }
        if self.leads {
            Act::StepDown { holder }
        } else {
            Act::Wait { holder }
        }
    }

    /// The record with a new sign of life, for a leader that knows the lease as it wrote it last.
    pub fn renewal(&self, lease: &Lease, wall: Timestamp) -> Lease {
        let mut lease = lease.clone();
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(self.identity.clone());
        spec.lease_duration_seconds = Some(self.duration_seconds());
        spec.renew_time = Some(MicroTime(wall));
        lease
    }

    /// The record that lets a follower take over at once.
    pub fn release(lease: &Lease, wall: Timestamp) -> Lease {
        let mut lease = lease.clone();
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(MicroTime(wall));
        spec.acquire_time = Some(MicroTime(wall));
        lease
    }

    fn look(&mut self, lease: &Lease, now: Instant) {
        let spec = lease.spec.clone().unwrap_or_default();
        if self.seen.as_ref().is_none_or(|(seen, _)| *seen != spec) {
            self.seen = Some((spec, now));
        }
    }

    fn is_over(&self, spec: &LeaseSpec, now: Instant) -> bool {
        let seconds = spec
            .lease_duration_seconds
            .and_then(|seconds| u64::try_from(seconds).ok());
        let duration = seconds.map_or(self.timing.lease, Duration::from_secs);
        self.seen
            .as_ref()
            .is_some_and(|(_, since)| now.saturating_duration_since(*since) > duration)
    }

    fn first_record(&self, wall: Timestamp) -> Lease {
        Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.identity.clone()),
                lease_duration_seconds: Some(self.duration_seconds()),
                acquire_time: Some(MicroTime(wall)),
                renew_time: Some(MicroTime(wall)),
                lease_transitions: Some(0),
                ..LeaseSpec::default()
            }),
        }
    }

    fn takeover(&self, lease: &Lease, wall: Timestamp) -> Lease {
        let mut lease = self.renewal(lease, wall);
        let spec = lease.spec.get_or_insert_default();
        spec.acquire_time = Some(MicroTime(wall));
        spec.lease_transitions = Some(spec.lease_transitions.unwrap_or_default().saturating_add(1));
        lease
    }

    fn duration_seconds(&self) -> i32 {
        // The record knows whole seconds only; a shorter one than we believe in would let a follower in too early.
        let rounded_up = self.timing.lease.as_secs() + u64::from(self.timing.lease.subsec_nanos() > 0);
        i32::try_from(rounded_up).unwrap_or(i32::MAX)
    }
}

#[cfg(test)]
mod tests;
