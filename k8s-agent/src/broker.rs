//! Calls to the broker.
//!
//! Every call of the agent goes through [`Broker`], which adds who is calling, a request id, a trace and a deadline, and turns every refusal
//! into a [`Fault`]. Writing calls get the fence here, start only while this process may act, and are dropped when it may not any more. What
//! the broker says of itself is kept by the loop in `describe`. When to ask again is decided by the callers.

mod describe;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use proto::v1::cloud_broker_client::CloudBrokerClient;
use proto::v1::{self, Caller};
use proto::{Fault, FaultKind};
use runtime::clock;
use runtime::link::Link;
use tokio::sync::{Notify, watch};
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use uuid::Uuid;

use crate::election::Leadership;
use crate::lease::Fence;
use crate::metrics::Metrics;

/// Keys of one look-up; the contract allows no more.
const MOST_KEYS: usize = 500;
/// Deadline of calls that the broker answers from what it knows.
const QUICK: Duration = Duration::from_secs(10);
/// Deadline of calls that may have to read the cloud.
const READING: Duration = Duration::from_secs(45);
/// A call that waits gets this much more than it asks the broker to wait.
const ALLOWANCE: Duration = Duration::from_secs(10);
/// The longest wait to ask for, where the broker did not say.
pub const LONGEST_WAIT: Duration = Duration::from_secs(25);
/// Reason of a call that nobody answered in time.
const NO_ANSWER: &str = "NO_ANSWER";
/// Answers may be this large.
const LARGEST_ANSWER: usize = 16 << 20;

/// The broker, as the agent sees it. Clones share everything.
#[derive(Clone)]
pub struct Broker {
    shared: Arc<Shared>,
}

struct Shared {
    link: Link,
    leadership: Leadership,
    metrics: Metrics,
    process_id: String,
    cluster_uid: ArcSwap<String>,
    described: watch::Sender<Option<Arc<v1::DescribeResponse>>>,
    /// A call found nobody there, so that it is worth finding out when somebody is.
    silence: Notify,
}

impl Broker {
    /// A broker at the end of this link. Nothing is sent yet.
    pub fn new(link: Link, leadership: Leadership, metrics: Metrics, process_id: String) -> Self {
        let shared = Shared {
            link,
            leadership,
            metrics,
            process_id,
            cluster_uid: ArcSwap::default(),
            described: watch::Sender::new(None),
            silence: Notify::new(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Who this cluster is, in every call from now on.
    pub fn set_cluster_uid(&self, uid: String) {
        self.shared.cluster_uid.store(Arc::new(uid));
    }

    /// What the broker said of itself last.
    pub fn description(&self) -> Option<Arc<v1::DescribeResponse>> {
        self.shared.described.borrow().clone()
    }

    /// The same, to wait for changes.
    pub fn descriptions(&self) -> watch::Receiver<Option<Arc<v1::DescribeResponse>>> {
        self.shared.described.subscribe()
    }

    /// Whether the broker understands a feature beyond the first version of the contract.
    pub fn offers(&self, feature: &str) -> bool {
        self.description()
            .is_some_and(|it| it.features.iter().any(|word| word == feature))
    }

    /// The longest `wait` that Ensure and Delete may ask for.
    pub fn longest_wait(&self) -> Duration {
        let told = self
            .description()
            .and_then(|it| it.limits.as_ref().and_then(|limits| limits.max_wait));
        told.and_then(|wait| Duration::try_from(wait).ok())
            .map_or(LONGEST_WAIT, |wait| wait.min(LONGEST_WAIT))
    }

    /// Where the machines behind these nodes are: one result for each key, in the order of the keys.
    pub async fn lookup_instances(
        &self,
        keys: Vec<v1::InstanceKey>,
    ) -> Result<Vec<v1::InstanceResult>, Fault> {
        let limit = self
            .description()
            .and_then(|it| it.limits.as_ref().map(|limits| limits.max_lookup_keys));
        let most = limit
            .filter(|most| *most > 0)
            .map_or(MOST_KEYS, |most| (most as usize).min(MOST_KEYS));
        let mut results = Vec::with_capacity(keys.len());
        for keys in keys.chunks(most) {
            let message = v1::LookupInstancesRequest {
                caller: Some(self.caller()),
                keys: keys.to_vec(),
            };
            let answer = self.call(
                "LookupInstances",
                READING,
                message,
                async |mut client, request| client.lookup_instances(request).await,
            );
            let answer = answer.await?;
            if answer.results.len() != keys.len() {
                let text = format!(
                    "the broker answered {} of {} keys",
                    answer.results.len(),
                    keys.len()
                );
                return Err(Fault::new(FaultKind::Internal, "INCOMPLETE_ANSWER", text));
            }
            results.extend(answer.results);
        }
        Ok(results)
    }

    /// Makes a load balancer what the wish says, or gets nearer to it. Caller and fence are filled in here.
    pub async fn ensure_load_balancer(
        &self,
        mut message: v1::EnsureLoadBalancerRequest,
    ) -> Result<v1::EnsureLoadBalancerResponse, Fault> {
        message.caller = Some(self.caller());
        message.fence = Some(self.fence()?);
        let deadline = ALLOWANCE + waiting(message.wait);
        self.write(self.call(
            "EnsureLoadBalancer",
            deadline,
            message,
            async |mut client, request| client.ensure_load_balancer(request).await,
        ))
        .await
    }

    /// Removes what the cluster owns for a load balancer, or gets nearer to it. Caller and fence are filled in here.
    pub async fn delete_load_balancer(
        &self,
        mut message: v1::DeleteLoadBalancerRequest,
    ) -> Result<v1::DeleteLoadBalancerResponse, Fault> {
        message.caller = Some(self.caller());
        message.fence = Some(self.fence()?);
        let deadline = ALLOWANCE + waiting(message.wait);
        self.write(self.call(
            "DeleteLoadBalancer",
            deadline,
            message,
            async |mut client, request| client.delete_load_balancer(request).await,
        ))
        .await
    }

    /// What the cluster owns, one page.
    pub async fn list_load_balancers(
        &self,
        mut message: v1::ListLoadBalancersRequest,
    ) -> Result<v1::ListLoadBalancersResponse, Fault> {
        message.caller = Some(self.caller());
        self.call(
            "ListLoadBalancers",
            READING,
            message,
            async |mut client, request| client.list_load_balancers(request).await,
        )
        .await
    }

    async fn describe(&self) -> Result<v1::DescribeResponse, Fault> {
        let message = v1::DescribeRequest {
            caller: Some(self.caller()),
        };
        self.call("Describe", QUICK, message, async |mut client, request| {
            client.describe(request).await
        })
        .await
    }

    fn caller(&self) -> Caller {
        Caller {
            cluster_uid: self.shared.cluster_uid.load().as_ref().clone(),
            process_id: self.shared.process_id.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    fn fence(&self) -> Result<v1::Fence, Fault> {
        let Fence {
            lease_uid,
            transitions,
        } = self.shared.leadership.fence().map_err(|_| not_leading())?;
        Ok(v1::Fence {
            lease_uid,
            transitions,
        })
    }

    async fn write<T>(&self, call: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        self.shared
            .leadership
            .hold(call)
            .await
            .unwrap_or_else(|_| Err(not_leading()))
    }

    async fn call<Q, A, F>(
        &self,
        name: &'static str,
        deadline: Duration,
        message: Q,
        call: F,
    ) -> Result<A, Fault>
    where
        Q: Clone,
        F: AsyncFn(CloudBrokerClient<Channel>, Request<Q>) -> Result<Response<A>, Status>,
    {
        let client =
            CloudBrokerClient::new(self.shared.link.channel()).max_decoding_message_size(LARGEST_ANSWER);
        let id = Uuid::new_v4();
        let began = clock::now();
        let calls = async {
            let answer = call(client.clone(), request(message.clone(), deadline, id)).await;
            match answer {
                // A server ends each connection in time; a call that met the end goes over the next one.
                Err(status) if runtime::link::was_not_sent(&status) => {
                    call(client, request(message, deadline, id)).await
                }
                answer => answer,
            }
        };
        // The server keeps the deadline too; this one holds where it does not answer at all.
        let answer = tokio::time::timeout(deadline + Duration::from_secs(1), Box::pin(calls)).await;
        let answer = match answer {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(fault(name, status)),
            Err(_) => Err(Fault::new(
                FaultKind::Unreachable,
                NO_ANSWER,
                format!("the broker did not answer {name} in time"),
            )),
        };
        let took = clock::now().saturating_duration_since(began);
        if answer.as_ref().is_err_and(is_silence) {
            self.shared.silence.notify_one();
        }
        let outcome = answer.as_ref().map_or_else(|fault| fault.kind.word(), |_| "ok");
        self.shared.metrics.broker_call(name, outcome, took);
        tracing::debug!(call = name, request = %id, ms = took.as_millis(), outcome, "called the broker");
        answer
    }
}

/// Whether a fault says that no broker answers, which is not the same as a broker that can't reach its cloud.
pub fn is_silence(fault: &Fault) -> bool {
    fault.kind == FaultKind::Unreachable && (fault.reason == "GRPC_STATUS" || fault.reason == NO_ANSWER)
}

fn waiting(wait: Option<prost_types::Duration>) -> Duration {
    wait.and_then(|wait| Duration::try_from(wait).ok())
        .unwrap_or_default()
}

fn not_leading() -> Fault {
    Fault::new(
        FaultKind::Conflict,
        "NOT_LEADING",
        "this process does not lead any more, so it may change nothing",
    )
}

/// A request that says when it must be answered and who asked.
fn request<Q>(message: Q, deadline: Duration, id: Uuid) -> Request<Q> {
    let mut request = Request::new(message);
    request.set_timeout(deadline);
    let trace = format!(
        "00-{}-{}-01",
        Uuid::new_v4().simple(),
        &id.simple().to_string().get(..16).unwrap_or_default()
    );
    for (name, value) in [("x-request-id", id.to_string()), ("traceparent", trace)] {
        if let Ok(value) = MetadataValue::try_from(value) {
            request.metadata_mut().insert(name, value);
        }
    }
    request
}

/// The fault in a status; a broken link is told with its cause, which the status itself hides.
fn fault(call: &str, status: Status) -> Fault {
    let cause = std::error::Error::source(&status).map(runtime::log::chain);
    let mut fault = Fault::from(status);
    // Only what broke on this side has a cause, whatever code it was given.
    if let Some(cause) = cause {
        fault.kind = FaultKind::Unreachable;
        fault.text = format!("the broker can't be reached: {cause}");
    } else if fault.is_unimplemented() {
        fault.text = format!("the broker does not serve {call}: it is older than this agent");
    }
    fault
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_link_is_told_with_its_cause() {
        let mut status = Status::unavailable("transport error");
        status.set_source(Arc::new(std::io::Error::other(
            "unix:///run/b.sock: No such file or directory",
        )));
        let fault = fault("Describe", status);
        assert_eq!(fault.kind, FaultKind::Unreachable);
        assert!(fault.text.contains("unix:///run/b.sock"), "{}", fault.text);
    }

    #[test]
    fn a_connection_that_breaks_under_a_call_is_no_fault_of_the_broker() {
        let mut status = Status::unknown("h2 protocol error");
        status.set_source(Arc::new(std::io::Error::other("connection reset")));
        assert!(is_silence(&fault("EnsureLoadBalancer", status)));
    }

    #[test]
    fn a_call_that_the_broker_lacks_is_named() {
        let fault = fault("PlanLoadBalancer", Status::unimplemented(""));
        assert!(fault.is_unimplemented());
        assert!(fault.text.contains("PlanLoadBalancer"), "{}", fault.text);
    }
}
