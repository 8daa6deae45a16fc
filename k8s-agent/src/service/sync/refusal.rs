//! Services that don't get what they ask for: refused as they are written, or waiting for a choice.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use runtime::clock;

use super::{CHOICE_RETRY, Look, Looked, Silent};
use crate::events::{REMINDER, Reason};
use crate::queue::Outcome;
use crate::service::backend::Backend;
use crate::service::fingerprint::service_print;
use crate::service::intent::{Refusal, is_published};
use crate::service::ledger::Valid;
use crate::service::status::Trouble;

impl<C: Backend, K: Backend> Look<'_, C, K> {
    /// A wish that can't be met as it is written. One event says why. Nothing is acquired; what serves already goes on with
    /// what can be read, and for the rest with what it wanted last, so that a mistake in one field does not keep new nodes out.
    pub(super) async fn refuse(&mut self, service: Arc<Service>, refusal: Refusal) -> Looked {
        let text = refusal.problems.to_string();
        if self.record.is_new_refusal(&text, clock::now()) {
            tracing::warn!(fault = %text, "refused");
            self.tell(&service, &Reason::SYNC_LOAD_BALANCER_FAILED, text.clone());
        }
        let trouble = Trouble {
            reason: "InvalidService".to_owned(),
            text,
        };
        let serves = is_published(&service) || self.record.served.is_some();
        let meanwhile = refusal.meanwhile.map(|wanted| Valid {
            wanted: *wanted,
            service: service_print(&service),
        });
        let valid = self
            .record
            .goes_on(meanwhile, &refusal.problems)
            .filter(|_| serves);
        let mut looked = if let Some(valid) = valid {
            self.record.valid = Some(valid.clone());
            self.serve(service, valid, Some(trouble)).await
        } else {
            self.show_trouble(&service, &trouble).await;
            Outcome::Parked.into()
        };
        let again_after = looked.again_after.unwrap_or(REMINDER);
        looked.again_after = Some(again_after.min(REMINDER));
        looked
    }

    /// It can't be said yet who serves it.
    pub(super) async fn wait(&mut self, service: &Service, why: &str) -> Looked {
        let now = clock::now();
        if self.record.is_new_fault(why, now) {
            tracing::info!(fault = %why, "waits");
        }
        self.unanswered(Silent::Broker);
        // Right after the start the broker has not been asked yet, which is no news.
        if self.record.waiting(now) >= CHOICE_RETRY {
            let trouble = Trouble {
                reason: "WaitingForBroker".to_owned(),
                text: why.to_owned(),
            };
            self.show_trouble_if_new(service, &trouble).await;
        }
        Outcome::After(CHOICE_RETRY).into()
    }
}
