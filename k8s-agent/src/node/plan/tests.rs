use k8s_openapi::api::core::v1::{NodeSpec, NodeStatus};
use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::node::addresses::PROVIDED_NODE_IP;

const NAMING: Naming = Naming {
    provider: Provider::ExternalCloudstack,
    sanitiser: Sanitiser::Apache,
};
const ID: &str = "external-cloudstack://3a1b2c3d-0000-4000-8000-0123456789ab";

fn taint(key: &str, effect: &str) -> Taint {
    Taint {
        key: key.into(),
        effect: effect.into(),
        ..Taint::default()
    }
}

fn address(type_: &str, address: &str) -> NodeAddress {
    NodeAddress {
        type_: type_.into(),
        address: address.into(),
    }
}

fn node(taints: Vec<Taint>) -> Node {
    let mut node = Node {
        spec: Some(NodeSpec {
            taints: Some(taints),
            ..NodeSpec::default()
        }),
        status: Some(NodeStatus::default()),
        ..Node::default()
    };
    node.metadata.name = Some("node0".into());
    node.metadata.resource_version = Some("7".into());
    node
}

fn tainted() -> Node {
    node(vec![taint(UNINITIALIZED, NO_SCHEDULE)])
}

/// What the server makes of the plan.
fn apply(node: &Node, plan: &NodePlan) -> Node {
    let mut after = node.clone();
    if let Some(addresses) = &plan.addresses {
        after.status.get_or_insert_default().addresses = Some(addresses.clone());
    }
    if let Some(main) = &plan.main {
        after
            .metadata
            .labels
            .get_or_insert_default()
            .extend(main.labels.clone());
        let spec = after.spec.get_or_insert_default();
        if let Some(id) = &main.provider_id {
            spec.provider_id = Some(id.clone());
        }
        if let Some(taints) = &main.taints {
            spec.taints = Some(taints.clone());
        }
    }
    after
}

#[test]
fn a_node_that_waits_gets_provider_id_labels_addresses_and_loses_its_taint() {
    // N-03, N-20, N-22
    let after = apply(
        &tainted(),
        &initialise(&tainted(), &Machine::example(), NAMING).unwrap(),
    );
    assert_eq!(after.spec.as_ref().unwrap().provider_id.as_deref(), Some(ID));
    assert_eq!(after.spec.as_ref().unwrap().taints, Some(vec![]));
    let expected = [
        address("InternalIP", "10.0.0.1"),
        address("ExternalIP", "132.143.154.163"),
        address("Hostname", "node0"),
    ];
    assert_eq!(addresses::present(&after), expected);
    for name in [
        "topology.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/zone",
    ] {
        assert_eq!(after.labels().get(name).map(String::as_str), Some("z1"));
    }
    assert!(!is_uninitialised(&after));
}

#[rstest]
#[case::other_taints_stay(vec![taint("ImproveCoverageTaint", NO_SCHEDULE), taint(UNINITIALIZED, NO_SCHEDULE)], vec![taint("ImproveCoverageTaint", NO_SCHEDULE)])] // N-06, N-23
#[case::only_the_key_counts(vec![taint(UNINITIALIZED, "NoExecute")], vec![])] // N-66
#[case::both_effects(vec![taint(UNINITIALIZED, "NoExecute"), taint(UNINITIALIZED, NO_SCHEDULE)], vec![])] // N-67
fn the_taint_goes_and_others_stay(#[case] has: Vec<Taint>, #[case] expected: Vec<Taint>) {
    let before = node(has);
    let after = apply(
        &before,
        &initialise(&before, &Machine::example(), NAMING).unwrap(),
    );
    assert_eq!(after.spec.unwrap().taints, Some(expected));
}

#[rstest]
#[case::another_spelling("cloudstack:///3a1b2c3d-0000-4000-8000-0123456789ab")]
#[case::without_a_machine("external-cloudstack")]
fn a_provider_id_that_is_there_is_never_changed(#[case] id: &str) {
    // N-11, N-27
    let mut before = tainted();
    before.spec.as_mut().unwrap().provider_id = Some(id.into());
    let after = apply(
        &before,
        &initialise(&before, &Machine::example(), NAMING).unwrap(),
    );
    assert_eq!(after.spec.unwrap().provider_id.as_deref(), Some(id));
}

#[test]
fn provided_addresses_that_the_machine_lacks_leave_the_node_as_it_is() {
    // N-10, N-09
    for text in ["10.0.0.2", "invalid-ip"] {
        let mut before = tainted();
        before.metadata.annotations = Some([(PROVIDED_NODE_IP.to_owned(), text.to_owned())].into());
        assert!(initialise(&before, &Machine::example(), NAMING).is_err());
    }
}

#[test]
fn a_cloud_without_addresses_wipes_none() {
    let mut before = tainted();
    before.status.as_mut().unwrap().addresses = Some(vec![address("InternalIP", "10.0.0.9")]);
    let machine = Machine {
        addresses: vec![],
        ..Machine::example()
    };
    assert_eq!(initialise(&before, &machine, NAMING).unwrap().addresses, None);
}

#[rstest]
#[case::equal(&["I10.0.0.1", "I10.0.0.2"], &["I10.0.0.1", "I10.0.0.2"], false)] // N-33, N-62
#[case::one_differs(&["I10.0.0.1", "I10.0.0.3"], &["I10.0.0.1", "I10.0.0.2"], true)] // N-34
#[case::one_more_before(&["I10.0.0.1", "I10.0.0.2", "I10.0.0.3"], &["I10.0.0.1", "I10.0.0.2"], true)] // N-35
#[case::one_more_now(&["I10.0.0.1"], &["I10.0.0.1", "I10.0.0.2"], true)] // N-36
#[case::types_swapped(&["E10.0.0.1", "I10.0.0.2"], &["I10.0.0.1", "E10.0.0.2"], true)] // N-37
#[case::order_swapped(&["I10.0.0.2", "I10.0.0.1"], &["I10.0.0.1", "I10.0.0.2"], true)]
fn addresses_are_written_when_the_ordered_lists_differ(
    #[case] has: &[&str],
    #[case] machine: &[&str],
    #[case] written: bool,
) {
    let list = |words: &[&str]| -> Vec<NodeAddress> {
        let kind = |word: &str| {
            if word.starts_with('I') {
                "InternalIP"
            } else {
                "ExternalIP"
            }
        };
        words
            .iter()
            .map(|word| address(kind(word), &word[1..]))
            .chain([address("Hostname", "node0")])
            .collect()
    };
    let mut before = node(vec![]);
    before.status.as_mut().unwrap().addresses = Some(list(has));
    let machine = Machine {
        addresses: list(machine),
        ..Machine::example()
    };
    // N-63: what is written is the whole list.
    let plan = refresh(&before, &machine, NAMING).unwrap();
    assert_eq!(plan.addresses, written.then_some(machine.addresses));
}

#[test]
fn a_refresh_touches_neither_provider_id_nor_taints() {
    let before = node(vec![taint("x", NO_SCHEDULE)]);
    let body = refresh(&before, &Machine::example(), NAMING)
        .unwrap()
        .main
        .unwrap()
        .body(None);
    assert!(body.get("spec").is_none(), "{body}");
}

#[test]
fn the_main_patch_is_locked_and_names_only_what_changes() {
    let plan = initialise(&tainted(), &Machine::example(), NAMING).unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&plan.main.unwrap().body(Some("7"))).unwrap());
}

#[test]
fn the_shutdown_taint_comes_once_and_goes_alone() {
    // L-20, L-40, H-30 to H-39
    let plain = node(vec![taint("x", "NoExecute"), taint(SHUTDOWN, "NoExecute")]);
    let with = apply(
        &plain,
        &NodePlan {
            main: add_shutdown_taint(&plain),
            ..NodePlan::default()
        },
    );
    assert!(has_shutdown_taint(&with));
    assert_eq!(add_shutdown_taint(&with), None);
    let without = apply(
        &with,
        &NodePlan {
            main: remove_shutdown_taint(&with),
            ..NodePlan::default()
        },
    );
    assert_eq!(without.spec, plain.spec);
    assert_eq!(remove_shutdown_taint(&without), None);
}

fn arbitrary_node() -> impl Strategy<Value = Node> {
    let keys = prop_oneof![Just(UNINITIALIZED), Just(SHUTDOWN), Just("other")];
    let effects = prop_oneof![Just(NO_SCHEDULE), Just("NoExecute")];
    let taints = proptest::collection::vec((keys, effects), 0..4);
    let labels = proptest::collection::btree_map(
        proptest::sample::select([labels::ZONE, labels::REGION, labels::INSTANCE_TYPE].concat()),
        "[a-z]{1,3}",
        0..4,
    );
    let addresses = proptest::collection::vec(("(InternalIP|Hostname)", "10\\.0\\.0\\.[1-3]"), 0..4);
    (taints, labels, addresses).prop_map(|(taints, labels, addresses)| {
        let mut node = node(
            taints
                .into_iter()
                .map(|(key, effect)| taint(key, effect))
                .collect(),
        );
        node.metadata.labels = Some(
            labels
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        );
        node.status.as_mut().unwrap().addresses = Some(
            addresses
                .into_iter()
                .map(|(kind, ip)| address(&kind, &ip))
                .collect(),
        );
        node
    })
}

proptest! {
    #[test]
    fn an_initialised_node_needs_no_refresh(node in arbitrary_node(), region in "[a-z]{0,3}") {
        let machine = Machine { region, ..Machine::example() };
        let after = apply(&node, &initialise(&node, &machine, NAMING).unwrap());
        prop_assert!(!is_uninitialised(&after));
        prop_assert_eq!(refresh(&after, &machine, NAMING).unwrap(), NodePlan::default());
    }
}
