//! The gRPC service: the way of every call.
//!
//! Each call finds out who asks (by the configuration of this very moment), counts against that tenant's rate, gets a span
//! for the log, and leaves one line in the metrics. What it is about is done elsewhere.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use proto::v1::cloud_broker_server::{CloudBroker, CloudBrokerServer};
use proto::{Fault, FaultKind, v1};
use runtime::host::Host;
use runtime::link::{self, Peer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use tracing::Instrument as _;

use super::Call;
use super::fence::Fences;
use super::rate::Rate;
use super::slots::Slots;
use super::wire::{self, Moment};
use crate::describe::findings::Certificate;
use crate::describe::{CallFacts, describe};
use crate::directory::Directory;
use crate::metrics::{Metrics, RpcLabels};

/// Longest message that is read: a wish with all its members, or a look-up with all its keys, is far shorter.
const MAX_MESSAGE: usize = 2 << 20;
/// How often agents should ask for a description.
const REFRESH: Duration = Duration::from_mins(1);
/// The same while the cloud has not been looked at yet.
const REFRESH_AT_FIRST: Duration = Duration::from_secs(2);

/// What the service is told by the command line.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How often a balancer without changes should be looked at.
    pub drift_period: Duration,
    /// The broker's own certificate, whose end is told.
    pub certificate: Option<PathBuf>,
}

/// The service.
pub struct Broker {
    directory: Arc<Directory>,
    metrics: Metrics,
    settings: Settings,
    rate: Rate,
    pub(super) fences: Fences,
    pub(super) slots: Slots,
    pub(super) host: Host,
}

impl Broker {
    /// Serves the tenants of a directory.
    pub fn new(host: Host, directory: Arc<Directory>, metrics: Metrics, settings: Settings) -> Self {
        Self {
            directory,
            metrics,
            settings,
            rate: Rate::default(),
            fences: Fences::default(),
            slots: Slots::default(),
            host,
        }
    }

    /// Who asks, and whether the tenant may ask now.
    fn enter<M>(&self, request: &Request<M>, caller: Option<&v1::Caller>) -> Result<Call, Fault> {
        let peer = request.extensions().get::<Peer>();
        let (identity, served) = self.directory.identify(peer)?;
        let span = tracing::Span::current();
        span.record("tenant", identity.cluster.as_str());
        self.rate.count(&identity.cluster)?;
        let said = wire::said(caller)?;
        let uids = self.directory.uids(&served, said.uid)?;
        Ok(Call {
            served,
            identity,
            uids,
        })
    }

    /// Runs a call in its span and counts it. A panic in it ends only this call.
    pub(super) async fn finish<R>(
        &self,
        name: &'static str,
        span: tracing::Span,
        work: impl Future<Output = Result<R, Fault>>,
    ) -> Result<Response<R>, Status> {
        let began = runtime::clock::now();
        let result = self.host.contain(name, work.instrument(span.clone())).await;
        let result = result.unwrap_or_else(|| Err(lost()));
        let took = runtime::clock::now().saturating_duration_since(began);
        let outcome = result.as_ref().map_or_else(|fault| fault.kind.word(), |_| "ok");
        self.metrics.rpc.served(RpcLabels { call: name, outcome }, took);
        span.in_scope(|| match &result {
            Ok(_) => tracing::debug!(ms = milliseconds(took), "call served"),
            Err(fault) => {
                tracing::debug!(ms = milliseconds(took), reason = %fault.reason, %fault, "call refused");
            }
        });
        result.map(Response::new).map_err(Status::from)
    }

    fn description(&self, call: &Call, peer: Option<&Peer>) -> v1::DescribeResponse {
        let own = self.settings.certificate.as_deref().and_then(own_certificate);
        let theirs = match peer {
            Some(Peer::Certificate(theirs)) => Some(Certificate {
                of: call.identity.proof.clone(),
                not_after: theirs.not_after,
            }),
            Some(Peer::Unix { .. }) | None => None,
        };
        let used = call.served.shared.balancers.owned_addresses(
            &call.served.api,
            &call.uids,
            &call.served.tenant.scope,
        );
        let used_public_ips = used.and_then(|used| u32::try_from(used).ok());
        let facts = CallFacts {
            uids: Some(call.uids.clone()),
            certificates: own.into_iter().chain(theirs).collect(),
            used_public_ips,
        };
        let description = describe(&call.served, &facts);
        // Until the networks are known nobody can choose where a Service is served.
        let is_surveyed = description.known.networks.is_some() && !description.networks.is_empty();
        let refresh_interval = if is_surveyed { REFRESH } else { REFRESH_AT_FIRST };
        let moment = Moment {
            now: runtime::clock::now(),
            wall: runtime::clock::wall(),
            drift_period: self.settings.drift_period,
            refresh_interval,
        };
        wire::describe_response(call, description, used_public_ips, &moment)
    }

    async fn instances(
        &self,
        call: &Call,
        request: &v1::LookupInstancesRequest,
    ) -> Result<v1::LookupInstancesResponse, Fault> {
        let keys = wire::keys(request)?;
        let sound: Vec<_> = keys.iter().filter_map(|key| key.as_ref().ok().cloned()).collect();
        let answers = call
            .served
            .shared
            .instances
            .look_up(call.served.view(), &sound)
            .await;
        for answer in &answers {
            self.metrics.rpc.looked_up(answer.presence.word());
        }
        Ok(wire::lookup_response(
            &keys,
            answers,
            call.served.tenant.region.as_deref(),
        ))
    }
}

/// The end of a call that has none.
pub(super) fn lost() -> Fault {
    let text = "the call ended without an answer; this is a fault of the broker";
    Fault::new(FaultKind::Internal, "CALL_LOST", text)
}

/// The first certificate of the file as it is now. One that can't be read is told where it is used.
fn own_certificate(path: &Path) -> Option<Certificate> {
    let der = CertificateDer::from_pem_file(path).ok()?;
    let read = link::Certificate::read(&der);
    (read.not_after > 0).then(|| Certificate {
        of: format!("the broker ({})", path.display()),
        not_after: read.not_after,
    })
}

fn milliseconds(took: Duration) -> u64 {
    u64::try_from(took.as_millis()).unwrap_or(u64::MAX)
}

/// The span of a call, with what the request's metadata says about it.
fn span<M>(name: &'static str, request: &Request<M>) -> tracing::Span {
    let word = |key: &str| {
        let value = request
            .metadata()
            .get(key)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        value.chars().take(128).collect::<String>()
    };
    tracing::info_span!(
        "rpc",
        call = name,
        tenant = tracing::field::Empty,
        request_id = %word("x-request-id"),
        traceparent = %word("traceparent"),
    )
}

#[tonic::async_trait]
impl CloudBroker for Broker {
    async fn describe(
        &self,
        request: Request<v1::DescribeRequest>,
    ) -> Result<Response<v1::DescribeResponse>, Status> {
        let work = async {
            let call = self.enter(&request, request.get_ref().caller.as_ref())?;
            Ok(self.description(&call, request.extensions().get::<Peer>()))
        };
        self.finish("Describe", span("Describe", &request), work).await
    }

    async fn lookup_instances(
        &self,
        request: Request<v1::LookupInstancesRequest>,
    ) -> Result<Response<v1::LookupInstancesResponse>, Status> {
        let work = async {
            let call = self.enter(&request, request.get_ref().caller.as_ref())?;
            self.instances(&call, request.get_ref()).await
        };
        self.finish("LookupInstances", span("LookupInstances", &request), work)
            .await
    }

    async fn ensure_load_balancer(
        &self,
        request: Request<v1::EnsureLoadBalancerRequest>,
    ) -> Result<Response<v1::EnsureLoadBalancerResponse>, Status> {
        let work = async {
            let call = self.enter(&request, request.get_ref().caller.as_ref())?;
            self.ensure(call, request.get_ref().clone()).await
        };
        self.finish("EnsureLoadBalancer", span("EnsureLoadBalancer", &request), work)
            .await
    }

    async fn delete_load_balancer(
        &self,
        request: Request<v1::DeleteLoadBalancerRequest>,
    ) -> Result<Response<v1::DeleteLoadBalancerResponse>, Status> {
        let work = async {
            let call = self.enter(&request, request.get_ref().caller.as_ref())?;
            self.delete(call, request.get_ref().clone()).await
        };
        self.finish("DeleteLoadBalancer", span("DeleteLoadBalancer", &request), work)
            .await
    }

    async fn plan_load_balancer(
        &self,
        request: Request<v1::PlanLoadBalancerRequest>,
    ) -> Result<Response<v1::PlanLoadBalancerResponse>, Status> {
        let work = async {
            let call = self.enter(&request, wire::caller_of_plan(request.get_ref()))?;
            self.plan(&call, request.get_ref().clone()).await
        };
        self.finish("PlanLoadBalancer", span("PlanLoadBalancer", &request), work)
            .await
    }

    async fn list_load_balancers(
        &self,
        request: Request<v1::ListLoadBalancersRequest>,
    ) -> Result<Response<v1::ListLoadBalancersResponse>, Status> {
        let work = async {
            let call = self.enter(&request, request.get_ref().caller.as_ref())?;
            self.list(&call, request.get_ref()).await
        };
        self.finish("ListLoadBalancers", span("ListLoadBalancers", &request), work)
            .await
    }
}

/// The service with health beside it, and reflection where it is wanted.
pub async fn routes(broker: Broker, reflection: bool) -> anyhow::Result<Routes> {
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<CloudBrokerServer<Broker>>().await;
    let service = CloudBrokerServer::new(broker).max_decoding_message_size(MAX_MESSAGE);
    let mut routes = Routes::new(service).add_service(health_service);
    if reflection {
        let service = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1()?;
        routes = routes.add_service(service);
    }
    Ok(routes)
}

/// When a call must have its answer.
pub(super) fn deadline(wait: Option<&prost_types::Duration>) -> Instant {
    let wait = wait
        .and_then(|wait| Duration::try_from(*wait).ok())
        .unwrap_or(wire::MAX_WAIT)
        .min(wire::MAX_WAIT);
    runtime::clock::now() + wait
}
