//! Rounds of steps: what may be done, what a step that succeeded or failed means, and what is given back at the end.

use std::time::Duration;

use futures::future::join_all;
use proto::{Advice, Fault, FaultKind};

use super::{Next, Run};
use crate::cloudstack::ApiError;
use crate::cloudstack::types::AddressId;
use crate::load_balancer::apply::apply;
use crate::load_balancer::failure::{fault_of, is_not_allowed, is_refusal, judged_by_looking};
use crate::load_balancer::observation::{Change, Need, Observation, Taken};
use crate::load_balancer::outcome::Note;
use crate::load_balancer::ownership::Survey;
use crate::load_balancer::plan::{Answered, Phase, Plan, Planned, Step, give_back};

/// When a wish is tried again that the cloud refused and for which an address was taken and given back.
const TRY_REFUSED_AGAIN: Duration = Duration::from_mins(30);
/// Rounds of giving back; more than it takes.
const MOST_GIVING_BACK: usize = 20;

impl Run<'_> {
    /// Does what is next in a plan.
    pub(super) async fn round(&mut self, plan: &Plan, seen: &mut Observation) -> Result<Next, Fault> {
        let allowed = self.allowed(plan);
        let plan = allowed.as_ref().unwrap_or(plan);
        let round = plan.next_round().to_vec();
        if round.is_empty() {
            return Err(Box::pin(self.give_up(seen)).await);
        }
        if let Some(address) = self.first_on_shared(&round, seen) {
            return self.satisfy(&[Need::Holders(address)], seen).await;
        }
        self.carry_out(&round, seen).await
    }

    /// What may be done now: nothing that failed twice, and after that nothing that takes away what may still be needed.
    fn allowed(&self, plan: &Plan) -> Option<Plan> {
        if self.blocked.is_empty() {
            return None;
        }
        let may =
            |planned: &&Planned| !self.blocked.contains(&key(planned)) && planned.phase <= Phase::Assign;
        Some(Plan {
            steps: plan.steps.iter().filter(may).cloned().collect(),
            ..Plan::default()
        })
    }

    /// The address, if the round makes our first rule on one that others may just be leaving.
    fn first_on_shared(&self, round: &[Planned], seen: &Observation) -> Option<AddressId> {
        let Some(Planned {
            step: Step::CreateRule { rule, .. },
            ..
        }) = round.first()
        else {
            return None;
        };
        let survey = Survey::of(&self.request.identity, seen);
        let settled = seen.fresh.contains(&rule.address)
            || self.turns.of(&rule.address).is_some()
            || survey.mine_on(&rule.address).next().is_some();
        (!settled).then(|| rule.address.clone())
    }

    async fn carry_out(&mut self, round: &[Planned], seen: &mut Observation) -> Result<Next, Fault> {
        self.permit.still_wanted()?;
        self.under_way = round.to_vec();
        for planned in round {
            if let Step::Associate { address, .. } = &planned.step {
                self.looker.board.taking(address, self.taken());
            }
            if let Some(begun) = planned.step.begins(&self.request.identity, seen) {
                self.looker.board.changed(std::slice::from_ref(&begun));
                seen.apply(&begun);
            }
        }
        let results = join_all(round.iter().map(|planned| {
            tracing::info!(
                step = planned.step.action(),
                object = planned.step.object(),
                reason = planned.reason,
                "step"
            );
            apply(self.looker.api, &self.turns, &planned.step)
        }))
        .await;
        self.under_way.clear();
        let mut next = Next::Plan;
        for (planned, result) in round.iter().zip(results) {
            match result {
                Ok(answered) => {
                    if !self.done(planned, &answered, seen) {
                        self.look_again();
                        next = Next::Observe;
                    }
                }
                Err(error) => {
                    self.failed(planned, &error, seen)?;
                    next = Next::Observe;
                }
            }
        }
        Ok(next)
    }

    fn taken(&self) -> Taken {
        let identity = &self.request.identity;
        Taken {
            cluster: identity.uids.mark().to_owned(),
            service: identity.service.uid.to_string(),
            lately: true,
        }
    }

    /// Folds a step in that succeeded; tells whether its effect is known.
    fn done(&mut self, planned: &Planned, answered: &Answered, seen: &mut Observation) -> bool {
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
        !changes.is_empty()
    }

    /// What a failure means for the rest of the call.
    fn failed(&mut self, planned: &Planned, error: &ApiError, seen: &mut Observation) -> Result<(), Fault> {
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
                return Ok(());
            }
            Step::Untag { .. } if is_not_allowed(error) => {
                self.looker.features.may_untag = false;
                seen.features.may_untag = false;
                return Ok(());
            }
            Step::Associate { address, .. } => {
                self.looker.board.not_taken(address);
                if judged_by_looking(error) {
                    self.lost_associates += 1;
                    let note = Note::warning("AssociateFailed", fault.text);
                    if !self.notes.contains(&note) {
                        self.notes.push(note);
                    }
                    return Ok(());
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
        Ok(())
    }

    /// Why the call can't go on. A wish that the cloud refuses costs no address: one that was taken for it and never got a rule
    /// is given back first, since nobody was ever sent there, and its job proves it for a day only.
    async fn give_up(&mut self, seen: &mut Observation) -> Fault {
        let first = self.blocked.iter().find_map(|key| self.failures.get(key));
        let fault = first
            .cloned()
            .unwrap_or_else(|| Fault::new(FaultKind::Internal, "STEP_FAILED", "a step failed"));
        if !self.rule_refused {
            return fault;
        }
        let before = self.released.len();
        if let Err(error) = self.give_back(seen).await {
            tracing::warn!(%error, "what was taken for a refused wish is not given back yet");
        }
        if self.released.len() == before {
            return fault;
        }
        fault.with_advice(Advice::After(TRY_REFUSED_AGAIN))
    }

    async fn give_back(&mut self, seen: &mut Observation) -> Result<(), Fault> {
        self.failures.clear();
        for _ in 0..MOST_GIVING_BACK {
            let plan = give_back(self.request, seen);
            let next = if !plan.needs.is_empty() {
                self.satisfy(&plan.needs, seen).await?
            } else if plan.next_round().is_empty() || !self.failures.is_empty() {
                break;
            } else {
                self.carry_out(plan.next_round(), seen).await?
            };
            if matches!(next, Next::Observe) {
                *seen = self.observe().await?;
            }
        }
        Ok(())
    }
}

/// What failed, by step and object.
fn key(planned: &Planned) -> String {
    format!("{} {}", planned.step.action(), planned.step.object())
}
