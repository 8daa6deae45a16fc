//! What must happen one after the other on an account.
//!
//! Decides which calls exclude each other. Facts: creates of rules and of firewall rules lock the address on the server,
//! associates lock the owner; whoever finds such a lock taken tries again only five seconds later. Releases are serial per
//! address for our own sake: who may release is decided by what is seen on the address. Of each tenant only one waits for the
//! turn to take an address, so that one with many Services does not keep the others of its account from their first.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use super::types::{AddressId, ProjectId};

/// A turn that ends when the last clone is dropped.
#[derive(Debug, Clone)]
pub(super) struct Guard {
    _held: Arc<OwnedMutexGuard<()>>,
}

/// The right to associate for one owner; nobody else on this account does so meanwhile.
#[derive(Debug, Clone)]
pub struct AssociateTurn(pub(super) Guard);

/// The right to release one address; nobody else on this account decides about it meanwhile.
#[derive(Debug, Clone)]
pub struct ReleaseTurn {
    pub(super) guard: Guard,
    address: AddressId,
}

impl ReleaseTurn {
    /// The address.
    pub fn address(&self) -> &AddressId {
        &self.address
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Associate(Option<ProjectId>),
    Gate(Arc<str>, Option<ProjectId>),
    Create(AddressId),
    Release(AddressId),
}

/// The locks of an account. First come, first served.
#[derive(Debug, Default)]
pub struct Locks(Mutex<HashMap<Key, Weak<tokio::sync::Mutex<()>>>>);

impl Locks {
    /// Waits for a tenant's turn to take an address for an owner: the project, or the account itself.
    pub async fn associating(&self, tenant: &Arc<str>, project: Option<&ProjectId>) -> AssociateTurn {
        let _foremost = self.turn(Key::Gate(Arc::clone(tenant), project.cloned())).await;
        AssociateTurn(self.turn(Key::Associate(project.cloned())).await)
    }

    /// Waits for the turn to decide about the release of an address.
    pub async fn releasing(&self, address: &AddressId) -> ReleaseTurn {
        let guard = self.turn(Key::Release(address.clone())).await;
        ReleaseTurn {
            guard,
            address: address.clone(),
        }
    }

    /// Waits for the turn to create something on an address.
    pub(super) async fn creating(&self, address: &AddressId) -> Guard {
        self.turn(Key::Create(address.clone())).await
    }

    async fn turn(&self, key: Key) -> Guard {
        let lock = {
            let mut locks = self.0.lock();
            locks.retain(|_, lock| lock.strong_count() > 0);
            let known = locks.get(&key).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let lock = Arc::new(tokio::sync::Mutex::new(()));
                locks.insert(key, Arc::downgrade(&lock));
                lock
            })
        };
        Guard {
            _held: Arc::new(lock.lock_owned().await),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn address(name: &str) -> AddressId {
        AddressId::parse(name).unwrap()
    }

    #[tokio::test]
    async fn one_address_has_one_turn_at_a_time_and_others_do_not_care() {
        let locks = Locks::default();
        let held = locks.creating(&address("a")).await;
        assert!(locks.creating(&address("a")).now_or_never().is_none());
        assert!(locks.creating(&address("b")).now_or_never().is_some());
        assert!(locks.releasing(&address("a")).now_or_never().is_some());
        drop(held);
        assert!(locks.creating(&address("a")).now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_turn_lasts_as_long_as_any_clone_of_it() {
        let locks = Locks::default();
        let tenant = Arc::from("t");
        let first = locks.associating(&tenant, None).await;
        let second = first.clone();
        drop(first);
        assert!(locks.associating(&tenant, None).now_or_never().is_none());
        let project = ProjectId::parse("p").unwrap();
        assert!(
            locks
                .associating(&tenant, Some(&project))
                .now_or_never()
                .is_some()
        );
        drop(second);
        assert!(locks.associating(&tenant, None).now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_tenant_with_many_waiting_lets_another_tenant_go_before_its_second() {
        let locks = Locks::default();
        let (many, few): (Arc<str>, Arc<str>) = (Arc::from("many"), Arc::from("few"));
        let held = locks.associating(&many, None).await;
        let order = Mutex::new(Vec::new());
        let take = async |tenant: &Arc<str>| {
            let turn = locks.associating(tenant, None).await;
            order.lock().push(tenant.to_string());
            tokio::task::yield_now().await;
            drop(turn);
        };
        futures::join!(take(&many), take(&many), take(&many), take(&few), async {
            drop(held);
        });
        assert_eq!(*order.lock(), ["many", "few", "many", "many"]);
    }

    #[tokio::test]
    async fn locks_that_nobody_holds_are_forgotten() {
        let locks = Locks::default();
        for number in 0..100 {
            drop(locks.creating(&address(&number.to_string())).await);
        }
        assert!(locks.0.lock().len() <= 1);
    }
}
