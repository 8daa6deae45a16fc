//! What can't be had, and how it is said.

use super::*;

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
