//! Waiting for jobs: one poller per account.
//!
//! Decides what an answer to a poll means for the job. When to poll is decided in `jobs`. A job is watched until it is
//! over, whether or not somebody waits for it; whoever asks for it later gets the same end.

mod ask;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::Either;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use runtime::clock;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::account::{Account, Caller};
use super::jobs::{Duty, JobTable};
use super::locks::Guard;
use super::types::{Job, JobId};
use super::{ApiError, Command, Pace};
use ask::pending_jobs;
pub(super) use ask::{outcome, query};

/// Polls in a row that make no sense before a job counts as lost.
const VAIN_POLLS: u32 = 4;
/// Times a server may not know a job before it counts as lost: the one that answers may not be the one that started it.
const UNKNOWN_POLLS: u32 = 2;

/// What the server knows of a job.
#[derive(Debug, Clone, PartialEq)]
pub enum JobFate {
    /// It runs.
    Pending(Job),
    /// It did what it was asked for.
    Succeeded(Job),
    /// It ended without.
    Failed(Job),
    /// There is none with this id, or its record has expired.
    Unknown,
    /// It was started by another account.
    Foreign,
}

/// The jobs of an account.
#[derive(Debug)]
pub(super) struct Jobs {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Debug)]
struct Inner {
    table: JobTable,
    ends: HashMap<JobId, End>,
    polling: bool,
    /// A list of what is pending is on its way.
    listing: bool,
    may_list: bool,
}

#[derive(Debug)]
struct End {
    sender: watch::Sender<Option<JobFate>>,
    _until_ended: Option<Guard>,
}

/// The end of a job, to come.
#[derive(Debug, Clone)]
pub(super) struct JobWait {
    receiver: watch::Receiver<Option<JobFate>>,
    command: Command,
}

impl JobWait {
    /// A job that is over already.
    pub(super) fn over(command: Command, end: JobFate) -> Self {
        Self {
            receiver: watch::channel(Some(end)).1,
            command,
        }
    }

    /// Waits for the end, which is never `Pending`.
    pub(super) async fn end(mut self) -> Result<JobFate, ApiError> {
        match self.receiver.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(end)) => Ok(end.clone()),
            // Only a poller that was told to stop drops its jobs.
            Ok(None) | Err(_) => Err(ApiError::Stopping {
                command: self.command,
            }),
        }
    }
}

impl Jobs {
    pub(super) fn new(pace: Pace) -> Self {
        let inner = Inner {
            table: JobTable::new(pace),
            ends: HashMap::new(),
            polling: false,
            listing: false,
            may_list: true,
        };
        Self {
            inner: Mutex::new(inner),
            changed: Notify::new(),
        }
    }

    /// A command is about to be sent whose job shall have this id. The guard is held until the job is over.
    pub(super) fn sending(&self, id: &JobId, duty: Duty, guard: Option<Guard>) -> JobWait {
        let mut inner = self.inner.lock();
        let (sender, receiver) = watch::channel(None);
        let command = duty.command;
        inner.table.sending(id.clone(), duty, clock::now());
        inner.ends.insert(
            id.clone(),
            End {
                sender,
                _until_ended: guard,
            },
        );
        JobWait { receiver, command }
    }

    /// The command was not executed, or there is no job to wait for.
    pub(super) fn not_sent(&self, id: &JobId) {
        let mut inner = self.inner.lock();
        inner.table.forget(id);
        inner.ends.remove(id);
        // The poller may have nothing left to watch.
        self.changed.notify_one();
    }

    /// The job runs, under the id that the server gave it; the command may have made an object.
    pub(super) fn running(
        self: &Arc<Self>,
        account: &Arc<Account>,
        id: &JobId,
        server_id: &JobId,
        object: Option<&str>,
    ) {
        let start = {
            let mut inner = self.inner.lock();
            inner.table.running(id, server_id, object, clock::now());
            if let Some(end) = inner.ends.remove(id) {
                inner.ends.insert(server_id.clone(), end);
            }
            account.metrics().jobs_running(account.name(), inner.table.len());
            !std::mem::replace(&mut inner.polling, true)
        };
        self.changed.notify_one();
        if start {
            let (jobs, account_of_task) = (Arc::clone(self), Arc::clone(account));
            account.tasks().spawn(async move {
                let _polling = Polling(Arc::clone(&jobs));
                jobs.poll(account_of_task).await;
            });
        }
    }

    /// Watches a job that somebody else has started, unless it is being watched.
    pub(super) fn adopt(self: &Arc<Self>, account: &Arc<Account>, id: &JobId, duty: Duty) -> JobWait {
        if let Some(wait) = self.wait(id) {
            return wait;
        }
        let wait = self.sending(id, duty, None);
        self.running(account, id, id, None);
        wait
    }

    /// Whether no job runs, and none has for so long.
    pub(super) fn is_quiet_for(&self, time: Duration) -> bool {
        self.inner.lock().table.is_quiet_for(time, clock::now())
    }

    /// The end of a job that is being watched.
    pub(super) fn wait(&self, id: &JobId) -> Option<JobWait> {
        let inner = self.inner.lock();
        let receiver = inner.ends.get(id)?.sender.subscribe();
        Some(JobWait {
            receiver,
            command: inner.table.duty(id)?.command,
        })
    }

    pub(super) fn of_work(&self, tenant: &str, work: &str) -> Vec<JobId> {
        self.inner.lock().table.of_work(tenant, work)
    }

    pub(super) fn works_on(&self, object: &str) -> bool {
        self.inner.lock().table.works_on(object)
    }

    /// Polls until nothing is left to watch, or the process stops.
    async fn poll(self: Arc<Self>, account: Arc<Account>) {
        let mut asking = FuturesUnordered::new();
        loop {
            let (due, next) = {
                let inner = &mut *self.inner.lock();
                if inner.ends.is_empty() && asking.is_empty() {
                    inner.polling = false;
                    return;
                }
                let mut due = inner.table.due(clock::now(), inner.listing);
                if !inner.may_list {
                    due.alone.append(&mut due.together);
                }
                inner.listing |= !due.together.is_empty();
                (due, inner.table.next_due(inner.listing))
            };
            if !due.together.is_empty() {
                asking.push(Either::Left(self.ask_for_all(&account, due.together)));
            }
            let alone = due.alone.into_iter();
            asking.extend(alone.map(|id| Either::Right(self.ask(&account, id))));
            let sleep = next.map(|at| tokio::time::sleep_until(at.into()));
            tokio::select! {
                () = account.stopping() => {
                    self.stop();
                    return;
                }
                Some(()) = asking.next(), if !asking.is_empty() => {}
                () = self.changed.notified() => {}
                () = async { if let Some(sleep) = sleep { sleep.await } }, if next.is_some() => {}
            }
        }
    }

    fn stop(&self) {
        let mut inner = self.inner.lock();
        inner.ends.clear();
        inner.polling = false;
    }

    /// Watches nothing any more. Whoever waits for a job is told that it is lost, and looks for itself.
    fn give_up(&self) {
        let mut inner = self.inner.lock();
        tracing::error!(
            jobs = inner.ends.len(),
            "polling panicked; this is a fault of the broker"
        );
        inner.polling = false;
        inner.listing = false;
        for (id, end) in std::mem::take(&mut inner.ends) {
            inner.table.forget(&id);
            // Nobody may be waiting.
            let _ = end.sender.send(Some(JobFate::Unknown));
        }
    }

    /// Asks for one job.
    async fn ask(&self, account: &Arc<Account>, id: JobId) {
        let Some(caller) = self.caller(&id) else { return };
        let asked = clock::now();
        let answer = query(account, &caller, &id).await;
        let now = clock::now();
        let mut inner = self.inner.lock();
        inner.table.answered_after(now.saturating_duration_since(asked));
        let go_on = match answer {
            Ok(JobFate::Pending(_)) => inner.table.pending(&id, now),
            Ok(end @ (JobFate::Succeeded(_) | JobFate::Failed(_))) => return inner.finish(account, &id, end),
            Ok(JobFate::Unknown | JobFate::Foreign) => inner.table.senseless(&id, UNKNOWN_POLLS, now),
            Err(ApiError::Odd { .. } | ApiError::Rejected(_)) => inner.table.senseless(&id, VAIN_POLLS, now),
            Err(_) => inner.table.unanswered(&id, now),
        };
        if !go_on {
            inner.finish(account, &id, JobFate::Unknown);
        }
    }

    /// Asks which of many jobs are pending, then for each of the others.
    async fn ask_for_all(&self, account: &Arc<Account>, mut ids: Vec<JobId>) {
        let asked = clock::now();
        let pending = match ids.first().and_then(|id| self.caller(id)) {
            Some(caller) => pending_jobs(account, &caller).await,
            None => Ok(HashSet::new()),
        };
        let over: Vec<JobId> = {
            let mut inner = self.inner.lock();
            inner.listing = false;
            // Whatever forbids the list, asking for each job goes on working.
            inner.may_list = !matches!(pending, Err(ApiError::Denied(_) | ApiError::Rejected(_)));
            if pending.is_ok() {
                ids.extend(inner.table.waited_since(asked));
            }
            let pending = pending.unwrap_or_default();
            let now = clock::now();
            ids.into_iter()
                .filter(|id| !(pending.contains(id) && inner.table.pending(id, now)))
                .collect()
        };
        // What the list left pending is due at times of its own, however long the answers for the others take.
        self.changed.notify_one();
        let asking: FuturesUnordered<_> = over.into_iter().map(|id| self.ask(account, id)).collect();
        asking.collect::<()>().await;
    }

    fn caller(&self, id: &JobId) -> Option<Caller> {
        let inner = self.inner.lock();
        let duty = inner.table.duty(id)?;
        Some(Caller {
            tenant: Arc::clone(&duty.tenant),
            share: duty.share,
            // Whatever the keys: nothing is begun by asking.
            rekeyed: CancellationToken::new(),
        })
    }
}

/// The task that polls. A panic in it leaves no job waited for in vain, and the next job is polled again.
struct Polling(Arc<Jobs>);

impl Drop for Polling {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.give_up();
        }
    }
}

impl Inner {
    fn finish(&mut self, account: &Account, id: &JobId, end: JobFate) {
        if let Some(ended) = self.table.ended(id, clock::now()) {
            let command = ended.duty.command.name();
            account.metrics().job_ended(account.name(), command, ended.took);
            let ms = u64::try_from(ended.took.as_millis()).unwrap_or(u64::MAX);
            let outcome = match &end {
                JobFate::Succeeded(_) => "succeeded",
                JobFate::Failed(_) => "failed",
                JobFate::Pending(_) | JobFate::Unknown | JobFate::Foreign => "lost",
            };
            tracing::debug!(command, job = %id, ms, outcome, "job is over");
        }
        account.metrics().jobs_running(account.name(), self.table.len());
        if let Some(waiting) = self.ends.remove(id) {
            // Nobody may be waiting.
            let _ = waiting.sender.send(Some(end));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_poller_that_panics_leaves_nobody_waiting_and_lets_the_next_one_begin() {
        let jobs = Arc::new(Jobs::new(Pace::REAL));
        let duty = Duty {
            command: Command::AssociateIpAddress,
            tenant: "t".into(),
            share: 1,
            work: None,
            object: None,
        };
        let wait = jobs.sending(&JobId::parse("1").unwrap(), duty, None);
        jobs.inner.lock().polling = true;
        let polling = Polling(Arc::clone(&jobs));
        let poller = std::thread::spawn(move || {
            let _polling = polling;
            panic!("a fault")
        });
        poller.join().unwrap_err();
        assert_eq!(wait.end().await.unwrap(), JobFate::Unknown);
        let inner = jobs.inner.lock();
        assert!(!inner.polling && inner.ends.is_empty() && inner.table.len() == 0);
    }
}
