//! After a pass: what is remembered of it, who is told what, and who is woken.
//!
//! An event is written only for what was not told before; a Service that waits is woken only when an address is free that
//! was not.

use std::collections::BTreeSet;

use runtime::clock;

use super::{Keepalived, Look, Memory};
use crate::events::{Kind, Reason, Subject};
use crate::keepalived::allocation::{Finding, Outcome, Plan};
use crate::keepalived::desk::Batch;
use crate::keepalived::notes::Note;
use crate::keepalived::ownership::Known;

impl Keepalived {
    pub(super) fn remember(&self, look: &Look, plan: &Plan) {
        *self.shared.known.lock() = Some(Known::of(&look.observed));
        self.shared.parts.meter.planned(plan);
        let mut waiting = self.shared.waiting.lock();
        let alive: BTreeSet<&str> = look
            .services
            .iter()
            .filter_map(|service| service.metadata.uid.as_deref())
            .collect();
        waiting.retain(|uid, _| alive.contains(uid.as_str()));
        for service in &look.services {
            let uid = service.metadata.uid.clone().unwrap_or_default();
            match plan.outcomes.get(&uid) {
                Some(Outcome::Refuse(note)) if note.reason.may_pass() => {
                    let meta = &service.metadata;
                    let name = (
                        meta.namespace.clone().unwrap_or_default(),
                        meta.name.clone().unwrap_or_default(),
                    );
                    waiting.insert(uid, name);
                }
                Some(_) => {
                    waiting.remove(&uid);
                }
                None => {}
            }
        }
        self.shared.parts.meter.waiting(waiting.len());
    }

    /// Writes events and log lines for what is news.
    pub(super) fn tell(&self, batch: &Batch, look: &Look, plan: &Plan, memory: &mut Memory) {
        for finding in &plan.findings {
            if let Finding::Repaired(key) = finding {
                memory.repairs.record(key, clock::now());
            }
        }
        let findings: BTreeSet<String> = plan.findings.iter().map(ToString::to_string).collect();
        for (finding, text) in plan.findings.iter().map(|finding| (finding, finding.to_string())) {
            if memory.findings.contains(&text) {
                continue;
            }
            if finding.is_usual() {
                tracing::info!("{text}");
            } else {
                tracing::warn!("{text}");
            }
        }
        memory.findings = findings;
        for service in &look.services {
            let uid = service.metadata.uid.as_deref().unwrap_or_default();
            let notes: BTreeSet<Note> = plan.notes.get(uid).into_iter().flatten().cloned().collect();
            let told = memory.told.entry(uid.to_owned()).or_default();
            for note in notes.difference(told) {
                let kind = if note.reason.is_warning() {
                    Kind::Warning
                } else {
                    Kind::Normal
                };
                let reason = Reason::told(kind, note.reason.word());
                self.shared.parts.events.publish(
                    &Subject::from(service.as_ref()),
                    &reason,
                    note.text.clone(),
                );
            }
            if batch.asked.contains(uid) {
                *told = notes;
            } else {
                told.extend(notes);
            }
        }
        let alive: BTreeSet<&str> = look
            .services
            .iter()
            .filter_map(|service| service.metadata.uid.as_deref())
            .collect();
        memory
            .told
            .retain(|uid, told| !told.is_empty() && alive.contains(uid.as_str()));
    }

    /// Services that wait are looked at again as soon as an address is free that was not.
    pub(super) fn wake_waiting(&self, plan: &Plan, memory: &mut Memory) {
        let is_freed = memory.taken.difference(&plan.taken).next().is_some();
        memory.taken.clone_from(&plan.taken);
        let Some(wake) = self.shared.wake.lock().clone().filter(|_| is_freed) else {
            return;
        };
        let waiting: Vec<(String, String)> = self.shared.waiting.lock().values().cloned().collect();
        for (namespace, name) in waiting {
            wake(&namespace, &name);
        }
    }
}
