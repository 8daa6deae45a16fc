//! Which jobs are watched and when each is asked for. Pure.
//!
//! Decides the time of every poll. A job is asked for the first time when jobs of its sort are usually over, which is
//! learned, then ever more seldom; never twice at once. A job is known from before its command is sent, so that nobody
//! starts anew what is just being started.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::types::JobId;
use super::{Command, Pace};

/// Shortest first wait that is learned.
const FLOOR: Duration = Duration::from_millis(40);
/// Part of the usual time that is shaved off after each job that was over when first asked for.
const SHAVE: f64 = 0.985;
/// Stretches what is learned from a job that was not over when first asked for.
const MARGIN: f64 = 1.1;
/// How much of what is known of other commands of its kind a new one is given.
const LONGEST_GUESS: Duration = Duration::from_secs(3);
/// Second wait, where the usual time was known and where it was not, and later ones, as parts of the time since the start.
const SECOND_KNOWN: f64 = 0.2;
const SECOND: f64 = 0.5;
const LATER: f64 = 0.6;
const LONGEST: Duration = Duration::from_secs(5);
/// Waits after a poll without an answer.
const UNANSWERED_FIRST: Duration = Duration::from_millis(500);
const UNANSWERED_LONGEST: Duration = Duration::from_secs(30);
/// Servers cancel what is pending after an hour.
const GIVEN_UP_AFTER: Duration = Duration::from_mins(65);
/// From so many jobs on, one list of what is pending is cheaper than asking for each.
const CROWD: usize = 4;
const CROWD_WINDOW: Duration = Duration::from_millis(100);

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

#[derive(Debug)]
struct Watched {
    duty: Duty,
    started: Instant,
    /// Time of the last poll that found it pending.
    pending_at: Option<Instant>,
    polls: u32,
    unanswered: u32,
    /// Answers that say nothing about it.
    senseless: u32,
    /// When to ask; `None` while the command is being sent or a poll is under way.
    next: Option<Instant>,
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
    usual: HashMap<Command, Duration>,
    pace: Pace,
}

impl JobTable {
    pub(super) fn new(pace: Pace) -> Self {
        Self {
            jobs: HashMap::new(),
            usual: HashMap::new(),
            pace,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    pub(super) fn duty(&self, id: &JobId) -> Option<&Duty> {
        self.jobs.get(id).map(|job| &job.duty)
    }

    /// A command is about to be sent whose job shall have this id.
    pub(super) fn sending(&mut self, id: JobId, duty: Duty, now: Instant) {
        let job = Watched {
            duty,
            started: now,
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
        job.started = now;
        job.next = Some(now + self.first_wait(job.duty.command));
        self.jobs.insert(server_id.clone(), job);
    }

    /// Jobs to ask for now; each stays out of reach until its answer is reported.
    pub(super) fn due(&mut self, now: Instant) -> Vec<JobId> {
        let any = self
            .jobs
            .values()
            .any(|job| job.next.is_some_and(|next| next <= now));
        if !any {
            return Vec::new();
        }
        // Those that are due soon and have been asked for already may as well be asked together.
        let soon = now + self.pace.of(CROWD_WINDOW);
        let mut due: Vec<(Instant, JobId)> = Vec::new();
        for (id, job) in &mut self.jobs {
            let limit = if job.polls > 0 { soon } else { now };
            if let Some(next) = job.next.filter(|next| *next <= limit) {
                job.next = None;
                due.push((next, id.clone()));
            }
        }
        due.sort_unstable();
        due.into_iter().map(|(_, id)| id).collect()
    }

    /// Whether one list of pending jobs should be asked for before these: they are many, and none is asked for the first
    /// time, when it is probably over.
    pub(super) fn are_a_crowd(&self, due: &[JobId]) -> bool {
        let again = due
            .iter()
            .filter(|id| self.jobs.get(*id).is_some_and(|job| job.polls > 0))
            .count();
        again >= CROWD && again == due.len()
    }

    /// When the next job is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.jobs.values().filter_map(|job| job.next).min()
    }

    /// A poll found the job pending. False if it has been pending for too long to go on.
    pub(super) fn pending(&mut self, id: &JobId, now: Instant) -> bool {
        let pace = self.pace;
        let first = self
            .jobs
            .get(id)
            .map(|job| self.first_wait(job.duty.command))
            .unwrap_or_default();
        let Some(job) = self.jobs.get_mut(id) else {
            return true;
        };
        let known = self.usual.contains_key(&job.duty.command);
        job.polls += 1;
        job.unanswered = 0;
        job.senseless = 0;
        job.pending_at = Some(now);
        let elapsed = now.saturating_duration_since(job.started);
        let wait = match job.polls {
            1 if known => elapsed.mul_f64(SECOND_KNOWN).max(pace.of(FLOOR)),
            1 => elapsed.mul_f64(SECOND).max(pace.of(FLOOR)),
            _ => elapsed.mul_f64(LATER).max(first),
        };
        job.next = Some(now + wait.min(pace.of(LONGEST)));
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
        let took = now.saturating_duration_since(job.started);
        if job.unanswered == 0 {
            let usual = match job.pending_at {
                None => self
                    .first_wait(job.duty.command)
                    .mul_f64(SHAVE)
                    .max(self.pace.of(FLOOR)),
                // It ended somewhere between the last two polls.
                Some(pending) => {
                    let before = pending.saturating_duration_since(job.started);
                    ((before + took) / 2).mul_f64(MARGIN).min(LONGEST * 12)
                }
            };
            self.usual.insert(job.duty.command, usual);
        }
        Some(Ended { duty: job.duty, took })
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

    /// When jobs of a command are usually over; where that is not known yet, the longest of its kind.
    fn first_wait(&self, command: Command) -> Duration {
        let alike = |known: &Command| known.touches_router() == command.touches_router();
        let of_its_kind = self
            .usual
            .iter()
            .filter(|(known, _)| alike(known))
            .map(|(_, usual)| *usual)
            .max();
        let guess = of_its_kind.map(|usual| usual.min(LONGEST_GUESS));
        let usual = self.usual.get(&command).copied().or(guess);
        usual.unwrap_or_else(|| self.pace.of(command.first_poll()))
    }
}

#[cfg(test)]
mod tests;
