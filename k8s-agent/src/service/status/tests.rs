#![expect(clippy::needless_pass_by_value, reason = "json! at the call")]

use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::service::choice::{CLOUD_CLASS, KEEPALIVED_CLASS};

const UID: &str = "769e278b-2454-4793-9a1f-6b9a47560490";

fn service(change: Value) -> Service {
    let mut value = json!({"metadata": {"uid": UID, "namespace": "default", "name": "web"}, "spec": {"type": "LoadBalancer"}});
    for (section, fields) in change.as_object().unwrap() {
        for (key, field) in fields.as_object().unwrap() {
            value[section][key] = field.clone();
        }
    }
    serde_json::from_value(value).unwrap()
}

fn with_ingress(ingress: Value) -> Service {
    service(json!({"status": {"loadBalancer": {"ingress": ingress}}}))
}

fn at(second: u8) -> Time {
    serde_json::from_value(json!(format!("2026-01-01T00:00:{second:02}Z"))).unwrap()
}

fn shown(ip: &str) -> Shown {
    Shown {
        ingress: vec![Reached {
            ip: ip.to_owned(),
            proxy: false,
        }],
        ..Shown::default()
    }
}

fn show(service: &Service, shown: &Shown) -> Option<Value> {
    settled(service, shown, None, IpModes::Kept, &at(1))
}

#[test]
fn h_77_s_24_a_finalizer_is_added_beside_others() {
    assert_eq!(
        claim(&service(json!({"metadata": {"finalizers": ["foo"]}}))).unwrap(),
        json!({"metadata": {
            "uid": UID,
            "finalizers": [FINALIZER],
            "$setElementOrder/finalizers": ["foo", FINALIZER],
        }})
    );
    assert_eq!(
        claim(&service(json!({}))).unwrap(),
        json!({"metadata": {"uid": UID, "finalizers": [FINALIZER]}})
    );
    assert_eq!(
        claim(&service(json!({"metadata": {"finalizers": [FINALIZER]}}))),
        None
    );
}

#[test]
fn s_25_a_finalizer_is_taken_out_of_the_list_and_others_stay() {
    let gone = |finalizers: Value| {
        released(
            &service(json!({"metadata": {"finalizers": finalizers}})),
            Ending::Deleted,
        )
    };
    assert_eq!(
        gone(json!(["foo", FINALIZER])).unwrap(),
        json!({"metadata": {
            "uid": UID,
            "$deleteFromPrimitiveList/finalizers": [FINALIZER],
            "$setElementOrder/finalizers": ["foo"],
        }})
    );
    assert_eq!(
        gone(json!([FINALIZER])).unwrap(),
        json!({"metadata": {"uid": UID, "$deleteFromPrimitiveList/finalizers": [FINALIZER]}})
    );
    assert_eq!(gone(json!(["foo"])), None);
}

#[rstest]
#[case::s_26_same(json!([{"ip": "192.0.2.1", "ipMode": "VIP"}]), false)]
#[case::s_166_no_mode_is_vip(json!([{"ip": "192.0.2.1"}]), false)]
#[case::other_address(json!([{"ip": "192.0.2.2", "ipMode": "VIP"}]), true)]
#[case::other_mode(json!([{"ip": "192.0.2.1", "ipMode": "Proxy"}]), true)]
#[case::nothing_before(json!([]), true)]
fn s_26_a_status_is_written_only_if_it_differs(#[case] stored: Value, #[case] expected: bool) {
    assert_eq!(
        show(&with_ingress(stored), &shown("192.0.2.1")).is_some(),
        expected
    );
}

#[test]
fn a_first_status_says_address_mode_and_condition() {
    assert_eq!(
        show(&service(json!({})), &shown("192.0.2.1")).unwrap(),
        json!({
            "metadata": {"uid": UID},
            "status": {
                "loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]},
                "conditions": [{"type": CONDITION, "status": "True", "reason": "Ready", "message": "",
                                "lastTransitionTime": "2026-01-01T00:00:01Z"}],
            },
        })
    );
}

#[test]
fn the_proxy_protocol_shows_in_the_mode() {
    let proxied = Shown {
        ingress: vec![Reached {
            ip: "192.0.2.1".to_owned(),
            proxy: true,
        }],
        ..Shown::default()
    };
    let patch = show(&service(json!({})), &proxied).unwrap();
    assert_eq!(
        patch["status"]["loadBalancer"]["ingress"],
        json!([{"ip": "192.0.2.1", "ipMode": "Proxy"}])
    );
}

#[test]
fn a_host_name_takes_the_place_of_the_addresses() {
    let named = Shown {
        hostname: Some("lb.example.com".to_owned()),
        ..shown("192.0.2.1")
    };
    let patch = show(&with_ingress(json!([{"ip": "192.0.2.1"}])), &named).unwrap();
    assert_eq!(
        patch["status"]["loadBalancer"]["ingress"],
        json!([{"hostname": "lb.example.com"}])
    );
    assert_eq!(
        show(&with_ingress(json!([{"hostname": "lb.example.com"}])), &named),
        None
    );
}

#[test]
fn outputs_are_written_after_the_fact_and_corrected() {
    let outputs = Outputs {
        address_id: "ip-1".to_owned(),
        network_id: "net-1".to_owned(),
        address_owned: true,
    };
    let ours = Shown {
        outputs: Some(outputs.clone()),
        ..shown("192.0.2.1")
    };
    let stored = with_ingress(json!([{"ip": "192.0.2.1"}]));
    assert_eq!(
        show(&stored, &ours).unwrap(),
        json!({"metadata": {"uid": UID, "annotations": {ID: "ip-1", NETWORK_ID: "net-1", IP_ASSOCIATED: "true"}}})
    );
    let mut forged = stored;
    forged.metadata.annotations = Some(
        [
            (ID, "ip-9"),
            (NETWORK_ID, "net-1"),
            (IP_ASSOCIATED, "true"),
            ("example/a", "b"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into(),
    );
    let given = Shown {
        outputs: Some(Outputs {
            address_owned: false,
            ..outputs
        }),
        ..shown("192.0.2.1")
    };
    assert_eq!(
        show(&forged, &given).unwrap(),
        json!({"metadata": {"uid": UID, "annotations": {ID: "ip-1", IP_ASSOCIATED: null}}})
    );
}

#[test]
fn who_serves_is_recorded_where_it_is_asked_for() {
    let recorded = Shown {
        served_by: Some(BackendName::Keepalived),
        ..shown("192.0.2.1")
    };
    let patch = show(&with_ingress(json!([{"ip": "192.0.2.1"}])), &recorded).unwrap();
    assert_eq!(patch["metadata"]["annotations"], json!({SERVED_BY: "keepalived"}));
}

#[rstest]
#[case::deleted(Ending::Deleted, true)]
#[case::s_06_type_changed(Ending::TypeChanged, true)]
#[case::s_169_class_changed_leaves_the_status_to_its_new_owner(Ending::ClassChanged, false)]
fn a_service_that_is_let_go_shows_nothing_of_ours(#[case] ending: Ending, #[case] clears: bool) {
    let stored = service(json!({
        "metadata": {"finalizers": [FINALIZER], "annotations": {ID: "ip-1", "example/a": "b"}},
        "status": {"loadBalancer": {"ingress": [{"ip": "8.8.8.8"}]},
                   "conditions": [{"type": CONDITION, "status": "True", "reason": "Ready", "message": "",
                                   "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    }));
    let patch = released(&stored, ending).unwrap();
    assert_eq!(patch["metadata"]["annotations"], json!({ID: null}));
    assert_eq!(
        patch["metadata"]["$deleteFromPrimitiveList/finalizers"],
        json!([FINALIZER])
    );
    let status =
        json!({"loadBalancer": {"ingress": null}, "conditions": [{"type": CONDITION, "$patch": "delete"}]});
    assert_eq!(patch.get("status"), clears.then_some(&status));
}

#[test]
fn s_26_nothing_of_ours_nothing_to_let_go() {
    assert_eq!(released(&service(json!({})), Ending::TypeChanged), None);
}

fn trouble(text: &str) -> Trouble {
    Trouble {
        reason: "BrokerUnreachable".to_owned(),
        text: text.to_owned(),
    }
}

fn with_condition(status: &str, text: &str) -> Service {
    service(
        json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}, "conditions": [
        {"type": CONDITION, "status": status, "reason": "BrokerUnreachable", "message": text,
         "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}),
    )
}

#[test]
fn the_same_trouble_is_written_once() {
    let patch = troubled(&service(json!({})), &trouble("no answer"), &at(2)).unwrap();
    assert_eq!(
        patch["status"]["conditions"],
        json!([{"type": CONDITION, "status": "False", "reason": "BrokerUnreachable", "message": "no answer",
                "lastTransitionTime": "2026-01-01T00:00:02Z"}])
    );
    assert_eq!(
        patch["status"].as_object().unwrap().len(),
        1,
        "the address that serves is left alone"
    );
    assert_eq!(
        troubled(
            &with_condition("False", "no answer"),
            &trouble("no answer"),
            &at(2)
        ),
        None
    );
}

#[test]
fn another_trouble_keeps_the_time_since_it_does_not_work() {
    let patch = troubled(&with_condition("False", "no answer"), &trouble("refused"), &at(2)).unwrap();
    assert_eq!(
        patch["status"]["conditions"][0]["lastTransitionTime"],
        json!("2026-01-01T00:00:00Z")
    );
    let patch = troubled(&with_condition("True", ""), &trouble("refused"), &at(2)).unwrap();
    assert_eq!(
        patch["status"]["conditions"][0]["lastTransitionTime"],
        json!("2026-01-01T00:00:02Z")
    );
}

#[test]
fn trouble_that_is_over_is_written_once_more() {
    let patch = show(&with_condition("False", "no answer"), &shown("192.0.2.1")).unwrap();
    assert_eq!(patch["status"]["conditions"][0]["status"], json!("True"));
    assert_eq!(show(&with_condition("True", ""), &shown("192.0.2.1")), None);
}

#[test]
fn an_api_server_that_drops_modes_is_recognised_and_not_asked_again() {
    let proxied = Shown {
        ingress: vec![Reached {
            ip: "192.0.2.1".to_owned(),
            proxy: true,
        }],
        ..Shown::default()
    };
    let answer = with_ingress(json!([{"ip": "192.0.2.1"}]));
    assert!(drops_ip_modes(&answer, &proxied));
    assert!(!drops_ip_modes(
        &with_ingress(json!([{"ip": "192.0.2.1", "ipMode": "Proxy"}])),
        &proxied
    ));
    assert_eq!(settled(&answer, &proxied, None, IpModes::Dropped, &at(1)), None);
    assert!(settled(&answer, &proxied, None, IpModes::Kept, &at(1)).is_some());
}

fn entry(value: Value) -> Vec<LoadBalancerIngress> {
    if value.is_null() {
        Vec::new()
    } else {
        vec![serde_json::from_value(value).unwrap()]
    }
}

#[rstest]
#[case::h_80_both_empty(json!(null), json!(null), true)]
#[case::h_81_same_ip(json!({"ip": "1.1.1.1"}), json!({"ip": "1.1.1.1"}), true)]
#[case::h_82_same_mode(json!({"ip": "1.1.1.1", "ipMode": "VIP"}), json!({"ip": "1.1.1.1", "ipMode": "VIP"}), true)]
#[case::h_83_same_ports(
    json!({"ip": "1.1.1.1", "ports": [{"port": 80, "protocol": "TCP"}]}),
    json!({"ip": "1.1.1.1", "ports": [{"port": 80, "protocol": "TCP"}]}), true)]
#[case::h_84_other_ip(json!({"ip": "1.1.1.1"}), json!({"ip": "1.1.1.2"}), false)]
#[case::h_85_mode_on_one_side_is_vip(json!({"ip": "1.1.1.1", "ipMode": "VIP"}), json!({"ip": "1.1.1.1"}), true)]
#[case::h_85_proxy_on_one_side(json!({"ip": "1.1.1.1", "ipMode": "Proxy"}), json!({"ip": "1.1.1.1"}), false)]
#[case::h_86_vip_and_proxy(json!({"ip": "1.1.1.1", "ipMode": "VIP"}), json!({"ip": "1.1.1.1", "ipMode": "Proxy"}), false)]
#[case::h_87_port_protocol(
    json!({"ip": "1.1.1.1", "ports": [{"port": 80, "protocol": "TCP"}]}),
    json!({"ip": "1.1.1.1", "ports": [{"port": 80, "protocol": "UDP"}]}), false)]
#[case::h_88_ports_on_one_side(
    json!({"ip": "1.1.1.1", "ports": [{"port": 80, "protocol": "TCP"}]}), json!({"ip": "1.1.1.1"}), false)]
fn when_two_statuses_are_equal(#[case] one: Value, #[case] other: Value, #[case] expected: bool) {
    assert_eq!(
        same_ingress(&entry(one.clone()), &entry(other.clone()), IpModes::Kept),
        expected
    );
    assert_eq!(same_ingress(&entry(other), &entry(one), IpModes::Kept), expected);
}

#[test]
fn a_service_that_serves_and_asks_for_more_shows_both() {
    let trouble = Trouble {
        reason: "InvalidService".to_owned(),
        text: "spec.ports: is empty".to_owned(),
    };
    let show = |service: &Service| {
        settled(
            service,
            &shown("192.0.2.1"),
            Some(&trouble),
            IpModes::Kept,
            &at(1),
        )
    };
    let patch = show(&service(json!({}))).unwrap();
    assert_eq!(
        patch["status"]["loadBalancer"]["ingress"][0]["ip"],
        json!("192.0.2.1")
    );
    assert_eq!(patch["status"]["conditions"][0]["status"], json!("False"));
    assert_eq!(
        patch["status"]["conditions"][0]["reason"],
        json!("InvalidService")
    );
    let mut said = with_ingress(json!([{"ip": "192.0.2.1"}]));
    said.status.as_mut().unwrap().conditions = Some(vec![
        serde_json::from_value(patch["status"]["conditions"][0].clone()).unwrap(),
    ]);
    assert_eq!(show(&said), None);
    let mended = settled(&said, &shown("192.0.2.1"), None, IpModes::Kept, &at(2)).unwrap();
    assert_eq!(mended["status"]["conditions"][0]["status"], json!("True"));
}

#[test]
fn a_condition_that_counts_seconds_is_not_written_each_second() {
    let waits = |seconds: u32| Trouble {
        reason: "RouterBusy".to_owned(),
        text: format!("the router is busy, asking again in {seconds} s"),
    };
    let patch = troubled(&service(json!({})), &waits(3), &at(1)).unwrap();
    let said = service(json!({"status": {"conditions": patch["status"]["conditions"]}}));
    assert_eq!(troubled(&said, &waits(5), &at(2)), None);
    let other = Trouble {
        text: "the router is gone".to_owned(),
        ..waits(3)
    };
    assert!(troubled(&said, &other, &at(2)).is_some());
}

#[test]
fn our_condition_is_taken_from_a_service_that_is_nothing_to_us() {
    let refused = service(json!({"status": {"conditions": [
        {"type": CONDITION, "status": "False", "reason": "InvalidService", "message": "m",
         "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}));
    assert_eq!(
        forgotten(&refused).unwrap(),
        json!({"metadata": {"uid": UID}, "status": {"conditions": [{"type": CONDITION, "$patch": "delete"}]}})
    );
    assert_eq!(forgotten(&service(json!({}))), None);
}

#[test]
fn outputs_that_the_process_of_the_other_backend_writes_stay_when_a_service_moves_to_its_class() {
    let all: Value = [ID, NETWORK_ID, IP_ASSOCIATED, SERVED_BY]
        .into_iter()
        .map(|name| (name.to_owned(), json!("x")))
        .collect();
    let dropped = |class: &str| {
        let stored = service(json!({
            "metadata": {"annotations": all, "finalizers": [FINALIZER]},
            "spec": {"loadBalancerClass": class},
        }));
        let patch = released(&stored, Ending::ClassChanged).unwrap();
        let annotations = patch["metadata"]["annotations"].as_object().unwrap();
        annotations.keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(dropped(CLOUD_CLASS), [SERVED_BY]);
    assert_eq!(dropped(KEEPALIVED_CLASS).len(), 3);
    assert_eq!(dropped("example.com/lb").len(), 4);
    let only_theirs = service(json!({
        "metadata": {"annotations": {(ID): "x"}, "finalizers": [FINALIZER]},
        "spec": {"loadBalancerClass": CLOUD_CLASS},
    }));
    let patch = released(&only_theirs, Ending::ClassChanged).unwrap();
    assert!(patch["metadata"].get("annotations").is_none(), "{patch}");
}
