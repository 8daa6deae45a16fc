//! From parameters to an answer: command, key, role, throttle, signature, parameters, access, in the order of the server.

use std::sync::Arc;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::auth::{self, Demands, Pairs};
use crate::catalog::{self, Run, Spec};
use crate::clock::Stamp;
use crate::commands::check_filter;
use crate::error::{ApiError, JobError, SANITISED};
use crate::jobs;
use crate::request::{Args, IdArg};
use crate::server::Server;
use crate::state::{Owner, RoleKind, World};

/// Who calls.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) name: String,
    pub(crate) account: Uuid,
    pub(crate) user: Uuid,
    pub(crate) kind: RoleKind,
}

/// One call that passed all checks that are the same for every command.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) caller: Caller,
    pub(crate) command: &'static str,
    pub(crate) args: Args,
    pub(crate) now: Stamp,
    /// A fault script lets the job end so, after its work.
    pub(crate) fail_job: Option<JobError>,
}

impl Call {
    /// Refuses with 531 unless the caller may act on what belongs to the owner.
    pub(crate) fn must_own(&self, world: &World, owner: Owner) -> Result<(), ApiError> {
        if world.may_use(self.caller.account, owner) {
            Ok(())
        } else {
            Err(ApiError::denied())
        }
    }

    /// Who reads the answer.
    pub(crate) fn reader(&self) -> crate::state::show::Reader {
        crate::state::show::Reader::of(self.caller.kind)
    }

    /// The error of an id that no longer names anything.
    pub(crate) fn gone(&self, parameter: &str, id: Uuid) -> ApiError {
        ApiError::no_entity(&self.command.to_lowercase(), parameter, &id.to_string())
    }
}

/// What goes back.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Key of the only entry of the object.
    pub(crate) envelope: String,
    pub(crate) result: Result<Value, ApiError>,
}

/// The command of a request, known or not.
pub(crate) struct Wanted<'a> {
    pub(crate) name: Option<&'a str>,
    pub(crate) spec: Option<&'static Spec>,
}

impl<'a> Wanted<'a> {
    /// Looks the command up.
    pub(crate) fn of(pairs: &'a Pairs) -> Self {
        let name = auth::value(pairs, "command");
        Self {
            name,
            spec: name.and_then(catalog::find),
        }
    }

    /// Key of the answer.
    fn envelope(&self) -> String {
        match self.name {
            None => "null".into(),
            Some(name) if catalog::exists(name) => self
                .spec
                .and_then(|spec| spec.envelope)
                .map_or_else(|| format!("{}response", name.to_lowercase()), str::to_owned),
            Some(_) => "errorresponse".into(),
        }
    }
}

/// Finds out who calls, with everything the server checks before it looks at the parameters.
pub(crate) fn admit(
    server: &Server,
    pairs: &Pairs,
    post: bool,
    now: Stamp,
) -> (String, Result<Caller, ApiError>) {
    let wanted = Wanted::of(pairs);
    let envelope = wanted.envelope();
    let world = server.world.lock();
    let strict = world.is_set("enforce.post.requests.and.timestamps");
    let name = wanted.name.unwrap_or_default();
    if strict
        && !post
        && !["get", "list", "query", "find"]
            .iter()
            .any(|verb| name.starts_with(verb))
    {
        let error = ApiError {
            cause: Some(9999),
            ..ApiError::with_code(
                400,
                format!("State changing command {name} needs to be sent using POST request"),
            )
        };
        return (envelope, Err(error));
    }
    let result = admit_caller(server, &world, pairs, &wanted, (strict, now));
    (envelope, result)
}

fn admit_caller(
    server: &Server,
    world: &World,
    pairs: &Pairs,
    wanted: &Wanted<'_>,
    (strict, now): (bool, Stamp),
) -> Result<Caller, ApiError> {
    let name = wanted
        .name
        .filter(|name| catalog::exists(name))
        .ok_or_else(ApiError::unauthorized)?;
    let key = auth::value(pairs, "apiKey").ok_or_else(ApiError::unauthorized)?;
    let (caller_name, secret, account) = server.key(key).ok_or_else(ApiError::unauthorized)?;
    let account = world
        .accounts
        .get(account)
        .filter(|account| account.enabled)
        .ok_or_else(ApiError::unauthorized)?;
    let caller = Caller {
        name: caller_name,
        account: account.id,
        user: account.user,
        kind: world.role_kind(account.id),
    };
    if !world
        .roles
        .get(account.role)
        .is_some_and(|role| role.allows(name))
    {
        return Err(ApiError::unavailable(format!(
            "The API [{name}] does not exist or is not available for the account for user id [{}].",
            Uuid::from_bytes(rand::random())
        )));
    }
    if caller.kind != RoleKind::Root {
        server
            .throttle
            .lock()
            .admit(world, account.id, (now, server.options.window_scale()))?;
    }
    if !auth::is_signed(pairs, &secret, Demands { timestamps: strict }, now) {
        return Err(ApiError::unauthorized());
    }
    Ok(caller)
}

/// Runs the command of an admitted caller.
pub(crate) async fn run(
    server: &Arc<Server>,
    caller: Caller,
    pairs: &Pairs,
    fail_job: Option<JobError>,
) -> Result<Value, ApiError> {
    let Some(spec) = Wanted::of(pairs).spec else {
        return Err(ApiError::internal("this command is not simulated"));
    };
    let root = caller.kind == RoleKind::Root;
    let result = run_spec(server, caller, (spec, pairs), fail_job).await;
    result.map_err(|error| {
        if error.code == 530 && !root && !error.public {
            ApiError {
                text: SANITISED.into(),
                ..error
            }
        } else {
            error
        }
    })
}

async fn run_spec(
    server: &Arc<Server>,
    caller: Caller,
    (spec, pairs): (&'static Spec, &Pairs),
    fail_job: Option<JobError>,
) -> Result<Value, ApiError> {
    let mut call = Call {
        caller,
        command: spec.name,
        args: Args::unpack(pairs)?,
        now: Stamp::now(),
        fail_job,
    };
    {
        let world = server.world.lock();
        let name = spec.text_name();
        call.args.check(&name, spec.params, &world)?;
        if spec.list {
            call.args.check(&name, catalog::LIST, &world)?;
        }
        check_project(&world, &call)?;
        if spec.list {
            check_filter(&call)?;
        }
        if world.shutting_down && matches!(spec.run, Run::Job { .. }) {
            return Err(ApiError::with_code(
                503,
                "Maintenance or Shutdown has been initiated on this management server. Can not accept new jobs",
            ));
        }
    }
    match spec.run {
        Run::Read(read) => read(&server.world.lock(), &call),
        Run::Change(change) => change(&mut server.world.lock(), &call),
        Run::Server(command) => command(server, &call),
        Run::Job { lock, start } => jobs::start(server, spec, call, (lock, start)).await,
    }
}

/// `projectid` of a project that the caller is not in is 432, whatever the command.
fn check_project(world: &World, call: &Call) -> Result<(), ApiError> {
    let Some(IdArg::Is(project)) = call.args.id("projectid") else {
        return Ok(());
    };
    if !world.projects.knows(project) {
        return Err(call.gone("projectid", project));
    }
    if world.may_use(call.caller.account, Owner::Project(project)) {
        return Ok(());
    }
    Err(ApiError::unavailable(format!(
        "The API [{}] does not exist or is not available for this account/user in project [{project}].",
        call.command
    )))
}

/// A list: cut into pages, with the total. No rows: no count either.
pub(crate) fn list(world: &World, call: &Call, key: &str, rows: Vec<Value>) -> Result<Value, ApiError> {
    let total = rows.len();
    if total == 0 {
        return Ok(json!({}));
    }
    let page = crate::paging::Page::of(world, call)?;
    if call.args.is("retrieveonlyresourcecount") {
        return Ok(json!({ "count": total }));
    }
    let rows = page.cut(rows);
    if rows.is_empty() {
        return Ok(json!({ "count": total }));
    }
    Ok(json!({ "count": total, key: rows }))
}
