//! Which jobs are watched and when each is asked for. Pure.
//!
//! Decides which job is asked for, alone, first of many like it, or by one list with others; how long after its start, is in
//! `cadence`. No job is asked for twice at once. A job is known from before its command is sent, so that nobody starts anew what
//! is just being started.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::cadence::{Cadence, Plan, Seen};
use super::types::JobId;
use super::{Command, Pace};

/// Waits after a poll without an answer.
const UNANSWERED_FIRST: Duration = Duration::from_millis(500);
const UNANSWERED_LONGEST: Duration = Duration::from_secs(30);
/// Servers cancel what is pending after an hour.
const GIVEN_UP_AFTER: Duration = Duration::from_mins(65);
/// From so many jobs on that may be pending, one list of those that are is cheaper than asking for each.
const CROWD: usize = 3;
/// How much earlier than planned a job is asked for with others, as a part of the time since its start.
const CROWD_SLACK: f64 = 0.25;
const LAG_GROWTH: f64 = 1.1;
/// How near to one another jobs are expected to end of which one is asked first, as a part of the time since their start.
const SCOUT_SLACK: f64 = 0.1;

/// Who started a job and what it works on.
#[derive(Debug, Clone)]
pub(super) struct Duty {
    pub(super) command: Command,
    pub(super) tenant: Arc<str>,
    pub(super) share: u32,
    /// The piece of work it belongs to, in the tenant's words.
    pub(super) work: Option<Arc<str>>,
    /// The object named in the command.
    pub(super) object: Option<String>,
}

/// What a job does where many like it are expected to be over at the same time: if one is not, hardly any is, and asking for each
/// would cost as many calls for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// It is asked for when it is due.
    Single,
    /// It is asked for instead of all.
    Scout,
    /// It waits for what is said of the scout.
    Waits,
    /// The scout was over.
    Vouched,
}

#[derive(Debug)]
struct Watched {
    duty: Duty,
    part: Part,
    started: Instant,
    /// `None` while the command is being sent.
    plan: Option<Plan>,
    /// Time of the last poll that found it pending.
    pending_at: Option<Instant>,
    polls: u32,
    unanswered: u32,
    /// Answers that say nothing about it.
    senseless: u32,
    /// When to ask; `None` while the command is being sent or a poll is under way.
    next: Option<Instant>,
}

impl Watched {
    /// Whether it is rather pending than over when it is asked for.
    fn may_be_pending(&self) -> bool {
        self.polls > 0 || self.part == Part::Waits || self.plan.is_some_and(|plan| plan.is_search())
    }

    /// Whether it should be over when it is due, and nobody was sent ahead.
    fn is_expected(&self) -> bool {
        self.part == Part::Single && !self.may_be_pending()
    }

    /// Whether it is of the same sort as another job, by their plans.
    fn is_like(&self, plan: &Plan) -> bool {
        self.plan.is_some_and(|own| own.is_like(plan))
    }
}

/// Jobs to ask for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Due {
    /// Each by itself.
    pub(super) alone: Vec<JobId>,
    /// All of them by one list of what is pending.
    pub(super) together: Vec<JobId>,
}

/// A job that ended, as far as the table knew it.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) duty: Duty,
    pub(super) took: Duration,
}

/// The state machine.
#[derive(Debug)]
pub(super) struct JobTable {
    jobs: HashMap<JobId, Watched>,
    cadence: Cadence,
    pace: Pace,
    /// What a poll takes at least: a server looks at the job about so long after it was asked.
    lag: Option<Duration>,
    /// When the last job ended.
    last_end: Option<Instant>,
}

impl JobTable {
    pub(super) fn new(pace: Pace) -> Self {
        Self {
            jobs: HashMap::new(),
            cadence: Cadence::new(pace),
            pace,
            lag: None,
            last_end: None,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Whether no job runs, and none has for so long.
    pub(super) fn is_quiet_for(&self, time: Duration, now: Instant) -> bool {
        let since = |end: Instant| now.saturating_duration_since(end);
        self.jobs.is_empty() && self.last_end.is_none_or(|end| since(end) >= time)
    }

    pub(super) fn duty(&self, id: &JobId) -> Option<&Duty> {
        self.jobs.get(id).map(|job| &job.duty)
    }

    /// A command is about to be sent whose job shall have this id.
    pub(super) fn sending(&mut self, id: JobId, duty: Duty, now: Instant) {
        let job = Watched {
            duty,
            part: Part::Single,
            started: now,
            plan: None,
            pending_at: None,
            polls: 0,
            unanswered: 0,
            senseless: 0,
            next: None,
        };
        self.jobs.insert(id, job);
    }

    /// The job runs, under the id that the server gave it; the command may have made an object.
    pub(super) fn running(&mut self, id: &JobId, server_id: &JobId, object: Option<&str>, now: Instant) {
        let Some(mut job) = self.jobs.remove(id) else {
            return;
        };
        job.duty.object = job.duty.object.or_else(|| object.map(str::to_owned));
        // Those that are being sent will run with it.
        let plan = self.cadence.plan(job.duty.command, self.jobs.len() + 1);
        job.started = now;
        job.next = Some(now + self.ahead(plan.first));
        job.plan = Some(plan);
        self.jobs.insert(server_id.clone(), job);
    }

    /// A poll was answered after so long.
    pub(super) fn answered_after(&mut self, took: Duration) {
        // The quickest answer tells what lies in between; a way that became slower is noticed after some answers.
        self.lag = Some(self.lag.map_or(took, |lag| took.min(lag.mul_f64(LAG_GROWTH))));
    }

    /// How long to wait with a poll that should be answered after this.
    fn ahead(&self, wait: Duration) -> Duration {
        wait.saturating_sub(self.lag.unwrap_or_default())
    }

    /// Jobs to ask for now; each stays out of reach until its answer is reported. While a list is on its way, jobs that it may
    /// tell about wait for it.
    pub(super) fn due(&mut self, now: Instant, listing: bool) -> Due {
        self.send_scouts(now);
        let is_due = |job: &Watched| job.next.is_some_and(|next| next <= now);
        // One list tells of all of them, so those that are due soon may as well come along.
        let is_near = |job: &Watched| {
            let slack = now.saturating_duration_since(job.started).mul_f64(CROWD_SLACK);
            job.may_be_pending() && job.next.is_some_and(|next| next <= now + slack)
        };
        let called_for = self.jobs.values().any(|job| is_due(job) && job.may_be_pending());
        let near = self.jobs.values().filter(|job| is_near(job)).count();
        let crowd = called_for && near >= CROWD && !listing;
        let mut due: Vec<(Instant, JobId, bool)> = Vec::new();
        for (id, job) in &mut self.jobs {
            let together = crowd && is_near(job);
            if together || (is_due(job) && !(listing && job.may_be_pending())) {
                due.extend(job.next.take().map(|next| (next, id.clone(), together)));
            }
        }
        due.sort_unstable();
        let (together, alone): (Vec<_>, Vec<_>) = due.into_iter().partition(|(_, _, together)| *together);
        let ids = |due: Vec<(Instant, JobId, bool)>| due.into_iter().map(|(_, id, _)| id).collect();
        Due {
            alone: ids(alone),
            together: ids(together),
        }
    }

    /// Where many jobs of a sort should be over about now, one of them is asked for first.
    fn send_scouts(&mut self, now: Instant) {
        let mut sorts: Vec<Plan> = Vec::new();
        let due = self
            .jobs
            .values()
            .filter(|job| job.is_expected() && job.next.is_some_and(|next| next <= now));
        for plan in due.filter_map(|job| job.plan) {
            if !sorts.iter().any(|sort| sort.is_like(&plan)) {
                sorts.push(plan);
            }
        }
        for sort in sorts {
            self.send_scout(&sort, now);
        }
    }

    /// The scout is the job that should end last.
    fn send_scout(&mut self, sort: &Plan, now: Instant) {
        // Nobody waits for an answer that never comes.
        let patience = self.pace.of(UNANSWERED_FIRST) + self.lag.unwrap_or_default() * 2;
        let is_near = |job: &&mut Watched| {
            let slack = now.saturating_duration_since(job.started).mul_f64(SCOUT_SLACK);
            job.is_expected() && job.is_like(sort) && job.next.is_some_and(|next| next <= now + slack)
        };
        let mut near: Vec<&mut Watched> = self.jobs.values_mut().filter(is_near).collect();
        if near.len() < CROWD {
            return;
        }
        near.sort_unstable_by_key(|job| job.next);
        let Some((scout, others)) = near.split_last_mut() else {
            return;
        };
        scout.part = Part::Scout;
        let until = scout.next.map(|next| next.max(now) + patience);
        for job in others {
            (job.part, job.next) = (Part::Waits, until);
        }
    }

    /// What is said of a scout goes for those that wait for it and should be over as well: they are asked for when it is asked for
    /// again, or now.
    fn scouted(&mut self, (plan, now): (&Plan, Instant), at: Instant, part: Part) {
        let is_near = |job: &Watched| {
            let expected = job
                .plan
                .map(|own| job.started + own.first.mul_f64(1.0 - SCOUT_SLACK));
            expected.is_some_and(|expected| expected <= now)
        };
        let waiting = |job: &&mut Watched| {
            job.part == Part::Waits && job.is_like(plan) && job.next.is_some() && is_near(job)
        };
        for job in self.jobs.values_mut().filter(waiting) {
            (job.part, job.next) = (part, Some(at));
        }
    }

    /// Jobs that ran when a list was asked for and are not being asked for otherwise: the list tells about them as well.
    pub(super) fn waited_since(&mut self, asked: Instant) -> Vec<JobId> {
        let waited = |job: &Watched| job.may_be_pending() && job.started < asked;
        let waiting = self.jobs.iter_mut().filter(|(_, job)| waited(job));
        waiting
            .filter_map(|(id, job)| job.next.take().map(|_| id.clone()))
            .collect()
    }

    /// When the next job is due; not those that wait for a list that is on its way.
    pub(super) fn next_due(&self, listing: bool) -> Option<Instant> {
        let jobs = self
            .jobs
            .values()
            .filter(|job| !(listing && job.may_be_pending()));
        jobs.filter_map(|job| job.next).min()
    }

    /// A poll found the job pending. False if it has been pending for too long to go on.
    pub(super) fn pending(&mut self, id: &JobId, now: Instant) -> bool {
        let Some(job) = self.jobs.get_mut(id) else {
            return true;
        };
        job.polls += 1;
        job.unanswered = 0;
        job.senseless = 0;
        job.pending_at = Some(now);
        let elapsed = now.saturating_duration_since(job.started);
        let wait = job.plan.map_or(UNANSWERED_FIRST, |plan| {
            self.cadence.wait(&plan, job.polls, elapsed)
        });
        job.next = Some(now + wait);
        if let (Part::Scout, Some(plan)) = (job.part, job.plan) {
            job.part = Part::Single;
            self.scouted((&plan, now), now + wait, Part::Waits);
        }
        elapsed < GIVEN_UP_AFTER
    }

    /// A poll was not answered. False if this has been going on for too long.
    pub(super) fn unanswered(&mut self, id: &JobId, now: Instant) -> bool {
        let pace = self.pace;
        let Some(job) = self.jobs.get_mut(id) else {
            return true;
        };
        let wait = UNANSWERED_FIRST * 2_u32.saturating_pow(job.unanswered.min(8));
        job.unanswered += 1;
        job.next = Some(now + pace.of(wait.min(UNANSWERED_LONGEST)));
        now.saturating_duration_since(job.started) < GIVEN_UP_AFTER
    }

    /// A poll was answered in a way that says nothing about the job. False if it has happened so often.
    pub(super) fn senseless(&mut self, id: &JobId, limit: u32, now: Instant) -> bool {
        let senseless = self.jobs.get_mut(id).map_or(0, |job| {
            job.senseless += 1;
            job.senseless
        });
        self.unanswered(id, now) && senseless < limit
    }

    /// The job is over; what is learned from it is when to ask for the next one of its sort.
    pub(super) fn ended(&mut self, id: &JobId, now: Instant) -> Option<Ended> {
        let job = self.jobs.remove(id)?;
        self.last_end = Some(now);
        let took = now.saturating_duration_since(job.started);
        if let (Part::Scout, Some(plan)) = (job.part, job.plan) {
            self.scouted((&plan, now), now, Part::Vouched);
        }
        if let Some(plan) = job.plan.filter(|_| job.unanswered == 0) {
            let pending = job.pending_at.map(|at| at.saturating_duration_since(job.started));
            let seen = Seen {
                pending,
                polls: job.polls + 1,
                over: took,
            };
            self.cadence.learn(&plan, seen);
            self.others_are_near(&plan, now);
        }
        Some(Ended { duty: job.duty, took })
    }

    /// Jobs that were found pending are near their end, too, once one like them is over.
    fn others_are_near(&mut self, ended: &Plan, now: Instant) {
        let asked = |job: &Watched| job.polls > 0 && job.unanswered == 0 && job.is_like(ended);
        let is_last = self.jobs.values().filter(|job| asked(job)).count() <= CROWD;
        for job in self.jobs.values_mut().filter(|job| asked(job)) {
            let elapsed = now.saturating_duration_since(job.started);
            let so_far = (job.polls, elapsed);
            let plan = job
                .plan
                .and_then(|plan| self.cadence.go_on(&plan, ended, so_far, is_last));
            let Some(plan) = plan else {
                continue;
            };
            let soon = now + self.cadence.wait(&plan, job.polls, elapsed);
            let near = soon.max(job.started + plan.first);
            job.next = job.next.map(|next| next.min(near));
            job.plan = Some(plan);
        }
    }

    /// The command was not executed, or its outcome is known otherwise.
    pub(super) fn forget(&mut self, id: &JobId) {
        self.jobs.remove(id);
    }

    /// Jobs of a piece of work that are not over.
    pub(super) fn of_work(&self, tenant: &str, work: &str) -> Vec<JobId> {
        let belongs = |duty: &Duty| &*duty.tenant == tenant && duty.work.as_deref() == Some(work);
        self.jobs
            .iter()
            .filter(|(_, job)| belongs(&job.duty))
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// Whether a job that is not over was started by a command that names this object.
    pub(super) fn works_on(&self, object: &str) -> bool {
        self.jobs
            .values()
            .any(|job| job.duty.object.as_deref() == Some(object))
    }
}

#[cfg(test)]
mod tests;
