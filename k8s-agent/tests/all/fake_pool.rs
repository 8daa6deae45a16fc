//! A second backend: gives every Service the next address of a pool, and remembers what it was asked.

use std::sync::Arc;

use k8s_agent::service::backend::{
    Answer, Backend, EnsureOrder, Holds, Outcome, Reached, RemoveOrder, Removed, Settled, Wake,
};
use k8s_openapi::api::core::v1::Service;
use parking_lot::Mutex;
use proto::Fault;

/// The pool. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct FakePool(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// UIDs with an address each.
    held: Vec<String>,
    asked: Vec<String>,
    wake: Option<Wake>,
    empty: bool,
    /// Its records are not read yet.
    unread: bool,
}

impl FakePool {
    /// What it was asked: `ensure NAME` and `remove NAME`.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.0.lock().asked.clone()
    }

    /// Has not read its records yet.
    pub(crate) fn forget(&self) {
        self.0.lock().unread = true;
    }

    /// Reads its records, and finds this UID there.
    pub(crate) fn read(&self, uid: &str) {
        let mut state = self.0.lock();
        state.unread = false;
        state.held.push(uid.to_owned());
    }

    /// Has no address to give any more, or has one again and wakes this Service.
    pub(crate) fn run_dry(&self) {
        self.0.lock().empty = true;
    }

    /// Has addresses again, and wakes the Service that waits.
    pub(crate) fn refill(&self, namespace: &str, name: &str) {
        let wake = {
            let mut state = self.0.lock();
            state.empty = false;
            state.wake.clone().unwrap()
        };
        wake(namespace, name);
    }
}

impl Backend for FakePool {
    async fn ensure(&self, order: EnsureOrder) -> Result<Answer<Settled>, Fault> {
        let mut state = self.0.lock();
        state.asked.push(format!("ensure {}", order.reference.name));
        if state.empty {
            return Err(Fault::invalid("POOL_EXHAUSTED", "", "no address is left"));
        }
        let place = state
            .held
            .iter()
            .position(|uid| *uid == order.reference.uid)
            .unwrap_or_else(|| {
                state.held.push(order.reference.uid.clone());
                state.held.len() - 1
            });
        let ingress = vec![Reached {
            ip: format!("198.51.100.{}", place + 1),
            proxy: false,
        }];
        let settled = Settled {
            ingress,
            changes: 1,
            ..Settled::default()
        };
        Ok(Answer {
            outcome: Outcome::Settled(settled),
            notes: Vec::new(),
        })
    }

    async fn remove(&self, order: RemoveOrder) -> Result<Answer<Removed>, Fault> {
        let mut state = self.0.lock();
        state.asked.push(format!("remove {}", order.reference.name));
        state.held.retain(|uid| *uid != order.reference.uid);
        Ok(Answer {
            outcome: Outcome::Settled(Removed {
                changes: 1,
                ..Removed::default()
            }),
            notes: Vec::new(),
        })
    }

    fn holds(&self, service: &Service) -> Holds {
        if self.0.lock().unread {
            Holds::Unknown
        } else if self.records(service) {
            Holds::Yes
        } else {
            Holds::No
        }
    }

    fn records(&self, service: &Service) -> bool {
        let state = self.0.lock();
        let uid = service.metadata.uid.as_ref();
        !state.unread && uid.is_some_and(|uid| state.held.contains(uid))
    }

    fn wake_with(&self, wake: Wake) {
        self.0.lock().wake = Some(wake);
    }
}
