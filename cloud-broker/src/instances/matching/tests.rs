use rstest::rstest;

use super::*;
use crate::cloudstack::types::{NetworkId, Nic, Owner, Tag, ZoneId};
use crate::instances::describe::{Address, addresses};
use crate::tenant::{Machines, NameOrId, Pattern};

const A: &str = "aaaaaaaa-0001-4002-8003-00000000000a";
const B: &str = "bbbbbbbb-0001-4002-8003-00000000000b";

fn nic(network: &str, address: [u8; 4], is_default: bool) -> Nic {
    Nic {
        network_id: NetworkId::parse(network).ok(),
        network_name: Some(network.into()),
        ipv4: Some(address.into()),
        ipv6: None,
        secondary: vec![[10, 9, 9, 9].into()],
        public_ip: None,
        public_ip_id: None,
        is_default,
    }
}

fn machine(id: &str, name: &str) -> Machine {
    Machine {
        id: MachineId::parse(id).unwrap(),
        name: name.into(),
        display_name: name.into(),
        state: MachineState::Running,
        created: None,
        zone_id: ZoneId::parse("z1").ok(),
        zone_name: Some("Zone 1".into()),
        offering: None,
        nics: vec![nic("n1", [10, 0, 0, 1], true)],
        public_ip: None,
        owner: Owner::default(),
        tags: vec![],
        busy: false,
    }
}

fn key(name: &str) -> NodeKey {
    NodeKey {
        node_uid: "u".into(),
        machine_id: None,
        system_uuid: None,
        node_name: name.into(),
        not_ready_for: None,
    }
}

fn by_id(id: &str, uuid: Option<&str>) -> NodeKey {
    NodeKey {
        machine_id: MachineId::parse(id).ok(),
        system_uuid: uuid.map(Into::into),
        ..key("other")
    }
}

fn by_uuid(uuid: &str, name: &str) -> NodeKey {
    NodeKey {
        system_uuid: Some(uuid.into()),
        ..key(name)
    }
}

#[rstest]
#[case::exact(key("worker-1"), Some("worker-1"))]
#[case::any_case(key("WORKER-1"), Some("worker-1"))]
#[case::first_label(key("worker-1.example.org"), Some("worker-1"))]
#[case::no_part_of_a_name(key("worker-"), None)]
#[case::no_longer_name(key("worker-100"), None)]
#[case::system_uuid_wins_over_the_name(by_uuid(B, "worker-1"), Some("worker-10"))]
#[case::system_uuid_in_upper_case(by_uuid("BBBBBBBB-0001-4002-8003-00000000000B", "x"), Some("worker-10"))]
#[case::system_uuid_with_its_bytes_swapped(
    by_uuid("bbbbbbbb-0100-0240-8003-00000000000b", "x"),
    Some("worker-10")
)]
#[case::an_unknown_system_uuid_leaves_it_to_the_name(
    by_uuid("11111111-0001-4002-8003-00000000000a", "worker-1"),
    Some("worker-1")
)]
#[case::text_that_is_no_uuid(by_uuid("Not Settable", "worker-1"), Some("worker-1"))]
#[case::provider_id(by_id(A, None), Some("worker-1"))]
#[case::provider_id_decides_alone(by_id(A, Some(B)), Some("worker-1"))]
#[case::a_provider_id_that_is_gone_is_not_replaced_by_a_name(NodeKey { node_name: "worker-1".into(), ..by_id("cccc", None) }, None)]
fn a_node_is_the_machine_that_its_best_evidence_names(#[case] key: NodeKey, #[case] name: Option<&str>) {
    let index = Index::new([machine(A, "worker-1"), machine(B, "worker-10")]);
    match (index.find(&key, &Scope::default()), name) {
        (Match::One(found), Some(name)) => assert_eq!(found.name, name),
        (Match::None, None) => {}
        (found, _) => panic!("{found:?}"),
    }
}

#[test]
fn two_machines_of_one_name_are_several_unless_the_scope_has_one() {
    let mut other = machine(B, "Twin");
    other.nics = vec![nic("n2", [10, 0, 1, 1], true)];
    let index = Index::new([machine(A, "twin"), other]);
    assert!(matches!(
        index.find(&key("twin"), &Scope::default()),
        Match::Several(..)
    ));
    let scope = Scope {
        networks: vec![NameOrId::new("n2")],
        ..Scope::default()
    };
    assert!(matches!(index.find(&key("twin"), &scope), Match::One(found) if found.id.as_str() == B));
}

#[test]
fn a_destroyed_machine_is_no_machine() {
    let mut gone = machine(A, "node");
    gone.state = MachineState::Destroyed;
    let index = Index::new([gone, machine(B, "node")]);
    assert!(
        matches!(index.find(&key("node"), &Scope::default()), Match::One(found) if found.id.as_str() == B)
    );
    assert_eq!(index.find(&by_id(A, None), &Scope::default()), Match::None);
}

#[test]
fn a_machine_outside_the_scope_is_told_apart_from_none_only_by_its_id() {
    let index = Index::new([machine(A, "node")]);
    for scope in [
        Scope {
            networks: vec![NameOrId::new("n2")],
            ..Scope::default()
        },
        Scope {
            zones: vec![NameOrId::new("Zone 2")],
            ..Scope::default()
        },
        Scope {
            machines: Machines::Named(Pattern::new("x*")),
            ..Scope::default()
        },
        Scope {
            machines: Machines::Tagged {
                key: "k".into(),
                value: "v".into(),
            },
            ..Scope::default()
        },
    ] {
        assert_eq!(index.find(&by_id(A, None), &scope), Match::Outside);
        assert_eq!(index.find(&key("node"), &scope), Match::None);
    }
    let mut tagged = machine(A, "node");
    tagged.tags = vec![Tag::new("K", "v")];
    let scope = Scope {
        machines: Machines::Tagged {
            key: "k".into(),
            value: "v".into(),
        },
        ..Scope::default()
    };
    assert!(matches!(
        Index::new([tagged]).find(&by_id(A, None), &scope),
        Match::One(_)
    ));
}

#[test]
fn a_mismatch_needs_another_machine_of_that_uuid() {
    let index = Index::new([machine(A, "a"), machine(B, "b")]);
    let found = index.get(&MachineId::parse(A).unwrap()).unwrap();
    assert!(index.is_mismatch(&by_id(A, Some(B)), found));
    assert!(!index.is_mismatch(&by_id(A, Some(A)), found));
    assert!(!index.is_mismatch(&by_id(A, Some("11111111-0001-4002-8003-00000000000a")), found));
    assert!(!index.is_mismatch(&by_id(A, None), found));
}

#[test]
fn addresses_begin_with_the_default_interface_and_end_with_the_name() {
    let mut machine = machine(A, "a");
    let mut second = nic("n2", [10, 0, 1, 1], true);
    second.ipv6 = Some("2001:db8::1".parse().unwrap());
    second.public_ip = Some([192, 0, 2, 1].into());
    machine.nics = vec![nic("n1", [10, 0, 0, 1], false), second];
    machine.public_ip = Some([192, 0, 2, 1].into());
    let internal = |text: &str| Address::Internal(text.parse().unwrap());
    assert_eq!(
        addresses(&machine, "node.example"),
        [
            internal("10.0.1.1"),
            internal("2001:db8::1"),
            internal("10.0.0.1"),
            Address::External([192, 0, 2, 1].into()),
            Address::Hostname("node.example".into()),
        ]
    );
}
