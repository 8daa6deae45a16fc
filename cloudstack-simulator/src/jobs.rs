//! Asynchronous commands: the first phase inside the call, the second in a job.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use uuid::Uuid;

use crate::catalog::{LockOf, Spec, Start};
use crate::clock::Stamp;
use crate::dispatch::{Call, Caller};
use crate::error::{ApiError, JobError};
use crate::gate::Hold;
use crate::lock::{Held, LockKey};
use crate::router::Command;
use crate::server::Server;
use crate::state::{Job, JobStatus, RoleKind, World};

/// The second phase.
pub(crate) type Work =
    Box<dyn FnOnce(Arc<JobRun>) -> Pin<Box<dyn Future<Output = Result<Value, JobError>> + Send>> + Send>;

/// Kinds of objects that jobs show with their id.
const NAMED: [&str; 3] = ["IpAddress", "FirewallRule", "VirtualMachine"];

/// What the first phase leaves behind.
pub(crate) struct Started {
    /// The new object, for commands that create one.
    pub(crate) id: Option<Uuid>,
    /// What the job works on, where the server says so.
    pub(crate) instance: Option<(&'static str, Option<Uuid>)>,
    pub(crate) work: Work,
}

impl Started {
    /// A job without an object of its own.
    pub(crate) fn job<F, W>(work: F) -> Self
    where
        F: FnOnce(Arc<JobRun>) -> W + Send + 'static,
        W: Future<Output = Result<Value, JobError>> + Send + 'static,
    {
        Self {
            id: None,
            instance: None,
            work: Box::new(move |run| Box::pin(work(run))),
        }
    }

    /// The object that the first phase made.
    pub(crate) fn created(mut self, kind: &'static str, id: Uuid) -> Self {
        self.id = Some(id);
        self.instance = Some((kind, Some(id).filter(|_| NAMED.contains(&kind))));
        self
    }

    /// The object that the job works on.
    pub(crate) fn on(mut self, kind: &'static str, id: Uuid) -> Self {
        self.instance = Some((kind, Some(id).filter(|_| NAMED.contains(&kind))));
        self
    }
}

/// A job while it runs.
pub(crate) struct JobRun {
    server: Arc<Server>,
    id: Uuid,
    command: &'static str,
    pub(crate) caller: Caller,
    slowed: AtomicBool,
}

impl JobRun {
    /// Reads or changes the database.
    pub(crate) fn world<T>(&self, work: impl FnOnce(&mut World) -> T) -> T {
        work(&mut self.server.world.lock())
    }

    /// The job's id.
    pub(crate) fn id(&self) -> Uuid {
        self.id
    }

    /// Fails with the usual text unless the caller may act on what belongs to the owner.
    pub(crate) fn must_own(&self, owner: Option<crate::state::Owner>) -> Result<(), JobError> {
        let allowed =
            owner.is_some_and(|owner| self.world(|world| world.may_use(self.caller.account, owner)));
        if allowed { Ok(()) } else { Err(JobError::denied()) }
    }

    /// Sends a command to a router and waits for its answer. False: it refused, or is out of order.
    pub(crate) async fn send(&self, router: Uuid, command: Command) -> bool {
        let first = !self.slowed.swap(true, Ordering::Relaxed);
        if first {
            self.server.gate.pass(&Hold::at_router(self.command)).await;
        }
        self.server.send(router, command, (self.id, first)).await
    }

    /// Takes a lock of the server.
    pub(crate) async fn lock(&self, key: LockKey) -> Held {
        self.server
            .locks
            .take(key, self.server.options.lock_pause())
            .await
    }
}

/// Runs the first phase under its lock, then starts the job.
pub(crate) async fn start(
    server: &Arc<Server>,
    spec: &'static Spec,
    call: Call,
    (lock, start): (Option<LockOf>, Start),
) -> Result<Value, ApiError> {
    let wanted = match call.args.text("customjobid") {
        Some(text) => Some(
            Uuid::try_parse(text)
                .map_err(|_| ApiError::invalid(format!("UUID: {text} doesn't follow the UUID format")))?,
        ),
        None => None,
    };
    let key = lock.and_then(|lock| lock(&server.world.lock(), &call));
    let held = match key {
        Some(key) => Some(server.locks.take(key, server.options.lock_pause()).await),
        None => None,
    };
    if held.is_some() && !server.options.lock_hold().is_zero() {
        tokio::time::sleep(server.options.lock_hold()).await;
    }
    let started = start(&mut server.world.lock(), &call)?;
    drop(held);
    let id = wanted.unwrap_or_else(new_id);
    record(server, spec, &call, (id, started.instance))?;
    let fail = call.fail_job;
    let run = Arc::new(JobRun {
        server: Arc::clone(server),
        id,
        command: spec.name,
        caller: call.caller,
        slowed: AtomicBool::new(false),
    });
    let delay = server.options.delays().before(spec.name);
    let work = started.work;
    server.spawn(async move {
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        run.server.gate.pass(&Hold::at_start(run.command)).await;
        let result = work(Arc::clone(&run)).await;
        finish(&run, fail.map_or(result, Err));
    });
    Ok(match started.id {
        Some(object) => json!({ "id": object, "jobid": id }),
        None => json!({ "jobid": id }),
    })
}

/// Writes the job down. An id that is taken is an error, and the object of the first phase stays without a job.
fn record(
    server: &Server,
    spec: &Spec,
    call: &Call,
    (id, instance): (Uuid, Option<(&'static str, Option<Uuid>)>),
) -> Result<(), ApiError> {
    let mut world = server.world.lock();
    if world.jobs.get(id).is_some() {
        return Err(ApiError::internal(format!(
            "Duplicate entry '{id}' for key 'async_job.uuid'"
        )));
    }
    world.jobs.insert(Job {
        id,
        account: call.caller.account,
        user: call.caller.user,
        class: spec.class_for(call.caller.kind == RoleKind::Root),
        instance,
        created: Stamp::now(),
        completed: None,
        status: JobStatus::Pending,
    });
    Ok(())
}

fn finish(run: &JobRun, result: Result<Value, JobError>) {
    run.world(|world| {
        if let Some(job) = world.jobs.get_mut(run.id()) {
            job.completed = Some(Stamp::now());
            job.status = match result {
                Ok(value) => JobStatus::Done(value),
                Err(JobError { code, text }) => JobStatus::Failed { code, text },
            };
        }
    });
    run.server.settled.notify_waiters();
}

/// A new random id.
pub(crate) fn new_id() -> Uuid {
    uuid::Builder::from_random_bytes(rand::random()).into_uuid()
}
