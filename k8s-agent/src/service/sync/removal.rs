//! The end of a load balancer: every backend that may have it is asked, then the Service is let go.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use proto::{Fault, FaultKind};
use runtime::clock;

use super::{Look, Looked, reason_of, word};
use crate::events::{Kind, Reason};
use crate::queue::Outcome;
use crate::service::backend::{self, Backend, BackendName, RemoveOrder, Removed};
use crate::service::intent::{self, Ending, Removal};
use crate::service::ledger::Record;
use crate::service::members::enumerate;
use crate::service::status;

impl<C: Backend, K: Backend> Look<'_, C, K> {
    /// Ends the load balancer of a Service that is there, and lets it go.
    pub(super) async fn remove(&mut self, service: &Arc<Service>, removal: Removal) -> Looked {
        let ending = removal.ending;
        if let Err(unfinished) = self.remove_everywhere(service, removal).await {
            return unfinished;
        }
        let patch = status::released(service, ending);
        match self.write(Arc::clone(service), patch).await {
            Ok(_) => {
                self.tell(service, &Reason::DELETED_LOAD_BALANCER, "deleted load balancer");
                *self.record = self.record.ended();
                Outcome::Done.into()
            }
            Err(setback) => self.set_back(service, setback),
        }
    }

    /// Ends the load balancer of a Service that vanished without its finalizer. Answers only if it is not done yet.
    pub(super) async fn remove_vanished(&mut self, service: &Arc<Service>) -> Option<Looked> {
        if let Some(removal) = intent::vanished(service, &self.syncer.rules) {
            if let Err(unfinished) = self.remove_everywhere(service, removal).await {
                return Some(unfinished);
            }
            self.tell(service, &Reason::DELETED_LOAD_BALANCER, "deleted load balancer");
        }
        *self.record = Record::default();
        None
    }

    async fn remove_everywhere(&mut self, service: &Arc<Service>, removal: Removal) -> Result<(), Looked> {
        let Removal { ending, order } = removal;
        if !self.record.removal_announced {
            self.record.removal_announced = true;
            tracing::info!(why = word(ending), "removes the load balancer");
            self.tell(service, &Reason::DELETING_LOAD_BALANCER, "deleting load balancer");
        }
        let failed = match ending {
            Ending::Vanished => Reason::DELETE_LOAD_BALANCER_FAILED,
            Ending::Deleted | Ending::TypeChanged | Ending::ClassChanged => Reason::SYNC_LOAD_BALANCER_FAILED,
        };
        let from_pool = intent::is_from_pool(service, self.syncer.rules.running);
        for name in BackendName::ALL {
            let mut order = order.clone();
            if name == BackendName::Cloud && from_pool {
                // The cloud never sees a pool's address, and would wait for it to come into view.
                order.published.clear();
            }
            self.remove_from(name, service, order, &failed).await?;
        }
        self.record.recovered();
        Ok(())
    }

    /// Another backend is chosen than the one that was asked before; what that one began goes first.
    pub(super) async fn leave(&mut self, other: BackendName, service: &Arc<Service>) -> Result<(), Looked> {
        if let Some(Removal { order, .. }) = intent::vanished(service, &self.syncer.rules) {
            tracing::info!(
                backend = other.word(),
                "another backend is chosen, so this one is left"
            );
            self.remove_from(other, service, order, &Reason::SYNC_LOAD_BALANCER_FAILED)
                .await?;
        }
        self.record.backend = None;
        Ok(())
    }

    async fn remove_from(
        &mut self,
        name: BackendName,
        service: &Arc<Service>,
        order: RemoveOrder,
        failed: &Reason,
    ) -> Result<(), Looked> {
        let began = clock::now();
        let asked = self.syncer.backends.remove(name, service, order);
        let answer = self.syncer.leadership.hold(asked).await;
        let Some(answer) = answer.ok().filter(|_| self.syncer.leadership.may_write()) else {
            return Err(Outcome::Done.into());
        };
        let Some(answer) = answer else { return Ok(()) };
        self.count("delete", answer.as_ref().map(|answer| &answer.outcome), began);
        let answer = answer.map_err(|fault| self.removal_failed(service, failed, &fault))?;
        let news = self.record.news_meanwhile(answer.notes);
        self.tell_all(service, news);
        match answer.outcome {
            backend::Outcome::Settled(removed) => {
                log_removed(name, &removed);
                Ok(())
            }
            backend::Outcome::Pending(pending) => {
                tracing::debug!(step = %pending.step, reason = %pending.reason, "the removal goes on");
                if self.waited_too_long() && self.record.is_new_fault(&pending.text) {
                    let reason = Reason::told(Kind::Normal, status::camel(&pending.reason));
                    self.tell(service, &reason, format!("still waits: {}", pending.text));
                }
                Err(Outcome::After(pending.retry_after).into())
            }
        }
    }

    /// The Service keeps its finalizer. A broker that does not answer is mentioned only after a while: it may be starting.
    fn removal_failed(&mut self, service: &Service, failed: &Reason, fault: &Fault) -> Looked {
        let waited_too_long = self.waited_too_long();
        if (fault.kind != FaultKind::Unreachable || waited_too_long) && self.record.is_new_fault(&fault.text)
        {
            let text = format!("the load balancer can't be removed yet: {}", fault.text);
            self.tell(service, failed, text);
        }
        tracing::warn!(fault = %fault.text, reason = %reason_of(fault), "the load balancer could not be removed");
        self.after(fault)
    }
}

fn log_removed(name: BackendName, removed: &Removed) {
    if removed.changes > 0 {
        tracing::info!(
            backend = name.word(),
            changes = removed.changes,
            released = %enumerate(&removed.released),
            kept = %enumerate(&removed.kept),
            "the load balancer is removed"
        );
    } else {
        tracing::debug!(backend = name.word(), "nothing was there to remove");
    }
}
