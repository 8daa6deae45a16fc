//! The backend whose load balancers the cloud has: orders become calls to the broker.
//!
//! Translates and decides nothing: which call, its fence, deadline and who is calling are [`Broker`]'s; when to ask again
//! is the controller's.

use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use proto::v1::{
    self, DeleteLoadBalancerRequest, EnsureLoadBalancerRequest, delete_load_balancer_response,
    ensure_load_balancer_response, note::Severity,
};
use proto::{Fault, FaultKind};

use super::backend::{
    Answer, Backend, EnsureOrder, Holds, Notice, Outcome, Outputs, Pending, Reached, RemoveOrder, Removed,
    Settled,
};
use crate::broker::Broker;

/// How long one call may wait. Shorter than the broker allows, so that a worker looks at its Service now and then.
const WAIT: Duration = Duration::from_secs(20);
/// A wait between two calls is never longer, whatever the broker says.
const LONGEST_RETRY: Duration = Duration::from_mins(5);

/// The broker as a backend.
#[derive(Clone)]
pub struct BrokerBackend {
    broker: Broker,
}

impl BrokerBackend {
    /// The backend behind this broker.
    pub fn new(broker: Broker) -> Self {
        Self { broker }
    }

    fn wait(&self) -> Option<prost_types::Duration> {
        prost_types::Duration::try_from(self.broker.longest_wait().min(WAIT)).ok()
    }
}

impl Backend for BrokerBackend {
    async fn ensure(&self, order: EnsureOrder) -> Result<Answer<Settled>, Fault> {
        let EnsureOrder {
            reference,
            wish,
            published,
            ..
        } = order;
        let request = EnsureLoadBalancerRequest {
            caller: None,
            r#ref: Some(reference),
            fence: None,
            wish: Some(wish),
            published,
            wait: self.wait(),
        };
        let answer = self.broker.ensure_load_balancer(request).await?;
        let outcome = match answer.outcome {
            Some(ensure_load_balancer_response::Outcome::Settled(settled)) => {
                Outcome::Settled(settled.try_into()?)
            }
            Some(ensure_load_balancer_response::Outcome::Pending(pending)) => {
                Outcome::Pending(pending.into())
            }
            None => return Err(says_nothing("EnsureLoadBalancer")),
        };
        Ok(Answer {
            outcome,
            notes: notes(answer.notes),
        })
    }

    async fn remove(&self, order: RemoveOrder) -> Result<Answer<Removed>, Fault> {
        let RemoveOrder {
            reference,
            keep_address,
            network,
            dialect,
            adoption,
            published,
        } = order;
        let request = DeleteLoadBalancerRequest {
            caller: None,
            r#ref: Some(reference),
            fence: None,
            keep_address,
            network,
            dialect: Some(dialect),
            published,
            wait: self.wait(),
            adoption: Some(adoption),
        };
        let answer = self.broker.delete_load_balancer(request).await?;
        let outcome = match answer.outcome {
            Some(delete_load_balancer_response::Outcome::Settled(settled)) => Outcome::Settled(Removed {
                released: settled.released,
                kept: settled.kept,
                changes: settled.changes,
            }),
            Some(delete_load_balancer_response::Outcome::Pending(pending)) => {
                Outcome::Pending(pending.into())
            }
            None => return Err(says_nothing("DeleteLoadBalancer")),
        };
        Ok(Answer {
            outcome,
            notes: notes(answer.notes),
        })
    }

    /// Only the cloud knows, and asking it is what an order does.
    fn holds(&self, _: &Service) -> Holds {
        Holds::Unknown
    }
}

fn says_nothing(call: &str) -> Fault {
    incomplete(format!(
        "the broker's answer to {call} says neither settled nor pending: it may be newer than this agent"
    ))
}

fn incomplete(text: impl Into<String>) -> Fault {
    Fault::new(FaultKind::Internal, "INCOMPLETE_ANSWER", text)
}

fn notes(notes: Vec<v1::Note>) -> Vec<Notice> {
    notes
        .into_iter()
        .map(|note| Notice {
            warning: note.severity() == Severity::Warning,
            reason: note.reason,
            field: note.field,
            text: note.text,
        })
        .collect()
}

impl TryFrom<v1::LoadBalancerSettled> for Settled {
    type Error = Fault;

    /// What settled without an address, or with something else in its place, would take a good one from the status.
    fn try_from(settled: v1::LoadBalancerSettled) -> Result<Self, Fault> {
        let is_address = |ingress: &v1::Ingress| ingress.ip.parse::<IpAddr>().is_ok();
        if settled.ingress.is_empty() || !settled.ingress.iter().all(is_address) {
            return Err(incomplete(
                "the broker says that the load balancer is as wanted and names no address: look at the broker's log",
            ));
        }
        let reached = |ingress: v1::Ingress| Reached {
            ip: ingress.ip,
            proxy: ingress.proxy,
        };
        Ok(Self {
            ingress: settled.ingress.into_iter().map(reached).collect(),
            leaving: settled.leaving,
            outputs: settled.outputs.map(|outputs| Outputs {
                address_id: outputs.address_id,
                network_id: outputs.network_id,
                address_owned: outputs.address_owned,
            }),
            changes: settled.changes,
        })
    }
}

impl From<v1::Pending> for Pending {
    fn from(pending: v1::Pending) -> Self {
        let wait = pending
            .retry_after
            .and_then(|wait| Duration::try_from(wait).ok())
            .unwrap_or_default();
        Self {
            retry_after: wait.min(LONGEST_RETRY),
            step: pending.step,
            reason: pending.reason,
            text: pending.text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_makes_no_sense_is_bounded() {
        let pending = |seconds| {
            let retry_after = Some(prost_types::Duration { seconds, nanos: 0 });
            Pending::from(v1::Pending {
                retry_after,
                ..v1::Pending::default()
            })
            .retry_after
        };
        assert_eq!(pending(7), Duration::from_secs(7));
        assert_eq!(pending(-7), Duration::ZERO);
        assert_eq!(pending(86_400), LONGEST_RETRY);
        assert_eq!(Pending::from(v1::Pending::default()).retry_after, Duration::ZERO);
    }

    #[test]
    fn what_settled_without_an_address_is_no_success() {
        let with = |ips: &[&str]| v1::LoadBalancerSettled {
            ingress: ips
                .iter()
                .map(|ip| v1::Ingress {
                    ip: (*ip).to_owned(),
                    proxy: false,
                })
                .collect(),
            ..v1::LoadBalancerSettled::default()
        };
        for ips in [&[] as &[&str], &[""], &["192.0.2.7", "lb.example.com"]] {
            let fault = Settled::try_from(with(ips)).unwrap_err();
            assert_eq!(fault.reason, "INCOMPLETE_ANSWER", "{ips:?}");
        }
        assert_eq!(
            Settled::try_from(with(&["192.0.2.7"])).unwrap().ingress[0].ip,
            "192.0.2.7"
        );
    }

    #[test]
    fn a_severity_that_a_newer_broker_invents_is_no_warning() {
        let note = v1::Note {
            severity: 99,
            reason: "X".to_owned(),
            field: String::new(),
            text: "y".to_owned(),
        };
        assert_eq!(notes(vec![note]), [Notice::normal("X", "", "y")]);
    }
}
