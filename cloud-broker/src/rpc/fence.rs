//! Who may write: fences between writers, and the permit of one call.
//!
//! Decides whether a writing call may begin, and whether it may go on before each of its steps. Of two calls with the same lease the one with
//! fewer transitions is refused; a call that runs stops before its next step when its caller leaves, when a newer writer of the same
//! lease shows up, or when the balancer is to be deleted meanwhile. What was learned is lost with the process and learned again from
//! the next call.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use proto::{Advice, Fault, FaultKind, v1};
use tokio_util::sync::CancellationToken;

use crate::tenant::ClusterName;

/// Leases that are remembered for one cluster. Without leader election every process of an agent has one of its own.
const LEASES: usize = 64;

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
    /// When it was heard of last, in calls.
    heard: u64,
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
    pub(super) fn enter(&self, cluster: &ClusterName, fence: &Fence) -> Result<CancellationToken, Fault> {
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
            });
        newest.heard = *calls;
        if fence.transitions < newest.transitions {
            let text = format!(
                "a newer leader is at work (transition {} of the lease, this call has {}); this agent must stop writing",
                newest.transitions, fence.transitions
            );
            return Err(
                Fault::new(FaultKind::Conflict, "FENCED", text).with_advice(Advice::NeverUntilChanged)
            );
        }
        if fence.transitions > newest.transitions {
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
}

impl Permit {
    /// A permit that ends with any of these.
    pub fn new(caller: CancellationToken, newer: CancellationToken, deleted: CancellationToken) -> Self {
        Self {
            tokens: Arc::new(Tokens {
                caller,
                newer,
                deleted,
            }),
        }
    }

    /// A permit that nothing ends.
    pub fn unlimited() -> Self {
        Self::new(
            CancellationToken::new(),
            CancellationToken::new(),
            CancellationToken::new(),
        )
    }

    /// Whether another step may be taken.
    pub fn check(&self) -> Result<(), Stop> {
        let Tokens {
            caller,
            newer,
            deleted,
        } = &*self.tokens;
        if newer.is_cancelled() {
            Err(Stop::NewerWriter)
        } else if deleted.is_cancelled() {
            Err(Stop::Deleted)
        } else if caller.is_cancelled() {
            Err(Stop::CallerGone)
        } else {
            Ok(())
        }
    }

    /// Waits until no further step may be taken.
    pub async fn ended(&self) -> Stop {
        let Tokens {
            caller,
            newer,
            deleted,
        } = &*self.tokens;
        tokio::select! {
            biased;
            () = newer.cancelled() => Stop::NewerWriter,
            () = deleted.cancelled() => Stop::Deleted,
            () = caller.cancelled() => Stop::CallerGone,
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
        let (fences, cluster) = (Fences::default(), ClusterName::new("a"));
        let old = fences.enter(&cluster, &fence("l", 3)).unwrap();
        let same = fences.enter(&cluster, &fence("l", 3)).unwrap();
        assert!(!old.is_cancelled() && !same.is_cancelled());
        let new = fences.enter(&cluster, &fence("l", 4)).unwrap();
        assert!(old.is_cancelled() && same.is_cancelled() && !new.is_cancelled());
        let refused = fences.enter(&cluster, &fence("l", 3)).unwrap_err();
        assert_eq!(
            (refused.kind, refused.reason.as_ref()),
            (FaultKind::Conflict, "FENCED")
        );
    }

    #[test]
    fn leases_and_clusters_do_not_disturb_each_other() {
        let (fences, cluster) = (Fences::default(), ClusterName::new("a"));
        let first = fences.enter(&cluster, &fence("l", 3)).unwrap();
        fences.enter(&cluster, &fence("m", 9)).unwrap();
        fences.enter(&ClusterName::new("b"), &fence("l", 9)).unwrap();
        assert!(!first.is_cancelled());
        assert!(fences.enter(&cluster, &fence("l", 3)).is_ok());
    }

    #[test]
    fn a_cluster_that_invents_leases_only_forgets_its_own() {
        let fences = Fences::default();
        fences.enter(&ClusterName::new("b"), &fence("l", 9)).unwrap();
        for lease in 0..200 {
            fences
                .enter(&ClusterName::new("a"), &fence(&lease.to_string(), 1))
                .unwrap();
        }
        assert!(fences.enter(&ClusterName::new("b"), &fence("l", 8)).is_err());
        assert!(fences.leases.lock().newest.len() <= LEASES + 1);
    }

    #[test]
    fn a_permit_says_what_ended_it() {
        let tokens = || {
            (
                CancellationToken::new(),
                CancellationToken::new(),
                CancellationToken::new(),
            )
        };
        let (caller, newer, deleted) = tokens();
        let permit = Permit::new(caller.clone(), newer.clone(), deleted.clone());
        assert_eq!(permit.check(), Ok(()));
        caller.cancel();
        assert_eq!(permit.check(), Err(Stop::CallerGone));
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
