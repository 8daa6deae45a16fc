//! Clients of kube-apiserver, and what its refusals mean for people.
//!
//! Two clients exist: one for the work, held to `--kube-api-qps` and `--kube-api-burst`, and one for the lease without a
//! limit, so that a busy queue can never keep the lease from being renewed. Both count what they send.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use http::{HeaderValue, Request, Response, header};
use k8s_openapi::jiff::Timestamp;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use runtime::clock;
use tower::service_fn;

use crate::metrics::Metrics;

/// An answer must begin within this time. Lists of large clusters take seconds, a dead connection forever.
const PATIENCE: Duration = Duration::from_mins(1);
/// A connection must be there within this time.
const CONNECT: Duration = Duration::from_secs(5);

const THREE: NonZeroU32 = NonZeroU32::MIN.saturating_add(2);

/// How to reach kube-apiserver and how often.
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    /// File to read; without one and without `master` the pod's own service account is used.
    pub kubeconfig: Option<PathBuf>,
    /// Address that replaces the one in the file.
    pub master: Option<String>,
    /// Requests a second for each kind of work, lasting.
    pub qps: NonZeroU32,
    /// Requests at once for each kind of work.
    pub burst: NonZeroU32,
}

/// Why no client could be made.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The file is missing or no kubeconfig.
    #[error("--kubeconfig {path} can't be used: {why}", path = path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it; holds nothing that stands in the file.
        why: String,
    },
    /// The address is no URL.
    #[error("--master {0} is not a URL")]
    Master(String),
    /// Not in a pod.
    #[error("no --kubeconfig is given and this is no pod with a service account")]
    NoPod(#[source] kube::config::InClusterError),
    /// The client refused its settings.
    #[error("a client for kube-apiserver can't be made")]
    Client(#[source] kube::Error),
}

/// The clients.
#[derive(Clone)]
pub struct Clients {
    /// For nodes, services and events.
    pub work: Client,
    /// For the lease alone.
    pub lease: Client,
}

impl Access {
    /// Reads the settings and makes the clients. Nothing is sent yet.
    pub async fn clients(&self, metrics: &Metrics) -> Result<Clients, AccessError> {
        let config = self.config().await?;
        // One client of ours stands for three of the Go controllers: nodes, services and watches.
        let quota =
            Quota::per_second(self.qps.saturating_mul(THREE)).allow_burst(self.burst.saturating_mul(THREE));
        Ok(Clients {
            work: client(
                &config,
                "controllers",
                Some(Arc::new(RateLimiter::direct(quota))),
                metrics,
            )?,
            lease: client(&config, "leader-election", None, metrics)?,
        })
    }

    async fn config(&self) -> Result<Config, AccessError> {
        let mut config = match (&self.kubeconfig, &self.master) {
            (Some(path), _) => {
                let refuse = |error| AccessError::Kubeconfig {
                    path: path.clone(),
                    why: without_content(&error),
                };
                let file = Kubeconfig::read_from(path).map_err(refuse)?;
                Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                    .await
                    .map_err(refuse)?
            }
            (None, Some(_)) => Config::new(http::Uri::from_static("https://replaced.invalid")),
            (None, None) => Config::incluster().map_err(AccessError::NoPod)?,
        };
        if let Some(master) = &self.master {
            config.cluster_url = master.parse().map_err(|_| AccessError::Master(master.clone()))?;
        }
        config.connect_timeout = Some(CONNECT);
        Ok(config)
    }
}

/// What is wrong with a kubeconfig. A parser's own words would show the line at fault, and with it a token.
fn without_content(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::ReadConfig(error, _) => error.to_string(),
        KubeconfigError::Parse(_) => "it is not YAML with the fields of a kubeconfig".to_owned(),
        KubeconfigError::CurrentContextNotSet | KubeconfigError::LoadContext(_) => {
            "its current-context names no context in it".to_owned()
        }
        KubeconfigError::LoadClusterOfContext(_) | KubeconfigError::MissingClusterUrl => {
            "the context's cluster is missing or has no server".to_owned()
        }
        KubeconfigError::ParseClusterUrl(_) => "the cluster's server is not a URL".to_owned(),
        KubeconfigError::LoadCertificateAuthority(_) | KubeconfigError::ParseCertificates(_) => {
            "the cluster's certificate authority can't be read".to_owned()
        }
        KubeconfigError::LoadClientCertificate(_) => "the user's certificate can't be read".to_owned(),
        KubeconfigError::LoadClientKey(_) => "the user's private key can't be read".to_owned(),
        KubeconfigError::KindMismatch
        | KubeconfigError::ApiVersionMismatch
        | KubeconfigError::FindPath
        | KubeconfigError::ParseProxyUrl(_) => "it holds settings that can't be used".to_owned(),
    }
}

fn client(
    config: &Config,
    name: &str,
    limit: Option<Arc<DefaultDirectRateLimiter>>,
    metrics: &Metrics,
) -> Result<Client, AccessError> {
    let mut config = config.clone();
    let agent = format!("k8s-agent/{}/{name}", env!("CARGO_PKG_VERSION"));
    if let Ok(agent) = HeaderValue::from_str(&agent) {
        config.headers.push((header::USER_AGENT, agent));
    }
    let namespace = config.default_namespace.clone();
    let host: Arc<str> = config
        .cluster_url
        .authority()
        .map_or("", |authority| authority.as_str())
        .into();
    let inner = Client::try_from(config).map_err(AccessError::Client)?;
    let metrics = metrics.clone();
    let metered = service_fn(move |request: Request<Body>| {
        let (inner, limit, metrics, host) =
            (inner.clone(), limit.clone(), metrics.clone(), Arc::clone(&host));
        async move {
            if let Some(limit) = limit {
                limit.until_ready().await;
            }
            let (method, began) = (request.method().clone(), clock::now());
            let answer = send(&inner, request).await;
            let code = answer.as_ref().map_or("<error>".to_owned(), |answer| {
                answer.status().as_u16().to_string()
            });
            metrics.api_request(
                &host,
                method.as_str(),
                &code,
                clock::now().saturating_duration_since(began),
            );
            answer
        }
    });
    Ok(Client::new(metered, namespace))
}

async fn send(inner: &Client, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
    tokio::time::timeout(PATIENCE, inner.send(request))
        .await
        .unwrap_or_else(|_| {
            Err(kube::Error::Service(
                format!("kube-apiserver did not answer within {} s", PATIENCE.as_secs()).into(),
            ))
        })
}

/// The wall clock as Kubernetes writes it.
pub fn timestamp() -> Timestamp {
    Timestamp::try_from(clock::wall()).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// The object changed since it was read, or is not what the preconditions say.
pub fn is_conflict(error: &kube::Error) -> bool {
    code(error) == Some(409)
}

/// The object does not exist.
pub fn is_not_found(error: &kube::Error) -> bool {
    code(error) == Some(404)
}

/// The service account lacks a rule.
pub fn is_forbidden(error: &kube::Error) -> bool {
    code(error) == Some(403)
}

/// The object as it would be is not legal; the same write fails again.
pub fn is_invalid(error: &kube::Error) -> bool {
    matches!(code(error), Some(400 | 422))
}

/// What kube-apiserver answered, if it did.
pub fn code(error: &kube::Error) -> Option<u16> {
    if let kube::Error::Api(status) = error {
        Some(status.code)
    } else {
        None
    }
}

/// Errors of kube-apiserver in words that say what to do.
pub trait Explained {
    /// What happened when this was tried; a missing rule of the `ClusterRole` is named.
    fn explain(&self, verb: &str, resource: &str) -> String;
}

impl Explained for kube::Error {
    fn explain(&self, verb: &str, resource: &str) -> String {
        if let Self::Api(status) = self {
            let message = &status.message;
            return match status.code {
                403 => format!(
                    "the service account may not {verb} {resource}: add that rule to its role ({message})"
                ),
                401 => format!(
                    "kube-apiserver does not accept our credentials: check the token or certificate ({message})"
                ),
                _ => format!("kube-apiserver refused to {verb} {resource}: {message}"),
            };
        }
        format!(
            "kube-apiserver can't be reached to {verb} {resource}: {}",
            runtime::log::chain(self)
        )
    }
}

impl Explained for kube::runtime::watcher::Error {
    fn explain(&self, verb: &str, resource: &str) -> String {
        use kube::runtime::watcher::Error as Watch;
        match self {
            Watch::InitialListFailed(error) => error.explain("list", resource),
            Watch::WatchStartFailed(error) | Watch::WatchFailed(error) => error.explain(verb, resource),
            Watch::WatchError(status) => {
                format!("kube-apiserver ended the watch of {resource}: {}", status.message)
            }
            Watch::NoResourceVersion => format!("kube-apiserver can't watch {resource}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn refusal(code: u16, message: &str) -> kube::Error {
        kube::Error::Api(Status::failure(message, "Reason").with_code(code).boxed())
    }

    #[tokio::test]
    async fn a_broken_kubeconfig_is_refused_without_showing_what_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        std::fs::write(&path, "users: [{name: u, user: {token: TOPSECRET}}}]").unwrap();
        let one = NonZeroU32::MIN;
        let access = Access {
            kubeconfig: Some(path.clone()),
            master: None,
            qps: one,
            burst: one,
        };
        let Err(error) = access.clients(&Metrics::default()).await else {
            panic!("it was read")
        };
        let text = runtime::log::chain(&error);
        assert!(
            text.contains("kubeconfig can't be used") && !text.contains("TOPSECRET"),
            "{text}"
        );
    }

    #[test]
    fn a_missing_rule_is_named_with_verb_and_resource() {
        let text = refusal(403, "nodes \"n1\" is forbidden").explain("delete", "nodes");
        assert!(
            text.contains("may not delete nodes") && text.contains("add that rule"),
            "{text}"
        );
    }

    #[test]
    fn a_server_that_is_away_is_not_mistaken_for_a_refusal() {
        let error = kube::Error::Service("connection refused".into());
        assert!(error.explain("get", "nodes").contains("can't be reached"));
        assert_eq!(code(&error), None);
        assert!(!is_forbidden(&error) && !is_conflict(&error) && !is_not_found(&error));
    }

    #[test]
    fn refusals_are_told_apart_by_their_code() {
        assert!(
            is_conflict(&refusal(409, ""))
                && is_not_found(&refusal(404, ""))
                && is_invalid(&refusal(422, ""))
        );
    }
}
