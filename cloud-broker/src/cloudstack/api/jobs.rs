//! Jobs, whoever started them.

use super::Api;
use crate::cloudstack::poller::{JobFate, query};
use crate::cloudstack::types::JobId;
use crate::cloudstack::{ApiError, Command, CommandClass};

impl Api {
    /// What the server knows of a job, whoever started it.
    pub async fn job(&self, id: &JobId) -> Result<JobFate, ApiError> {
        let mut attempt = 1;
        loop {
            let error = match query(self.account(), &self.caller(), id).await {
                Ok(fate) => return Ok(fate),
                Err(error) => error,
            };
            self.wait_for_repetition(CommandClass::Read, error, attempt)
                .await?;
            attempt += 1;
        }
    }

    /// Waits until a job is over, whoever started it, and tells its end. `command` is what it was started by.
    pub async fn await_job(&self, command: Command, id: &JobId) -> Result<JobFate, ApiError> {
        let jobs = self.account().jobs();
        if let Some(wait) = jobs.wait(id) {
            return wait.end().await;
        }
        let fate = self.job(id).await?;
        if !matches!(fate, JobFate::Pending(_)) {
            return Ok(fate);
        }
        jobs.adopt(self.account(), id, self.duty(command, None))
            .end()
            .await
    }

    /// Waits until every job is over that was started for this piece of work, by this process, whoever waited for it then.
    /// Without a piece of work there is nothing to wait for.
    pub async fn settled(&self) {
        let Some(work) = self.work() else { return };
        for id in self.account().jobs().of_work(self.tenant(), work) {
            if let Some(wait) = self.account().jobs().wait(&id) {
                let _ = wait.end().await;
            }
        }
    }
}
