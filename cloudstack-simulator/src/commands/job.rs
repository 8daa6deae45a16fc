//! Asking about jobs.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::catalog::Spec;
use crate::dispatch::{self, Call};
use crate::error::ApiError;
use crate::request::{Entity, Kind, Param, TEXT, may, need};
use crate::scope::Scope;
use crate::state::{JobStatus, Owner, World};

const QUERY: &[Param] = &[need("jobid", Kind::Id(Entity::Job))];
const FILTERS: &[Param] = &[may("startdate", TEXT)];

pub(super) const SPECS: &[Spec] = &[
    Spec::read("queryAsyncJobResult", QUERY, query),
    Spec::read("listAsyncJobs", FILTERS, list),
];

fn query(world: &World, call: &Call) -> Result<Value, ApiError> {
    let id = call.args.uuid("jobid").unwrap_or_default();
    let job = world.jobs.get(id).ok_or_else(|| call.gone("jobid", id))?;
    if !world.may_use(call.caller.account, Owner::Account(job.account)) {
        return Err(ApiError::denied_because(format!(
            "Account {} is not authorized to see job id={}",
            account(world, call.caller.account),
            world.jobs.number(id)
        )));
    }
    Ok(Value::Object(world.show_job(job)))
}

fn account(world: &World, id: Uuid) -> String {
    let name = world
        .accounts
        .get(id)
        .map(|account| account.name.as_str())
        .unwrap_or_default();
    format!(
        "Account [{{\"accountName\":\"{name}\",\"id\":{},\"uuid\":\"{id}\"}}]",
        world.accounts.number(id)
    )
}

/// Only jobs that run; finished ones don't appear, whatever the start date.
fn list(world: &World, call: &Call) -> Result<Value, ApiError> {
    if let Some(date) = call.args.text("startdate") {
        let good = date.len() >= 10
            && date.as_bytes().iter().take(10).enumerate().all(|(at, byte)| {
                if at == 4 || at == 7 {
                    *byte == b'-'
                } else {
                    byte.is_ascii_digit()
                }
            });
        if !good {
            return Err(ApiError::parameter(format!(
                "Unable to parse date {date} for command listasyncjobs, please pass dates in the format mentioned in the api documentation"
            )));
        }
    }
    let scope = Scope::of(world, call, false)?;
    let rows = world.jobs.iter().filter(|job| {
        matches!(job.status, JobStatus::Pending) && scope.has(world, Owner::Account(job.account))
    });
    let shown = rows.map(|job| Value::Object(world.show_job(job)));
    dispatch::list(world, call, "asyncjobs", shown.collect())
}

/// What a job of one step answers.
pub(super) fn success() -> Value {
    json!({ "success": true })
}
