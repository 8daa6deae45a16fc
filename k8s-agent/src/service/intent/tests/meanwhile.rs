//! What goes on while a Service can't be read whole.

use super::*;

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
