use std::net::Ipv4Addr;

use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::service::choice::{CLOUD_CLASS, KEEPALIVED_CLASS};
use proto::v1::dialect::Kind;
use proto::v1::wish::Algorithm;
use proto::v1::wish_port::Protocol;

const NOW: &str = "2026-01-01T00:00:00Z";

fn rules(running: Running) -> Rules {
    Rules {
        running,
        dialect: Dialect {
            kind: Kind::Apache as i32,
            cluster_name: "kubernetes".to_owned(),
        },
    }
}

fn circumstances() -> Circumstances<'static> {
    Circumstances {
        keepalived_holds: Holds::No,
        keepalived_records: false,
        offer: Offer::Unknown,
        served_by: None,
        asked: false,
        was_foreign: false,
        behind_host_name: &[],
    }
}

/// A Service of type LoadBalancer with one TCP port, changed by `change`.
fn service(change: Value) -> Service {
    let mut value = json!({
        "metadata": {"uid": "769e278b-2454-4793-9a1f-6b9a47560490", "namespace": "default", "name": "web"},
        "spec": {
            "type": "LoadBalancer",
            "ipFamilies": ["IPv4"],
            "sessionAffinity": "None",
            "ports": [{"name": "http", "protocol": "TCP", "port": 80, "nodePort": 30080}],
        },
    });
    merge(&mut value, change);
    serde_json::from_value(value).unwrap()
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

fn annotated(name: &str, value: &str) -> Value {
    json!({"metadata": {"annotations": {name: value}}})
}

fn cloud(service: &Service) -> Intent {
    of(service, &rules(Running::One(BackendName::Cloud)), circumstances())
}

fn keepalived(service: &Service) -> Intent {
    of(
        service,
        &rules(Running::One(BackendName::Keepalived)),
        circumstances(),
    )
}

fn ensured(intent: Intent) -> Wanted {
    let Intent::Ensure(wanted) = intent else {
        panic!("not ensured: {intent:?}")
    };
    *wanted
}

fn refused(intent: Intent) -> Vec<Problem> {
    refusal(intent).problems.first().to_vec()
}

fn refusal(intent: Intent) -> Refusal {
    let Intent::Refuse(refusal) = intent else {
        panic!("not refused: {intent:?}")
    };
    refusal
}

fn word(intent: &Intent) -> &'static str {
    match intent {
        Intent::Ensure(_) => "ensure",
        Intent::Remove(removal) => match removal.ending {
            Ending::Deleted => "remove: deleted",
            Ending::TypeChanged => "remove: type",
            Ending::ClassChanged => "remove: class",
            Ending::Vanished => "remove: vanished",
        },
        Intent::Skip(_) => "skip",
        Intent::Refuse(_) => "refuse",
        Intent::Wait(_) => "wait",
        Intent::LeaveTo(_) => "leave",
    }
}

fn finalizer() -> Value {
    json!({"finalizers": ["example/other", FINALIZER]})
}

#[rstest]
#[case::s_01_cluster_ip(json!({"spec": {"type": "ClusterIP"}}), "skip")]
#[case::s_02_udp(json!({"spec": {"ports": [{"port": 53, "protocol": "UDP", "nodePort": 30053}]}}), "ensure")]
#[case::s_03_tcp(json!({}), "ensure")]
#[case::s_05_class_of_somebody_else(json!({"spec": {"loadBalancerClass": "example.com/lb"}}), "skip")]
#[case::s_06_type_changed_with_finalizer(
    json!({"metadata": finalizer(), "spec": {"type": "ClusterIP"}}), "remove: type")]
#[case::s_07_deleted_with_finalizer(
    json!({"metadata": {"deletionTimestamp": NOW, "finalizers": [FINALIZER]}}), "remove: deleted")]
#[case::s_08_served_already(json!({"metadata": finalizer()}), "ensure")]
#[case::s_19_no_finalizer_no_cleanup(json!({"spec": {"type": "NodePort"}}), "skip")]
#[case::s_20_finalizer_and_node_port(json!({"metadata": finalizer(), "spec": {"type": "NodePort"}}), "remove: type")]
#[case::s_21_finalizer_and_load_balancer(json!({"metadata": finalizer()}), "ensure")]
#[case::s_22_finalizer_and_deletion(
    json!({"metadata": {"deletionTimestamp": NOW, "finalizers": [FINALIZER]}, "spec": {"type": "NodePort"}}),
    "remove: deleted")]
#[case::s_168_deleted_without_our_finalizer(
    json!({"metadata": {"deletionTimestamp": NOW, "finalizers": ["example/other"]}}), "skip")]
#[case::class_of_somebody_else_with_the_finalizer_of_all_controllers(
    json!({"metadata": finalizer(), "spec": {"loadBalancerClass": "example.com/lb"}}), "skip")]
#[case::class_of_somebody_else_deleted(
    json!({"metadata": {"deletionTimestamp": NOW, "finalizers": [FINALIZER]},
           "spec": {"loadBalancerClass": "example.com/lb"}}), "skip")]
#[case::s_169_class_of_somebody_else_with_our_outputs(
    json!({"metadata": {"finalizers": [FINALIZER], "annotations": {annotations::ID: "ip-1"}},
           "spec": {"loadBalancerClass": "example.com/lb"}}), "remove: class")]
#[case::class_of_somebody_else_with_our_record(
    json!({"metadata": {"finalizers": [FINALIZER], "annotations": {annotations::SERVED_BY: "cloud"}},
           "spec": {"loadBalancerClass": "example.com/lb"}}), "remove: class")]
#[case::class_of_somebody_else_with_a_record_of_a_backend_that_does_not_run(
    json!({"metadata": {"finalizers": [FINALIZER], "annotations": {annotations::SERVED_BY: "keepalived"}},
           "spec": {"loadBalancerClass": "example.com/lb"}}), "skip")]
#[case::class_of_our_other_backend_with_outputs(
    json!({"metadata": {"finalizers": [FINALIZER], "annotations": {annotations::ID: "ip-1"}},
           "spec": {"loadBalancerClass": KEEPALIVED_CLASS}}), "skip")]
#[case::class_of_somebody_else_with_our_outputs_deleted(
    json!({"metadata": {"deletionTimestamp": NOW, "finalizers": [FINALIZER],
                        "annotations": {annotations::NETWORK_ID: "net-1"}},
           "spec": {"loadBalancerClass": "example.com/lb"}}), "remove: class")]
#[case::our_class(json!({"spec": {"loadBalancerClass": CLOUD_CLASS}}), "ensure")]
#[case::class_of_a_backend_that_does_not_run(json!({"spec": {"loadBalancerClass": KEEPALIVED_CLASS}}), "skip")]
#[case::no_uid(json!({"metadata": {"uid": ""}}), "skip")]
#[case::deletion_wins_over_a_refusal(
    json!({"metadata": {"deletionTimestamp": NOW, "finalizers": [FINALIZER],
                        "annotations": {annotations::PROXY_PROTOCOL: "maybe"}}}),
    "remove: deleted")]
fn which_services_are_ours(#[case] change: Value, #[case] expected: &str) {
    assert_eq!(word(&cloud(&service(change))), expected);
}

#[test]
fn the_finalizer_of_another_class_outlives_the_class() {
    let foreign = Circumstances {
        was_foreign: true,
        ..circumstances()
    };
    let look = |change, circumstances| {
        let mut plain = json!({"metadata": {"finalizers": [FINALIZER]}, "spec": {"type": "ClusterIP"}});
        merge(&mut plain, change);
        of(
            &service(plain),
            &rules(Running::One(BackendName::Cloud)),
            circumstances,
        )
    };
    let deleted = json!({"metadata": {"deletionTimestamp": NOW}});
    assert!(matches!(look(json!({}), foreign), Intent::Skip(Skip::OtherClass)));
    assert!(matches!(look(deleted, foreign), Intent::Skip(Skip::OtherClass)));
    let released = json!({"metadata": {"finalizers": []}});
    assert!(matches!(
        look(released, foreign),
        Intent::Skip(Skip::NotALoadBalancer)
    ));
    let asked = Circumstances {
        asked: true,
        ..foreign
    };
    assert_eq!(word(&look(json!({}), asked)), "remove: type");
    let without_a_class = json!({"spec": {"type": "LoadBalancer"}});
    assert_eq!(word(&look(without_a_class, foreign)), "ensure");
}

#[test]
fn a_service_that_this_process_served_is_ours_to_end_also_with_another_class() {
    let asked = Circumstances {
        asked: true,
        ..circumstances()
    };
    for deletion in [Value::Null, json!(NOW)] {
        let moved = service(json!({
            "metadata": {"finalizers": [FINALIZER], "deletionTimestamp": deletion},
            "spec": {"loadBalancerClass": "example.com/lb"},
        }));
        let intent = of(&moved, &rules(Running::One(BackendName::Cloud)), asked);
        assert_eq!(word(&intent), "remove: class");
    }
}

/// What an agent with one backend makes of a Service of this class with the finalizer and these annotations.
fn with_one_backend(
    only: BackendName,
    class: &str,
    annotations: &Value,
    circumstances: Circumstances<'_>,
) -> &'static str {
    let service = service(json!({
        "metadata": {"finalizers": [FINALIZER], "annotations": annotations},
        "spec": {"loadBalancerClass": class},
    }));
    word(&of(&service, &rules(Running::One(only)), circumstances))
}

#[test]
fn of_two_agents_side_by_side_none_ends_what_the_other_serves() {
    let cloud_outputs = json!({annotations::ID: "ip-1", annotations::NETWORK_ID: "net-1", annotations::IP_ASSOCIATED: "true"});
    let pool_output = json!({annotations::SERVED_BY: "keepalived"});
    let recorded = Circumstances {
        keepalived_holds: Holds::Yes,
        keepalived_records: true,
        ..circumstances()
    };
    let keepalived = |annotations, circumstances| {
        with_one_backend(BackendName::Keepalived, CLOUD_CLASS, annotations, circumstances)
    };
    assert_eq!(keepalived(&cloud_outputs, circumstances()), "skip");
    assert_eq!(keepalived(&cloud_outputs, recorded), "skip");
    let cloud = |annotations, circumstances| {
        with_one_backend(BackendName::Cloud, KEEPALIVED_CLASS, annotations, circumstances)
    };
    assert_eq!(cloud(&pool_output, circumstances()), "skip");
    assert_eq!(cloud(&cloud_outputs, circumstances()), "skip");
    let asked = Circumstances {
        asked: true,
        ..circumstances()
    };
    assert_eq!(
        cloud(&cloud_outputs, asked),
        "remove: class",
        "this process served it"
    );
    assert_eq!(keepalived(&pool_output, asked), "remove: class");
}

#[test]
fn a_service_that_left_for_a_foreign_class_while_nobody_looked_is_ended_by_its_record() {
    let look = |circumstances| {
        with_one_backend(
            BackendName::Keepalived,
            "example.com/lb",
            &json!({}),
            circumstances,
        )
    };
    let recorded = Circumstances {
        keepalived_holds: Holds::Yes,
        keepalived_records: true,
        ..circumstances()
    };
    assert_eq!(look(recorded), "remove: class");
    let one_of_its_name = Circumstances {
        keepalived_records: false,
        ..recorded
    };
    assert_eq!(
        look(one_of_its_name),
        "skip",
        "the finalizer is the other controller's"
    );
}

#[rstest]
#[case::pool_taken_from_the_command_line(BackendName::Cloud, json!({annotations::SERVED_BY: "keepalived"}))]
#[case::broker_taken_from_the_command_line(BackendName::Keepalived, json!({annotations::SERVED_BY: "cloud"}))]
#[case::keepalived_after_the_cloud_alone(BackendName::Keepalived, json!({annotations::ID: "ip-1"}))]
fn a_published_address_of_the_other_backend_is_not_taken_over(
    #[case] only: BackendName,
    #[case] annotations: Value,
) {
    let published = service(json!({
        "metadata": {"finalizers": [FINALIZER], "annotations": annotations},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}},
    }));
    let intent = of(&published, &rules(Running::One(only)), circumstances());
    assert_eq!(word(&intent), "leave");
    let remembered = Circumstances {
        served_by: Some(only),
        ..circumstances()
    };
    let intent = of(&published, &rules(Running::One(only)), remembered);
    assert_eq!(word(&intent), "ensure", "an annotation written by hand");
}

#[rstest]
#[case::h_72_none(json!({}), false)]
#[case::h_73_unrelated(json!({"finalizers": ["example/other"]}), false)]
#[case::h_74_ours(json!({"finalizers": [FINALIZER]}), true)]
#[case::h_75_ours_and_unrelated(finalizer(), true)]
fn whether_our_finalizer_is_there(#[case] metadata: Value, #[case] expected: bool) {
    assert_eq!(has_finalizer(&service(json!({"metadata": metadata}))), expected);
}

#[test]
fn a_plain_service_becomes_a_plain_wish() {
    let wanted = ensured(cloud(&service(json!({}))));
    assert_eq!(wanted.backend, BackendName::Cloud);
    assert_eq!(wanted.notices, []);
    assert!(!wanted.record_backend);
    let wish = wanted.wish;
    assert_eq!(wish.ports.len(), 1);
    let port = &wish.ports[0];
    assert_eq!(
        (port.name.as_str(), port.protocol(), port.port, port.node_port),
        ("http", Protocol::Tcp, 80, 30080)
    );
    assert!(!port.proxy_protocol);
    assert_eq!(wish.algorithm(), Algorithm::RoundRobin);
    assert_eq!(wish.dialect.unwrap().kind(), Kind::Apache);
    assert_eq!(
        (
            wish.sources.len(),
            wish.requested_address.as_str(),
            wish.keep_address
        ),
        (0, "", false)
    );
}

#[rstest]
#[case::s_04_sctp(json!({"spec": {"ports": [{"port": 9, "protocol": "SCTP", "nodePort": 30009}]}}), "spec.ports[0].protocol")]
#[case::unknown_protocol(
    json!({"spec": {"ports": [{"port": 9, "protocol": "QUIC", "nodePort": 30009}]}}), "spec.ports[0].protocol")]
#[case::node_port_not_allocated(
    json!({"spec": {"allocateLoadBalancerNodePorts": false, "ports": [{"port": 80, "protocol": "TCP"}]}}),
    "spec.ports[0].nodePort")]
#[case::no_ports(json!({"spec": {"ports": []}}), "spec.ports")]
#[case::ipv6_only(json!({"spec": {"ipFamilies": ["IPv6"]}}), "spec.ipFamilies")]
#[case::ipv6_only_without_the_list(json!({"spec": {"ipFamilies": null, "clusterIP": "fd00::1"}}), "spec.ipFamilies")]
#[case::bad_range(json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8", "10.0.0.1"]}}), "spec.loadBalancerSourceRanges[1]")]
#[case::only_ipv6_ranges(json!({"spec": {"loadBalancerSourceRanges": ["2001:db8::/32"]}}), "spec.loadBalancerSourceRanges")]
#[case::address_that_is_none(json!({"spec": {"loadBalancerIP": "lb.example.com"}}), "spec.loadBalancerIP")]
#[case::address_of_ipv6(json!({"spec": {"loadBalancerIP": "2001:db8::1"}}), "spec.loadBalancerIP")]
fn a_service_that_can_not_be_served_is_refused_with_the_field(#[case] change: Value, #[case] field: &str) {
    let problems = refused(cloud(&service(change)));
    assert_eq!(
        problems
            .iter()
            .map(|problem| problem.field.as_str())
            .collect::<Vec<_>>(),
        [field]
    );
}

#[rstest]
#[case::boolean(annotations::PROXY_PROTOCOL, "enabled")]
#[case::address(annotations::ADDRESS, "any")]
#[case::networks(annotations::SOURCE_CIDRS, "all")]
#[case::backend(annotations::BACKEND, "keepalived")]
fn an_annotation_that_can_not_be_met_is_refused_with_its_name(#[case] name: &str, #[case] value: &str) {
    let problems = refused(cloud(&service(annotated(name, value))));
    assert_eq!(problems[0].field, annotations::field(name));
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let problems = refused(cloud(&service(json!({
        "metadata": {"annotations": {annotations::PROXY_PROTOCOL: "maybe"}},
        "spec": {"ipFamilies": ["IPv6"], "loadBalancerIP": "x", "ports": [{"port": 9, "protocol": "SCTP"}]},
    }))));
    let fields: Vec<_> = problems.iter().map(|problem| problem.field.as_str()).collect();
    assert_eq!(
        fields,
        [
            &annotations::field(annotations::PROXY_PROTOCOL),
            "spec.ipFamilies",
            "spec.ports[0].protocol",
            "spec.ports[0].nodePort",
            "spec.loadBalancerIP"
        ]
    );
}

#[test]
fn lists_too_long_to_be_merged_are_refused_unread_and_in_few_words() {
    let ranges: Vec<_> = (0..100_000_u32)
        .map(|number| format!("{}/32", Ipv4Addr::from(number)))
        .collect();
    let cidrs = ranges[..15_000].join(",");
    let change = json!({
        "metadata": {"annotations": {annotations::SOURCE_CIDRS: cidrs}},
        "spec": {"loadBalancerSourceRanges": ranges},
    });
    let problems = refusal(cloud(&service(change))).problems;
    assert_eq!(problems.first().len(), 2, "one for each list: {problems}");
    assert!(problems.to_string().len() < 400, "{problems}");
    let wrong = json!({"spec": {"loadBalancerSourceRanges": vec!["x".repeat(5000); 400]}});
    let problems = refusal(cloud(&service(wrong))).problems;
    assert_eq!(problems.first().len(), 10);
    assert!(problems.to_string().ends_with("and 390 more problems"));
    assert!(problems.to_string().len() < 3000);
    let allowed = json!({"spec": {"loadBalancerSourceRanges": ranges_of(500)}});
    assert_eq!(ensured(cloud(&service(allowed))).wish.sources.len(), 500);
}

fn ranges_of(count: u32) -> Vec<String> {
    (0..count)
        .map(|number| format!("{}/32", Ipv4Addr::from(number * 2)))
        .collect()
}

#[test]
fn many_ports_that_can_not_be_had_are_counted() {
    let ports: Vec<_> = (0..5000)
        .map(|number| json!({"name": format!("p{number}"), "port": 1 + number, "protocol": "SCTP"}))
        .collect();
    let problems = refusal(cloud(&service(json!({"spec": {"ports": ports}})))).problems;
    assert_eq!(problems.first().len(), 10);
    assert!(problems.to_string().len() < 3000);
}

#[test]
fn keepalived_needs_no_node_ports_and_decides_about_protocols_itself() {
    let wanted = ensured(keepalived(&service(
        json!({"spec": {"ports": [{"port": 9, "protocol": "SCTP"}]}}),
    )));
    assert_eq!(wanted.backend, BackendName::Keepalived);
    assert_eq!(wanted.wish.ports[0].protocol(), Protocol::Sctp);
}

fn sources(
    ranges: &[&str],
    kubernetes: Option<&str>,
    cloudstack: Option<&str>,
) -> (Result<Vec<String>, Vec<String>>, Vec<String>) {
    let mut annotated = serde_json::Map::new();
    if let Some(value) = kubernetes {
        annotated.insert(annotations::SOURCE_RANGES.to_owned(), json!(value));
    }
    if let Some(value) = cloudstack {
        annotated.insert(annotations::SOURCE_CIDRS.to_owned(), json!(value));
    }
    let change =
        json!({"metadata": {"annotations": annotated}, "spec": {"loadBalancerSourceRanges": ranges}});
    match cloud(&service(change)) {
        Intent::Ensure(wanted) => (
            Ok(wanted.wish.sources),
            wanted.notices.into_iter().map(|notice| notice.reason).collect(),
        ),
        Intent::Refuse(refusal) => {
            let problems = refusal.problems.first().iter();
            (
                Err(problems.map(|problem| problem.field.clone()).collect()),
                Vec::new(),
            )
        }
        other @ (Intent::Remove(_) | Intent::Skip(_) | Intent::Wait(_) | Intent::LeaveTo(_)) => {
            panic!("{other:?}")
        }
    }
}

#[rstest]
#[case::h_50_nothing_set(&[], None, None, &[])]
#[case::h_51_empty_kubernetes_annotation(&[], Some(""), None, &[])]
#[case::h_46_field(&["10.0.0.1/32"], None, None, &["10.0.0.1/32"])]
#[case::h_46_annotation(&[], Some("10.0.0.1/32"), None, &["10.0.0.1/32"])]
#[case::h_47_duplicate(&["10.0.0.1/32", "10.0.0.1/32"], None, None, &["10.0.0.1/32"])]
#[case::h_48_two(&["10.0.0.2/32", "10.0.0.1/32"], None, None, &["10.0.0.1/32", "10.0.0.2/32"])]
#[case::h_49_blanks(&[" 10.0.0.1/32 ", " 10.0.0.2/32"], None, None, &["10.0.0.1/32", "10.0.0.2/32"])]
#[case::h_52_one_host_is_not_everybody(&["10.0.0.1/32"], None, None, &["10.0.0.1/32"])]
#[case::h_55_everybody(&["0.0.0.0/0"], None, None, &[])]
#[case::h_56_everybody_with_host_bits(&["192.168.0.0/0"], None, None, &[])]
#[case::h_57_everybody_and_one(&["10.0.0.1/32", "0.0.0.0/0"], None, None, &[])]
#[case::the_field_hides_the_kubernetes_annotation(&["10.0.0.0/8"], Some("192.0.2.0/24"), None, &["10.0.0.0/8"])]
#[case::both_voices_narrow(&["10.0.0.0/8", "192.0.2.0/24"], None, Some("10.1.0.0/16,172.16.0.0/12"), &["10.1.0.0/16"])]
#[case::both_voices_narrow_the_other_way(&["10.1.0.0/16"], None, Some("10.0.0.0/8"), &["10.1.0.0/16"])]
#[case::everybody_and_some(&["0.0.0.0/0"], None, Some("10.0.0.0/8"), &["10.0.0.0/8"])]
#[case::cloudstack_annotation_alone(&[], None, Some("10.0.0.0/8"), &["10.0.0.0/8"])]
fn sources_are_merged(
    #[case] ranges: &[&str],
    #[case] kubernetes: Option<&str>,
    #[case] cloudstack: Option<&str>,
    #[case] expected: &[&str],
) {
    let (merged, notices) = sources(ranges, kubernetes, cloudstack);
    assert_eq!(merged.unwrap(), expected);
    assert!(notices.is_empty(), "{notices:?}");
}

#[test]
fn lists_that_share_nobody_are_refused() {
    let (merged, _) = sources(&["10.0.0.0/8"], None, Some("192.0.2.0/24"));
    assert_eq!(
        merged.unwrap_err(),
        [annotations::field(annotations::SOURCE_CIDRS)]
    );
}

#[test]
fn an_empty_cloudstack_annotation_restricts_nothing_and_says_so() {
    assert_eq!(
        sources(&[], None, Some("")),
        (Ok(Vec::new()), vec!["SourceCidrsEmpty".to_owned()])
    );
    assert_eq!(
        sources(&["10.0.0.0/8"], None, Some(" ")).0,
        Ok(vec!["10.0.0.0/8".to_owned()])
    );
}

#[test]
fn ipv6_networks_beside_ipv4_ones_are_left_out_with_a_word() {
    let (merged, notices) = sources(&["10.0.0.0/8", "2001:db8::/32"], None, None);
    assert_eq!(merged.unwrap(), ["10.0.0.0/8"]);
    assert_eq!(notices, ["LoadBalancerSourceRangesIgnored"]);
}

#[rstest]
#[case::none(None, None, "", false)]
#[case::field(None, Some("192.0.2.7"), "192.0.2.7", false)]
#[case::annotation(Some("192.0.2.8"), None, "192.0.2.8", false)]
#[case::annotation_hides_the_field(Some("192.0.2.8"), Some("192.0.2.7"), "192.0.2.8", true)]
#[case::both_the_same(Some("192.0.2.8"), Some("192.0.2.8"), "192.0.2.8", false)]
#[case::empty_annotation(Some(""), Some("192.0.2.7"), "192.0.2.7", false)]
fn the_requested_address(
    #[case] annotation: Option<&str>,
    #[case] field: Option<&str>,
    #[case] expected: &str,
    #[case] hidden: bool,
) {
    let mut change = json!({"spec": {"loadBalancerIP": field}});
    if let Some(annotation) = annotation {
        merge(&mut change, annotated(annotations::ADDRESS, annotation));
    }
    let wanted = ensured(cloud(&service(change)));
    assert_eq!(wanted.wish.requested_address, expected);
    assert_eq!(
        wanted
            .notices
            .iter()
            .any(|notice| notice.reason == "AddressHidden"),
        hidden
    );
}

#[rstest]
#[case::round_robin("None", None, Algorithm::RoundRobin)]
#[case::client_ip("ClientIP", None, Algorithm::Source)]
#[case::asked_for_source("None", Some("source"), Algorithm::Source)]
#[case::least_connections("None", Some("leastconn"), Algorithm::LeastConnections)]
#[case::both_agree("ClientIP", Some("source"), Algorithm::Source)]
fn the_algorithm(#[case] affinity: &str, #[case] annotation: Option<&str>, #[case] expected: Algorithm) {
    let mut change = json!({"spec": {"sessionAffinity": affinity}});
    if let Some(annotation) = annotation {
        merge(&mut change, annotated(annotations::ALGORITHM, annotation));
    }
    assert_eq!(ensured(cloud(&service(change))).wish.algorithm(), expected);
}

#[test]
fn an_algorithm_that_breaks_client_affinity_is_refused() {
    let mut change = annotated(annotations::ALGORITHM, "leastconn");
    merge(&mut change, json!({"spec": {"sessionAffinity": "ClientIP"}}));
    assert_eq!(
        refused(cloud(&service(change)))[0].field,
        annotations::field(annotations::ALGORITHM)
    );
}

#[test]
fn an_affinity_time_that_is_not_the_default_is_mentioned() {
    let with = |seconds: i32| {
        json!({"spec": {"sessionAffinity": "ClientIP",
                        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": seconds}}}})
    };
    assert_eq!(ensured(cloud(&service(with(10_800)))).notices, []);
    assert_eq!(
        ensured(cloud(&service(with(60)))).notices[0].reason,
        "SessionAffinityTimeoutIgnored"
    );
}

#[test]
fn the_proxy_protocol_holds_for_tcp_ports_only() {
    let mut change = annotated(annotations::PROXY_PROTOCOL, "true");
    merge(
        &mut change,
        json!({"spec": {"ports": [
            {"name": "web", "port": 80, "protocol": "TCP", "nodePort": 30080},
            {"name": "dns", "port": 53, "protocol": "UDP", "nodePort": 30053},
        ]}}),
    );
    let wanted = ensured(cloud(&service(change)));
    assert_eq!(
        wanted
            .wish
            .ports
            .iter()
            .map(|port| port.proxy_protocol)
            .collect::<Vec<_>>(),
        [true, false]
    );
    assert_eq!(wanted.notices[0].reason, "ProxyProtocolIgnored");
    assert!(wanted.notices[0].text.contains("dns"));
}

#[test]
fn what_the_annotations_ask_for_is_in_the_wish() {
    let wanted = ensured(cloud(&service(json!({"metadata": {"annotations": {
        annotations::KEEP_IP: "true",
        annotations::NETWORK: "tier-1",
        annotations::ACCEPT_REPLACE: "plan-7",
        annotations::HOSTNAME: "lb.example.com",
        annotations::IP_ASSOCIATED: "true",
        annotations::ADDRESS: "192.0.2.8",
    }}, "spec": {"loadBalancerIP": "192.0.2.7"}}))));
    assert!(wanted.wish.keep_address);
    assert_eq!(wanted.wish.network, "tier-1");
    assert_eq!(wanted.wish.accept_replace, "plan-7");
    assert_eq!(wanted.hostname.as_deref(), Some("lb.example.com"));
    let adoption = wanted.wish.adoption.unwrap();
    assert!(adoption.ip_associated_by_controller);
    assert_eq!(adoption.load_balancer_ip, "192.0.2.8");
}

#[test]
fn a_removal_tells_what_keeps_the_address_and_where_to_look() {
    let gone = service(json!({
        "metadata": {"deletionTimestamp": NOW, "finalizers": [FINALIZER], "annotations": {
            annotations::KEEP_IP: "jawohl", annotations::NETWORK: " tier-1 ", annotations::IP_ASSOCIATED: "true"}},
        "spec": {"loadBalancerIP": "192.0.2.7"},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}, {"hostname": "a.example"}]}},
    }));
    let Intent::Remove(Removal { order, .. }) = cloud(&gone) else {
        panic!("not removed")
    };
    assert!(order.keep_address);
    assert_eq!(order.network, "tier-1");
    assert_eq!(order.published, ["192.0.2.7"]);
    assert_eq!(order.adoption.load_balancer_ip, "192.0.2.7");
    assert!(order.adoption.ip_associated_by_controller);
    assert_eq!(order.reference.name, "web");
}

#[test]
fn with_two_backends_the_choice_is_recorded_and_a_new_service_waits_for_the_broker() {
    let both = rules(Running::Both);
    assert!(matches!(
        of(&service(json!({})), &both, circumstances()),
        Intent::Wait(_)
    ));
    let offered = Circumstances {
        offer: Offer::LoadBalancer,
        ..circumstances()
    };
    let wanted = ensured(of(&service(json!({})), &both, offered));
    assert_eq!(wanted.backend, BackendName::Cloud);
    assert!(wanted.record_backend);
}

#[test]
fn what_is_wrong_is_said_even_while_the_backend_is_not_chosen() {
    let both = rules(Running::Both);
    let problems = refused(of(
        &service(annotated(annotations::PROXY_PROTOCOL, "on")),
        &both,
        circumstances(),
    ));
    assert_eq!(problems.len(), 1);
}

#[rstest]
#[case::recorded(json!({"metadata": {"annotations": {(annotations::SERVED_BY): "keepalived"}}}), true)]
#[case::by_class(json!({"spec": {"loadBalancerClass": KEEPALIVED_CLASS}}), true)]
#[case::recorded_for_the_cloud(json!({"metadata": {"annotations": {(annotations::SERVED_BY): "cloud"}}}), false)]
#[case::the_clouds_class(json!({"spec": {"loadBalancerClass": CLOUD_CLASS}}), false)]
#[case::nothing_said(json!({}), false)]
fn an_address_is_from_a_pool_where_the_record_or_the_class_says_so(
    #[case] change: Value,
    #[case] from_pool: bool,
) {
    assert_eq!(is_from_pool(&service(change), Running::Both), from_pool);
}

/// Notices of a Service that is served by the cloud.
fn notices(change: Value) -> Vec<String> {
    ensured(cloud(&service(change)))
        .notices
        .into_iter()
        .map(|notice| notice.reason)
        .collect()
}

#[test]
fn udp_members_that_nobody_checks_are_mentioned_where_only_some_nodes_answer() {
    let udp = json!([{"port": 53, "protocol": "UDP", "nodePort": 30053}]);
    let with =
        |policy: &str, ports: &Value| json!({"spec": {"externalTrafficPolicy": policy, "ports": ports}});
    assert_eq!(notices(with("Local", &udp)), ["LocalTrafficUnchecked"]);
    assert!(notices(with("Cluster", &udp)).is_empty());
    let tcp = json!([{"port": 80, "protocol": "TCP", "nodePort": 30080}]);
    assert!(
        notices(with("Local", &tcp)).is_empty(),
        "opening a connection fails there"
    );
    assert_eq!(
        ensured(keepalived(&service(with("Local", &udp)))).notices,
        [],
        "keepalived says itself what it can't do"
    );
}

#[test]
fn a_second_family_is_mentioned() {
    assert_eq!(
        notices(json!({"spec": {"ipFamilies": ["IPv4", "IPv6"]}})),
        ["IPv6FamilyIgnored"]
    );
    assert_eq!(
        notices(json!({"spec": {"ipFamilies": ["IPv6", "IPv4"]}})),
        ["IPv6FamilyIgnored"]
    );
    assert!(
        notices(json!({"spec": {"ipFamilies": ["IPv4"], "ipFamilyPolicy": "PreferDualStack"}})).is_empty()
    );
}

#[test]
fn behind_a_host_name_the_addresses_are_those_that_are_remembered() {
    let named = service(json!({"status": {"loadBalancer": {"ingress": [{"hostname": "lb.example.com"}]}}}));
    let remembered = ["192.0.2.7".to_owned()];
    assert_eq!(published(&named, &remembered), remembered);
    let plain = service(json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.8"}]}}}));
    assert_eq!(published(&plain, &remembered), ["192.0.2.8"]);
    assert!(
        published(&service(json!({})), &remembered).is_empty(),
        "nothing is published"
    );
}

#[rstest]
#[case::remembered(&["192.0.2.7"], None, &["192.0.2.7"])]
#[case::asked_for_and_perhaps_never_had(&[], Some("192.0.2.8"), &[])]
#[case::memory_wins(&["192.0.2.7"], Some("192.0.2.8"), &["192.0.2.7"])]
#[case::nothing_known(&[], None, &[])]
fn a_removal_names_the_address_behind_a_host_name_only_where_it_is_remembered(
    #[case] remembered: &[&str],
    #[case] asked: Option<&str>,
    #[case] expected: &[&str],
) {
    let remembered: Vec<_> = remembered.iter().map(|&ip| ip.to_owned()).collect();
    let gone = service(json!({
        "metadata": {"deletionTimestamp": NOW, "finalizers": [FINALIZER]},
        "spec": {"loadBalancerIP": asked},
        "status": {"loadBalancer": {"ingress": [{"hostname": "lb.example.com"}]}},
    }));
    let circumstances = Circumstances {
        behind_host_name: &remembered,
        ..circumstances()
    };
    let Intent::Remove(Removal { order, .. }) =
        of(&gone, &rules(Running::One(BackendName::Cloud)), circumstances)
    else {
        panic!("not removed")
    };
    assert_eq!(order.published, expected);
}

#[test]
fn who_serves_is_what_this_process_remembers_and_not_what_the_service_says() {
    let edited = service(json!({
        "metadata": {"annotations": {annotations::SERVED_BY: "keepalived"}},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}},
    }));
    let both = rules(Running::Both);
    let remembered = Circumstances {
        served_by: Some(BackendName::Cloud),
        ..circumstances()
    };
    assert_eq!(
        ensured(of(&edited, &both, remembered)).backend,
        BackendName::Cloud
    );
    assert_eq!(
        ensured(of(&edited, &both, circumstances())).backend,
        BackendName::Keepalived,
        "after a restart it is all that is known"
    );
}

/// A Service that shows this, with an annotation that can't be read.
fn unreadable(name: &str, value: &str, ingress: &Value, outputs: bool) -> Service {
    let mut change = annotated(name, value);
    if outputs {
        merge(&mut change, annotated(annotations::ID, "ip-1"));
    }
    merge(
        &mut change,
        json!({"status": {"loadBalancer": {"ingress": [ingress]}}}),
    );
    service(change)
}

#[rstest]
#[case::plain(json!({"ip": "192.0.2.7", "ipMode": "VIP"}), true, Some(false))]
#[case::with_the_header(json!({"ip": "192.0.2.7", "ipMode": "Proxy"}), true, Some(true))]
#[case::of_a_controller_before(json!({"ip": "192.0.2.7"}), false, Some(false))]
#[case::host_name_of_a_controller_before(json!({"hostname": "lb.example.com"}), false, Some(false))]
#[case::mode_is_not_kept(json!({"ip": "192.0.2.7"}), true, None)]
#[case::host_name(json!({"hostname": "lb.example.com"}), true, None)]
fn a_word_that_can_not_be_read_changes_no_protocol_of_what_serves(
    #[case] ingress: Value,
    #[case] outputs: bool,
    #[case] proxy_protocol: Option<bool>,
) {
    let refusal = refusal(cloud(&unreadable(
        annotations::PROXY_PROTOCOL,
        "enabled",
        &ingress,
        outputs,
    )));
    assert_eq!(refusal.problems.first().len(), 1);
    let goes_on = refusal
        .meanwhile
        .map(|wanted| wanted.wish.ports[0].proxy_protocol);
    assert_eq!(goes_on, proxy_protocol);
}

#[rstest]
#[case::keep_ip(annotations::KEEP_IP, "yes", true)]
#[case::address(annotations::ADDRESS, "any", true)]
#[case::algorithm(annotations::ALGORITHM, "random", true)]
#[case::host_name(annotations::HOSTNAME, "a b", true)]
#[case::sources(annotations::SOURCE_CIDRS, "10.0.0.0/33", false)]
#[case::sources_of_kubernetes(annotations::SOURCE_RANGES, "all", false)]
fn what_serves_goes_on_without_an_annotation_that_lets_nobody_in(
    #[case] name: &str,
    #[case] value: &str,
    #[case] goes_on: bool,
) {
    let ingress = json!({"ip": "192.0.2.7", "ipMode": "VIP"});
    let refusal = refusal(cloud(&unreadable(name, value, &ingress, true)));
    assert_eq!(refusal.meanwhile.is_some(), goes_on);
    if let Some(wanted) = refusal.meanwhile {
        assert_eq!(wanted.wish.keep_address, name == annotations::KEEP_IP);
        assert_eq!(wanted.wish.requested_address, "");
        assert!(wanted.writes_outputs);
    }
}

#[test]
fn a_host_name_that_can_not_be_read_leaves_the_one_that_is_shown() {
    let shown = json!({"hostname": "lb.example.com"});
    let meanwhile = refusal(cloud(&unreadable(annotations::HOSTNAME, "a b", &shown, true))).meanwhile;
    assert_eq!(meanwhile.unwrap().hostname.as_deref(), Some("lb.example.com"));
}

#[test]
fn what_is_refused_before_it_serves_gets_nothing_meanwhile() {
    let new = service(annotated(annotations::PROXY_PROTOCOL, "enabled"));
    assert!(refusal(cloud(&new)).meanwhile.is_none());
    let mut wrong_port = unreadable(
        annotations::PROXY_PROTOCOL,
        "enabled",
        &json!({"ip": "192.0.2.7"}),
        false,
    );
    wrong_port.spec.as_mut().unwrap().ports.as_mut().unwrap()[0].protocol = Some("SCTP".to_owned());
    assert!(
        refusal(cloud(&wrong_port)).meanwhile.is_none(),
        "its other ports are not known apart"
    );
}

#[test]
fn without_outputs_none_are_written_until_all_can_be_read() {
    let ingress = json!({"ip": "192.0.2.7"});
    let before = unreadable(annotations::PROXY_PROTOCOL, "enabled", &ingress, false);
    assert!(!refusal(cloud(&before)).meanwhile.unwrap().writes_outputs);
}
