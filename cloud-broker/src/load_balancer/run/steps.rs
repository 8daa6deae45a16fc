//! Steps under way: what begins beside them, and what one that succeeded or failed means.

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use proto::Fault;

use super::rounds::key;
use super::trust::stricter;
use super::{Next, Run};
use crate::cloudstack::ApiError;
use crate::load_balancer::apply::apply;
use crate::load_balancer::failure::{fault_of, is_not_allowed, is_refusal, judged_by_looking};
use crate::load_balancer::observation::{Change, Observation, Taken};
use crate::load_balancer::outcome::Note;
use crate::load_balancer::plan::{Answered, End, Planned, Step, plan};

impl<'c> Run<'c> {
    /// Carries steps out, and what may begin beside the rest once one of them is done. After a failure nothing more begins.
    pub(super) async fn carry_out(
        &mut self,
        round: Vec<Planned>,
        seen: &mut Observation,
    ) -> Result<Next, Fault> {
        self.permit.still_wanted()?;
        let mut under_way: FuturesUnordered<_> = round
            .into_iter()
            .map(|planned| self.begin(planned, seen))
            .collect();
        let mut next = Ok(Next::Plan);
        while let Some((planned, result)) = under_way.next().await {
            self.under_way.retain(|other| *other != planned);
            let after = match result {
                Ok(answered) => Ok(self.done(&planned, &answered, seen)),
                Err(error) => self.failed(&planned, &error, seen),
            };
            // What the others do is folded in, whatever became of this one; the first fault is what is told.
            next = match (next, after) {
                (Err(fault), _) | (Ok(_), Err(fault)) => Err(fault),
                (Ok(Next::Plan), Ok(after)) => Ok(after),
                (Ok(next), Ok(_)) => Ok(next),
            };
            if matches!(next, Ok(Next::Plan)) {
                match self.more(seen) {
                    Ok(more) => under_way.extend(more.into_iter().map(|planned| self.begin(planned, seen))),
                    Err(fault) => next = Err(fault),
                }
            }
        }
        next
    }

    /// Begins a step.
    fn begin(
        &mut self,
        planned: Planned,
        seen: &mut Observation,
    ) -> impl Future<Output = (Planned, Result<Answered, ApiError>)> + use<'c> {
        tracing::info!(
            step = planned.step.action(),
            object = planned.step.object(),
            reason = planned.reason,
            "step"
        );
        if let Step::Associate { address, .. } = &planned.step {
            self.looker.board.taking(address, self.taken());
        }
        if let Some(begun) = planned.step.begins(&self.request.identity, seen) {
            self.looker.board.changed(std::slice::from_ref(&begun));
            seen.apply(&begun);
        }
        self.under_way.push(planned.clone());
        let (api, turn) = (self.looker.api, self.turns.give(&planned.step));
        async move {
            let result = apply(api, turn, &planned.step).await;
            (planned, result)
        }
    }

    /// What may begin beside what is under way. Anything out of the ordinary is for the next round.
    fn more(&mut self, seen: &Observation) -> Result<Vec<Planned>, Fault> {
        if self.under_way.is_empty() {
            return Ok(Vec::new());
        }
        let plan = plan(self.request, seen);
        let now = runtime::clock::now();
        let is_ordinary = plan.needs.is_empty()
            && !matches!(plan.end, End::Refused(_))
            && stricter(&plan, &self.request.published, self.trust, now).is_none();
        if !is_ordinary {
            return Ok(Vec::new());
        }
        let plan = self.allowed(&plan).unwrap_or(plan);
        let more: Vec<Planned> = plan.next_beside(&self.under_way).into_iter().cloned().collect();
        if more.is_empty() || self.first_on_shared(&more, seen).is_some() {
            return Ok(Vec::new());
        }
        self.permit.still_wanted()?;
        Ok(more)
    }

    fn taken(&self) -> Taken {
        let identity = &self.request.identity;
        Taken {
            cluster: identity.uids.mark().to_owned(),
            service: identity.service.uid.to_string(),
            lately: true,
        }
    }

    /// Folds a step in that succeeded. If the answer does not say what its effect is, it is looked at.
    fn done(&mut self, planned: &Planned, answered: &Answered, seen: &mut Observation) -> Next {
        self.changes += 1;
        let changes = planned.step.effect(answered, seen);
        self.looker.board.changed(&changes);
        for change in &changes {
            seen.apply(change);
            if let Change::Members(rule, members) = change {
                self.looker.board.members_changed(rule, members, self.drift);
            }
        }
        if let Step::Associate { address, .. } = &planned.step {
            seen.fresh.insert(address.clone());
        }
        if let Step::Release { address, ip } = &planned.step {
            self.released.push(*ip);
            self.turns.release.retain(|turn| turn.address() != address);
        }
        if changes.is_empty() {
            self.look_again();
            return Next::Observe;
        }
        Next::Plan
    }

    /// What a failure means for the rest of the call.
    fn failed(&mut self, planned: &Planned, error: &ApiError, seen: &mut Observation) -> Result<Next, Fault> {
        let (step, object) = (planned.step.action(), planned.step.object());
        tracing::warn!(step, object, %error, detail = error.detail(), "step failed");
        self.look_again();
        if let Some(rule) = planned.step.rule() {
            self.looker.board.doubt_members(rule);
        }
        let fault = fault_of(&format!("{step} {object}"), error);
        match &planned.step {
            // A tag is more than is promised; one that stays says something wrong, unless the key can't help it.
            Step::Tag { .. } => {
                self.looker.features.may_tag = false;
                seen.features.may_tag = false;
                return Ok(Next::Observe);
            }
            Step::Untag { .. } if is_not_allowed(error) => {
                self.looker.features.may_untag = false;
                seen.features.may_untag = false;
                return Ok(Next::Observe);
            }
            Step::Associate { address, .. } => {
                self.looker.board.not_taken(address);
                if judged_by_looking(error) {
                    self.lost_associates += 1;
                    let note = Note::warning("AssociateFailed", fault.text);
                    if !self.notes.contains(&note) {
                        self.notes.push(note);
                    }
                    return Ok(Next::Observe);
                }
            }
            Step::CreateRule { .. } => self.rule_refused |= is_refusal(error),
            Step::UpdateRule { .. }
            | Step::DeleteRule { .. }
            | Step::Assign { .. }
            | Step::Remove { .. }
            | Step::OpenFirewall { .. }
            | Step::CloseFirewall { .. }
            | Step::AllowInAcl(_)
            | Step::DropFromAcl { .. }
            | Step::Untag { .. }
            | Step::Release { .. } => {}
        }
        if !judged_by_looking(error) {
            return Err(fault);
        }
        let key = key(planned);
        if self.failures.insert(key.clone(), fault).is_some() {
            self.blocked.insert(key);
        }
        Ok(Next::Observe)
    }
}
