use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::service::fingerprint::members_print;

/// A Ready node `n1` with a provider id, changed by `change`.
fn node(change: &Value) -> Node {
    let mut value = json!({
        "metadata": {"name": "n1", "labels": {}},
        "spec": {"providerID": "external-cloudstack://m1", "taints": []},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    for (section, fields) in change.as_object().unwrap() {
        for (key, field) in fields.as_object().unwrap() {
            value[section][key] = field.clone();
        }
    }
    serde_json::from_value(value).unwrap()
}

fn named(name: &str) -> Node {
    node(
        &json!({"metadata": {"name": name}, "spec": {"providerID": format!("external-cloudstack://{name}")}}),
    )
}

/// The machine that the provider id names.
fn machine(node: &Node) -> Machine {
    match node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()) {
        None => Machine::Unresolved,
        Some(id) => match id.strip_prefix("external-cloudstack://") {
            Some(id) if id.starts_with("gone") => Machine::Gone(id.to_owned()),
            Some(id) => Machine::Known(id.to_owned()),
            None => Machine::Foreign(id.to_owned()),
        },
    }
}

fn excluded(value: &str) -> Value {
    json!({"metadata": {"labels": {EXCLUDE_LABEL: value}}})
}

fn tainted() -> Value {
    json!({"spec": {"taints": [{"key": AUTOSCALER_TAINT, "effect": "NoSchedule"}]}})
}

fn ready(status: &str) -> Value {
    json!({"status": {"conditions": [{"type": "Ready", "status": status}]}})
}

#[rstest]
#[case::s_80_empty_node_is_eligible_and_unresolved(json!({"spec": {"providerID": null}}), true)]
#[case::s_81_ready_with_id(json!({}), true)]
#[case::s_82_ready_without_id(json!({"spec": {"providerID": null}}), true)]
#[case::s_83_not_ready_counts(ready("False"), true)]
#[case::s_84_empty_label_map(json!({"metadata": {"labels": {}}}), true)]
#[case::s_85_excluded_by_an_empty_value(excluded(""), false)]
#[case::s_86_not_excluded_by_false(excluded("false"), true)]
#[case::s_86_not_excluded_by_zero(excluded("0"), true)]
#[case::s_87_excluded_by_true(excluded("true"), false)]
#[case::s_88_excluded_by_any_word(excluded("foo"), false)]
#[case::s_89_autoscaler_taint(tainted(), false)]
#[case::unrelated_taint(json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}), true)]
#[case::cordoned(json!({"spec": {"unschedulable": true}}), true)]
#[case::being_deleted(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), false)]
fn who_is_in_the_stable_set(#[case] change: Value, #[case] expected: bool) {
    assert_eq!(is_eligible(&node(&change)), expected);
}

/// Whether a change of one node changes the set of members, and so wakes the Services.
#[rstest]
#[case::s_100_exclude_label_added(json!({}), excluded("true"), true)]
#[case::s_101_exclude_label_removed(excluded("true"), json!({}), true)]
#[case::s_102_provider_id_set(json!({"spec": {"providerID": null}}), json!({}), true)]
#[case::s_103_provider_id_unset(json!({}), json!({"spec": {"providerID": null}}), true)]
#[case::s_104_provider_id_changed(json!({}), json!({"spec": {"providerID": "external-cloudstack://m2"}}), true)]
#[case::s_105_nothing(json!({}), json!({}), false)]
#[case::s_106_label_on_both(excluded("true"), excluded("true"), false)]
#[case::s_107_other_taint_added(json!({}), json!({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}), false)]
#[case::s_108_other_taint_removed(json!({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}), json!({}), false)]
#[case::s_109_other_label_added(json!({}), json!({"metadata": {"labels": {"a": "b"}}}), false)]
#[case::s_110_other_label_removed(json!({"metadata": {"labels": {"a": "b"}}}), json!({}), false)]
#[case::s_111_not_ready_on_both(ready("False"), ready("False"), false)]
#[case::s_112_readiness_vanishes(ready("False"), json!({"status": {"conditions": []}}), false)]
#[case::s_113_readiness_appears(json!({"status": {"conditions": []}}), ready("False"), false)]
#[case::s_114_readiness_never_there(json!({"status": {"conditions": []}}), json!({"status": {"conditions": []}}), false)]
#[case::s_115_to_118_another_condition(
    json!({"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "False"}]}}),
    json!({"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "True"}]}}),
    false)]
#[case::s_63_becomes_not_ready(json!({}), ready("False"), false)]
#[case::s_65_becomes_ready(ready("False"), json!({}), false)]
#[case::s_64_autoscaler_taint(json!({}), tainted(), true)]
#[case::s_68_s_119_being_deleted(json!({}), json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), true)]
#[case::s_127_taint_while_excluded(
    excluded("true"),
    json!({"metadata": {"labels": {EXCLUDE_LABEL: "true"}},
           "spec": {"taints": [{"key": AUTOSCALER_TAINT, "effect": "NoSchedule"}]}}),
    false)]
#[case::s_129_readiness_while_excluded(
    excluded("true"),
    json!({"metadata": {"labels": {EXCLUDE_LABEL: "true"}}, "status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
    false)]
#[case::s_136_excluded_while_not_ready(
    ready("False"),
    json!({"metadata": {"labels": {EXCLUDE_LABEL: "true"}}, "status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
    true)]
#[case::s_141_excluded_without_an_id(
    json!({"spec": {"providerID": null}}),
    json!({"metadata": {"labels": {EXCLUDE_LABEL: "true"}}, "spec": {"providerID": null}}),
    true)]
#[case::s_145_taint_without_an_id_takes_it_out(
    json!({"spec": {"providerID": null}}),
    json!({"spec": {"providerID": null, "taints": [{"key": AUTOSCALER_TAINT, "effect": "NoSchedule"}]}}),
    true)]
// Of nodes that are out of the set either way, nothing is news: those changes (S-120 to S-124, S-131 to S-133) wake nobody.
#[case::s_120_excluded_while_tainted(
    tainted(),
    json!({"metadata": {"labels": {EXCLUDE_LABEL: "true"}},
           "spec": {"taints": [{"key": AUTOSCALER_TAINT, "effect": "NoSchedule"}]}}),
    false)]
#[case::s_133_id_changes_while_excluded(
    excluded("true"),
    json!({"metadata": {"labels": {EXCLUDE_LABEL: "true"}}, "spec": {"providerID": "external-cloudstack://m2"}}),
    false)]
fn which_changes_of_a_node_matter(#[case] before: Value, #[case] after: Value, #[case] expected: bool) {
    let print = |change: &Value| members_print(&pick([&node(change)], machine).wish);
    assert_eq!(print(&before) != print(&after), expected);
}

#[rstest]
#[case::s_60_same(&["n1", "n2"], &["n1", "n2"], false)]
#[case::s_60_other_order(&["n1", "n2"], &["n2", "n1"], false)]
#[case::s_61_added(&["n1", "n2"], &["n1", "n2", "n3"], true)]
#[case::s_67_gone(&["n1", "n2"], &["n1"], true)]
#[case::s_77_replaced(&["n1", "n2"], &["n1", "n4"], true)]
fn which_sets_of_nodes_differ(#[case] before: &[&str], #[case] after: &[&str], #[case] expected: bool) {
    let print = |names: &[&str]| {
        let nodes: Vec<_> = names.iter().map(|name| named(name)).collect();
        members_print(&pick(&nodes, machine).wish)
    };
    assert_eq!(print(before) != print(after), expected);
}

#[test]
fn members_come_in_the_order_of_their_names_with_their_machines() {
    let unresolved = node(&json!({"metadata": {"name": "b"}, "spec": {"providerID": null}}));
    let members = pick([&named("c"), &unresolved, &named("a"), &named("gone-d")], machine);
    let found: Vec<_> = members
        .wish
        .into_iter()
        .map(|member| (member.node_name, member.machine.unwrap()))
        .collect();
    assert_eq!(
        found,
        [
            ("a".to_owned(), wish_member::Machine::MachineId("a".to_owned())),
            ("b".to_owned(), wish_member::Machine::Unresolved(true)),
            ("c".to_owned(), wish_member::Machine::MachineId("c".to_owned())),
            (
                "gone-d".to_owned(),
                wish_member::Machine::GoneMachineId("gone-d".to_owned())
            ),
        ]
    );
    assert_eq!(members.notices, []);
}

#[test]
fn nodes_of_another_provider_are_left_out_with_a_word() {
    let foreign = node(&json!({"spec": {"providerID": "aws:///eu/i-1"}}));
    let members = pick([&foreign, &named("n2")], machine);
    assert_eq!(members.wish.len(), 1);
    assert_eq!(members.notices[0].reason, "NodeNotEligible");
    assert!(members.notices[0].text.ends_with(": n1"));
}

#[test]
fn a_long_list_of_names_is_cut() {
    let names: Vec<_> = (0..25).map(|number| format!("n{number}")).collect();
    assert!(enumerate(&names).ends_with("n19 and 5 more"));
    assert_eq!(enumerate(&names[..2]), "n0, n1");
}
