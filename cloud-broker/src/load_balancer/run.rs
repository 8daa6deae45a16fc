//! One call: look, plan, carry out, until it is settled, nothing can be done, or time is up.
//!
//! | file | decides |
//! | --- | --- |
//! | `trust` | how old what is planned on may be |
//! | `first` | what is looked at first |
//! | `rounds` | what may be done, and what is given back in the end |
//! | `steps` | what begins beside what is under way, and what a step that succeeded or failed means |
//!
//! Decides when lists are read again, and how long turns are held. A step that failed is judged by looking again, never by the
//! server's text; one that fails again holds back whatever depends on it. Whoever stops this at any point leaves a state that
//! the next call goes on from.

mod first;
mod rounds;
mod steps;
mod trust;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use proto::{Fault, FaultKind};

use self::trust::{Trust, depends_on_version, leads_to_taking, stricter};
use super::Permit;
use super::failure::{fault_of, judged_by_looking, unread, version_not_answered};
use super::look::Looker;
use super::observation::{Need, Observation};
use super::outcome::{Note, Served, Wait};
use super::plan::{End, Goal, Plan, Planned, Request, Step, plan};
use super::turns::Turns;
use crate::cloudstack::Command;
use crate::cloudstack::types::JobId;

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
    trust: Trust,
    lost_associates: u32,
    failures: BTreeMap<String, Fault>,
    blocked: BTreeSet<String>,
    /// The cloud refused to make a rule.
    rule_refused: bool,
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
    End(Ended),
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
            trust: Trust::Memory,
            lost_associates: 0,
            failures: BTreeMap::new(),
            blocked: BTreeSet::new(),
            rule_refused: false,
            under_way: Vec::new(),
            notes: Vec::new(),
            changes: 0,
            released: Vec::new(),
            kept: Vec::new(),
        }
    }

    /// Goes on until the end or the deadline.
    pub(super) async fn until(&mut self, deadline: Instant) -> Result<Ended, Fault> {
        // Far larger than the calls that wait for it.
        let work = Box::pin(self.go());
        if let Ok(ended) = tokio::time::timeout_at(deadline.into(), work).await {
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
        // The end of a balancer is not told from memory.
        self.trust = match self.request.goal {
            Goal::Serve(_) => Trust::Memory,
            Goal::Leave(_) => Trust::Since(runtime::clock::now()),
        };
        let mut seen = self.first_look().await?;
        for _ in 0..MOST_ROUNDS {
            let plan = plan(self.request, &seen);
            let now = runtime::clock::now();
            let next = match stricter(&plan, &self.request.published, self.trust, now) {
                Some(trust) => {
                    self.trust = trust;
                    Next::Observe
                }
                None => self.act(plan, &mut seen).await?,
            };
            match next {
                Next::Plan => {}
                Next::Observe => seen = self.observe().await?,
                Next::End(ended) => return Ok(ended),
            }
        }
        let text = "the plan does not settle; this is a fault of the broker".to_owned();
        Err(Fault::new(FaultKind::Internal, "PLAN_DOES_NOT_SETTLE", text))
    }

    async fn observe(&self) -> Result<Observation, Fault> {
        let ages = self.trust.ages(runtime::clock::now(), self.drift);
        let seen = self.looker.observe(&self.request.goal, ages).await;
        Ok(Observation {
            lost_associates: self.lost_associates,
            ..seen.map_err(unread)?
        })
    }

    /// Does what a plan asks for next.
    async fn act(&mut self, plan: Plan, seen: &mut Observation) -> Result<Next, Fault> {
        if seen.features.not_answered && depends_on_version(&self.request.goal, &plan) {
            return Err(version_not_answered());
        }
        self.remember(&plan);
        self.give_turn_on(&plan);
        if let End::Refused(fault) = plan.end {
            return Err(fault);
        }
        if !plan.needs.is_empty() {
            return self.satisfy(&plan.needs, seen).await;
        }
        if plan.steps.is_empty() {
            return self.at_the_end(&plan.end).await;
        }
        self.round(&plan, seen).await
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

    /// The turn to take an address goes to the next one as soon as this call takes none.
    fn give_turn_on(&mut self, plan: &Plan) {
        let takes = matches!(
            plan.steps.first(),
            Some(Planned {
                step: Step::Associate { .. },
                ..
            })
        );
        if !takes && !plan.needs.iter().any(leads_to_taking) {
            self.turns.associate = None;
        }
    }

    /// Looks at what a plan needs, in its turn where that decides about an address.
    async fn satisfy(&mut self, needs: &[Need], seen: &mut Observation) -> Result<Next, Fault> {
        let serves = matches!(self.request.goal, Goal::Serve(_));
        let takes = |need: &Need| matches!(need, Need::Unsettled | Need::Free { .. } | Need::Digits(_));
        if serves && needs.iter().any(takes) && self.turns.associate.is_none() {
            self.turns.take_to_associate(self.looker.api).await;
            // Whoever had it before has changed what this was planned on; what this process did is known without a call.
            return Ok(Next::Observe);
        }
        let mut addresses = BTreeSet::new();
        for need in needs {
            if let Need::Holders(id) = need {
                addresses.insert(id.clone());
            }
        }
        if self.turns.take_to_release(self.looker.api, addresses).await {
            return Ok(Next::Observe);
        }
        let ages = self.trust.ages(runtime::clock::now(), self.drift);
        self.looker
            .satisfy(needs, &self.request.goal, ages, seen)
            .await
            .map_err(unread)?;
        Ok(Next::Plan)
    }

    async fn at_the_end(&mut self, end: &End) -> Result<Next, Fault> {
        Ok(Next::End(match end {
            End::Served(served) => Ended::Served(served.clone()),
            End::Departed => Ended::Departed,
            End::Wait(wait) => Ended::Pending(wait.clone()),
            End::Await(job) => {
                self.await_associate(job).await?;
                return Ok(Next::Observe);
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
        match ended {
            Ok(_) => Ok(()),
            Err(error) if judged_by_looking(&error) => {
                self.lost_associates += 1;
                Ok(())
            }
            Err(error) => Err(fault_of("waiting for an address that is being taken", &error)),
        }
    }

    fn look_again(&mut self) {
        self.looker.board.doubt();
        self.trust = Trust::Since(runtime::clock::now());
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
