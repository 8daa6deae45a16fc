//! One POST to the endpoint.
//!
//! Decides timeouts, TLS and what of a transport failure is told: whether the call was certainly not sent, and why,
//! without address or parameters. Leaves the meaning of an answer to `envelope`, and repetition to the caller. Facts: the
//! server closes idle connections after 30 s; a cookie would be looked at before the signature; everything may be sent as
//! a form by POST, and with enforcement on writes must be.

use std::error::Error as _;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, DATE, HeaderName, RETRY_AFTER};

use super::types::Timestamp;
use super::{AccountError, Settings};

/// Longest answer that is read.
const MAX_ANSWER: usize = 64 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// A client for one endpoint.
#[derive(Debug)]
pub(super) struct Transport {
    client: reqwest::Client,
    url: url::Url,
}

/// What came back.
#[derive(Debug, Clone, Default)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) content_type: String,
    /// The clock of a gateway; the server itself sends none.
    pub(super) date: Option<Timestamp>,
    pub(super) retry_after: Option<Duration>,
    pub(super) body: Vec<u8>,
}

/// Why nothing came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NoAnswer {
    /// Whether the call certainly did not leave this machine.
    pub(super) not_sent: bool,
    pub(super) reason: String,
}

impl Transport {
    pub(super) fn build(settings: &Settings) -> Result<Self, AccountError> {
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("cloud-broker/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT.min(settings.request_timeout))
            .timeout(settings.request_timeout)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .http1_only();
        if let Some(pem) = &settings.ca_pem {
            let certificates =
                reqwest::Certificate::from_pem_bundle(pem).map_err(|error| AccountError::CaFile {
                    reason: deepest(&error),
                })?;
            if certificates.is_empty() {
                return Err(AccountError::CaFile {
                    reason: "it has no certificate".to_owned(),
                });
            }
            builder = builder.tls_certs_merge(certificates);
        }
        if !settings.verify_tls {
            builder = builder.tls_danger_accept_invalid_certs(true);
        }
        let client = builder.build().map_err(|error| AccountError::Client {
            reason: deepest(&error),
        })?;
        Ok(Self {
            client,
            url: settings.url.clone(),
        })
    }

    /// The endpoint.
    pub(super) fn url(&self) -> &url::Url {
        &self.url
    }

    /// Sends a form and reads the whole answer.
    pub(super) async fn post(&self, body: String) -> Result<Answer, NoAnswer> {
        let request = self
            .client
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded; charset=utf-8")
            .body(body);
        let mut response = request.send().await.map_err(|error| no_answer(&error))?;
        let header = |name: HeaderName| {
            response
                .headers()
                .get(name)
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
                .to_owned()
        };
        let mut answer = Answer {
            status: response.status().as_u16(),
            content_type: header(CONTENT_TYPE),
            date: Timestamp::parse_http(&header(DATE)),
            retry_after: header(RETRY_AFTER).trim().parse().ok().map(Duration::from_secs),
            body: Vec::new(),
        };
        while let Some(chunk) = response.chunk().await.map_err(|error| no_answer(&error))? {
            if answer.body.len() + chunk.len() > MAX_ANSWER {
                return Err(NoAnswer {
                    not_sent: false,
                    reason: "the answer is longer than 64 MiB".to_owned(),
                });
            }
            answer.body.extend_from_slice(&chunk);
        }
        Ok(answer)
    }
}

fn no_answer(error: &reqwest::Error) -> NoAnswer {
    let reason = if error.is_timeout() && !error.is_connect() {
        "no answer within the time limit".to_owned()
    } else {
        deepest(error)
    };
    NoAnswer {
        not_sent: error.is_connect(),
        reason,
    }
}

/// The two innermost causes. The outer ones only repeat that a request failed, and name its address.
fn deepest(error: &reqwest::Error) -> String {
    let mut causes = Vec::new();
    let mut cause = error.source();
    while let Some(inner) = cause {
        causes.push(inner.to_string());
        cause = inner.source();
    }
    causes.dedup();
    match causes.as_slice() {
        [] if error.is_builder() => "the client can't be built".to_owned(),
        [] => "the request failed".to_owned(),
        [.., outer, inner] if !outer.contains(inner.as_str()) => format!("{outer}: {inner}"),
        [.., inner] => inner.clone(),
    }
}
