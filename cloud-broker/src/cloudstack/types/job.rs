//! Asynchronous jobs.

use serde_json::Value;

use super::wire::{Entity, Fields};
use super::{JobId, PublicIpAddress, Timestamp};

/// A job as the server describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Its id, the server's or the one that the caller chose.
    pub id: JobId,
    /// How far it is.
    pub status: JobStatus,
    /// The object it works on, where the server says it (creates and commands on addresses).
    pub instance_id: Option<String>,
    /// What it left: the object, `{"success":true}`, or an error; missing if the server that ran it was restarted.
    pub result: Option<Value>,
    /// The code of a failure; may be 0 for one.
    pub result_code: Option<u16>,
    /// When it was started, by the server's clock.
    pub created: Option<Timestamp>,
}

impl Job {
    /// What a command left that had no need of a job.
    pub(crate) fn on_the_spot(id: JobId, result: Value) -> Self {
        let status = JobStatus::Succeeded;
        Self {
            id,
            status,
            instance_id: None,
            result: Some(result),
            result_code: None,
            created: None,
        }
    }

    /// The address in the result, as of `associateIpAddress`.
    pub fn address(&self) -> Option<PublicIpAddress> {
        let result = self.result.as_ref()?;
        PublicIpAddress::parse(Fields::of(result.get("ipaddress")?))
    }
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobStatus {
    /// It runs.
    Pending,
    /// It did what it was asked for.
    Succeeded,
    /// It ended without.
    Failed,
}

impl Entity for Job {
    const KEYS: &'static [&'static str] = &["asyncjobs"];

    /// A job without a known status counts as pending: it is asked again.
    fn parse(fields: Fields<'_>) -> Option<Self> {
        Some(Self {
            id: fields.id("jobid").or_else(|| fields.id("id"))?,
            status: match fields.number("jobstatus") {
                Some(1) => JobStatus::Succeeded,
                Some(2) => JobStatus::Failed,
                Some(_) | None => JobStatus::Pending,
            },
            instance_id: fields.text("jobinstanceid"),
            result: fields.raw("jobresult").cloned(),
            result_code: fields.small("jobresultcode"),
            created: fields.time("created"),
        })
    }

    fn identity(&self) -> &str {
        self.id.as_str()
    }
}
