//! One set of keys at one endpoint, shared by every tenant that uses it.
//!
//! Decides the order of things in a call: turn in the budget, breaker, signature, transport, meaning, and what each
//! outcome does to budget, breaker and metrics. Whatever must not be done twice at a time belongs here: the rate, the jobs,
//! the locks. Keys, endpoint and rate can be replaced while calls run. What a refusal says of the role is decided in `rights`.

mod connection;
mod rights;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use runtime::clock;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use super::api::Params;
use super::breaker::{Admission, Breaker};
use super::budget::{Claim, Rate};
use super::envelope::understand;
use super::http::{Answer, NoAnswer};
use super::poller::Jobs;
use super::sign::signed_body;
use super::turnstile::Turnstile;
use super::types::{ProjectId, Timestamp};
use super::{AccountError, ApiError, BreakerState, Command, Environment, Locks, Pace, Settings};
use crate::metrics::{CallLabels, CloudStackMetrics};
use connection::Connection;
use rights::Rights;

/// How long a signed call is valid. Servers that enforce it allow a quarter of an hour, by their own clock.
const VALIDITY: Duration = Duration::from_mins(10);
/// A difference between the clocks that is corrected, in seconds. Smaller ones are within what servers allow.
const SKEW: i64 = 60;

/// One set of keys at one endpoint.
pub struct Account {
    name: String,
    connection: ArcSwap<Connection>,
    turnstile: Turnstile,
    breaker: Mutex<Breaker>,
    jobs: Arc<Jobs>,
    locks: Locks,
    /// Seconds that the server's clock is ahead of ours.
    clock_offset: AtomicI64,
    /// Commands that were seen allowed or refused.
    rights: Mutex<Rights>,
    /// Ends when other keys take the place of the present ones.
    rekeyed: Mutex<CancellationToken>,
    /// Why the last call that got no answer got none.
    last_failure: Mutex<String>,
    /// When the server refused a call last because there were too many.
    throttled_at: Mutex<Option<Instant>>,
    pace: Pace,
    environment: Environment,
}

/// Who calls, for fairness.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    pub(super) tenant: Arc<str>,
    pub(super) share: u32,
    /// Ends when the account gets other keys than it had when the caller began.
    pub(super) rekeyed: CancellationToken,
}

/// The right to send one call; given back to the breaker if it is not used.
pub(super) struct Pass {
    account: Arc<Account>,
    rekeyed: CancellationToken,
    probe: bool,
    used: bool,
}

impl Account {
    /// An account under a name for logs and metrics. Must be called inside a runtime.
    pub fn new(name: &str, settings: &Settings, environment: Environment) -> Result<Arc<Self>, AccountError> {
        Ok(Arc::new(Self {
            name: name.to_owned(),
            connection: ArcSwap::from_pointee(Connection::build(settings)?),
            turnstile: Turnstile::new(settings.rate.rate()),
            breaker: Mutex::new(Breaker::new(|wait| settings.pace.of(wait))),
            jobs: Arc::new(Jobs::new(settings.pace)),
            locks: Locks::default(),
            clock_offset: AtomicI64::new(0),
            rights: Mutex::default(),
            rekeyed: Mutex::default(),
            last_failure: Mutex::default(),
            throttled_at: Mutex::default(),
            pace: settings.pace,
            environment,
        }))
    }

    /// Replaces endpoint, keys and rate; calls that run end on what they began with. The pace stays. Tells whether another
    /// user's keys or another endpoint took the place of the ones before, so that what was seen through those says nothing any more.
    pub fn replace(&self, settings: &Settings) -> Result<bool, AccountError> {
        let connection = Connection::build(settings)?;
        let is_other = !self.connection.load().is_same_account(&connection);
        if is_other {
            // Before the new keys are there, so that no step is begun on them for what was seen through the old ones.
            std::mem::take(&mut *self.rekeyed.lock()).cancel();
        }
        self.connection.store(Arc::new(connection));
        self.turnstile.configure(settings.rate.rate());
        self.rights.lock().forget();
        self.breaker.lock().answered();
        Ok(is_other)
    }

    /// Ends when other keys take the place of the present ones.
    pub fn rekeyed(&self) -> CancellationToken {
        self.rekeyed.lock().clone()
    }

    /// The name for logs and metrics.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What must happen one after the other.
    pub fn locks(&self) -> &Locks {
        &self.locks
    }

    /// How long waits are.
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// Whether calls are held back because the API does not answer.
    pub fn breaker(&self) -> BreakerState {
        self.breaker.lock().state()
    }

    /// Tells how many calls the server grants, as its capabilities say; `None` if it does not count.
    pub fn server_grants(&self, limit: Option<(u32, Duration)>) {
        self.turnstile
            .server_grants(limit.map(|(calls, window)| Rate::of_window(calls, window)));
    }

    /// Seconds that the server's clock is ahead of ours (or behind, if negative), as far as a gateway tells it.
    pub fn clock_offset(&self) -> i64 {
        self.clock_offset.load(Ordering::Relaxed)
    }

    /// When the server refused a call last because the account had made too many, all its tools together.
    pub fn throttled_at(&self) -> Option<Instant> {
        *self.throttled_at.lock()
    }

    /// Commands that the caller's role was seen to allow or to refuse since the keys were set, by calls in this project and by
    /// those that named none.
    pub fn rights(&self, project: Option<&ProjectId>) -> BTreeMap<Command, bool> {
        self.rights.lock().of(project)
    }

    /// Whether a job of this account that is not over works on an object, by the object's id.
    pub fn works_on(&self, object: &str) -> bool {
        self.jobs.works_on(object)
    }

    pub(super) fn jobs(&self) -> &Arc<Jobs> {
        &self.jobs
    }

    pub(super) fn tasks(&self) -> &TaskTracker {
        &self.environment.tasks
    }

    pub(super) fn metrics(&self) -> &CloudStackMetrics {
        &self.environment.metrics
    }

    /// Ends when the process is about to stop.
    pub(super) async fn stopping(&self) {
        self.environment.shutdown.cancelled().await;
    }

    /// Waits for the right to send a call: a turn in the budget, and an API that answers.
    pub(super) async fn admit(self: &Arc<Self>, caller: &Caller, command: Command) -> Result<Pass, ApiError> {
        self.refuse_while_open(command)?;
        let class = command.class();
        let claim = Claim {
            tenant: Arc::clone(&caller.tenant),
            share: caller.share,
            class,
        };
        let since = clock::now();
        self.turnstile.pass(&claim).await;
        self.metrics()
            .waited(&self.name, &caller.tenant, class.as_str(), since.elapsed());
        if command.is_write() && self.environment.shutdown.is_cancelled() {
            return Err(ApiError::Stopping { command });
        }
        let pass = |probe| Pass {
            account: Arc::clone(self),
            rekeyed: caller.rekeyed.clone(),
            probe,
            used: false,
        };
        match self.breaker.lock().admit(clock::now()) {
            Admission::Go => Ok(pass(false)),
            Admission::Probe => Ok(pass(true)),
            Admission::Wait(wait) => Err(self.held_back(command, wait)),
        }
    }

    /// Whether nobody's work is under way, and none has been for so long.
    pub fn is_quiet_for(&self, time: Duration) -> bool {
        self.jobs.is_quiet_for(time)
    }

    /// A call that is not sent says why the ones before it failed.
    fn held_back(&self, command: Command, wait: Duration) -> ApiError {
        tracing::trace!(account = %self.name, command = command.name(), ?wait, "the call is held back");
        // The same text each time, so that people see one event and not many.
        let reason = format!("it did not answer several times ({})", self.last_failure.lock());
        ApiError::Unreachable {
            command,
            reason,
            maybe_executed: false,
        }
    }

    /// Nobody should wait for a turn that is of no use.
    fn refuse_while_open(&self, command: Command) -> Result<(), ApiError> {
        match self.breaker.lock().wait(clock::now()) {
            Some(wait) => Err(self.held_back(command, wait)),
            None => Ok(()),
        }
    }

    /// One call without repetition.
    pub(super) async fn call_once(
        self: &Arc<Self>,
        caller: &Caller,
        command: Command,
        params: &Params,
    ) -> Result<Value, ApiError> {
        let pass = self.admit(caller, command).await?;
        self.send(pass, command, params, 1).await
    }

    /// Sends a call and tells budget, breaker and metrics what became of it.
    pub(super) async fn send(
        &self,
        pass: Pass,
        command: Command,
        params: &Params,
        attempt: u32,
    ) -> Result<Value, ApiError> {
        let class = command.class().as_str();
        let span = tracing::debug_span!(
            "cloudstack_call", account = %self.name, command = command.name(), class, attempt,
            ms = tracing::field::Empty, job = tracing::field::Empty,
        );
        let since = clock::now();
        let result = self
            .exchange(&pass, command, params)
            .instrument(span.clone())
            .await;
        let took = since.elapsed();
        let outcome = result.as_ref().map_or_else(ApiError::class, |_| "ok");
        self.settle(pass, result.as_ref().err());
        let project = params.get("projectid");
        self.rights.lock().learn(command, project, result.as_ref().err());
        self.metrics().called(
            &self.name,
            CallLabels {
                command: command.name(),
                class,
                outcome,
            },
            took,
        );
        span.record("ms", u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        if let Some(job) = result
            .as_ref()
            .ok()
            .and_then(|answer| answer.get("jobid"))
            .and_then(Value::as_str)
        {
            span.record("job", job);
        }
        span.in_scope(|| match &result {
            Ok(_) => tracing::debug!("call answered"),
            Err(error) => tracing::debug!(%error, detail = %error.detail(), "call failed"),
        });
        result
    }

    async fn exchange(&self, pass: &Pass, command: Command, params: &Params) -> Result<Value, ApiError> {
        let connection = self.connection.load_full();
        // In this order: whoever has the new keys by now sees that they are new. A write was meant for what the old ones showed.
        if command.is_write() && pass.rekeyed.is_cancelled() {
            return Err(ApiError::Rekeyed { command });
        }
        let offset = Some(self.clock_offset())
            .filter(|offset| offset.abs() >= SKEW)
            .unwrap_or(0);
        let now = Timestamp::from(clock::wall());
        let expires = Timestamp::from_seconds(now.seconds() + offset).after(VALIDITY);
        let body = signed_body(command.name(), params.pairs(), &connection.keys, expires);
        match connection.transport.post(body).await {
            Ok(answer) => {
                self.compare_clocks(&answer);
                understand(command, &answer)
            }
            Err(NoAnswer { not_sent, reason }) => {
                let maybe_executed = command.is_write() && !not_sent;
                Err(ApiError::Unreachable {
                    command,
                    reason,
                    maybe_executed,
                })
            }
        }
    }

    fn compare_clocks(&self, answer: &Answer) {
        if let Some(date) = answer.date {
            let now = Timestamp::from(clock::wall());
            self.clock_offset
                .store(date.seconds() - now.seconds(), Ordering::Relaxed);
        }
    }

    fn settle(&self, mut pass: Pass, error: Option<&ApiError>) {
        if matches!(error, Some(ApiError::Rekeyed { .. })) {
            return;
        }
        pass.used = true;
        if let Some(ApiError::Throttled { after, .. }) = error {
            self.turnstile.throttled(*after);
            *self.throttled_at.lock() = Some(clock::now());
        }
        let (before, after) = {
            let mut breaker = self.breaker.lock();
            let before = breaker.state();
            match error {
                Some(ApiError::Unreachable { reason, .. }) => {
                    self.last_failure.lock().clone_from(reason);
                    breaker.failed(clock::now(), pass.probe);
                }
                Some(_) | None => breaker.answered(),
            }
            (before, breaker.state())
        };
        match (before, after, error) {
            (BreakerState::Closed, BreakerState::Open { .. }, Some(error)) => {
                self.metrics().breaker_open(&self.name, true);
                tracing::warn!(account = %self.name, %error, "the API does not answer; calls are held back");
            }
            (BreakerState::Open { since }, BreakerState::Closed, _) => {
                self.metrics().breaker_open(&self.name, false);
                let seconds = since.elapsed().as_secs();
                tracing::info!(account = %self.name, seconds, "the API answers again");
            }
            _ => {}
        }
    }
}

impl std::fmt::Debug for Account {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Account")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if !self.used {
            self.account.breaker.lock().abandoned(self.probe);
        }
    }
}

#[cfg(test)]
mod tests;
