use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::service::annotations;

fn service(change: &Value) -> Service {
    let mut value = json!({
        "metadata": {"uid": "u1", "namespace": "default", "name": "web"},
        "spec": {
            "type": "LoadBalancer",
            "ipFamilies": ["IPv4"],
            "ports": [{"name": "a", "protocol": "TCP", "port": 8000, "nodePort": 30000, "targetPort": 20}],
        },
    });
    for (section, fields) in change.as_object().unwrap() {
        for (key, field) in fields.as_object().unwrap() {
            value[section][key] = field.clone();
        }
    }
    serde_json::from_value(value).unwrap()
}

fn port(change: &Value) -> Value {
    let mut port = json!({"name": "a", "protocol": "TCP", "port": 8000, "nodePort": 30000, "targetPort": 20});
    for (key, field) in change.as_object().unwrap() {
        port[key] = field.clone();
    }
    json!({"spec": {"ports": [port]}})
}

fn annotation(name: &str, value: &str) -> Value {
    json!({"metadata": {"annotations": {name: value}}})
}

#[rstest]
#[case::s_30_type(json!({}), json!({"spec": {"type": "ClusterIP"}}), true)]
#[case::s_31_port(json!({}), port(&json!({"port": 8001})), true)]
#[case::node_port(json!({}), port(&json!({"nodePort": 30001})), true)]
#[case::port_name(json!({}), port(&json!({"name": "b"})), true)]
#[case::port_protocol(json!({}), port(&json!({"protocol": "UDP"})), true)]
#[case::s_32_external_ips_count(
    json!({"spec": {"externalIPs": ["1.1.1.1"]}}), json!({"spec": {"externalIPs": ["1.1.1.1", "2.2.2.2"]}}), true)]
#[case::s_33_external_ips_values(
    json!({"spec": {"externalIPs": ["1.1.1.1"]}}), json!({"spec": {"externalIPs": ["2.2.2.2"]}}), true)]
#[case::s_34_uid(json!({}), json!({"metadata": {"uid": "u2"}}), true)]
#[case::s_35_traffic_policy(json!({}), json!({"spec": {"externalTrafficPolicy": "Local"}}), true)]
#[case::s_36_health_check_port(json!({}), json!({"spec": {"healthCheckNodePort": 30123}}), true)]
#[case::s_37_target_port(port(&json!({"targetPort": 20})), port(&json!({"targetPort": 21})), true)]
#[case::s_38_target_port_name(port(&json!({"targetPort": 22})), port(&json!({"targetPort": "dns"})), true)]
#[case::s_39_families_added(json!({}), json!({"spec": {"ipFamilies": ["IPv4", "IPv6"]}}), true)]
#[case::s_40_families_removed(json!({"spec": {"ipFamilies": ["IPv4", "IPv6"]}}), json!({}), true)]
#[case::s_41_app_protocol_set(json!({}), port(&json!({"appProtocol": "http"})), true)]
#[case::s_42_app_protocol_changed(port(&json!({"appProtocol": "http"})), port(&json!({"appProtocol": "tcp"})), true)]
#[case::s_43_app_protocol_equal(port(&json!({"appProtocol": "http"})), port(&json!({"appProtocol": "http"})), false)]
#[case::s_44_families_equal(json!({}), json!({}), false)]
#[case::s_45_annotation_that_we_read(json!({}), annotation(annotations::KEEP_IP, "true"), true)]
#[case::s_45_annotation_of_kubernetes(json!({}), annotation(annotations::SOURCE_RANGES, "10.0.0.0/8"), true)]
#[case::annotation_of_somebody_else(json!({}), annotation("kubectl.kubernetes.io/last-applied-configuration", "{}"), false)]
#[case::our_own_output(json!({}), annotation(annotations::ID, "x"), false)]
#[case::our_own_record(json!({}), annotation(annotations::SERVED_BY, "cloud"), false)]
#[case::s_46_label(json!({}), json!({"metadata": {"labels": {"a": "b"}}}), false)]
#[case::s_47_status(json!({}), json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}), false)]
#[case::finalizers(json!({}), json!({"metadata": {"finalizers": ["a"]}}), false)]
#[case::selector(json!({}), json!({"spec": {"selector": {"app": "web"}}}), false)]
#[case::source_ranges(json!({}), json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}}), true)]
#[case::s_48_source_ranges_in_another_order(
    json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8", "192.0.2.0/24"]}}),
    json!({"spec": {"loadBalancerSourceRanges": ["192.0.2.0/24", "10.0.0.0/8"]}}),
    false)]
#[case::session_affinity(json!({}), json!({"spec": {"sessionAffinity": "ClientIP"}}), true)]
#[case::session_affinity_config(
    json!({}), json!({"spec": {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 5}}}}), true)]
#[case::load_balancer_ip(json!({}), json!({"spec": {"loadBalancerIP": "192.0.2.7"}}), true)]
fn which_changes_of_a_service_matter(#[case] before: Value, #[case] after: Value, #[case] expected: bool) {
    let print = |change: &Value| of(&service(change), &[]);
    assert_eq!(print(&before) != print(&after), expected);
}

#[test]
fn a_machine_that_goes_or_is_found_changes_the_members_only() {
    let member = |machine| {
        vec![WishMember {
            node_name: "n1".to_owned(),
            machine: Some(machine),
        }]
    };
    let web = service(&json!({}));
    let prints = [
        of(&web, &member(wish_member::Machine::MachineId("m1".to_owned()))),
        of(
            &web,
            &member(wish_member::Machine::GoneMachineId("m1".to_owned())),
        ),
        of(&web, &member(wish_member::Machine::Unresolved(true))),
        of(&web, &[]),
    ];
    for (index, print) in prints.iter().enumerate() {
        assert_eq!(print.service, prints[0].service);
        for other in &prints[index + 1..] {
            assert_ne!(print.members, other.members);
        }
    }
}
