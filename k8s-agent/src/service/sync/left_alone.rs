//! Services that are not touched: they are nothing to us, or the backend that has their address does not run here, or keepalived's records, which
//! may name them, are not read yet.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use runtime::clock;

use super::{Look, Looked};
use crate::events::{REMINDER, Reason};
use crate::queue::Outcome;
use crate::service::backend::{Backend, BackendName, Holds};
use crate::service::intent::{Skip, has_finalizer};
use crate::service::ledger::Record;
use crate::service::status::{self, Trouble};

impl<C: Backend, K: Backend> Look<'_, C, K> {
    /// Its published address is of a backend that does not run here: it stays, and clients with it. Somebody has to know.
    pub(super) async fn leave_to(&mut self, service: &Service, backend: BackendName) -> Looked {
        let text = format!(
            "its address is of backend {}, which this controller was not started with, so nothing is changed; start the controller with \
             that backend, or delete the Service and create it again to move it",
            backend.word()
        );
        if self.record.is_new_refusal(&text, clock::now()) {
            tracing::warn!(fault = %text, "left as it is");
            self.tell(service, &Reason::SYNC_LOAD_BALANCER_FAILED, text.clone());
        }
        let trouble = Trouble {
            reason: "BackendNotRunning".to_owned(),
            text,
        };
        self.show_trouble(service, &trouble).await;
        Looked {
            outcome: Outcome::Parked,
            again_after: Some(REMINDER),
        }
    }

    /// A Service of another class with the finalizer may have left our class while nobody looked. Only keepalived's records tell, and they are
    /// not read yet; no change of the Service will bring it back here.
    pub(super) fn may_be_recorded(&self, service: &Service) -> bool {
        has_finalizer(service)
            && self.record.asked.is_none()
            && self.syncer.backends.keepalived_holds(service) == Holds::Unknown
    }

    /// Nothing to us, or nothing to us any more.
    pub(super) async fn skip(&mut self, service: Arc<Service>, why: Skip) -> Looked {
        tracing::trace!(?why, "left alone");
        // Somebody took the finalizer off before we were done.
        if self.record.asked.is_some()
            && let Some(unfinished) = self.remove_vanished(&service).await
        {
            return unfinished;
        }
        *self.record = Record::default();
        self.record.was_foreign = why == Skip::OtherClass;
        if why != Skip::NotALoadBalancer {
            return Outcome::Done.into();
        }
        // It was refused while it was a load balancer.
        match self
            .write(Arc::clone(&service), status::forgotten(&service))
            .await
        {
            Ok(_) => Outcome::Done.into(),
            Err(setback) => self.set_back(&service, setback),
        }
    }
}
