//! One writing call at a time for each Service.
//!
//! A second caller waits within its time and is then told to ask again. A Delete tells a running Ensure of the same balancer to stop
//! before its next step. The turn belongs to the work, not to the caller: it ends when the step at hand has ended.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;

use crate::tenant::ClusterName;

/// What a call wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Intent {
    /// Make the balancer serve.
    Ensure,
    /// Make it go.
    Delete,
}

/// The turns of all balancers.
#[derive(Default)]
pub(super) struct Slots(Mutex<HashMap<(ClusterName, String), Weak<Slot>>>);

#[derive(Default)]
struct Slot {
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Of the Ensure that has the turn.
    running: Mutex<CancellationToken>,
    /// Deletes that wait for their turn.
    deletes: AtomicUsize,
}

/// A Delete that waits for its turn.
struct Waiting(Arc<Slot>);

impl Waiting {
    fn new(slot: &Arc<Slot>) -> Self {
        slot.deletes.fetch_add(1, Ordering::SeqCst);
        slot.running.lock().cancel();
        Self(Arc::clone(slot))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.deletes.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The turn of one call; ends when dropped.
pub(super) struct Turn {
    _slot: Arc<Slot>,
    _guard: OwnedMutexGuard<()>,
    /// Cancelled when the balancer is to be deleted meanwhile.
    pub(super) deleted: CancellationToken,
}

impl Slots {
    /// Waits for the turn, at most so long.
    pub(super) async fn turn(
        &self,
        cluster: &ClusterName,
        service: &str,
        intent: Intent,
        wait: Duration,
    ) -> Option<Turn> {
        let slot = self.slot(cluster, service);
        let waiting = (intent == Intent::Delete).then(|| Waiting::new(&slot));
        let guard = tokio::time::timeout(wait, Arc::clone(&slot.turn).lock_owned())
            .await
            .ok()?;
        drop(waiting);
        let deleted = CancellationToken::new();
        if intent == Intent::Ensure {
            *slot.running.lock() = deleted.clone();
            // One that waits came later than this call, and wins nevertheless.
            if slot.deletes.load(Ordering::SeqCst) > 0 {
                deleted.cancel();
            }
        }
        Some(Turn {
            _slot: slot,
            _guard: guard,
            deleted,
        })
    }

    fn slot(&self, cluster: &ClusterName, service: &str) -> Arc<Slot> {
        let mut slots = self.0.lock();
        let key = (cluster.clone(), service.to_owned());
        if let Some(slot) = slots.get(&key).and_then(Weak::upgrade) {
            return slot;
        }
        slots.retain(|_, slot| slot.strong_count() > 0);
        let slot = Arc::new(Slot::default());
        slots.insert(key, Arc::downgrade(&slot));
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_second_call_of_a_service_waits_and_then_gives_up() {
        let (slots, cluster) = (Slots::default(), ClusterName::new("a"));
        let first = slots.turn(&cluster, "s", Intent::Ensure, LONG).await.unwrap();
        assert!(slots.turn(&cluster, "s", Intent::Ensure, SOON).await.is_none());
        assert!(slots.turn(&cluster, "t", Intent::Ensure, SOON).await.is_some());
        assert!(
            slots
                .turn(&ClusterName::new("b"), "s", Intent::Ensure, SOON)
                .await
                .is_some()
        );
        assert!(!first.deleted.is_cancelled());
        drop(first);
        assert!(slots.turn(&cluster, "s", Intent::Ensure, SOON).await.is_some());
    }

    #[tokio::test]
    async fn a_delete_tells_the_running_ensure_to_stop_and_then_has_its_turn() {
        let (slots, cluster) = (Arc::new(Slots::default()), ClusterName::new("a"));
        let ensure = slots.turn(&cluster, "s", Intent::Ensure, LONG).await.unwrap();
        let delete = slots.turn(&cluster, "s", Intent::Delete, LONG);
        let stopped = async {
            ensure.deleted.cancelled().await;
            drop(ensure);
        };
        let (delete, ()) = tokio::join!(delete, stopped);
        assert!(!delete.unwrap().deleted.is_cancelled());
    }

    #[tokio::test]
    async fn an_ensure_that_waits_in_front_of_a_delete_stops_as_well() {
        let (slots, cluster) = (Arc::new(Slots::default()), ClusterName::new("a"));
        let first = slots.turn(&cluster, "s", Intent::Ensure, LONG).await.unwrap();
        let second = async {
            let turn = slots.turn(&cluster, "s", Intent::Ensure, LONG).await.unwrap();
            turn.deleted.is_cancelled()
        };
        let delete = slots.turn(&cluster, "s", Intent::Delete, LONG);
        let release = async {
            first.deleted.cancelled().await;
            drop(first);
        };
        let (stopped, delete, ()) = tokio::join!(second, delete, release);
        assert!(stopped);
        assert!(delete.is_some());
    }

    #[tokio::test]
    async fn slots_that_nobody_uses_are_forgotten() {
        let (slots, cluster) = (Slots::default(), ClusterName::new("a"));
        for service in 0..100 {
            drop(
                slots
                    .turn(&cluster, &service.to_string(), Intent::Ensure, LONG)
                    .await,
            );
        }
        assert!(slots.0.lock().len() <= 2);
    }
}
