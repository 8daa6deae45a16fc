//! Locks as the server takes them: who finds one taken sleeps a fixed time and tries again.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use uuid::Uuid;

/// What a lock is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum LockKey {
    /// A public address: creates of rules and firewall rules on it.
    Address(Uuid),
    /// An owner: associates.
    Owner(Uuid),
}

/// All locks that are taken.
#[derive(Debug, Clone, Default)]
pub(crate) struct Locks(Arc<Mutex<HashSet<LockKey>>>);

/// A lock that is held; free again when dropped.
#[derive(Debug)]
pub(crate) struct Held {
    locks: Locks,
    key: LockKey,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.locks.0.lock().remove(&self.key);
    }
}

impl Locks {
    /// Takes a lock; while it is taken, tries again after each `pause`.
    pub(crate) async fn take(&self, key: LockKey, pause: Duration) -> Held {
        while !self.0.lock().insert(key) {
            tokio::time::sleep(pause).await;
        }
        Held {
            locks: self.clone(),
            key,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_loser_waits_the_whole_pause_even_when_the_lock_is_free_earlier() {
        let locks = Locks::default();
        let key = LockKey::Address(Uuid::nil());
        let start = tokio::time::Instant::now();
        let held = locks.take(key, Duration::from_secs(5)).await;
        let other = locks.clone();
        let loser = async { other.take(key, Duration::from_secs(5)).await };
        let free = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            drop(held);
        };
        tokio::join!(loser, free);
        assert_eq!(start.elapsed().as_secs(), 5);
    }

    #[tokio::test]
    async fn locks_on_two_addresses_do_not_meet() {
        let locks = Locks::default();
        let one = locks
            .take(LockKey::Address(Uuid::from_u128(1)), Duration::MAX)
            .await;
        let two = locks
            .take(LockKey::Address(Uuid::from_u128(2)), Duration::MAX)
            .await;
        assert_ne!(one.key, two.key);
    }
}
