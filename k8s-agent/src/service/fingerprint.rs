//! Whether anything that matters has changed since a Service was last served.
//!
//! Pure. The fingerprint covers the fields that Kubernetes' service controller looks at, the annotations that we read, and
//! the members. Annotations that the controller writes itself, labels, status and finalizers are not in it, so that neither
//! our own writes nor other people's tools cause work. Source ranges and members are compared as sets.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Service;
use proto::v1::{WishMember, wish_member};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::annotations::{Direction, TABLE};

/// What was served, as far as it can be told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// The Service itself.
    pub service: [u8; 32],
    /// The nodes and their machines.
    pub members: [u8; 32],
}

/// Takes the fingerprint of a Service and its members.
pub fn of(service: &Service, members: &[WishMember]) -> Fingerprint {
    Fingerprint {
        service: service_print(service),
        members: members_print(members),
    }
}

/// The fingerprint of the Service alone.
pub fn service_print(service: &Service) -> [u8; 32] {
    let spec = service.spec.clone().unwrap_or_default();
    let ranges: BTreeSet<_> = spec
        .load_balancer_source_ranges
        .iter()
        .flatten()
        .map(|range| range.trim())
        .collect();
    let annotations: Vec<_> = TABLE
        .iter()
        .filter(|annotation| annotation.direction != Direction::Output)
        .map(|annotation| {
            service
                .metadata
                .annotations
                .as_ref()
                .and_then(|annotations| annotations.get(annotation.name))
        })
        .collect();
    digest(&json!([
        service.metadata.uid,
        spec.type_,
        spec.load_balancer_class,
        ranges,
        spec.ports,
        spec.session_affinity,
        spec.session_affinity_config,
        spec.load_balancer_ip,
        spec.external_ips,
        annotations,
        spec.external_traffic_policy,
        spec.health_check_node_port,
        spec.ip_families,
    ]))
}

/// The fingerprint of the members alone, to find out whether a change of some node matters to any Service.
pub fn members_print(members: &[WishMember]) -> [u8; 32] {
    let members: BTreeSet<_> = members
        .iter()
        .map(|member| {
            let (kind, id) = match &member.machine {
                Some(wish_member::Machine::MachineId(id)) => ("known", id.as_str()),
                Some(wish_member::Machine::GoneMachineId(id)) => ("gone", id.as_str()),
                Some(wish_member::Machine::Unresolved(_)) | None => ("unresolved", ""),
            };
            (&member.node_name, kind, id)
        })
        .collect();
    digest(&json!(members))
}

fn digest(value: &serde_json::Value) -> [u8; 32] {
    Sha256::digest(value.to_string().as_bytes()).into()
}

#[cfg(test)]
mod tests;
