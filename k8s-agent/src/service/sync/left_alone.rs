//! Services that are not touched: they are nothing to us, or the backend that has their address does not run here, or keepalived's records, which
//! may name them, are not read yet.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use runtime::clock;

use super::{CHOICE_RETRY, Look, Looked};
use crate::events::{REMINDER, Reason};
use crate::queue::Outcome;
use crate::service::backend::{Backend, BackendName, Holds};
use crate::service::intent::{self, Intent, Skip, has_finalizer, is_published};
use crate::service::ledger::Record;
use crate::service::status::{self, Trouble};

impl<C: Backend, K: Backend> Look<'_, C, K> {
    /// Its published address is of a backend that does not run here, or it asks for one: it stays, and clients with it. Somebody has to know,
    /// unless that backend runs in another process, which shows by putting the condition right.
    pub(super) async fn leave_to(&mut self, service: &Arc<Service>, backend: BackendName) -> Looked {
        let left = Looked {
            outcome: Outcome::Parked,
            again_after: Some(REMINDER),
        };
        if self.record.asked.is_some() {
            if let Err(unfinished) = self.end_what_was_begun(service).await {
                return unfinished;
            }
            if is_published(service) {
                // Whoever published an address in the middle of our work is there, and need not be told of.
                self.record.said_left = true;
                return left;
            }
        }
        if self.record.said_left && !status::is_unwell(service) {
            return left;
        }
        let text = if is_published(service) {
            format!(
                "its address is of backend {}, which this controller was not started with, so nothing is changed; start the controller with \
                 that backend, or delete the Service and create it again to move it",
                backend.word()
            )
        } else {
            format!(
                "it asks for backend {}, which this controller was not started with, so nothing is done; start the controller with that \
                 backend, or ask for another one",
                backend.word()
            )
        };
        if self.record.is_new_refusal(&text, clock::now()) {
            tracing::warn!(fault = %text, "left as it is");
            self.tell(service, &Reason::SYNC_LOAD_BALANCER_FAILED, text.clone());
        }
        let trouble = Trouble {
            reason: "BackendNotRunning".to_owned(),
            text,
        };
        self.show_trouble(service, &trouble).await;
        self.record.said_left = true;
        left
    }

    /// Another process serves, or is asked for: what this one began goes, so that nothing of it stays behind.
    async fn end_what_was_begun(&mut self, service: &Arc<Service>) -> Result<(), Looked> {
        if let Some(own) = self.record.backend {
            tracing::info!("another controller serves the Service, so what was begun is removed");
            self.leave(own, service).await?;
        }
        *self.record = self.record.ended();
        Ok(())
    }

    /// Whether another process published an address for the Service meanwhile.
    pub(super) fn was_overtaken(&self) -> bool {
        let present = self.syncer.services.get(&self.key.namespace, &self.key.name);
        present.is_some_and(|present| {
            let circumstances = self.circumstances(&present);
            matches!(
                intent::of(&present, &self.syncer.rules, circumstances),
                Intent::LeaveTo(_)
            )
        })
    }

    /// Whether the load balancer that ends is one that another process made. That one takes the finalizer off when it is done.
    pub(super) fn is_anothers_to_end(&mut self, service: &Service) -> bool {
        intent::served_by_another(service, self.syncer.rules.running).is_some()
            && self.record.asked.is_none()
            && !self.syncer.backends.keepalived_records(service)
            && !self.waited_too_long()
    }

    /// Maybe no such process is there any more: then the Service must not hang for ever.
    pub(super) fn let_another_end_it(&self) -> Looked {
        tracing::debug!("the load balancer is another controller's, which has its time to remove it");
        Outcome::After(CHOICE_RETRY.min(self.syncer.pace.patience)).into()
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
