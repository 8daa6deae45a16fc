//! How writes are carried out: in two phases.
//!
//! Decides what happens when the caller leaves: a command that has been sent is followed to its job. A command whose
//! answer was lost is asked for by the id that its job was given; it is never sent twice.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::Api;
use super::params::Params;
use crate::cloudstack::account::{Account, Caller, Pass};
use crate::cloudstack::jobs::Duty;
use crate::cloudstack::locks::Guard;
use crate::cloudstack::poller::{JobFate, JobWait, outcome, query};
use crate::cloudstack::types::{
    AclItemId, AddressId, Entity as _, Fields, FirewallRule, FirewallRuleId, Job, JobId, LoadBalancerRule,
    NetworkAclItem, PublicIpAddress, RuleId,
};
use crate::cloudstack::{ApiError, Command, CommandClass};

/// A command that the server has taken. Its job is watched whether or not this is kept.
#[derive(Debug)]
#[must_use = "the outcome of a job is its end, not its start"]
pub struct Started<T> {
    command: Command,
    job: JobId,
    object: Option<String>,
    wait: JobWait,
    outcome: PhantomData<fn() -> T>,
}

/// What a job leaves behind.
pub trait Outcome: Sized {
    /// Reads it from the end of a job.
    fn of(job: &Job) -> Option<Self>;
}

impl Outcome for () {
    fn of(_: &Job) -> Option<Self> {
        Some(())
    }
}

/// An object that exists once the command has been taken, before its job is over.
pub trait Created: Outcome {
    /// Its id.
    type Id;
    /// Reads the id.
    fn id(text: &str) -> Option<Self::Id>;
}

macro_rules! created {
    ($($entity:ty = $id:ty;)*) => {$(
        impl Outcome for $entity {
            fn of(job: &Job) -> Option<Self> {
                let result = job.result.as_ref()?;
                let object = Self::KEYS.iter().find_map(|key| result.get(key)).unwrap_or(result);
                Self::parse(Fields::of(object))
            }
        }

        impl Created for $entity {
            type Id = $id;
            fn id(text: &str) -> Option<$id> {
                <$id>::parse(text).ok()
            }
        }
    )*};
}

created! {
    PublicIpAddress = AddressId;
    LoadBalancerRule = RuleId;
    FirewallRule = FirewallRuleId;
    NetworkAclItem = AclItemId;
}

impl<T: Outcome> Started<T> {
    /// The job, under the id that the server uses.
    pub fn job(&self) -> &JobId {
        &self.job
    }

    /// Waits for the end of the job. An object in the result may lag behind: the state of a rule or an address that was
    /// just made is better read from a list.
    pub async fn finished(self) -> Result<T, ApiError> {
        let command = self.command;
        let job = outcome(command, &self.job, self.wait.end().await?)?;
        T::of(&job).ok_or_else(|| ApiError::Odd {
            command,
            reason: format!("job {} succeeded and left no object", job.id),
            maybe_executed: true,
        })
    }
}

impl<T: Created> Started<T> {
    /// The object, which exists already.
    pub fn id(&self) -> Option<T::Id> {
        self.object.as_deref().and_then(T::id)
    }
}

impl Api {
    /// A write, to be sent.
    pub(super) fn start<T: Outcome>(&self, command: Command, params: Params) -> Start<'_, T> {
        let outcome = PhantomData;
        Start {
            api: self,
            command,
            params,
            job: None,
            until_started: None,
            until_ended: None,
            outcome,
        }
    }
}

/// A write that is being put together.
pub(super) struct Start<'a, T> {
    api: &'a Api,
    command: Command,
    params: Params,
    job: Option<JobId>,
    until_started: Option<Guard>,
    until_ended: Option<Guard>,
    outcome: PhantomData<fn() -> T>,
}

/// What the first phase gave.
struct Taken {
    job: JobId,
    object: Option<String>,
    wait: JobWait,
}

impl<T: Outcome> Start<'_, T> {
    /// Chooses the id of the job.
    pub(super) fn with_job(mut self, id: &JobId) -> Self {
        self.job = Some(id.clone());
        self
    }

    /// Keeps a turn until the server has taken the command.
    pub(super) fn holding_to_start(mut self, guard: Guard) -> Self {
        self.until_started = Some(guard);
        self
    }

    /// Keeps a turn until the job is over.
    pub(super) fn holding_to_end(mut self, guard: Guard) -> Self {
        self.until_ended = Some(guard);
        self
    }

    /// Sends the command, repeatedly as long as it was certainly not executed. Until it is sent the caller may leave;
    /// afterwards it is followed in a task of its own.
    pub(super) async fn send(self) -> Result<Started<T>, ApiError> {
        let job = self
            .job
            .clone()
            .unwrap_or_else(|| JobId::from(uuid::Uuid::new_v4()));
        let params = self.params.clone().with("customjobid", &job);
        let account = self.api.account();
        let mut attempt = 1;
        loop {
            let pass = account.admit(&self.api.caller(), self.command).await?;
            let phase = FirstPhase {
                account: Arc::clone(account),
                caller: self.api.caller(),
                duty: self.api.duty(self.command, self.params.get("id")),
                params: params.clone(),
                job: job.clone(),
                attempt,
                until_started: self.until_started.clone(),
            };
            // Known from now on, so that nobody starts anew what is being started.
            let wait = account
                .jobs()
                .sending(&job, phase.duty.clone(), self.until_ended.clone());
            let task = account.tasks().spawn(phase.run(pass, wait));
            let error = match task.await {
                Ok(Ok(Taken { job, object, wait })) => {
                    return Ok(Started {
                        command: self.command,
                        job,
                        object,
                        wait,
                        outcome: PhantomData,
                    });
                }
                Ok(Err(error)) => error,
                // It panicked, or the process stops: nobody follows the job any more, so nobody may wait for it.
                Err(_) => {
                    account.jobs().not_sent(&job);
                    ApiError::Odd {
                        command: self.command,
                        reason: "its task was given up".to_owned(),
                        maybe_executed: true,
                    }
                }
            };
            self.api
                .wait_for_repetition(CommandClass::Write, error, attempt)
                .await?;
            attempt += 1;
        }
    }
}

/// From sending a command to knowing its job.
struct FirstPhase {
    account: Arc<Account>,
    caller: Caller,
    duty: Duty,
    params: Params,
    job: JobId,
    attempt: u32,
    until_started: Option<Guard>,
}

/// When to ask for the job of a command whose answer was lost. The server may still be at its first phase, which waits
/// for locks in steps of five seconds.
const RECOVERY: [Duration; 5] = [
    Duration::from_millis(200),
    Duration::from_millis(600),
    Duration::from_millis(1500),
    Duration::from_secs(3),
    Duration::from_secs(6),
];

impl FirstPhase {
    async fn run(self, pass: Pass, wait: JobWait) -> Result<Taken, ApiError> {
        let command = self.duty.command;
        let sent = self.account.send(pass, command, &self.params, self.attempt).await;
        let taken = match sent {
            Ok(answer) => self.taken(&answer, wait),
            // A refusal is an answer, even if it leaves something behind.
            Err(error @ (ApiError::Unreachable { .. } | ApiError::Odd { .. })) if error.maybe_executed() => {
                self.recover(error, wait).await
            }
            Err(error) => Err(error),
        };
        drop(self.until_started);
        if taken.is_err() {
            self.account.jobs().not_sent(&self.job);
        }
        taken
    }

    fn taken(&self, answer: &Value, wait: JobWait) -> Result<Taken, ApiError> {
        let (command, fields) = (self.duty.command, Fields::of(answer));
        let object = fields.text("id");
        if let Some(job) = fields.id::<JobId>("jobid") {
            self.account
                .jobs()
                .running(&self.account, &self.job, &job, object.as_deref());
            return Ok(Taken { job, object, wait });
        }
        if fields.flag("success") == Some(true) {
            // Done on the spot.
            let job = Job::on_the_spot(self.job.clone(), answer.clone());
            let wait = self.over(JobFate::Succeeded(job));
            return Ok(Taken {
                job: self.job.clone(),
                object,
                wait,
            });
        }
        let reason = "neither a job nor success".to_owned();
        Err(ApiError::Odd {
            command,
            reason,
            maybe_executed: true,
        })
    }

    /// Nothing is left to watch.
    fn over(&self, end: JobFate) -> JobWait {
        self.account.jobs().not_sent(&self.job);
        JobWait::over(self.duty.command, end)
    }

    /// Asks for the job by the id it was given.
    async fn recover(&self, lost: ApiError, wait: JobWait) -> Result<Taken, ApiError> {
        for pause in RECOVERY {
            tokio::select! {
                () = tokio::time::sleep(self.account.pace().of(pause)) => {}
                () = self.account.stopping() => break,
            }
            let fate = query(&self.account, &self.caller, &self.job).await;
            let (job, wait) = match fate {
                Ok(JobFate::Pending(job)) => {
                    let object = job.instance_id.as_deref();
                    self.account
                        .jobs()
                        .running(&self.account, &self.job, &self.job, object);
                    (job, wait)
                }
                Ok(JobFate::Succeeded(job)) => (job.clone(), self.over(JobFate::Succeeded(job))),
                Ok(JobFate::Failed(job)) => (job.clone(), self.over(JobFate::Failed(job))),
                Ok(JobFate::Unknown | JobFate::Foreign) | Err(_) => continue,
            };
            tracing::debug!(command = self.duty.command.name(), job = %job.id, "lost answer found by its job");
            return Ok(Taken {
                job: job.id,
                object: job.instance_id,
                wait,
            });
        }
        Err(lost)
    }
}
