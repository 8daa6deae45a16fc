//! Looking: answers what a plan needs, and never writes.

mod found;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;

use super::board::{Board, Part, Unread};
use super::failure::is_not_allowed;
use super::features::Features;
use super::free::{LastLook, Places};
use super::network::{Filter, filter};
use super::observation::{Change, Holders, JobView, Need, Observation};
use super::plan::Goal;
use crate::cloudstack::types::{
    AddressId, AddressState, Fields, Job, JobId, MachineId, PublicIpAddress, Timestamp, ZoneId,
};
use crate::cloudstack::{AddressQuery, Api, ApiError, JobFate, Outcome as _, RuleQuery};
use crate::instances::MachineLists;
use crate::tenant::AllowedAddresses;
use found::{Found, OnAddress};

/// How old lists may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ages {
    /// Lists and memberships that began to be read before this are read again.
    pub(super) oldest: Instant,
    /// Memberships.
    pub(super) oldest_membership: Instant,
    /// The machine list.
    pub(super) machines: Duration,
}

/// Looks for one call.
pub(super) struct Looker<'c> {
    pub(super) api: &'c Api,
    pub(super) board: &'c Board,
    pub(super) machines: &'c Arc<MachineLists>,
    pub(super) places: &'c Places,
    pub(super) last_look: LastLook,
    /// Whether the machines of a rule tell whose it is.
    pub(super) needs_machines: bool,
    pub(super) features: Features,
}

impl Looker<'_> {
    /// The server's time.
    pub(super) fn server_time(&self) -> Timestamp {
        let here = Timestamp::from(runtime::clock::wall());
        Timestamp::from_seconds(here.seconds().saturating_add(self.api.account().clock_offset()))
    }

    /// What every plan needs.
    pub(super) async fn observe(&self, goal: &Goal, ages: Ages) -> Result<Observation, Unread> {
        let (lists, machines) = futures::join!(self.observe_lists(ages), self.machines(goal, ages));
        let (mut observation, machines) = (lists?, machines?);
        observation.machines = machines
            .into_iter()
            .map(|machine| (machine.id.clone(), machine))
            .collect();
        Ok(observation)
    }

    /// The same, and meanwhile what a plan needs that takes any address of a zone. What can't be read of that is left to the plan.
    pub(super) async fn observe_to_take(
        &self,
        zone: &ZoneId,
        goal: &Goal,
        ages: Ages,
    ) -> Result<Observation, Unread> {
        let any = AllowedAddresses::default();
        let (unsettled, free, networks, rules) = futures::join!(
            self.unsettled_first(goal),
            self.free(Some(zone), &any),
            self.board.read(self.api, &Part::Networks, ages.oldest_membership),
            self.board.read(self.api, &Part::Rules, ages.oldest),
        );
        networks?;
        rules?;
        let mut seen = self.observe(goal, ages).await?;
        seen.unsettled = unsettled.ok();
        seen.free = free.ok();
        Ok(seen)
    }

    /// Addresses on their way, and then the list of those that have arrived.
    async fn unsettled_first(&self, goal: &Goal) -> Result<Vec<PublicIpAddress>, Unread> {
        let unsettled = self.unsettled(goal).await?;
        let now = runtime::clock::now();
        self.board.read(self.api, &Part::Addresses, now).await?;
        Ok(unsettled)
    }

    /// The lists that balancers share.
    pub(super) async fn observe_lists(&self, ages: Ages) -> Result<Observation, Unread> {
        // Networks change seldom, and what they can do hardly ever.
        let parts = [
            (Part::Networks, ages.oldest_membership),
            (Part::Rules, ages.oldest),
            (Part::Addresses, ages.oldest),
        ];
        try_join_all(
            parts
                .iter()
                .map(|(part, oldest)| self.board.read(self.api, part, *oldest)),
        )
        .await?;
        let mut observation =
            self.board
                .observation(self.server_time(), self.features, ages.oldest_membership);
        observation.firewall_read &= self.board.has(&Part::Firewall, ages.oldest);
        observation.acl_read &= self.board.has(&Part::AllAcl, ages.oldest);
        let all_acl = observation.acl_read;
        observation
            .acl
            .retain(|list, _| all_acl || self.board.has(&Part::Acl(list.clone()), ages.oldest));
        Ok(observation)
    }

    /// The machines, read again once if one of the wish is not among them.
    pub(super) async fn machines(
        &self,
        goal: &Goal,
        ages: Ages,
    ) -> Result<Vec<crate::cloudstack::types::Machine>, Unread> {
        let wanted: Vec<&MachineId> = match goal {
            Goal::Serve(wish) => wish.members.machines.keys().collect(),
            Goal::Leave(_) if self.needs_machines => Vec::new(),
            Goal::Leave(_) => {
                return Ok(self
                    .machines
                    .newest(self.api)
                    .map(|list| list.index.machines().to_vec())
                    .unwrap_or_default());
            }
        };
        let arrived = runtime::clock::now();
        let mut list = self
            .machines
            .within(self.api, ages.machines)
            .await
            .map_err(|unread| unread.error)?;
        let missing = wanted.into_iter().filter(|id| list.index.get(id).is_none());
        if self.board.unseen(missing) && list.began < arrived {
            list = self
                .machines
                .since(self.api, arrived)
                .await
                .map_err(|unread| unread.error)?;
        }
        Ok(list.index.machines().to_vec())
    }

    /// Answers what the plan needs.
    pub(super) async fn satisfy(
        &self,
        needs: &[Need],
        goal: &Goal,
        ages: Ages,
        observation: &mut Observation,
    ) -> Result<(), Unread> {
        let mut later = Vec::new();
        for need in needs {
            match need {
                Need::SecondLook => self.look_again(observation).await?,
                Need::Firewall => {
                    self.board.read(self.api, &Part::Firewall, ages.oldest).await?;
                    let known =
                        self.board
                            .observation(observation.now, self.features, ages.oldest_membership);
                    observation.firewall = known.firewall;
                    observation.firewall_read = true;
                }
                Need::Acl(list) => {
                    self.board
                        .read(self.api, &Part::Acl(list.clone()), ages.oldest)
                        .await?;
                    let mut known =
                        self.board
                            .observation(observation.now, self.features, ages.oldest_membership);
                    observation
                        .acl
                        .insert(list.clone(), known.acl.remove(list).unwrap_or_default());
                }
                Need::AllAcl => self.all_acl(ages, observation).await?,
                Need::Members(_)
                | Need::Address(_)
                | Need::Unsettled
                | Need::Free { .. }
                | Need::Digits(_)
                | Need::Job(_)
                | Need::Holders(_) => later.push(self.one(need, goal)),
            }
        }
        for found in try_join_all(later).await? {
            found.put(observation);
        }
        if needs.contains(&Need::Unsettled) && matches!(goal, Goal::Serve(_)) {
            self.settled(observation).await?;
        }
        Ok(())
    }

    /// Addresses that have arrived, read after those on their way: one that arrives in between is in both lists, not in neither.
    async fn settled(&self, observation: &mut Observation) -> Result<(), Unread> {
        let now = runtime::clock::now();
        self.board.read(self.api, &Part::Addresses, now).await?;
        let known = self.board.observation(observation.now, self.features, now);
        observation.addresses = known.addresses;
        Ok(())
    }

    /// A key that may not ask has made no item: each is looked for before it is made. Where a tier has a list for them that key
    /// may have been another one.
    async fn all_acl(&self, ages: Ages, observation: &mut Observation) -> Result<(), Unread> {
        match self.board.read(self.api, &Part::AllAcl, ages.oldest).await {
            Ok(()) => {
                let known = self
                    .board
                    .observation(observation.now, self.features, ages.oldest_membership);
                observation.acl = known.acl;
            }
            Err(Unread::Api(error)) if is_not_allowed(&error) && !has_acl_list(observation) => {
                observation.acl.clear();
            }
            Err(unread) => return Err(unread),
        }
        observation.acl_read = true;
        Ok(())
    }

    async fn look_again(&self, observation: &mut Observation) -> Result<(), Unread> {
        let now = runtime::clock::now();
        futures::try_join!(
            self.board.read(self.api, &Part::Rules, now),
            self.board.read(self.api, &Part::Addresses, now)
        )?;
        let known = self.board.observation(observation.now, self.features, now);
        observation.rules = known.rules;
        observation.addresses = known.addresses;
        observation.looks += 1;
        Ok(())
    }

    async fn one(&self, need: &Need, goal: &Goal) -> Result<Found, Unread> {
        Ok(match need {
            Need::Members(rule) => {
                let read_at = runtime::clock::now();
                if let Some(machines) = self.api.rule_members(rule).await? {
                    let members: BTreeSet<_> = machines.into_iter().map(|machine| machine.id).collect();
                    self.board.members(rule, &members, read_at);
                    Found::Members(rule.clone(), members)
                } else {
                    self.board.changed(&[Change::RuleGone(rule.clone())]);
                    Found::RuleGone(rule.clone())
                }
            }
            Need::Address(id) => {
                let found = self.api.find_address(id).await?;
                self.board.looked_at(id, found.as_ref());
                if found
                    .as_ref()
                    .is_some_and(|address| address.state == AddressState::Free)
                {
                    self.board.changed(&[Change::AddressGone(id.clone())]);
                }
                Found::Address(id.clone(), found)
            }
            Need::Unsettled => Found::Unsettled(self.unsettled(goal).await?),
            Need::Free { zone, among } => Found::Free(self.free(zone.as_ref(), among).await?),
            Need::Digits(ip) => {
                let list = self.api.addresses(&AddressQuery::Ip(*ip)).await?.into_items();
                Found::Digits(*ip, list.into_iter().find(|address| address.ip == *ip))
            }
            Need::Job(id) => Found::Job(id.clone(), self.job(id).await?),
            Need::Holders(id) => self.holders(id).await?,
            Need::SecondLook | Need::Firewall | Need::Acl(_) | Need::AllAcl => Found::Nothing,
        })
    }

    /// Addresses that are being taken; for an end also those that are being released.
    async fn unsettled(&self, goal: &Goal) -> Result<Vec<PublicIpAddress>, ApiError> {
        let mut list = self.api.addresses(&AddressQuery::Allocating).await?.into_items();
        if matches!(goal, Goal::Leave(_)) {
            list.extend(self.api.addresses(&AddressQuery::Releasing).await?.into_items());
        }
        Ok(list)
    }

    async fn job(&self, id: &JobId) -> Result<JobView, ApiError> {
        Ok(match self.api.job(id).await? {
            JobFate::Pending(_) => JobView::Running,
            JobFate::Succeeded(job) => JobView::Succeeded {
                address: job
                    .instance_id
                    .as_deref()
                    .and_then(|id| AddressId::parse(id).ok()),
                allocated: allocated(&job),
            },
            JobFate::Failed(job) => JobView::Failed(error_text(&job)),
            // An id that somebody else used is used up.
            JobFate::Foreign => JobView::Failed("its id was used by another account".to_owned()),
            JobFate::Unknown => JobView::Unknown,
        })
    }

    /// Everything that is on an address, as it is now.
    async fn holders(&self, id: &AddressId) -> Result<Found, Unread> {
        let optional = |result: Result<usize, ApiError>| match result {
            Ok(count) => Ok(Some(count)),
            // The keys are good, or nothing would be known by now.
            Err(error) if is_not_allowed(&error) || matches!(error, ApiError::Gone(_)) => Ok(None),
            Err(error) => Err(error),
        };
        let on_address = RuleQuery::OnAddress(id.clone());
        let (rules, address, forwarding, vpns) = futures::join!(
            self.api.rules(&on_address),
            self.api.find_address(id),
            self.api.port_forwarding_rules(id),
            self.api.remote_access_vpns(id),
        );
        let address = address?;
        self.board.looked_at(id, address.as_ref());
        let rules = match rules {
            Ok(rules) if rules.is_complete() => rules.into_items(),
            Ok(_) => return Err(Unread::Restless("the list of rules of an address")),
            Err(ApiError::Gone(_)) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        Ok(Found::Holders(Box::new(OnAddress {
            id: id.clone(),
            address,
            rules,
            holders: Holders {
                port_forwarding: optional(forwarding.map(|list| list.items().len()))?,
                vpns: optional(vpns.map(|list| list.items().len()))?,
            },
        })))
    }
}

fn has_acl_list(observation: &Observation) -> bool {
    let mut networks = observation.networks.iter();
    networks.any(|network| matches!(filter(network), Filter::Acl(_)))
}

/// When the result of an associate says that the address was taken.
fn allocated(job: &Job) -> Option<Timestamp> {
    let result = PublicIpAddress::of(job).and_then(|address| address.allocated);
    result.or_else(|| Fields::of(job.result.as_ref()?).time("allocated"))
}

/// What a job that failed says.
fn error_text(job: &Job) -> String {
    let text = job
        .result
        .as_ref()
        .and_then(|result| Fields::of(result).text("errortext"));
    text.unwrap_or_else(|| "it gave no reason".to_owned())
}
