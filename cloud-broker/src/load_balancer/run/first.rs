//! The first look of a call.
//!
//! Decides whether what the taking of an address needs is looked at together with the lists, which saves a round of calls where
//! one will be taken. A wrong guess costs two reads and changes nothing: the plan says what is done.

use proto::Fault;

use super::trust::Trust;
use super::{Goal, Need, Observation, Run};
use crate::cloudstack::types::ZoneId;
use crate::load_balancer::failure::unread;
use crate::load_balancer::ownership::Survey;
use crate::load_balancer::wish::Wish;

impl Run<'_> {
    /// Looks for the first time.
    pub(super) async fn first_look(&mut self) -> Result<Observation, Fault> {
        let needs = self.needs_of_taking();
        if needs.is_empty() {
            return self.observe().await;
        }
        self.turns.take_to_associate(self.looker.api).await;
        self.trust = Trust::Fresh;
        let ages = self.trust.ages(runtime::clock::now(), self.drift);
        let seen = self.looker.observe_with(&needs, &self.request.goal, ages).await;
        seen.map_err(unread)
    }

    /// What a Service that shows no address, asks for none and has no rule will want to know, if its zone is plain.
    fn needs_of_taking(&self) -> Vec<Need> {
        let Goal::Serve(wish) = &self.request.goal else {
            return Vec::new();
        };
        let is_plain =
            self.request.published.is_empty() && wish.requested.is_none() && wish.network.is_none();
        match self.zone(wish) {
            Some(zone) if is_plain && !self.has_rules() => vec![
                Need::Unsettled,
                Need::Free {
                    zone: Some(zone),
                    among: self.request.policy.allowed_addresses.clone(),
                },
            ],
            Some(_) | None => Vec::new(),
        }
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
        let (at, now) = (self.looker.server_time(), runtime::clock::now());
        let remembered = self.looker.board.observation(at, self.looker.features, now);
        let survey = Survey::of(&self.request.identity, &remembered);
        survey.mine().next().is_some()
    }
}
