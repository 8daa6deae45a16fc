//! The first look of a call.
//!
//! Decides whether what the taking of an address needs is looked at together with the lists, which saves a round of calls where
//! one will be taken. A wrong guess costs the turn for a moment and two reads; the plan says what is done.

use proto::Fault;

use super::trust::Trust;
use super::{Goal, Observation, Run};
use crate::cloudstack::types::ZoneId;
use crate::load_balancer::failure::unread;
use crate::load_balancer::ownership::Survey;
use crate::load_balancer::wish::Wish;

impl Run<'_> {
    /// Looks for the first time.
    pub(super) async fn first_look(&mut self) -> Result<Observation, Fault> {
        let Some(zone) = self.will_take() else {
            return self.observe().await;
        };
        let goal = &self.request.goal;
        // A list of many machines takes long, and nobody else has to wait for it.
        let ages = Trust::Fresh.ages(runtime::clock::now(), self.drift);
        self.looker.machines(goal, ages).await.map_err(unread)?;
        self.turns.take_to_associate(self.looker.api).await;
        self.trust = Trust::Fresh;
        let ages = self.trust.ages(runtime::clock::now(), self.drift);
        self.looker
            .observe_to_take(&zone, goal, ages)
            .await
            .map_err(unread)
    }

    /// The zone, if the Service will take an address of any kind there: it shows none, asks for none and has no rule.
    fn will_take(&self) -> Option<ZoneId> {
        let Goal::Serve(wish) = &self.request.goal else {
            return None;
        };
        let is_plain = self.request.published.is_empty()
            && self.request.policy.allowed_addresses.is_all()
            && wish.requested.is_none()
            && wish.network.is_none();
        self.zone(wish).filter(|_| is_plain && !self.has_rules())
    }

    /// The zone of all machines that are to serve, as it was seen last.
    fn zone(&self, wish: &Wish) -> Option<ZoneId> {
        let known = self.looker.machines.newest(self.looker.api)?;
        let mut zones = wish
            .members
            .machines
            .keys()
            .map(|id| known.index.get(id)?.zone_id.clone());
        let first = zones.next()??;
        zones.all(|zone| zone.as_ref() == Some(&first)).then_some(first)
    }

    /// Whether it is remembered that rules are the Service's.
    fn has_rules(&self) -> bool {
        let ages = Trust::Memory.ages(runtime::clock::now(), self.drift);
        let (at, features) = (self.looker.server_time(), self.looker.features);
        let remembered = self
            .looker
            .board
            .observation(at, features, ages.oldest_membership);
        let survey = Survey::of(&self.request.identity, &remembered);
        survey.mine().next().is_some()
    }
}
