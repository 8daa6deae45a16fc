//! One call: look, plan, carry out, until it is settled, nothing can be done, or time is up.
//!
//! Decides when lists are read again and what a failed step means. A step that failed is judged by looking again, never by the
//! server's text; one that fails again holds back whatever depends on it. Whoever stops this at any point leaves a state that
//! the next call goes on from.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use futures::future::join_all;
use proto::{Fault, FaultKind};

use super::Permit;
use super::apply::{Turns, apply};
use super::failure::{fault_of, judged_by_looking, unread};
use super::look::{Ages, Looker};
use super::observation::{Change, Need, Observation};
use super::outcome::{Note, Served, Wait};
use super::ownership::Survey;
use super::plan::{Answered, End, Goal, Phase, Plan, Planned, Request, Step, plan};
use crate::cloudstack::types::{AddressId, JobId};
use crate::cloudstack::{ApiError, Command};

/// How old a list may be that something is planned on.
pub(super) const FRESH: Duration = Duration::from_secs(5);
/// How old the machine list may be.
pub(super) const MACHINES: Duration = Duration::from_mins(1);
/// Rounds of one call; more than any sensible plan has.
pub(super) const MOST_ROUNDS: usize = 2000;

/// How a call ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// The balancer serves.
    Served(Box<Served>),
    /// The balancer is gone.
    Departed,
    /// Not yet.
    Pending(Wait),
}

/// One call.
pub(super) struct Run<'c> {
    looker: Looker<'c>,
    request: &'c Request,
    permit: &'c dyn Permit,
    drift: Duration,
    turns: Turns,
    /// Lists have to be younger than this.
    not_before: Option<Instant>,
    lost_associates: u32,
    failures: BTreeMap<String, Fault>,
    blocked: BTreeSet<String>,
    under_way: Vec<Planned>,
    /// What was done and seen.
    pub(super) notes: Vec<Note>,
    pub(super) changes: u32,
    pub(super) released: Vec<IpAddr>,
    pub(super) kept: Vec<IpAddr>,
}

/// What comes after a round.
enum Next {
    Plan,
    Observe,
}

impl<'c> Run<'c> {
    pub(super) fn new(
        looker: Looker<'c>,
        request: &'c Request,
        permit: &'c dyn Permit,
        drift: Duration,
    ) -> Self {
        Self {
            looker,
            request,
            permit,
            drift,
            turns: Turns::default(),
            not_before: None,
            lost_associates: 0,
            failures: BTreeMap::new(),
            blocked: BTreeSet::new(),
            under_way: Vec::new(),
            notes: Vec::new(),
            changes: 0,
            released: Vec::new(),
            kept: Vec::new(),
        }
    }

    /// Goes on until the end or the deadline.
    pub(super) async fn until(&mut self, deadline: Instant) -> Result<Ended, Fault> {
        if let Ok(ended) = tokio::time::timeout_at(deadline.into(), self.go()).await {
            return ended;
        }
        let step = self
            .under_way
            .first()
            .map(|planned| planned.step.action())
            .unwrap_or_default();
        let (reason, text) = match self.under_way.first() {
            Some(planned) => (
                "JOB_RUNNING",
                format!(
                    "{} {} has been started and not ended",
                    step,
                    planned.step.object()
                ),
            ),
            None => (
                "TIME_UP",
                "the time of the call is up; nothing was left half done".to_owned(),
            ),
        };
        Ok(Ended::Pending(Wait {
            retry_after: Duration::ZERO,
            step: step.to_owned(),
            reason,
            text,
        }))
    }

    async fn go(&mut self) -> Result<Ended, Fault> {
        let work = self.looker.api.work().unwrap_or_default().to_owned();
        if self.looker.board.may_run(&work) {
            self.looker.api.settled().await;
            self.looker.board.settled(&work);
        }
        // Lists of the last drift period do if nothing is to be done. The end of a balancer is not told from memory.
        let mut relaxed = matches!(self.request.goal, Goal::Serve(_));
        if !relaxed {
            self.not_before = Some(runtime::clock::now());
        }
        let mut rounds = 0;
        'observe: loop {
            let ages = self.ages(relaxed);
            let mut seen = self
                .looker
                .observe(&self.request.goal, ages)
                .await
                .map_err(unread)?;
            seen.lost_associates = self.lost_associates;
            loop {
                rounds += 1;
                if rounds > MOST_ROUNDS {
                    let text = "the plan does not settle; this is a fault of the broker".to_owned();
                    return Err(Fault::new(FaultKind::Internal, "PLAN_DOES_NOT_SETTLE", text));
                }
                let plan = plan(self.request, &seen);
                let at_rest = plan.steps.is_empty() && self.is_published(&plan.end);
                let only_looks = !plan.needs.is_empty() && plan.needs.iter().all(is_of_any_age);
                if self.not_before.is_none() && self.is_surprising(&plan) {
                    self.not_before = Some(runtime::clock::now());
                    continue 'observe;
                }
                if relaxed && !at_rest && !only_looks {
                    relaxed = false;
                    continue 'observe;
                }
                self.remember(&plan);
                if let End::Refused(fault) = plan.end {
                    return Err(fault);
                }
                if !plan.needs.is_empty() {
                    self.satisfy(&plan.needs, ages, &mut seen).await?;
                    continue;
                }
                if let Some(ended) = self.at_the_end(&plan).await? {
                    match ended {
                        Some(ended) => return Ok(ended),
                        None => continue 'observe,
                    }
                }
                match self.round(&plan, ages, &mut seen).await? {
                    Next::Plan => {}
                    Next::Observe => continue 'observe,
                }
            }
        }
    }

    /// Whether a plan ends with what clients are told already. Where it does not, another broker may know better than what
    /// this one remembers.
    fn is_published(&self, end: &End) -> bool {
        match end {
            End::Served(served) => served.leaving.is_empty() && self.request.published == [served.ingress.ip],
            End::Unfinished | End::Departed | End::Wait(_) | End::Await(_) | End::Refused(_) => false,
        }
    }

    /// Whether a plan ends with another address than clients are told: what another broker did meanwhile is looked at first.
    fn is_surprising(&self, plan: &Plan) -> bool {
        let told = &self.request.published;
        let elsewhere = matches!(&plan.end, End::Served(served) if !told.contains(&served.ingress.ip));
        plan.steps.is_empty() && elsewhere && !told.is_empty()
    }

    fn ages(&self, relaxed: bool) -> Ages {
        let now = runtime::clock::now();
        let before = |age: Duration| now.checked_sub(age).unwrap_or(now);
        let oldest = if relaxed {
            before(self.drift)
        } else {
            before(FRESH)
        };
        let oldest = self.not_before.map_or(oldest, |at| at.max(oldest));
        Ages {
            oldest,
            oldest_membership: before(self.drift),
            machines: MACHINES,
        }
    }

    fn remember(&mut self, plan: &Plan) {
        for note in &plan.notes {
            if !self.notes.contains(note) {
                self.notes.push(note.clone());
            }
        }
        for ip in &plan.kept {
            if !self.kept.contains(ip) {
                self.kept.push(*ip);
            }
        }
    }

    async fn satisfy(&mut self, needs: &[Need], ages: Ages, seen: &mut Observation) -> Result<(), Fault> {
        let serves = matches!(self.request.goal, Goal::Serve(_));
        let takes = |need: &Need| matches!(need, Need::Unsettled | Need::Free(_) | Need::Digits(_));
        if serves && needs.iter().any(takes) && self.turns.associate.is_none() {
            self.turns.associate = Some(self.looker.api.turn_to_associate().await);
        }
        // In the order of their ids, so that two calls never wait for each other.
        let addresses: BTreeSet<&AddressId> = needs
            .iter()
            .filter_map(|need| {
                if let Need::Holders(id) = need {
                    Some(id)
                } else {
                    None
                }
            })
            .collect();
        for address in addresses {
            if self.turns.of(address).is_none() {
                self.turns
                    .release
                    .push(self.looker.api.turn_to_release(address).await);
            }
        }
        self.looker
            .satisfy(needs, &self.request.goal, ages, seen)
            .await
            .map_err(unread)
    }

    /// `None` if there are steps; inside, `None` if a job had to end first.
    async fn at_the_end(&mut self, plan: &Plan) -> Result<Option<Option<Ended>>, Fault> {
        if !plan.steps.is_empty() {
            return Ok(None);
        }
        Ok(Some(match &plan.end {
            End::Served(served) => Some(Ended::Served(served.clone())),
            End::Departed => Some(Ended::Departed),
            End::Wait(wait) => Some(Ended::Pending(wait.clone())),
            End::Await(job) => {
                self.await_associate(job).await?;
                None
            }
            End::Refused(fault) => return Err(fault.clone()),
            End::Unfinished => {
                let text = "the plan has neither steps nor an end; this is a fault of the broker";
                return Err(Fault::new(FaultKind::Internal, "PLAN_WITHOUT_END", text));
            }
        }))
    }

    async fn await_associate(&mut self, job: &JobId) -> Result<(), Fault> {
        let ended = self.looker.api.await_job(Command::AssociateIpAddress, job).await;
        self.look_again();
        ended
            .map(|_| ())
            .map_err(|error| fault_of("waiting for an address that is being taken", &error))
    }

    fn look_again(&mut self) {
        self.looker.board.doubt();
        self.not_before = Some(runtime::clock::now());
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

    async fn round(&mut self, plan: &Plan, ages: Ages, seen: &mut Observation) -> Result<Next, Fault> {
        let allowed = self.allowed(plan);
        let plan = allowed.as_ref().unwrap_or(plan);
        let round = plan.next_round().to_vec();
        if round.is_empty() {
            let first = self.blocked.iter().find_map(|key| self.failures.get(key));
            return Err(first
                .cloned()
                .unwrap_or_else(|| Fault::new(FaultKind::Internal, "STEP_FAILED", "a step failed")));
        }
        if let Some(address) = self.first_on_shared(&round, seen) {
            self.satisfy(&[Need::Holders(address)], ages, seen).await?;
            return Ok(Next::Plan);
        }
        self.permit.still_wanted()?;
        self.under_way.clone_from(&round);
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
        match &planned.step {
            Step::Associate { address, .. } => {
                seen.fresh.insert(address.clone());
                self.turns.associate = None;
            }
            Step::Release { address, ip } => {
                self.released.push(*ip);
                self.turns.release.retain(|turn| turn.address() != address);
            }
            Step::CreateRule { .. }
            | Step::UpdateRule { .. }
            | Step::DeleteRule { .. }
            | Step::Assign { .. }
            | Step::Remove { .. }
            | Step::OpenFirewall { .. }
            | Step::CloseFirewall { .. }
            | Step::AllowInAcl(_)
            | Step::DropFromAcl { .. }
            | Step::Tag { .. }
            | Step::Untag { .. } => {}
        }
        !changes.is_empty()
    }

    /// What a failure means for the rest of the call.
    fn failed(&mut self, planned: &Planned, error: &ApiError, seen: &mut Observation) -> Result<(), Fault> {
        tracing::warn!(step = planned.step.action(), object = planned.step.object(), %error, "step failed");
        self.look_again();
        if let Some(rule) = planned.step.rule() {
            self.looker.board.doubt_members(rule);
        }
        let what = format!("{} {}", planned.step.action(), planned.step.object());
        let fault = fault_of(&what, error);
        match &planned.step {
            Step::Tag { .. } | Step::Untag { .. } => {
                self.looker.features.may_tag = false;
                seen.features.may_tag = false;
                return Ok(());
            }
            Step::Associate { .. } if judged_by_looking(error) => {
                self.lost_associates += 1;
                let note = Note::warning("AssociateFailed", fault.text);
                if !self.notes.contains(&note) {
                    self.notes.push(note);
                }
                return Ok(());
            }
            Step::Associate { .. }
            | Step::CreateRule { .. }
            | Step::UpdateRule { .. }
            | Step::DeleteRule { .. }
            | Step::Assign { .. }
            | Step::Remove { .. }
            | Step::OpenFirewall { .. }
            | Step::CloseFirewall { .. }
            | Step::AllowInAcl(_)
            | Step::DropFromAcl { .. }
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
}

impl Drop for Run<'_> {
    /// Jobs go on when the caller leaves; what they change is not folded in.
    fn drop(&mut self) {
        if !self.under_way.is_empty() {
            let rules: Vec<_> = self
                .under_way
                .iter()
                .filter_map(|planned| planned.step.rule().cloned())
                .collect();
            self.looker
                .board
                .left_behind(self.looker.api.work().unwrap_or_default(), &rules);
        }
    }
}

fn key(planned: &Planned) -> String {
    format!("{} {}", planned.step.action(), planned.step.object())
}

/// Needs that lists of any age serve: what they lead to is planned again on younger ones.
fn is_of_any_age(need: &Need) -> bool {
    matches!(
        need,
        Need::Members(_) | Need::Firewall | Need::Acl(_) | Need::Address(_)
    )
}
