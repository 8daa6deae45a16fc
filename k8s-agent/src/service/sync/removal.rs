//! The end of a load balancer: every backend that may have it is asked, then the Service is let go.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use proto::{Fault, FaultKind, camel};
use runtime::clock;

use super::{Look, Looked, reason_of, signature, word};
use crate::events::{Kind, Reason};
use crate::queue::Outcome;
use crate::service::backend::{self, Backend, BackendName, Pending, RemoveOrder, Removed};
use crate::service::intent::{self, Ending, Removal};
use crate::service::ledger::{Record, Task};
use crate::service::members::enumerate;
use crate::service::status::{self, Trouble};

/// How trouble with an end is told.
struct Telling {
    /// Reason of the event.
    failed: Reason,
    /// The condition says it, too: the Service is there, and its status is ours.
    shows: bool,
}

impl From<Ending> for Telling {
    fn from(ending: Ending) -> Self {
        let failed = match ending {
            Ending::Vanished => Reason::DELETE_LOAD_BALANCER_FAILED,
            Ending::Deleted | Ending::TypeChanged | Ending::ClassChanged => Reason::SYNC_LOAD_BALANCER_FAILED,
        };
        let shows = matches!(ending, Ending::Deleted | Ending::TypeChanged);
        Self { failed, shows }
    }
}

impl<C: Backend, K: Backend> Look<'_, C, K> {
    /// Ends the load balancer of a Service that is there, and lets it go.
    pub(super) async fn remove(&mut self, service: &Arc<Service>, removal: Removal) -> Looked {
        let task = Task::End(removal.ending, Box::new(removal.order.clone()));
        if let Some(rests) = self.rests(&task) {
            return rests;
        }
        let looked = self.remove_now(service, removal).await;
        self.let_rest(task, looked);
        looked
    }

    async fn remove_now(&mut self, service: &Arc<Service>, removal: Removal) -> Looked {
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
        if let Some(removal) = intent::vanished(service, &self.syncer.rules, &self.record.behind_host_name) {
            let task = Task::End(removal.ending, Box::new(removal.order.clone()));
            if let Some(rests) = self.rests(&task) {
                return Some(rests);
            }
            if let Err(unfinished) = self.remove_everywhere(service, removal).await {
                self.let_rest(task, unfinished);
                return Some(unfinished);
            }
            self.tell(service, &Reason::DELETED_LOAD_BALANCER, "deleted load balancer");
        }
        *self.record = Record::default();
        None
    }

    async fn remove_everywhere(&mut self, service: &Arc<Service>, removal: Removal) -> Result<(), Looked> {
        let Removal { ending, order } = removal;
        self.record.begin_removal();
        if !self.record.removal_announced {
            self.record.removal_announced = true;
            tracing::info!(why = word(ending), "removes the load balancer");
            self.tell(service, &Reason::DELETING_LOAD_BALANCER, "deleting load balancer");
        }
        let telling = Telling::from(ending);
        // What the Service says of it counts only after a restart.
        let from_pool = self.record.backend.map_or_else(
            || intent::is_from_pool(service, self.syncer.rules.running),
            |backend| backend == BackendName::Keepalived,
        );
        for name in BackendName::ALL {
            let mut order = order.clone();
            if name == BackendName::Cloud && from_pool {
                // The cloud never sees a pool's address, and would wait for it to come into view.
                order.published.clear();
            }
            self.remove_from(name, service, order, &telling).await?;
        }
        self.record.recovered();
        Ok(())
    }

    /// Another backend is chosen than the one that was asked before; what that one began goes first.
    pub(super) async fn leave(&mut self, other: BackendName, service: &Arc<Service>) -> Result<(), Looked> {
        self.record.served = None;
        let behind = &self.record.behind_host_name;
        if let Some(Removal { order, .. }) = intent::vanished(service, &self.syncer.rules, behind) {
            tracing::info!(
                backend = other.word(),
                "another backend is chosen, so this one is left"
            );
            let telling = Telling {
                failed: Reason::SYNC_LOAD_BALANCER_FAILED,
                shows: true,
            };
            self.remove_from(other, service, order, &telling).await?;
        }
        self.record.backend = None;
        Ok(())
    }

    async fn remove_from(
        &mut self,
        name: BackendName,
        service: &Arc<Service>,
        order: RemoveOrder,
        telling: &Telling,
    ) -> Result<(), Looked> {
        let began = clock::now();
        let asked = self.syncer.backends.remove(name, service, order);
        let answer = self.syncer.leadership.hold(asked).await;
        let Some(answer) = answer.ok().filter(|_| self.syncer.leadership.may_write()) else {
            return Err(Outcome::Done.into());
        };
        let Some(answer) = answer else { return Ok(()) };
        self.count("delete", answer.as_ref().map(|answer| &answer.outcome), began);
        let answer = match answer {
            Ok(answer) => answer,
            Err(fault) => return Err(self.removal_failed(service, telling, &fault).await),
        };
        let news = self.record.news_meanwhile(answer.notes, clock::now());
        self.tell_all(service, news);
        match answer.outcome {
            backend::Outcome::Settled(removed) => {
                log_removed(name, &removed);
                Ok(())
            }
            backend::Outcome::Pending(pending) => {
                self.removal_waits(service, telling, &pending).await;
                Err(Outcome::After(pending.retry_after).into())
            }
        }
    }

    async fn removal_waits(&mut self, service: &Service, telling: &Telling, pending: &Pending) {
        tracing::debug!(step = %pending.step, reason = %pending.reason, "the removal goes on");
        if !self.waited_too_long() {
            return;
        }
        let trouble = Trouble {
            reason: camel(&pending.reason),
            text: format!("still waits: {}", pending.text),
        };
        if self.record.is_new_fault(&pending.text, clock::now()) {
            let reason = Reason::told(Kind::Normal, trouble.reason.clone());
            self.tell(service, &reason, trouble.text.clone());
        }
        self.show_end(service, telling, &trouble).await;
    }

    /// The Service keeps its finalizer. A broker that does not answer is mentioned only after a while: it may be starting.
    async fn removal_failed(&mut self, service: &Service, telling: &Telling, fault: &Fault) -> Looked {
        tracing::warn!(fault = %fault.text, reason = %reason_of(fault), "the load balancer could not be removed");
        let waited_too_long = self.waited_too_long();
        if fault.kind != FaultKind::Unreachable || waited_too_long {
            let trouble = Trouble {
                reason: reason_of(fault),
                text: format!("the load balancer can't be removed yet: {}", fault.text),
            };
            if self.record.is_new_fault(&signature(fault), clock::now()) {
                self.tell(service, &telling.failed, trouble.text.clone());
            }
            self.show_end(service, telling, &trouble).await;
        }
        self.after(fault)
    }

    /// Whoever looks at a Service that does not go should see why, also when its event is forgotten.
    async fn show_end(&mut self, service: &Service, telling: &Telling, trouble: &Trouble) {
        if telling.shows {
            self.show_trouble(service, trouble).await;
        }
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
