//! What a server is asked about jobs, and what its answers mean.

use std::collections::HashSet;
use std::sync::Arc;

use super::JobFate;
use crate::cloudstack::account::{Account, Caller};
use crate::cloudstack::api::Params;
use crate::cloudstack::envelope::shortened;
use crate::cloudstack::types::{Entity as _, Fields, Job, JobId, JobStatus};
use crate::cloudstack::{ApiError, Command, Refusal};

/// Page of pending jobs; a server that allows less than this refuses, and each job is asked for.
const PENDING_PAGE: usize = 100;

/// Asks the server for a job, once.
pub(in crate::cloudstack) async fn query(
    account: &Arc<Account>,
    caller: &Caller,
    id: &JobId,
) -> Result<JobFate, ApiError> {
    let command = Command::QueryAsyncJobResult;
    let answer = account
        .call_once(caller, command, &Params::new().with("jobid", id))
        .await;
    match answer {
        Ok(answer) => {
            let job = Job::parse(Fields::of(&answer)).ok_or_else(|| ApiError::Odd {
                command,
                reason: "a job without an id".to_owned(),
                maybe_executed: false,
            })?;
            Ok(match job.status {
                JobStatus::Pending => JobFate::Pending(job),
                JobStatus::Succeeded => JobFate::Succeeded(job),
                JobStatus::Failed => JobFate::Failed(job),
            })
        }
        Err(ApiError::Gone(_)) => Ok(JobFate::Unknown),
        Err(ApiError::Denied(refusal)) if refusal.code == Some(531) => Ok(JobFate::Foreign),
        Err(error) => Err(error),
    }
}

/// One page of pending jobs of the account. A job that is missing from it is over, or beyond the page.
pub(super) async fn pending_jobs(
    account: &Arc<Account>,
    caller: &Caller,
) -> Result<HashSet<JobId>, ApiError> {
    let params = Params::new().with("page", 1).with("pagesize", PENDING_PAGE);
    let answer = account.call_once(caller, Command::ListAsyncJobs, &params).await?;
    let jobs = Fields::of(&answer).list("asyncjobs").filter_map(Job::parse);
    Ok(jobs
        .filter(|job| job.status == JobStatus::Pending)
        .map(|job| job.id)
        .collect())
}

/// What the end of a job means for the command that started it.
pub(in crate::cloudstack) fn outcome(command: Command, id: &JobId, end: JobFate) -> Result<Job, ApiError> {
    match end {
        JobFate::Succeeded(job) => Ok(job),
        JobFate::Failed(job) => Err(failure(command, &job)),
        JobFate::Pending(_) | JobFate::Unknown | JobFate::Foreign => Err(ApiError::JobLost {
            command,
            job: id.clone(),
        }),
    }
}

/// What a failed job says. Its result may be missing, and its code is 530 for nearly everything.
fn failure(command: Command, job: &Job) -> ApiError {
    let result = job.result.as_ref().map(Fields::of);
    let code = result
        .and_then(|result| result.small::<u16>("errorcode"))
        .or(job.result_code);
    let text = result.and_then(|result| result.text("errortext"));
    let text = text.unwrap_or_else(|| "the server left no reason".to_owned());
    let refusal = Refusal {
        command,
        code: code.filter(|code| *code != 0),
        text: shortened(&text),
    };
    ApiError::JobFailed {
        job: job.id.clone(),
        refusal,
    }
}
