//! When the cloud is asked about itself.
//!
//! At the start the machine list and the version are read at once, so that wrong keys or a wrong address show in the log before the first node does. The rest
//! (rights, project, zones, networks, version) is asked a little later, one call after the other, and then rarely: none of it
//! changes by itself. A key that may not ask is normal; only a server that does not answer is asked again soon.

use std::sync::Arc;
use std::time::{Duration, Instant};

use runtime::host::Host;

use super::findings::{Finding, Severity};
use super::{CallFacts, Known, Survey, describe, version};
use crate::cloudstack::types::Version;
use crate::cloudstack::{Api, ApiError, Command, Listing, NetworkQuery, Pace};
use crate::directory::{Directory, Served};
use crate::metrics::ConfigMetrics;

/// How often schedules are looked at, and findings compared.
const TICK: Duration = Duration::from_secs(5);
/// How long after the start of a tenant the cloud is asked about itself: later than its first nodes and Services need the rate.
const AFTER_START: Duration = Duration::from_secs(20);
/// A server takes long to say what a key may do: it is asked when nobody's work has been under way for a while, or after all.
const QUIET: Duration = Duration::from_secs(10);
const AFTER_ALL: Duration = Duration::from_mins(2);
/// How long an answer is good for.
const PERIOD: Duration = Duration::from_hours(6);
/// Waits after failures.
const FIRST_RETRY: Duration = Duration::from_secs(15);
const LONGEST_RETRY: Duration = Duration::from_mins(5);

/// When a tenant is asked about next.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Schedule {
    /// The machine list was read once.
    contact: bool,
    next_contact: Option<Instant>,
    next: Option<Instant>,
    failures: u32,
}

impl Schedule {
    fn failed(&mut self, now: Instant, pace: Pace) -> Instant {
        let wait = FIRST_RETRY
            .saturating_mul(1 << self.failures.min(8))
            .min(LONGEST_RETRY);
        self.failures += 1;
        now + pace.of(wait)
    }
}

/// Surveys every tenant for as long as the process lives.
pub async fn watch(host: Host, directory: Arc<Directory>, metrics: ConfigMetrics, pace: Pace) {
    let shutdown = host.shutdown();
    loop {
        let count = |tenant: &str, findings: &[Finding]| {
            for severity in [Severity::Info, Severity::Warning, Severity::Error] {
                let of_it = findings
                    .iter()
                    .filter(|finding| finding.severity == severity)
                    .count();
                metrics.findings(tenant, severity.word(), of_it);
            }
        };
        let host = &host;
        let round = directory.served().into_iter().map(|served| async move {
            // What one tenant's cloud says must not keep the others from being looked at.
            if host.contain("survey", step(&served)).await.is_none() {
                put_off(&served);
            }
            count(
                served.tenant.cluster.as_str(),
                &describe(&served, &CallFacts::default()).findings,
            );
        });
        tokio::select! {
            _ = futures::future::join_all(round) => {}
            () = shutdown.cancelled() => return,
        }
        if tokio::time::timeout(pace.of(TICK), shutdown.cancelled())
            .await
            .is_ok()
        {
            return;
        }
    }
}

async fn step(served: &Served) {
    let (now, pace) = (runtime::clock::now(), served.shared.cloud.pace());
    let mut schedule = *served.survey.due.lock();
    let is_due = |at: Option<Instant>| at.is_none_or(|at| at <= now);
    if !schedule.contact && is_due(schedule.next_contact) {
        let list = served
            .shared
            .instances
            .lists()
            .within(&served.api, served.machines_ttl);
        let (list, _) = futures::join!(list, served.version());
        // Who is told that a project is not his has reached the API with good keys.
        schedule.contact = !matches!(&list, Err(unread) if !matches!(unread.error, ApiError::Denied(_)));
        if schedule.contact {
            schedule.failures = 0;
            schedule.next = Some(now + pace.of(AFTER_START));
            tracing::info!(tenant = %served.tenant.cluster, api = %served.access.url, "the API answers");
        } else {
            schedule.next_contact = Some(schedule.failed(now, pace));
        }
    } else if schedule.contact && is_due(schedule.next) && is_time(served, schedule.next, now) {
        schedule.next = Some(match survey(served).await {
            Ok(known) => {
                keep(&served.survey, known);
                schedule.failures = 0;
                now + PERIOD
            }
            Err(error) => {
                tracing::debug!(tenant = %served.tenant.cluster, fault = %error, "the survey is put off");
                schedule.failed(now, pace)
            }
        });
    }
    *served.survey.due.lock() = schedule;
}

/// Whether a survey that is due disturbs nobody, or has been put off for long enough.
fn is_time(served: &Served, due: Option<Instant>, now: Instant) -> bool {
    let pace = served.shared.cloud.pace();
    let waited = due.map(|due| now.saturating_duration_since(due));
    served.api.account().is_quiet_for(pace.of(QUIET))
        || waited.is_some_and(|waited| waited >= pace.of(AFTER_ALL))
}

/// The next attempt comes later.
fn put_off(served: &Served) {
    let (now, pace) = (runtime::clock::now(), served.shared.cloud.pace());
    let mut schedule = served.survey.due.lock();
    let later = Some(schedule.failed(now, pace));
    if schedule.contact {
        schedule.next = later;
    } else {
        schedule.next_contact = later;
    }
}

/// What could not be asked this time keeps its last answer.
fn keep(survey: &Survey, new: Known) {
    let mut known = survey.known.lock();
    known.networks = new.networks.or(known.networks.take());
    known.zones = new.zones.or(known.zones.take());
    known.project = new.project.or(known.project.take());
    known.version = new.version.or(known.version.take());
    known.rights.extend(new.rights);
}

/// Asks once. Fails only if the server does not answer; a refusal is an answer.
async fn survey(served: &Served) -> Result<Known, ApiError> {
    let api = &served.api;
    let mut known = Known::default();
    if let Some(listing) = answered(api.commands().await)?
        && listing.is_complete()
    {
        let allowed = listing.items();
        let is_allowed = |command: &Command| {
            allowed
                .iter()
                .any(|known| known.name.eq_ignore_ascii_case(command.name()))
        };
        known.rights = Command::ALL
            .iter()
            .map(|command| (*command, is_allowed(command)))
            .collect();
    }
    if let Some(project) = api.project() {
        known.project = answered(api.find_project(project).await)?;
    }
    if !served.tenant.scope.zones.is_empty() {
        known.zones = answered(api.zones().await)?.map(Listing::into_items);
    }
    known.networks = answered(api.networks(&NetworkQuery::default()).await)?.map(Listing::into_items);
    let mut asked = served.survey.version.lock().await;
    let (new, text) = ask_version(api).await?;
    *asked = new;
    known.version = text;
    Ok(known)
}

/// What became of the question for the server's version.
#[derive(Debug, Default)]
pub(super) enum AskedVersion {
    /// It was not asked, or not answered.
    #[default]
    Not,
    /// The server said this, or its answers show that it is at least this.
    Answered(Option<Version>),
}

/// Asks for the version, with the server's own word for it if the key may ask.
async fn ask_version(api: &Api) -> Result<(AskedVersion, Option<String>), ApiError> {
    let refused_with = match api.capabilities().await {
        Ok(capabilities) => {
            api.account().server_grants(capabilities.api_limit);
            let text = Some(capabilities.version_text).filter(|text| !text.is_empty());
            return Ok((AskedVersion::Answered(capabilities.version), text));
        }
        Err(ApiError::Denied(refusal) | ApiError::Rejected(refusal) | ApiError::Gone(refusal)) => {
            refusal.code
        }
        // An answer that says nothing of the version will not say more the next time.
        Err(ApiError::Odd { .. }) => None,
        Err(error) => return Err(error),
    };
    let shown = version::by_answers(api, refused_with).await?;
    let asked = shown.map_or(AskedVersion::Not, |version| AskedVersion::Answered(Some(version)));
    Ok((asked, None))
}

impl Survey {
    /// The server's version, asked once, or what its answers show of it where the key may not ask; `None` where they show nothing.
    /// Fails only if the server does not answer just now: that is another matter, since it may be known a moment later.
    pub async fn version(&self, api: &Api) -> Result<Option<Version>, ApiError> {
        let mut asked = self.version.lock().await;
        if let AskedVersion::Answered(version) = *asked {
            return Ok(version);
        }
        let (new, text) = ask_version(api).await?;
        *asked = new;
        if text.is_some() {
            self.known.lock().version = text;
        }
        Ok(match *asked {
            AskedVersion::Answered(version) => version,
            AskedVersion::Not => None,
        })
    }
}

/// A refusal tells nothing but that this may not be asked.
pub(super) fn answered<T>(result: Result<T, ApiError>) -> Result<Option<T>, ApiError> {
    match result {
        Ok(answer) => Ok(Some(answer)),
        Err(ApiError::Denied(_) | ApiError::Rejected(_) | ApiError::Gone(_)) => Ok(None),
        Err(error) => Err(error),
    }
}
