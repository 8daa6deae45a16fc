//! What a Service that is served asks of its backend.

use super::*;

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

#[test]
fn keepalived_needs_no_node_ports_and_decides_about_protocols_itself() {
    let wanted = ensured(keepalived(&service(
        json!({"spec": {"ports": [{"port": 9, "protocol": "SCTP"}]}}),
    )));
    assert_eq!(wanted.backend, BackendName::Keepalived);
    assert_eq!(wanted.wish.ports[0].protocol(), Protocol::Sctp);
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
