//! Who may write: fences between writers, and the permit of one call.
//!
//! Decides whether a writing call may begin, and whether it may go on before each of its steps. Of two calls with the same lease the one with
//! fewer transitions is refused; a call that runs stops before its next step when its caller leaves, when a newer writer of the same
//! lease shows up, when the balancer is to be deleted, or when the account gets other keys meanwhile. What was learned is lost with the
//! process and learned again from the next call. A cluster that was restored from a copy counts its transitions from an older number on:
//! when the newest writer has been silent for many lease times, an older number is believed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proto::{Advice, Fault, FaultKind, v1};
use tokio_util::sync::CancellationToken;

use crate::tenant::ClusterName;

/// Leases that are remembered for one cluster. Without leader election every process of an agent has one of its own.
const LEASES: usize = 64;
/// How long a newest writer is silent before one with fewer transitions is believed: many times what a lease lasts, so that
/// a writer that was held up in between has long been told by its own clock that its lease ran out.
const SILENCE: Duration = Duration::from_mins(2);

/// A writer's place in the order of its lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// UID of the lease, or of the process.
    pub lease: String,
    /// How often it changed hands, or when the process began.
    pub transitions: u64,
}

impl Fence {
    /// Reads the fence of a call; every writing call has one.
    pub fn from_proto(fence: Option<&v1::Fence>) -> Result<Self, Fault> {
        let fence = fence.filter(|fence| !fence.lease_uid.is_empty()).ok_or_else(|| {
            Fault::invalid(
                "NO_FENCE",
                "fence",
                "a writing call names its lease; without leader election that is the process",
            )
        })?;
        if fence.lease_uid.len() > 253 {
            return Err(Fault::invalid(
                "TOO_LONG",
                "fence.lease_uid",
                "the lease's uid is longer than 253 characters",
            ));
        }
        Ok(Self {
            lease: fence.lease_uid.clone(),
            transitions: fence.transitions,
        })
    }
}

/// The newest writer of one lease.
struct Newest {
    transitions: u64,
    /// Cancelled when a newer one shows up.
    superseded: CancellationToken,
    /// When the lease was heard of last, in calls.
    heard: u64,
    /// When the writer itself was heard of last.
    wrote: Instant,
}

/// What is known of the writers of all clusters.
#[derive(Default)]
pub(super) struct Fences {
    leases: Mutex<Leases>,
}

#[derive(Default)]
struct Leases {
    calls: u64,
    newest: HashMap<(ClusterName, String), Newest>,
}

impl Fences {
    /// Lets a writer in, or refuses one that was followed by a newer one. The token is cancelled when that happens later.
    pub(super) fn enter(
        &self,
        cluster: &ClusterName,
        fence: &Fence,
        now: Instant,
    ) -> Result<CancellationToken, Fault> {
        let mut guard = self.leases.lock();
        let Leases {
            calls,
            newest: leases,
        } = &mut *guard;
        *calls += 1;
        let newest = leases
            .entry((cluster.clone(), fence.lease.clone()))
            .or_insert_with(|| Newest {
                transitions: fence.transitions,
                superseded: CancellationToken::new(),
                heard: 0,
                wrote: now,
            });
        newest.heard = *calls;
        let is_older = fence.transitions < newest.transitions;
        let silent = now.saturating_duration_since(newest.wrote);
        if is_older && silent < SILENCE {
            let text = format!(
                "a newer leader is at work (transition {} of the lease, this call has {}); this agent must stop writing",
                newest.transitions, fence.transitions
            );
            // Should it be the only one after all, it is believed once the newer one has been silent long enough.
            return Err(Fault::new(FaultKind::Conflict, "FENCED", text).with_advice(Advice::BackOff));
        }
        if is_older {
            tracing::warn!(
                tenant = %cluster, lease = %fence.lease, from = newest.transitions, to = fence.transitions,
                silent_seconds = silent.as_secs(),
                "the lease's transitions went back and nobody writes with the newer ones: the cluster was restored; the caller is believed"
            );
        }
        newest.wrote = now;
        if fence.transitions != newest.transitions {
            newest.superseded.cancel();
            newest.superseded = CancellationToken::new();
            newest.transitions = fence.transitions;
        }
        let token = newest.superseded.clone();
        forget(leases, cluster);
        Ok(token)
    }
}

/// Of one cluster only so many leases are kept, those heard of last.
fn forget(leases: &mut HashMap<(ClusterName, String), Newest>, cluster: &ClusterName) {
    let of_cluster = leases.iter().filter(|((name, _), _)| name == cluster);
    if of_cluster.clone().count() <= LEASES {
        return;
    }
    let oldest = of_cluster
        .min_by_key(|(_, newest)| newest.heard)
        .map(|(key, _)| key.clone());
    if let Some(oldest) = oldest {
        leases.remove(&oldest);
    }
}

/// Why a call must not take another step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    /// Nobody waits for its answer any more.
    #[error("the caller has left")]
    CallerGone,
    /// A newer writer of the same lease is at work.
    #[error("a newer leader is at work")]
    NewerWriter,
    /// The balancer is to be deleted.
    #[error("the load balancer is to be deleted")]
    Deleted,
    /// Other keys took the place of those that everything was seen through.
    #[error("the keys of the cluster's account were changed meanwhile")]
    Rekeyed,
}

/// The right of one call to take steps. Asked before each of them.
#[derive(Clone, Debug)]
pub struct Permit {
    tokens: Arc<Tokens>,
}

#[derive(Debug)]
struct Tokens {
    caller: CancellationToken,
    newer: CancellationToken,
    deleted: CancellationToken,
    rekeyed: CancellationToken,
}

impl Permit {
    /// A permit that ends with any of these.
    pub fn new(
        caller: CancellationToken,
        newer: CancellationToken,
        deleted: CancellationToken,
        rekeyed: CancellationToken,
    ) -> Self {
        Self {
            tokens: Arc::new(Tokens {
                caller,
                newer,
                deleted,
                rekeyed,
            }),
        }
    }

    /// Whether another step may be taken.
    pub fn check(&self) -> Result<(), Stop> {
        let Tokens {
            caller,
            newer,
            deleted,
            rekeyed,
        } = &*self.tokens;
        if newer.is_cancelled() {
            Err(Stop::NewerWriter)
        } else if deleted.is_cancelled() {
            Err(Stop::Deleted)
        } else if rekeyed.is_cancelled() {
            Err(Stop::Rekeyed)
        } else if caller.is_cancelled() {
            Err(Stop::CallerGone)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fence(lease: &str, transitions: u64) -> Fence {
        Fence {
            lease: lease.into(),
            transitions,
        }
    }

    #[test]
    fn a_writer_that_was_followed_is_refused_and_its_calls_end() {
        let (fences, cluster, now) = (Fences::default(), ClusterName::new("a"), runtime::clock::now());
        let old = fences.enter(&cluster, &fence("l", 3), now).unwrap();
        let same = fences.enter(&cluster, &fence("l", 3), now).unwrap();
        assert!(!old.is_cancelled() && !same.is_cancelled());
        let new = fences.enter(&cluster, &fence("l", 4), now).unwrap();
        assert!(old.is_cancelled() && same.is_cancelled() && !new.is_cancelled());
        let refused = fences.enter(&cluster, &fence("l", 3), now).unwrap_err();
        assert_eq!(
            (refused.kind, refused.reason.as_ref()),
            (FaultKind::Conflict, "FENCED")
        );
    }

    #[test]
    fn a_restored_cluster_whose_transitions_went_back_is_served_again_once_the_newer_writer_is_silent() {
        let (fences, cluster, now) = (Fences::default(), ClusterName::new("a"), runtime::clock::now());
        let newer = fences.enter(&cluster, &fence("l", 9), now).unwrap();
        let later = now + SILENCE / 2;
        assert_eq!(
            fences.enter(&cluster, &fence("l", 4), later).unwrap_err().reason,
            "FENCED"
        );
        // Being refused is no sign of the newer writer.
        let restored = fences.enter(&cluster, &fence("l", 4), now + SILENCE).unwrap();
        assert!(newer.is_cancelled() && !restored.is_cancelled());
        // Should it live all the same, it is the newest again.
        fences.enter(&cluster, &fence("l", 9), now + SILENCE).unwrap();
        assert!(restored.is_cancelled());
    }

    #[test]
    fn leases_and_clusters_do_not_disturb_each_other() {
        let (fences, cluster, now) = (Fences::default(), ClusterName::new("a"), runtime::clock::now());
        let first = fences.enter(&cluster, &fence("l", 3), now).unwrap();
        fences.enter(&cluster, &fence("m", 9), now).unwrap();
        fences.enter(&ClusterName::new("b"), &fence("l", 9), now).unwrap();
        assert!(!first.is_cancelled());
        assert!(fences.enter(&cluster, &fence("l", 3), now).is_ok());
    }

    #[test]
    fn a_cluster_that_invents_leases_only_forgets_its_own() {
        let (fences, now) = (Fences::default(), runtime::clock::now());
        fences.enter(&ClusterName::new("b"), &fence("l", 9), now).unwrap();
        for lease in 0..200 {
            fences
                .enter(&ClusterName::new("a"), &fence(&lease.to_string(), 1), now)
                .unwrap();
        }
        assert!(fences.enter(&ClusterName::new("b"), &fence("l", 8), now).is_err());
        assert!(fences.leases.lock().newest.len() <= LEASES + 1);
    }

    #[test]
    fn a_permit_says_what_ended_it() {
        let token = CancellationToken::new;
        let (caller, newer, deleted, rekeyed) = (token(), token(), token(), token());
        let permit = Permit::new(caller.clone(), newer.clone(), deleted.clone(), rekeyed.clone());
        assert_eq!(permit.check(), Ok(()));
        caller.cancel();
        assert_eq!(permit.check(), Err(Stop::CallerGone));
        rekeyed.cancel();
        assert_eq!(permit.check(), Err(Stop::Rekeyed));
        deleted.cancel();
        assert_eq!(permit.check(), Err(Stop::Deleted));
        newer.cancel();
        assert_eq!(permit.check(), Err(Stop::NewerWriter));
    }

    #[test]
    fn a_writing_call_without_a_fence_is_refused() {
        assert_eq!(Fence::from_proto(None).unwrap_err().reason, "NO_FENCE");
        let empty = v1::Fence {
            lease_uid: String::new(),
            transitions: 1,
        };
        assert_eq!(Fence::from_proto(Some(&empty)).unwrap_err().reason, "NO_FENCE");
    }
}
