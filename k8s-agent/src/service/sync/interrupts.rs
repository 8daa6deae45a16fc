//! Ends running orders whose Service is not what it was, so that a deletion does not wait for a wish that nobody has any more.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::service::fingerprint;
use crate::service::ledger::Key;
use crate::watch::Change;

/// Running orders.
#[derive(Clone, Debug, Default)]
pub struct Interrupts {
    running: Arc<Mutex<HashMap<Key, CancellationToken>>>,
}

/// A running order, until it is dropped.
pub(super) struct Running<'a> {
    interrupts: &'a Interrupts,
    key: &'a Key,
    pub(super) interrupted: CancellationToken,
}

impl Interrupts {
    /// Ends the running order of a Service if this change makes its wish another one.
    pub fn heard(&self, change: &Change<Service>) {
        let Some(old) = change.old.as_deref() else { return };
        if !is_other_wish(old, change.new.as_deref()) {
            return;
        }
        if let Some(running) = Key::of(old).and_then(|key| self.running.lock().get(&key).cloned()) {
            running.cancel();
        }
    }

    pub(super) fn enter<'a>(&'a self, key: &'a Key) -> Running<'a> {
        let interrupted = CancellationToken::new();
        self.running.lock().insert(key.clone(), interrupted.clone());
        Running {
            interrupts: self,
            key,
            interrupted,
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.interrupts.running.lock().remove(self.key);
    }
}

/// Whether a Service that changed wants something else.
pub(super) fn is_other_wish(old: &Service, new: Option<&Service>) -> bool {
    let Some(new) = new else { return true };
    old.metadata.deletion_timestamp.is_some() != new.metadata.deletion_timestamp.is_some()
        || fingerprint::of(old, &[]) != fingerprint::of(new, &[])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(port: u16, deleted: bool) -> Arc<Service> {
        let mut value = json!({
            "metadata": {"uid": "u1", "namespace": "default", "name": "web"},
            "spec": {"type": "LoadBalancer", "ports": [{"port": port}]},
        });
        if deleted {
            value["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn interrupted_by(change: &Change<Service>) -> bool {
        let interrupts = Interrupts::default();
        let key = Key {
            namespace: "default".to_owned(),
            name: "web".to_owned(),
        };
        let running = interrupts.enter(&key);
        interrupts.heard(change);
        running.interrupted.is_cancelled()
    }

    #[test]
    fn a_running_order_ends_with_its_wish() {
        let old = Some(service(80, false));
        assert!(interrupted_by(&Change {
            old: old.clone(),
            new: None
        }));
        assert!(interrupted_by(&Change {
            old: old.clone(),
            new: Some(service(80, true))
        }));
        assert!(interrupted_by(&Change {
            old: old.clone(),
            new: Some(service(81, false))
        }));
        assert!(!interrupted_by(&Change {
            old: old.clone(),
            new: old
        }));
    }

    #[test]
    fn an_order_that_is_over_is_not_remembered() {
        let interrupts = Interrupts::default();
        let key = Key {
            namespace: "default".to_owned(),
            name: "web".to_owned(),
        };
        drop(interrupts.enter(&key));
        assert!(interrupts.running.lock().is_empty());
    }
}
