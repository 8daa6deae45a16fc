use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn parse<T: Entity>(value: &Value) -> Option<T> {
    T::parse(Fields::of(value))
}

#[rstest]
#[case::uuid(
    "C3F0A1B2-0000-4000-8000-00000000A001",
    Some("c3f0a1b2-0000-4000-8000-00000000a001")
)]
#[case::number_of_a_very_old_object("1042", Some("1042"))]
#[case::empty("", None)]
#[case::any("-1", None)]
#[case::list("a,b", None)]
#[case::blank("a b", None)]
#[case::wildcard("%", None)]
fn an_id_is_a_token_that_no_server_takes_for_something_else(#[case] text: &str, #[case] id: Option<&str>) {
    assert_eq!(MachineId::parse(text).ok().as_ref().map(MachineId::as_str), id);
}

#[rstest]
#[case::server("2031-05-01T10:20:30+0000", Some(1_935_397_230))]
#[case::other_zone("2031-05-01T15:50:30+0530", Some(1_935_397_230))]
#[case::west("2031-05-01T05:20:30-0500", Some(1_935_397_230))]
#[case::colon("2031-05-01T10:20:30+00:00", Some(1_935_397_230))]
#[case::zulu("2031-05-01T10:20:30Z", Some(1_935_397_230))]
#[case::fraction("2031-05-01T10:20:30.250Z", Some(1_935_397_230))]
#[case::leap_day("2024-02-29T00:00:00Z", Some(1_709_164_800))]
#[case::epoch("1970-01-01T00:00:00Z", Some(0))]
#[case::no_zone("2031-05-01T10:20:30", None)]
#[case::nonsense("soon", None)]
#[case::month("2031-13-01T10:20:30Z", None)]
fn times_are_read_in_every_spelling_of_a_zone(#[case] text: &str, #[case] seconds: Option<i64>) {
    assert_eq!(Timestamp::parse(text).map(Timestamp::seconds), seconds);
}

#[test]
fn the_date_of_a_gateway_is_read() {
    assert_eq!(
        Timestamp::parse_http("Sun, 06 Nov 1994 08:49:37 GMT"),
        Some(Timestamp::from_seconds(784_111_777))
    );
    assert_eq!(Timestamp::parse_http(""), None);
}

proptest! {
    #[test]
    fn every_time_reads_back_as_written(seconds in -60_000_000_000_i64..200_000_000_000) {
        let time = Timestamp::from_seconds(seconds);
        prop_assert_eq!(Timestamp::parse(&time.to_string()), Some(time));
    }

    #[test]
    fn no_text_upsets_a_parser(text in "\\PC{0,40}") {
        let _ = (Timestamp::parse(&text), Timestamp::parse_http(&text), Version::parse(&text));
        let _ = (CidrList::parse(&text).networks(), MachineId::parse(&text));
    }

    #[test]
    fn no_json_upsets_an_entity(text in "\\PC{0,12}", number in any::<f64>(), flag in any::<bool>()) {
        for value in [json!(text), json!(number), json!(flag), json!([]), json!({}), json!([[]]), Value::Null] {
            let object = json!({
                "id": "a", "ipaddress": "10.0.0.1", "publicport": "1", "privateport": 1, "jobid": "j", "key": "k",
                "name": value, "nic": value, "state": value, "service": value, "tags": value, "cidrlist": value,
                "startport": value, "number": value, "allocated": value, "jobstatus": value, "params": value,
            });
            prop_assert!(parse::<Machine>(&object).is_some());
            prop_assert!(parse::<LoadBalancerRule>(&object).is_some());
            prop_assert!(parse::<PublicIpAddress>(&object).is_some());
            prop_assert!(parse::<Network>(&object).is_some());
            prop_assert!(parse::<FirewallRule>(&object).is_some());
            prop_assert!(parse::<NetworkAclItem>(&object).is_some());
            prop_assert!(parse::<Job>(&object).is_some());
            prop_assert!(parse::<Machine>(&value).is_none());
        }
    }
}

#[rstest]
#[case::snapshot("4.22.0.0-SNAPSHOT", Some((4, 22, 0)))]
#[case::release("4.19.2.0", Some((4, 19, 2)))]
#[case::vendor("4.18-acme7", Some((4, 18, 0)))]
#[case::nothing("unknown", None)]
fn versions_are_read_as_far_as_they_are_numbers(#[case] text: &str, #[case] parts: Option<(u32, u32, u32)>) {
    assert_eq!(
        Version::parse(text),
        parts.map(|(major, minor, patch)| Version::new(major, minor, patch))
    );
}

#[rstest]
#[case::after_create("10.0.0.0/8 192.168.0.0/16", &["10.0.0.0/8", "192.168.0.0/16"])]
#[case::after_update("192.168.0.0/16,10.0.0.0/8", &["10.0.0.0/8", "192.168.0.0/16"])]
#[case::host_bits("10.9.8.7/8", &["10.0.0.0/8"])]
#[case::plain_address("10.0.0.1, ::1", &["10.0.0.1/32", "::1/128"])]
#[case::twice("10.0.0.0/8,10.0.0.0/8", &["10.0.0.0/8"])]
#[case::empty("", &[])]
fn source_lists_are_compared_as_sets(#[case] text: &str, #[case] networks: &[&str]) {
    let wanted = networks.iter().map(|text| text.parse().unwrap()).collect();
    assert_eq!(CidrList::parse(text).networks(), Some(wanted));
}

#[test]
fn a_list_that_the_server_has_cut_has_no_networks() {
    assert_eq!(CidrList::parse("10.0.0.0/8,192.168.").networks(), None);
}

#[test]
fn a_machine_is_read_with_its_interfaces_whatever_spelling_the_values_have() {
    let machine: Machine = parse(&json!({
        "id": "C3F0A1B2-0000-4000-8000-00000000A001", "name": "node-a", "displayname": "", "state": "Running",
        "created": "2031-04-30T08:00:00+0000", "zoneid": "z1", "zonename": "zone1", "serviceofferingname": "Medium",
        "account": "team1", "tags": [{"key": "cluster", "value": "c1"}, {"value": "no key"}], "jobid": "j1",
        "nic": [
            {"networkid": "n2", "ipaddress": "10.2.0.5", "isdefault": "false", "secondaryip": []},
            {"networkid": "n1", "ipaddress": "10.1.1.31", "ip6address": "2001:db8::1", "isdefault": "true",
             "secondaryip": [{"id": "s", "ipaddress": "10.1.1.32"}], "publicip": "192.0.2.1", "publicipid": "p"},
        ],
    }))
    .unwrap();
    assert_eq!(machine.id.as_str(), "c3f0a1b2-0000-4000-8000-00000000a001");
    assert_eq!(machine.display_name, "node-a");
    assert_eq!(machine.state, MachineState::Running);
    assert!(machine.busy);
    assert_eq!(machine.tags, [Tag::new("cluster", "c1")]);
    let nic = machine.default_nic().unwrap();
    assert_eq!(nic.ipv4, Some(Ipv4Addr::new(10, 1, 1, 31)));
    assert_eq!(nic.secondary, ["10.1.1.32".parse::<IpAddr>().unwrap()]);
    assert_eq!(
        machine.nic_in(&NetworkId::parse("n2").unwrap()).unwrap().ipv4,
        Some(Ipv4Addr::new(10, 2, 0, 5))
    );
}

#[test]
fn a_machine_without_an_id_is_none_and_one_without_anything_else_is_one() {
    assert_eq!(parse::<Machine>(&json!({"name": "node-a"})), None);
    let machine: Machine = parse(&json!({"id": 7})).unwrap();
    assert_eq!(
        (machine.id.as_str(), machine.state),
        ("7", MachineState::Other(String::new()))
    );
}

#[test]
fn ports_are_read_as_texts_and_as_numbers() {
    let rule = |public: Value| {
        parse::<LoadBalancerRule>(
            &json!({"id": "r", "publicport": public, "privateport": "30080", "cidrlist": ""}),
        )
    };
    assert_eq!(rule(json!("443")).unwrap().public_port, 443);
    assert_eq!(rule(json!(443)).unwrap().public_port, 443);
    assert_eq!(rule(json!("65536")), None);
    let rule = rule(json!("443")).unwrap();
    assert_eq!((rule.protocol, rule.sources.is_empty()), (None, true));
    let firewall: FirewallRule = parse(&json!({"id": "f", "protocol": "TCP", "startport": 80})).unwrap();
    assert_eq!(
        (firewall.protocol.as_str(), firewall.ports),
        ("tcp", Some(PortRange::single(80)))
    );
    let all: FirewallRule = parse(&json!({"id": "f", "protocol": "tcp"})).unwrap();
    assert_eq!(all.ports, None);
}

#[test]
fn the_network_of_an_address_is_the_guest_network() {
    let address: PublicIpAddress = parse(&json!({
        "id": "a", "ipaddress": "192.0.2.7", "state": "Allocated", "networkid": "public",
        "associatednetworkid": "guest", "issourcenat": "true", "allocated": "2031-05-01T10:20:30+0000",
        "projectid": "p1",
    }))
    .unwrap();
    assert_eq!(address.network_id, Some(NetworkId::parse("guest").unwrap()));
    assert!(address.is_source_nat && !address.is_static_nat);
    assert_eq!(address.owner.project, Some(ProjectId::parse("p1").unwrap()));
}

#[test]
fn the_services_of_a_network_tell_what_its_router_says_it_can() {
    let network: Network = parse(&json!({
        "id": "n", "type": "Isolated", "service": [
            {"name": "Lb", "provider": [{"name": "VirtualRouter"}],
             "capability": [{"name": "SupportedProtocols", "value": "tcp, UDP, tcp-proxy"}]},
            {"name": "Firewall"},
        ],
    }))
    .unwrap();
    assert!(network.has(ServiceName::Firewall) && !network.has(ServiceName::NetworkAcl));
    let words = network
        .service(ServiceName::LoadBalancer)
        .unwrap()
        .words("supportedprotocols");
    assert_eq!(words, ["tcp", "udp", "tcp-proxy"]);
}

#[test]
fn limits_of_the_api_are_known_only_while_the_server_throttles() {
    let parse = |value: Value| Capabilities::parse(Fields::of(&value)).api_limit;
    let five = std::time::Duration::from_secs(5);
    assert_eq!(
        parse(json!({"apilimitmax": "6", "apilimitinterval": 5})),
        Some((6, five))
    );
    assert_eq!(parse(json!({"apilimitmax": 6})), None);
    assert_eq!(parse(json!({"apilimitmax": 0, "apilimitinterval": 5})), None);
}

#[rstest]
#[case::pending(json!({"jobid": "j", "jobstatus": 0}), JobStatus::Pending)]
#[case::succeeded(json!({"jobid": "j", "jobstatus": "1"}), JobStatus::Succeeded)]
#[case::failed(json!({"jobid": "j", "jobstatus": 2}), JobStatus::Failed)]
#[case::no_status(json!({"jobid": "j"}), JobStatus::Pending)]
fn a_job_is_over_only_if_its_status_says_so(#[case] value: Value, #[case] status: JobStatus) {
    assert_eq!(parse::<Job>(&value).unwrap().status, status);
}
