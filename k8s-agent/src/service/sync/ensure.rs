//! A load balancer as its Service wants it: the backend is asked until it settles, then the Service shows it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Service;
use proto::v1::Wish;
use proto::{Fault, FaultKind, camel};
use runtime::clock;

use super::errand::Errand;
use super::interrupts::is_other_wish;
use super::writes::{Setback, now};
use super::{Look, Looked, reason_of, signature};
use crate::events::Reason;
use crate::queue::Outcome;
use crate::service::backend::{self, Answer, Backend, BackendName, EnsureOrder, Notice, Pending, Settled};
use crate::service::fingerprint::{Fingerprint, members_print, service_print};
use crate::service::intent::{self, Wanted};
use crate::service::ledger::{Served, Task, Valid, Why, next_look};
use crate::service::members::{Members, enumerate};
use crate::service::status::{self, Shown, Trouble};

/// Address changes that one look brings to their end; a backend that wants more gets them a little later.
const MOVES: usize = 3;
/// When such a backend is asked again.
const MOVE_RETRY: Duration = Duration::from_secs(5);

impl<C: Backend, K: Backend> Look<'_, C, K> {
    /// Brings the load balancer and what the Service shows to what is wanted.
    pub(super) async fn ensure(&mut self, service: Arc<Service>, wanted: Wanted) -> Looked {
        let print = service_print(&service);
        self.record.wanted(&wanted, print);
        let valid = Valid {
            wanted,
            service: print,
        };
        self.serve(service, valid, None).await
    }

    /// The same for what this Service wants or wanted last. `trouble` says why that is not all that it asks for now.
    pub(super) async fn serve(
        &mut self,
        service: Arc<Service>,
        valid: Valid,
        trouble: Option<Trouble>,
    ) -> Looked {
        let wanted = valid.wanted;
        // An address that is announced has no members, so a change of the nodes is nothing to it.
        let members = match wanted.backend {
            BackendName::Cloud => self.syncer.members(),
            BackendName::Keepalived => Members::default(),
        };
        let fingerprint = Fingerprint {
            service: valid.service,
            members: members_print(&members.wish),
        };
        let task = Task::Wish(fingerprint);
        if let Some(rests) = self.rests(&task) {
            return rests;
        }
        let due = self.record.due(fingerprint, clock::now());
        let looked = match due.or_else(|| self.is_contested(&service).then_some(Why::Drift)) {
            None => self.repair(service, trouble.as_ref()).await,
            Some(why) => {
                let errand = Errand {
                    wanted,
                    members,
                    fingerprint,
                    why,
                    trouble,
                };
                self.ensure_now(service, errand).await
            }
        };
        self.let_rest(task, looked);
        looked
    }

    async fn ensure_now(&mut self, service: Arc<Service>, errand: Errand) -> Looked {
        self.announce(&service, errand.why);
        self.record.asked = Some(Arc::clone(&service));
        let service = match self.write(Arc::clone(&service), status::claim(&service)).await {
            Ok(service) => service,
            Err(setback) => return self.set_back(&service, setback),
        };
        self.record.asked = Some(Arc::clone(&service));
        let chosen = errand.wanted.backend;
        if let Some(other) = self.record.other_backend(chosen)
            && let Err(unfinished) = self.leave(other, &service).await
        {
            return unfinished;
        }
        self.record.backend = Some(chosen);
        self.carry_out(service, &errand).await
    }

    /// Whether somebody else shows other addresses. Another controller may have made a load balancer of its own for this Service;
    /// then the backend has two, and says which one stays.
    fn is_contested(&mut self, service: &Service) -> bool {
        let Some(served) = &self.record.served else {
            return false;
        };
        let ours = served.shown.ingress.iter().map(|reached| reached.ip.as_str());
        let ours: BTreeSet<_> = ours.collect();
        let shown = intent::published(service, &self.record.behind_host_name);
        let theirs = shown.iter().any(|ip| !ours.contains(ip.as_str()));
        theirs && self.record.repair_pauses(clock::now()).is_none()
    }

    /// Nothing is to be done but to keep what the Service shows as it should be. No event, and no write if it is.
    async fn repair(&mut self, service: Arc<Service>, trouble: Option<&Trouble>) -> Looked {
        let Some(served) = &self.record.served else {
            return Outcome::Done.into();
        };
        let wait = served
            .next_look
            .map(|next| next.saturating_duration_since(clock::now()));
        let ip_modes = self.record.ip_modes(&served.shown.ingress);
        let patch = status::settled(&service, &served.shown, trouble, ip_modes, &now());
        if patch.is_some() {
            if let Some(pause) = self.record.repair_pauses(clock::now()) {
                let again_after = Some(wait.map_or(pause, |wait| wait.min(pause)));
                return Looked {
                    outcome: Outcome::Done,
                    again_after,
                };
            }
            tracing::info!("what the Service shows was changed by somebody, and is written again");
        }
        self.record.recovered();
        match self.write(Arc::clone(&service), patch).await {
            Ok(_) => Looked {
                outcome: Outcome::Done,
                again_after: wait,
            },
            Err(setback) => self.set_back(&service, setback),
        }
    }

    fn announce(&mut self, service: &Service, why: Why) {
        let news = match why {
            Why::First => !intent::has_finalizer(service),
            Why::Changed => true,
            Why::Nodes | Why::Drift => false,
        };
        if news && !self.record.work_announced {
            self.record.work_announced = true;
            self.tell(service, &Reason::ENSURING_LOAD_BALANCER, "ensuring load balancer");
        }
    }

    async fn carry_out(&mut self, mut service: Arc<Service>, errand: &Errand) -> Looked {
        for _ in 0..MOVES {
            let began = clock::now();
            self.record.doubt(began);
            let Some(answer) = self.ask(&service, errand).await else {
                return self.interrupted();
            };
            self.count("ensure", answer.as_ref().map(|answer| &answer.outcome), began);
            let (settled, notes) = match answer {
                Err(fault) => return self.failed(&service, errand, &fault).await,
                Ok(Answer {
                    outcome: backend::Outcome::Pending(pending),
                    notes,
                }) => {
                    return self.pending(&service, errand, &pending, notes).await;
                }
                Ok(Answer {
                    outcome: backend::Outcome::Settled(settled),
                    notes,
                }) => (settled, notes),
            };
            let shown = Shown {
                ingress: settled.ingress.clone(),
                hostname: errand.wanted.hostname.clone(),
                outputs: settled.outputs.clone().filter(|_| errand.wanted.writes_outputs),
                served_by: errand.wanted.record_backend.then_some(errand.wanted.backend),
            };
            service = match self.show(&service, &shown, errand.trouble.as_ref()).await {
                Ok(service) => service,
                Err(setback) => return self.set_back(&service, setback),
            };
            if settled.leaving.is_empty() {
                let changes = settled.changes;
                return self.settled(
                    &service,
                    errand,
                    Finding {
                        shown,
                        notes,
                        began,
                        changes,
                    },
                );
            }
            tracing::info!(leaving = %enumerate(&settled.leaving), "the new address is published, the old one may go");
        }
        Outcome::After(MOVE_RETRY).into()
    }

    /// The Service wants something else now, or this process does not lead any more.
    fn interrupted(&self) -> Looked {
        if self.syncer.leadership.may_write() {
            Outcome::After(Duration::ZERO).into()
        } else {
            Outcome::Done.into()
        }
    }

    /// One call. Nothing if the Service wants something else meanwhile.
    async fn ask(&self, service: &Arc<Service>, errand: &Errand) -> Option<Result<Answer<Settled>, Fault>> {
        let reference = intent::reference(service)?;
        let running = self.syncer.interrupts.enter(self.key);
        // A change that came before we listened for it.
        let present = self.syncer.services.get(&self.key.namespace, &self.key.name);
        if is_other_wish(service, present.as_deref()) {
            return None;
        }
        let order = EnsureOrder {
            service: Arc::clone(service),
            reference,
            wish: Wish {
                members: errand.members.wish.clone(),
                ..errand.wanted.wish.clone()
            },
            published: intent::published(service, &self.record.behind_host_name),
        };
        let asked = self.syncer.backends.ensure(errand.wanted.backend, order);
        tokio::select! {
            answer = self.syncer.leadership.hold(asked) => answer.ok().filter(|_| self.syncer.leadership.may_write()),
            () = running.interrupted.cancelled() => None,
        }
    }

    async fn show(
        &mut self,
        service: &Arc<Service>,
        shown: &Shown,
        trouble: Option<&Trouble>,
    ) -> Result<Arc<Service>, Setback> {
        let ip_modes = self.record.ip_modes(&shown.ingress);
        let patch = status::settled(service, shown, trouble, ip_modes, &now());
        let written = self.write(Arc::clone(service), patch).await?;
        self.record.behind_host_name = shown.ingress.iter().map(|reached| reached.ip.clone()).collect();
        if status::drops_ip_modes(&written, shown) {
            tracing::info!("kube-apiserver did not keep ipMode in the status of the Service, as before 1.30");
            self.record.saw_modes_dropped(&shown.ingress);
        }
        Ok(written)
    }

    fn settled(&mut self, service: &Service, errand: &Errand, found: Finding) -> Looked {
        let Finding {
            shown,
            notes,
            began,
            changes,
        } = found;
        let now = clock::now();
        let recovered = self.record.recovered();
        let news = self.record.news(errand.notices().chain(notes), now);
        self.tell_all(service, news);
        let addresses: Vec<_> = shown.ingress.iter().map(|reached| reached.ip.as_str()).collect();
        if changes > 0 || self.record.work_announced || recovered {
            tracing::info!(addresses = %enumerate(&addresses), changes, "the load balancer is as wanted");
        }
        if std::mem::take(&mut self.record.work_announced) || (changes > 0 && errand.why != Why::Nodes) {
            self.tell(service, &Reason::ENSURED_LOAD_BALANCER, "ensured load balancer");
        } else if changes > 0 {
            self.tell(
                service,
                &Reason::UPDATED_LOAD_BALANCER,
                "updated load balancer with new hosts",
            );
        }
        if errand.why == Why::Nodes {
            self.syncer.metrics.node_set_syncs.inc();
            let took = now.saturating_duration_since(began);
            self.syncer
                .metrics
                .host_update_seconds
                .observe(took.as_secs_f64());
        }
        let uid = service.metadata.uid.as_deref().unwrap_or_default();
        let next_look = next_look(self.syncer.drift_period(), uid, now);
        self.record.served = Some(Served {
            fingerprint: errand.fingerprint,
            shown,
            next_look,
        });
        Looked {
            outcome: Outcome::Done,
            again_after: next_look.map(|next| next.saturating_duration_since(now)),
        }
    }

    /// Waiting is no failure. Only where it lasts, and clients have no address yet, the status says what is waited for.
    async fn pending(
        &mut self,
        service: &Service,
        errand: &Errand,
        pending: &Pending,
        notes: Vec<Notice>,
    ) -> Looked {
        tracing::debug!(step = %pending.step, reason = %pending.reason, "the backend is at work");
        let news = self
            .record
            .news_meanwhile(errand.notices().chain(notes), clock::now());
        self.tell_all(service, news);
        if self.waited_too_long() {
            let trouble = Trouble {
                reason: camel(&pending.reason),
                text: pending.text.clone(),
            };
            self.show_trouble_if_new(service, &trouble).await;
        }
        Outcome::After(pending.retry_after).into()
    }

    async fn failed(&mut self, service: &Service, errand: &Errand, fault: &Fault) -> Looked {
        let unreachable = fault.kind == FaultKind::Unreachable;
        let new = self.record.is_new_fault(&signature(fault), clock::now());
        let text = match &fault.field {
            Some(field) => format!("{field}: {}", fault.text),
            None => fault.text.clone(),
        };
        let waits_for_it = !intent::is_published(service) || errand.why == Why::Changed;
        if new {
            tracing::warn!(fault = %text, kind = fault.kind.word(), reason = %fault.reason, "not as wanted");
        }
        // Everything that is served goes on while nobody answers; an event on each Service would help nobody.
        if new && (!unreachable || waits_for_it) {
            let reason = if errand.why == Why::Nodes {
                Reason::UPDATE_LOAD_BALANCER_FAILED
            } else {
                Reason::SYNC_LOAD_BALANCER_FAILED
            };
            self.tell(service, &reason, text.clone());
        }
        if errand.why == Why::Nodes {
            self.syncer.metrics.node_set_errors.inc();
        }
        let trouble = Trouble {
            reason: reason_of(fault),
            text,
        };
        // What is published serves on while somebody is away or busy.
        if unreachable || fault.kind == FaultKind::Busy {
            self.show_trouble_if_new(service, &trouble).await;
        } else {
            self.show_trouble(service, &trouble).await;
        }
        self.after(fault)
    }

    /// Counts a call by how it ended.
    pub(super) fn count<T>(
        &self,
        operation: &'static str,
        ended: Result<&backend::Outcome<T>, &Fault>,
        began: Instant,
    ) {
        let outcome = match ended {
            Ok(backend::Outcome::Settled(_)) => "settled",
            Ok(backend::Outcome::Pending(_)) => "pending",
            Err(fault) => fault.kind.word(),
        };
        let took = clock::now().saturating_duration_since(began);
        self.syncer.metrics.balancer_operation(operation, outcome, took);
    }
}

/// What came with a settled answer.
struct Finding {
    shown: Shown,
    notes: Vec<Notice>,
    began: Instant,
    changes: u32,
}
