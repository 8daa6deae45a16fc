//! What is kept of a Service that the watch or a list brings.
//!
//! Pure. Whoever may write Services of a namespace decides how large they are, and kube-apiserver takes 1.5 MB of each: labels,
//! finalizers, ports and external addresses have no number. Kept is what somebody here reads. Of a Service that is no load balancer that is
//! who it is, its type and class, its status, our annotations and our finalizer: its end is decided by those, and no pool gives it an address.

use k8s_openapi::api::core::v1::{Service, ServiceSpec};

use super::annotations::{MAX_NETWORKS, TABLE};
use super::intent::FINALIZER;
use crate::keepalived::selector;

/// Bytes of finalizers that are kept beside ours. They only keep their order in patches.
const MAX_FINALIZERS: usize = 16 * 1024;
/// External addresses that are kept. Nothing is decided by them; a change of one is looked at.
const MAX_EXTERNAL_IPS: usize = 100;
/// Characters of `spec.loadBalancerIP`, which kube-apiserver takes in any length.
const MAX_ADDRESS: usize = 64;

/// Drops the rest.
pub fn trim(service: &mut Service) {
    let metadata = &mut service.metadata;
    metadata.managed_fields = None;
    metadata.owner_references = None;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.retain(|name, _| TABLE.iter().any(|known| known.name == name));
    }
    let is_load_balancer = service
        .spec
        .as_ref()
        .is_some_and(|spec| spec.type_.as_deref() == Some("LoadBalancer"));
    if is_load_balancer {
        metadata.labels = metadata.labels.take().map(selector::bounded);
        service.spec.iter_mut().for_each(load_balancer);
    } else {
        metadata.labels = None;
        service.spec = service.spec.take().map(other);
    }
    finalizers(&mut metadata.finalizers, is_load_balancer);
    if let Some(spec) = &mut service.spec {
        address(&mut spec.load_balancer_ip);
    }
}

fn load_balancer(spec: &mut ServiceSpec) {
    spec.selector = None;
    if let Some(ranges) = &mut spec.load_balancer_source_ranges {
        // A longer list is refused, whatever is in it.
        ranges.truncate(MAX_NETWORKS + 1);
        ranges.shrink_to_fit();
    }
    if let Some(addresses) = &mut spec.external_ips {
        addresses.truncate(MAX_EXTERNAL_IPS);
        addresses.shrink_to_fit();
    }
}

/// The address that was asked for stays: the broker is told at the end.
fn other(spec: ServiceSpec) -> ServiceSpec {
    ServiceSpec {
        type_: spec.type_,
        load_balancer_class: spec.load_balancer_class,
        load_balancer_ip: spec.load_balancer_ip,
        ..ServiceSpec::default()
    }
}

fn finalizers(finalizers: &mut Option<Vec<String>>, is_load_balancer: bool) {
    let Some(names) = finalizers else { return };
    let is_ours = |name: &String| name == FINALIZER;
    let too_many = names.iter().map(String::len).sum::<usize>() > MAX_FINALIZERS;
    if too_many || !(is_load_balancer || names.iter().any(is_ours)) {
        names.retain(is_ours);
        names.shrink_to_fit();
    }
    if names.is_empty() {
        *finalizers = None;
    }
}

/// A text that is too long to be an address stays one that is none: the beginning alone might be one.
fn address(text: &mut Option<String>) {
    if let Some(long) = text.as_mut().filter(|text| text.len() > MAX_ADDRESS) {
        let mut short: String = long.trim().chars().take(MAX_ADDRESS).collect();
        if short.len() < long.trim().len() {
            short.push('\u{2026}');
        }
        *long = short;
    }
}

#[cfg(test)]
mod tests;
