//! A Service whose rules an older controller made and the fence leaves out.

use super::*;
use crate::tenant::{Machines, NameOrId, Pattern};

fn fence(networks: &[&str], machines: Option<&str>) -> Scope {
    Scope {
        networks: networks.iter().copied().map(NameOrId::new).collect(),
        machines: machines.map_or(Machines::Any, |pattern| Machines::Named(Pattern::new(pattern))),
        ..Scope::default()
    }
}

/// The members of the rule that an older controller made; those of nobody if there is none.
fn left_by_an_older_controller(members: &[&str]) -> Observation {
    let mut seen = seen(&[rule(80, "", "Active")], false);
    let ids = members
        .iter()
        .map(|id| crate::cloudstack::types::MachineId::parse(id).unwrap());
    seen.members.insert(seen.rules[0].id.clone(), ids.collect());
    seen
}

#[rstest]
#[case::a_mistyped_network(&["k8"], None, &["m1"], "`networks`")]
#[case::a_machine_that_does_not_fit(&["k8s"], Some("node-*"), &["m1"], "is not among the `machines`")]
#[case::no_member_left(&["k8s"], Some("m*"), &[], "no machine")]
fn a_service_whose_rules_the_fence_leaves_out_gets_no_other_address(
    #[case] networks: &[&str],
    #[case] machines: Option<&str>,
    #[case] members: &[&str],
    #[case] why: &str,
) {
    let mut seen = left_by_an_older_controller(members);
    let mut request = serve(&[(80, 30080)], |_| {});
    request.identity.fence = fence(networks, machines);
    let plan = next(&request, &mut seen);
    assert_eq!(plan.steps, []);
    let End::Wait(wait) = &plan.end else {
        panic!("{plan:#?}")
    };
    assert_eq!(wait.reason, "OUTSIDE_FENCE");
    let [note] = plan.notes.as_slice() else {
        panic!("{plan:#?}")
    };
    assert_eq!((note.reason, &note.text), ("OutsideFence", &wait.text));
    for said in [why, &format!("{PREFIX}-tcp-80"), "192.0.2.7"] {
        assert!(wait.text.contains(said), "{said}: {}", wait.text);
    }
    // Its end does not wait, and says what stays.
    let mut end = leave(false);
    end.identity.fence = fence(networks, machines);
    let plan = next(&end, &mut seen);
    assert!(matches!(plan.end, End::Departed), "{plan:#?}");
    assert_eq!((plan.steps, plan.kept), (vec![], end.published));
    let [note] = plan.notes.as_slice() else {
        panic!("{:#?}", plan.notes)
    };
    assert_eq!(note.reason, "AddressKept");
    assert!(note.text.contains(why), "{}", note.text);
}

#[derive(Clone, Copy, PartialEq)]
enum But {
    ItIsNotPublished,
    ItIsOnItsWayOut,
    ItIsNamedForAnother,
    NothingIsTakenOver,
    TheServiceHasRules,
}

#[rstest]
fn a_rule_outside_the_fence_holds_nobody_up(
    #[values(
        But::ItIsNotPublished,
        But::ItIsOnItsWayOut,
        But::ItIsNamedForAnother,
        But::NothingIsTakenOver,
        But::TheServiceHasRules
    )]
    but: But,
) {
    let mut seen = left_by_an_older_controller(&[]);
    let mut request = serve(&[(443, 30443)], |_| {});
    request.identity.fence = fence(&["k8s"], Some("node-*"));
    match but {
        But::ItIsNotPublished => request.published.clear(),
        But::ItIsOnItsWayOut => seen.rules[0].state = crate::cloudstack::types::RuleState::Deleting,
        But::ItIsNamedForAnother => "by-hand".clone_into(&mut seen.rules[0].name),
        But::NothingIsTakenOver => request.identity.take_over = false,
        But::TheServiceHasRules => {
            seen.rules
                .push(entity(&rule(443, &mark(UID, AddressWord::Own), "Active")));
        }
    }
    let plan = next(&request, &mut seen);
    assert!(
        plan.notes.iter().all(|note| note.reason != "OutsideFence"),
        "{plan:#?}"
    );
    assert!(!plan.steps.is_empty(), "{plan:#?}");
}
