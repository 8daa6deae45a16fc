//! Rounds of steps: what may be done, and what is given back at the end.

use std::time::Duration;

use proto::{Advice, Fault, FaultKind};

use super::{Next, Run};
use crate::cloudstack::types::AddressId;
use crate::load_balancer::observation::{Need, Observation};
use crate::load_balancer::ownership::Survey;
use crate::load_balancer::plan::{Phase, Plan, Planned, Step, give_back};

/// When a wish is tried again that the cloud refused and for which an address was taken and given back.
const TRY_REFUSED_AGAIN: Duration = Duration::from_mins(30);
/// Rounds of giving back; more than it takes.
const MOST_GIVING_BACK: usize = 20;

impl Run<'_> {
    /// Does what is next in a plan.
    pub(super) async fn round(&mut self, plan: &Plan, seen: &mut Observation) -> Result<Next, Fault> {
        let allowed = self.allowed(plan);
        let plan = allowed.as_ref().unwrap_or(plan);
        let round: Vec<Planned> = plan.next_round().into_iter().cloned().collect();
        if round.is_empty() {
            return Err(Box::pin(self.give_up(seen)).await);
        }
        if let Some(address) = self.first_on_shared(&round, seen) {
            return self.satisfy(&[Need::Holders(address)], seen).await;
        }
        if is_taking(&round) && self.turns.associate.is_none() {
            // The turn was given on meanwhile; what others did since then decides, too.
            self.turns.take_to_associate(self.looker.api).await;
            return Ok(Next::Observe);
        }
        self.carry_out(round, seen).await
    }

    /// What may be done now: nothing that failed twice, and after that nothing that takes away what may still be needed.
    pub(super) fn allowed(&self, plan: &Plan) -> Option<Plan> {
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
    pub(super) fn first_on_shared(&self, round: &[Planned], seen: &Observation) -> Option<AddressId> {
        let Some(Planned {
            step: Step::CreateRule { rule, .. },
            ..
        }) = round.first()
        else {
            return None;
        };
        let survey = Survey::of(&self.request.identity, seen);
        let settled = seen.fresh.contains(&rule.address)
            || (self.turns.of(&rule.address).is_some() && seen.holders.contains_key(&rule.address))
            || survey.mine_on(&rule.address).next().is_some();
        (!settled).then(|| rule.address.clone())
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
            let round: Vec<Planned> = plan.next_round().into_iter().cloned().collect();
            let next = if !plan.needs.is_empty() {
                self.satisfy(&plan.needs, seen).await?
            } else if round.is_empty() || !self.failures.is_empty() {
                break;
            } else {
                self.carry_out(round, seen).await?
            };
            if matches!(next, Next::Observe) {
                *seen = self.observe().await?;
            }
        }
        Ok(())
    }
}

/// Whether a round takes an address.
fn is_taking(round: &[Planned]) -> bool {
    matches!(round.first(), Some(planned) if matches!(planned.step, Step::Associate { .. }))
}

/// What failed, by step and object.
pub(super) fn key(planned: &Planned) -> String {
    format!("{} {}", planned.step.action(), planned.step.object())
}
