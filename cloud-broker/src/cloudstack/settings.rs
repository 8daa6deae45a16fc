//! Where an account is and what it lives in.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::budget::Rate;
use super::{ApiKeys, Pace};
use crate::metrics::CloudStackMetrics;

/// What is allowed at once and per second until somebody says otherwise.
const DEFAULT_RATE: Rate = Rate {
    per_second: 50.0,
    burst: 100.0,
};

/// Where the API is and how to speak to it.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The endpoint, such as `https://cloud.example.org/client/api`.
    pub url: url::Url,
    /// Who calls.
    pub keys: ApiKeys,
    /// Certificates in PEM that are trusted besides the system's.
    pub ca_pem: Option<Vec<u8>>,
    /// Whether the server's certificate is looked at.
    pub verify_tls: bool,
    /// How long one call may take. Servers hold some calls for 15 s while they wait for a lock.
    pub request_timeout: Duration,
    /// How many calls may go, if the operator says so.
    pub rate: RateSettings,
    /// How long waits are.
    pub pace: Pace,
}

impl Settings {
    /// Whether the URL can be that of an API.
    pub(super) fn check(&self) -> Result<(), AccountError> {
        let url = &self.url;
        let refuse = |reason| {
            let mut url = url.clone();
            // Neither can fail for a URL with a host, and without one there is nothing to hide.
            let _ = (url.set_password(None), url.set_username(""));
            url.set_query(None);
            Err(AccountError::Url {
                url: url.to_string(),
                reason,
            })
        };
        if !matches!(url.scheme(), "http" | "https") {
            return refuse("it is neither http nor https");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return refuse("it has a user or a password in it");
        }
        if url.query().is_some() || url.fragment().is_some() {
            return refuse("it has a query or a fragment");
        }
        Ok(())
    }

    /// Settings with everything but the endpoint and the keys as it usually is.
    pub fn new(url: url::Url, keys: ApiKeys) -> Self {
        Self {
            url,
            keys,
            ca_pem: None,
            verify_tls: true,
            request_timeout: Duration::from_mins(1),
            rate: RateSettings::default(),
            pace: Pace::REAL,
        }
    }
}

/// The operator's word about the rate; a lower word of the server counts nevertheless.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RateSettings {
    /// Calls per second, on average.
    pub per_second: Option<f64>,
    /// Calls at once after a silence.
    pub burst: Option<u32>,
}

impl RateSettings {
    pub(super) fn rate(self) -> Rate {
        let per_second = self.per_second.filter(|rate| rate.is_finite() && *rate > 0.0);
        let per_second = per_second.unwrap_or(DEFAULT_RATE.per_second);
        let burst = self.burst.filter(|burst| *burst > 0).map(f64::from);
        let burst = burst.unwrap_or_else(|| DEFAULT_RATE.burst.min(per_second * 2.0).max(1.0));
        Rate { per_second, burst }
    }
}

/// What an account needs of the process it lives in.
#[derive(Debug, Clone)]
pub struct Environment {
    /// Where tasks are started that shutdown waits for: a command that was sent is followed to its job even if the
    /// caller leaves.
    pub tasks: TaskTracker,
    /// Tells that the process is about to stop: no write is sent any more, no job waited for.
    pub shutdown: CancellationToken,
    /// What is counted.
    pub metrics: CloudStackMetrics,
}

/// Why an account can't be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccountError {
    /// The URL is none of an API.
    #[error("the API's URL {url} can't be used: {reason}; expected is http(s)://HOST[:PORT]/client/api")]
    Url {
        /// The URL, without any credentials in it.
        url: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The file of trusted certificates can't be used.
    #[error("the CA certificates can't be used: {reason}; PEM is expected")]
    CaFile {
        /// What is wrong with it.
        reason: String,
    },
    /// The client can't be built, as when the system has no certificates.
    #[error("no client for the API can be built: {reason}")]
    Client {
        /// What is wrong.
        reason: String,
    },
}
