use serde_json::{Value, json};

use super::*;
use crate::keepalived::selector::Selector;
use crate::service::annotations::{ID, KEEP_IP, SOURCE_CIDRS};
use crate::service::status::CONDITION;

fn trimmed(value: Value) -> Service {
    let mut service: Service = serde_json::from_value(value).unwrap();
    trim(&mut service);
    service
}

fn size(service: &Service) -> usize {
    serde_json::to_string(service).unwrap().len()
}

/// As large as a namespace user can make one.
fn large(kind: &str) -> Value {
    let labels: serde_json::Map<_, _> = (0..10_000)
        .map(|number| (format!("example/{number}"), json!("x".repeat(63))))
        .collect();
    let finalizers: Vec<_> = (0..10_000)
        .map(|number| format!("example.com/{number}"))
        .collect();
    json!({
        "metadata": {
            "uid": "u", "namespace": "default", "name": "web", "resourceVersion": "7",
            "labels": labels, "finalizers": finalizers,
        },
        "spec": {
            "type": kind,
            "externalIPs": vec!["192.0.2.1"; 50_000],
            "loadBalancerIP": "x".repeat(1_000_000),
            "ports": [{"port": 80, "protocol": "TCP"}],
        },
    })
}

#[test]
fn of_a_service_only_what_is_read_is_kept() {
    let service = trimmed(json!({
        "metadata": {
            "uid": "u", "namespace": "default", "name": "web", "resourceVersion": "7",
            "labels": {"tier": "front"},
            "finalizers": ["a"],
            "managedFields": [{"manager": "x"}],
            "ownerReferences": [{"apiVersion": "v1", "kind": "A", "name": "a", "uid": "a"}],
            "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "x".repeat(100_000),
                "example/a": "x".repeat(100_000),
                SOURCE_CIDRS: "10.0.0.0/8",
                ID: "ip-1",
            },
        },
        "spec": {
            "type": "LoadBalancer",
            "selector": {"app": "x".repeat(63)},
            "loadBalancerSourceRanges": vec!["10.0.0.0/8"; 10_000],
        },
    }));
    let kept: Vec<_> = service.metadata.annotations.iter().flatten().collect();
    assert_eq!(kept.len(), 2, "{kept:?}");
    assert!(size(&service) < 10_000, "{} bytes", size(&service));
    assert!(service.metadata.labels.is_some(), "pools choose by labels");
    assert_eq!(service.metadata.finalizers.unwrap(), ["a"]);
    let ranges = service.spec.unwrap().load_balancer_source_ranges.unwrap();
    assert!(ranges.len() > MAX_NETWORKS, "still too many");
}

#[test]
fn a_large_load_balancer_is_kept_small_and_keeps_our_finalizer() {
    let mut value = large("LoadBalancer");
    value["metadata"]["finalizers"]
        .as_array_mut()
        .unwrap()
        .push(json!(FINALIZER));
    let service = trimmed(value);
    assert!(size(&service) < 10_000, "{} bytes", size(&service));
    assert_eq!(service.metadata.finalizers.unwrap(), [FINALIZER]);
    assert_eq!(service.spec.unwrap().ports.unwrap().len(), 1);
}

#[test]
fn of_a_service_that_is_no_load_balancer_little_more_than_its_name_is_kept() {
    let mut value = large("ClusterIP");
    let ports: Vec<_> = (1..20_000)
        .map(|port| json!({"port": port, "protocol": "TCP"}))
        .collect();
    value["spec"]["ports"] = json!(ports);
    let service = trimmed(value);
    assert!(size(&service) < 1000, "{} bytes", size(&service));
    let spec = service.spec.unwrap();
    assert_eq!(spec.type_.as_deref(), Some("ClusterIP"));
    assert_eq!(service.metadata.resource_version.as_deref(), Some("7"));
}

#[test]
fn what_the_end_of_a_load_balancer_is_decided_by_stays_when_the_type_changes() {
    let service = trimmed(json!({
        "metadata": {
            "uid": "u", "namespace": "default", "name": "web", "deletionTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["example/other", FINALIZER],
            "annotations": {KEEP_IP: "true", ID: "ip-1"},
        },
        "spec": {"type": "NodePort", "loadBalancerIP": " 192.0.2.7 ", "loadBalancerClass": "example.com/lb"},
        "status": {
            "loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]},
            "conditions": [{
                "type": CONDITION, "status": "False", "reason": "A", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        },
    }));
    let metadata = &service.metadata;
    assert_eq!(metadata.annotations.as_ref().unwrap().len(), 2);
    assert_eq!(
        metadata.finalizers.as_ref().unwrap().len(),
        2,
        "the others keep their order"
    );
    assert!(metadata.deletion_timestamp.is_some());
    let spec = service.spec.as_ref().unwrap();
    assert_eq!(spec.load_balancer_ip.as_deref(), Some(" 192.0.2.7 "));
    assert_eq!(spec.load_balancer_class.as_deref(), Some("example.com/lb"));
    assert!(crate::service::status::has_condition(&service));
    assert!(crate::service::intent::is_published(&service));
}

#[test]
fn the_beginning_of_a_text_that_is_no_address_does_not_become_one() {
    let long = format!("10.0.0.1{}x", " ".repeat(1000));
    let service = trimmed(json!({"spec": {"type": "LoadBalancer", "loadBalancerIP": long}}));
    let kept = service.spec.unwrap().load_balancer_ip.unwrap();
    assert!(kept.len() < 100, "{kept}");
    assert!(kept.trim().parse::<std::net::Ipv4Addr>().is_err(), "{kept}");
    let blanks = format!("{}10.0.0.1{}", " ".repeat(500), " ".repeat(500));
    let service = trimmed(json!({"spec": {"type": "LoadBalancer", "loadBalancerIP": blanks}}));
    assert_eq!(service.spec.unwrap().load_balancer_ip.unwrap(), "10.0.0.1");
}

#[test]
fn labels_too_many_to_be_kept_open_no_pool_that_chooses_by_labels() {
    let labels = trimmed(large("LoadBalancer")).metadata.labels.unwrap_or_default();
    for selector in ["!internal", "tier!=back", "tier notin (back)", "example/1"] {
        assert!(!Selector::parse(selector).unwrap().matches(&labels), "{selector}");
    }
    assert!(Selector::default().matches(&labels), "a pool for everybody");
}
