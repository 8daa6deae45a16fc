//! Calls about load balancers: the order of writers, one call at a time, and callers that leave.
//!
//! A writing call runs as a task of its own: when the caller leaves, the step at hand is finished and remembered, and no other is
//! begun. What a step is, is decided in `load_balancer`.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proto::{Advice, Fault, FaultKind, v1};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::Call;
use super::fence::{Fence, Permit, Stop};
use super::service::{Broker, deadline, lost};
use super::slots::{Intent, Turn};
use super::wire::balancers as wire;
use crate::cloudstack::Api;
use crate::directory::{Served, Shared};
use crate::load_balancer::{self, Answer, Outcome, ServerVersion, ServiceRef, Tenancy};

impl load_balancer::Permit for Permit {
    fn still_wanted(&self) -> Result<(), Fault> {
        self.check().map_err(stopped)
    }
}

fn stopped(stop: Stop) -> Fault {
    let (kind, reason, advice) = match stop {
        Stop::CallerGone => (FaultKind::Unreachable, "CALLER_GONE", Advice::BackOff),
        Stop::NewerWriter => (FaultKind::Conflict, "FENCED", Advice::BackOff),
        Stop::Deleted => (
            FaultKind::Conflict,
            "SUPERSEDED",
            Advice::After(Duration::from_secs(1)),
        ),
        Stop::Rekeyed => (
            FaultKind::Conflict,
            "KEYS_CHANGED",
            Advice::After(Duration::from_secs(1)),
        ),
    };
    Fault::new(kind, reason, stop.to_string()).with_advice(advice)
}

/// A writing call that may begin.
struct Begun {
    permit: Permit,
    /// Cancelled when the caller leaves.
    caller: CancellationToken,
    turn: Turn,
}

impl Broker {
    pub(super) async fn ensure(
        &self,
        call: Call,
        request: v1::EnsureLoadBalancerRequest,
    ) -> Result<v1::EnsureLoadBalancerResponse, Fault> {
        let fence = Fence::from_proto(request.fence.as_ref())?;
        let (demand, ignored) = wire::ensure(&request, &call.served.tenant.policy)?;
        let deadline = deadline(request.wait.as_ref());
        let uid = demand.service.uid.clone();
        let Some(begun) = self
            .begin(&call, &fence, (Intent::Ensure, uid.as_str()), deadline)
            .await?
        else {
            let answer = Answer {
                outcome: Outcome::Pending(wire::turn_taken()),
                changes: 0,
                notes: ignored,
            };
            return Ok(wire::ensured(answer));
        };
        let Begun { permit, caller, turn } = begun;
        let (served, service) = (Arc::clone(&call.served), demand.service.clone());
        let work = async move {
            let version = version(&call, deadline).await;
            let balancers = &call.served.shared.balancers;
            let answer = balancers
                .ensure(&tenancy(&call, version), &demand, &permit, deadline)
                .await;
            drop(turn);
            answer
        };
        let mut answer = self.detached(caller, (&served, &service), work).await??;
        answer.notes.splice(0..0, ignored);
        Ok(wire::ensured(answer))
    }

    pub(super) async fn delete(
        &self,
        call: Call,
        request: v1::DeleteLoadBalancerRequest,
    ) -> Result<v1::DeleteLoadBalancerResponse, Fault> {
        let fence = Fence::from_proto(request.fence.as_ref())?;
        let demand = wire::delete(&request)?;
        let deadline = deadline(request.wait.as_ref());
        let uid = demand.service.uid.clone();
        let Some(begun) = self
            .begin(&call, &fence, (Intent::Delete, uid.as_str()), deadline)
            .await?
        else {
            let answer = Answer {
                outcome: Outcome::Pending(wire::turn_taken()),
                changes: 0,
                notes: Vec::new(),
            };
            return Ok(wire::deleted(answer));
        };
        let Begun { permit, caller, turn } = begun;
        let (served, service) = (Arc::clone(&call.served), demand.service.clone());
        let work = async move {
            let version = version(&call, deadline).await;
            let balancers = &call.served.shared.balancers;
            let answer = balancers
                .delete(&tenancy(&call, version), &demand, &permit, deadline)
                .await;
            drop(turn);
            answer
        };
        let answer = self.detached(caller, (&served, &service), work).await??;
        Ok(wire::deleted(answer))
    }

    pub(super) async fn plan(
        &self,
        call: &Call,
        request: v1::PlanLoadBalancerRequest,
    ) -> Result<v1::PlanLoadBalancerResponse, Fault> {
        use v1::plan_load_balancer_request::Request;
        let version = version(call, deadline(None)).await;
        let (tenancy, balancers) = (tenancy(call, version), &call.served.shared.balancers);
        match request.request {
            Some(Request::Ensure(request)) => {
                let (demand, ignored) = wire::ensure(&request, &call.served.tenant.policy)?;
                Ok(wire::planned(
                    balancers.plan_ensure(&tenancy, &demand).await?,
                    ignored,
                ))
            }
            Some(Request::Delete(request)) => {
                let demand = wire::delete(&request)?;
                Ok(wire::planned(
                    balancers.plan_delete(&tenancy, &demand).await?,
                    Vec::new(),
                ))
            }
            None => Err(Fault::invalid(
                "MISSING_FIELD",
                "request",
                "a plan is of an Ensure or of a Delete",
            )),
        }
    }

    pub(super) async fn list(
        &self,
        call: &Call,
        request: &v1::ListLoadBalancersRequest,
    ) -> Result<v1::ListLoadBalancersResponse, Fault> {
        let version = version(call, deadline(None)).await;
        let list = call
            .served
            .shared
            .balancers
            .list(&tenancy(call, version), &wire::live(request))
            .await?;
        wire::page(list, request)
    }

    /// Lets a writer in and waits for its turn; none if the time is up before.
    async fn begin(
        &self,
        call: &Call,
        fence: &Fence,
        (intent, service): (Intent, &str),
        deadline: Instant,
    ) -> Result<Option<Begun>, Fault> {
        let cluster = &call.served.tenant.cluster;
        let newer = self.fences.enter(cluster, fence, runtime::clock::now())?;
        let wait = deadline.saturating_duration_since(runtime::clock::now());
        let Some(turn) = self.slots.turn(cluster, service, intent, wait).await else {
            return Ok(None);
        };
        let caller = CancellationToken::new();
        let rekeyed = call.served.rekeyed.clone();
        let permit = Permit::new(caller.clone(), newer, turn.deleted.clone(), rekeyed);
        // Somebody newer may have come while this call waited.
        permit.check().map_err(stopped)?;
        Ok(Some(Begun { permit, caller, turn }))
    }

    /// Runs work that goes on when the caller leaves, but is told that it left. A panic in it ends only this call: what was seen so far counts
    /// no longer, since nobody knows what was done.
    async fn detached<R: Send + 'static>(
        &self,
        caller: CancellationToken,
        (served, service): (&Served, &ServiceRef),
        work: impl Future<Output = R> + Send + 'static,
    ) -> Result<R, Fault> {
        let _left = caller.drop_guard();
        let (send, receive) = tokio::sync::oneshot::channel();
        let work = work.in_current_span();
        let doubt = Doubt {
            shared: Arc::clone(&served.shared),
            api: served.api.clone(),
            service: service.clone(),
        };
        self.host.spawn_contained("load-balancer-call", async move {
            let _doubt = doubt;
            // The caller may have left.
            let _ = send.send(work.await);
        });
        receive.await.map_err(|_| lost())
    }
}

/// Doubts what was seen of a Service's cloud when the work on it panics, whether or not its caller is still there.
struct Doubt {
    shared: Arc<Shared>,
    api: Api,
    service: ServiceRef,
}

impl Drop for Doubt {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.balancers.lost(&self.api, &self.service);
        }
    }
}

/// The server's version, if it can be had in time.
async fn version(call: &Call, deadline: Instant) -> ServerVersion {
    match tokio::time::timeout_at(deadline.into(), call.served.version()).await {
        Ok(Ok(version)) => version.into(),
        Ok(Err(error)) => {
            tracing::debug!(%error, "the server's version is not known yet");
            ServerVersion::NotAnswered
        }
        Err(_) => ServerVersion::NotAnswered,
    }
}

fn tenancy(call: &Call, version: ServerVersion) -> Tenancy<'_> {
    let tenant = &call.served.tenant;
    Tenancy {
        api: &call.served.api,
        scope: &tenant.scope,
        policy: &tenant.policy,
        uids: &call.uids,
        version,
        nodes_visible: call.served.shared.instances.shows_nodes(call.served.view()),
    }
}

#[cfg(test)]
mod tests;
