use rstest::rstest;

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::tenant::AllowedAddresses;

fn wire_port(protocol: v1::wish_port::Protocol, port: u32, node_port: u32) -> v1::WishPort {
    v1::WishPort {
        name: "http".into(),
        protocol: protocol.into(),
        port,
        node_port,
        proxy_protocol: false,
    }
}

fn wire() -> v1::Wish {
    v1::Wish {
        ports: vec![wire_port(v1::wish_port::Protocol::Tcp, 80, 30080)],
        ..v1::Wish::default()
    }
}

fn policy() -> Policy {
    let only = AllowedAddresses::of(vec!["192.0.2.0/24".parse().unwrap()]);
    Policy {
        allowed_addresses: only,
        ..Policy::default()
    }
}

type Edit = fn(&mut v1::Wish);

#[rstest]
#[case::no_ports(|w: &mut v1::Wish| w.ports.clear(), "ports", "NO_PORTS")]
#[case::sctp(|w: &mut v1::Wish| w.ports[0].protocol = v1::wish_port::Protocol::Sctp.into(), "ports[http].protocol", "SCTP_NOT_SUPPORTED")]
#[case::newer_protocol(|w: &mut v1::Wish| w.ports[0].protocol = 77, "ports[http].protocol", "UNKNOWN_PROTOCOL")]
#[case::port_0(|w: &mut v1::Wish| w.ports[0].port = 0, "ports[http].port", "BAD_PORT")]
#[case::port_too_high(|w: &mut v1::Wish| w.ports[0].port = 65536, "ports[http].port", "BAD_PORT")]
#[case::no_node_port(|w: &mut v1::Wish| w.ports[0].node_port = 0, "ports[http].node_port", "NO_NODE_PORT")]
#[case::node_port_outside(|w: &mut v1::Wish| w.ports[0].node_port = 22, "ports[http].node_port", "NODE_PORT_OUT_OF_RANGE")]
#[case::unnamed_port(|w: &mut v1::Wish| { w.ports[0].name.clear(); w.ports[0].node_port = 0; }, "ports[0].node_port", "NO_NODE_PORT")]
#[case::port_twice(|w: &mut v1::Wish| { let p = w.ports[0].clone(); w.ports.push(p); }, "ports[http].port", "PORT_TWICE")]
#[case::tcp_and_udp(
    |w: &mut v1::Wish| w.ports.push(wire_port(v1::wish_port::Protocol::Udp, 80, 30081)), "ports[http].port", "TCP_AND_UDP_ON_ONE_PORT"
)]
#[case::bad_cidr(|w: &mut v1::Wish| w.sources = vec!["10.0.0.0/40".into()], "sources", "BAD_SOURCES")]
#[case::no_address(|w: &mut v1::Wish| w.requested_address = "any".into(), "requested_address", "BAD_ADDRESS")]
#[case::ipv6(|w: &mut v1::Wish| w.requested_address = "2001:db8::1".into(), "requested_address", "ADDRESS_IS_IPV6")]
#[case::forbidden_address(|w: &mut v1::Wish| w.requested_address = "198.51.100.7".into(), "requested_address", "ADDRESS_NOT_ALLOWED")]
#[case::newer_algorithm(|w: &mut v1::Wish| w.algorithm = 77, "algorithm", "UNKNOWN_ALGORITHM")]
#[case::newer_dialect(
    |w: &mut v1::Wish| w.dialect = Some(v1::Dialect { kind: 77, cluster_name: String::new() }), "dialect.kind", "UNKNOWN_DIALECT"
)]
#[case::leaseweb_without_cluster(
    |w: &mut v1::Wish| w.dialect = Some(v1::Dialect { kind: v1::dialect::Kind::Leaseweb.into(), cluster_name: String::new() }),
    "dialect.cluster_name", "NO_CLUSTER_NAME"
)]
#[case::bad_machine(
    |w: &mut v1::Wish| w.members.push(v1::WishMember {
        node_name: "n1".into(), machine: Some(v1::wish_member::Machine::MachineId("a/b".into())),
    }),
    "members[n1]", "BAD_MACHINE_ID"
)]
#[case::a_port_name_that_is_too_long(|w: &mut v1::Wish| w.ports[0].name = "x".repeat(64), "ports[0].name", "TOO_LONG")]
#[case::an_odd_port_name(|w: &mut v1::Wish| w.ports[0].name = "a\nb".into(), "ports[0].name", "BAD_CHARACTERS")]
#[case::a_node_name_that_is_too_long(
    |w: &mut v1::Wish| w.members.push(v1::WishMember { node_name: "x".repeat(254), machine: None }),
    "members[0].node_name", "TOO_LONG"
)]
#[case::a_long_network(|w: &mut v1::Wish| w.network = "x".repeat(254), "network", "TOO_LONG")]
#[case::a_long_cluster_name(
    |w: &mut v1::Wish| w.dialect = Some(v1::Dialect { kind: 0, cluster_name: "x".repeat(254) }), "dialect.cluster_name", "TOO_LONG"
)]
#[case::a_long_consent(|w: &mut v1::Wish| w.accept_replace = "x".repeat(254), "accept_replace", "TOO_LONG")]
#[case::a_long_address(|w: &mut v1::Wish| w.requested_address = "x".repeat(254), "requested_address", "TOO_LONG")]
#[case::a_long_source(|w: &mut v1::Wish| w.sources = vec!["x".repeat(254)], "sources", "TOO_LONG")]
fn a_wish_that_can_not_be_met_is_refused_with_its_field(
    #[case] edit: Edit,
    #[case] field: &str,
    #[case] reason: &str,
) {
    let mut wish = wire();
    edit(&mut wish);
    let fault = Wish::from_proto(Some(&wish), &policy()).unwrap_err();
    assert_eq!((fault.field.as_deref(), &*fault.reason), (Some(field), reason));
}

#[test]
fn a_plain_wish_is_read() {
    let (wish, notes) = Wish::from_proto(Some(&wire()), &policy()).unwrap();
    assert_eq!(notes, []);
    assert_eq!(
        wish.ports,
        [WishPort {
            name: "http".into(),
            protocol: Protocol::Tcp,
            port: 80,
            node_port: 30080
        }]
    );
    assert!(wish.sources.is_everybody());
    assert_eq!(wish.requested, None);
    assert_eq!(wish.algorithm, Algorithm::RoundRobin);
}

#[rstest]
#[case::blanks_around_it("192.0.2.7\n", "192.0.2.7")]
#[case::too_long(&"x".repeat(254), "")]
#[case::of_two_lines("192.0.2.7\n192.0.2.8", "")]
fn a_wish_is_never_refused_for_what_an_older_controller_noted(#[case] noted: &str, #[case] read: &str) {
    let mut wish = wire();
    wish.adoption = Some(v1::Adoption {
        load_balancer_ip: noted.to_owned(),
        ip_associated_by_controller: true,
    });
    let (wish, _) = Wish::from_proto(Some(&wish), &policy()).unwrap();
    assert_eq!(wish.adoption.load_balancer_ip, read);
    assert!(wish.adoption.ip_associated_by_controller);
}

#[test]
fn blanks_around_the_texts_of_a_wish_do_not_count() {
    let mut wish = wire();
    wish.requested_address = " 192.0.2.7\n".to_owned();
    wish.network = "k8s\n".to_owned();
    wish.accept_replace = "0a1b\n".to_owned();
    let (wish, _) = Wish::from_proto(Some(&wish), &policy()).unwrap();
    assert_eq!(wish.requested, "192.0.2.7".parse().ok());
    assert_eq!(wish.network, Some(NameOrId::new("k8s")));
    assert_eq!(wish.accept_replace, "0a1b");
}

#[test]
fn a_proxy_port_is_tcp_with_a_header() {
    let mut wish = wire();
    wish.ports[0].proxy_protocol = true;
    let (wish, _) = Wish::from_proto(Some(&wish), &policy()).unwrap();
    assert_eq!(wish.ports[0].protocol, Protocol::TcpProxy);
    assert!(wish.is_proxy());
}

#[test]
fn members_are_told_apart_by_what_is_known_of_them() {
    use v1::wish_member::Machine;
    let member = |name: &str, machine| v1::WishMember {
        node_name: name.into(),
        machine,
    };
    let mut wish = wire();
    wish.members = vec![
        member("a", Some(Machine::MachineId("m-1".into()))),
        member("b", Some(Machine::Unresolved(true))),
        member("c", Some(Machine::GoneMachineId("m-2".into()))),
        member("d", Some(Machine::GoneMachineId("m-1".into()))),
        member("e", None),
    ];
    let (wish, _) = Wish::from_proto(Some(&wish), &policy()).unwrap();
    let id = |text| MachineId::parse(text).unwrap();
    assert_eq!(
        wish.members.machines,
        BTreeMap::from([(id("m-1"), "a".to_owned())])
    );
    assert_eq!(wish.members.unresolved, ["b", "e"]);
    assert_eq!(
        wish.members.gone,
        BTreeSet::from([id("m-2")]),
        "a machine that a node claims is not gone"
    );
}

#[test]
fn ipv6_sources_beside_others_are_left_out_with_a_note() {
    let mut wish = wire();
    wish.sources = vec!["2001:db8::/32".into(), "10.0.0.0/8".into()];
    let (wish, notes) = Wish::from_proto(Some(&wish), &policy()).unwrap();
    assert_eq!(wish.sources.to_string(), "10.0.0.0/8");
    assert_eq!(
        notes.iter().map(|note| note.reason).collect::<Vec<_>>(),
        ["SourcesIgnored"]
    );
}

#[rstest]
#[case::a_long_namespace(&"x".repeat(64), "web", "ref.namespace")]
#[case::an_odd_namespace("shop/attic", "web", "ref.namespace")]
#[case::a_long_name("shop", &"x".repeat(254), "ref.name")]
fn a_reference_with_names_that_kubernetes_does_not_know_is_refused(
    #[case] namespace: &str,
    #[case] name: &str,
    #[case] field: &str,
) {
    let reference = v1::LoadBalancerRef {
        uid: "u".into(),
        namespace: namespace.into(),
        name: name.into(),
    };
    let fault = ServiceRef::from_proto(Some(&reference)).unwrap_err();
    assert_eq!(fault.field.as_deref(), Some(field));
}

#[rstest]
#[case::missing(None, "ref")]
#[case::empty(Some(""), "ref.uid")]
#[case::breaks_a_mark(Some("a b"), "ref.uid")]
fn a_reference_without_a_sound_uid_is_refused(#[case] uid: Option<&str>, #[case] field: &str) {
    let reference = uid.map(|uid| v1::LoadBalancerRef {
        uid: uid.into(),
        ..v1::LoadBalancerRef::default()
    });
    let fault = ServiceRef::from_proto(reference.as_ref()).unwrap_err();
    assert_eq!(fault.field.as_deref(), Some(field));
}
