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

    #[tokio::test]
    async fn a_lock_is_given_once_and_again_when_it_is_free() {
        let locks = Locks::default();
        let key = LockKey::Address(Uuid::nil());
        let held = locks.take(key, Duration::MAX).await;
        let pause = Duration::from_millis(1);
        assert!(
            tokio::time::timeout(20 * pause, locks.take(key, pause))
                .await
                .is_err()
        );
        drop(held);
        assert_eq!(locks.take(key, Duration::MAX).await.key, key);
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
