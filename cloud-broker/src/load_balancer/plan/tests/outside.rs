//! A Service whose rules an older controller made and the fence leaves out, or that are marked under another cluster's UID.

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

/// A balancer of the time when the cluster had the UID `c0`.
fn marked_under_another_uid() -> Observation {
    let old = mark(UID, AddressWord::Own).replace("cluster=c1", "cluster=c0");
    seen(&[rule(80, &old, "Active")], false)
}

#[rstest]
#[case::it_has_another_one_now(&["c1"], "behind the present one")]
#[case::nobody_says_it_any_more(&[], "nobody says the uid")]
fn a_service_whose_cluster_lost_its_uid_gets_no_other_address_and_its_end_waits_or_says_what_stays(
    #[case] uids: &[&str],
    #[case] remedy: &str,
) {
    let uids = || ClusterUids::configured(uids.iter().filter_map(|uid| ClusterUid::new(uid)).collect());
    let mut seen = marked_under_another_uid();
    let mut request = serve(&[(80, 30080)], |_| {});
    request.identity.uids = uids();
    let plan = next(&request, &mut seen);
    assert_eq!(plan.steps, []);
    let End::Wait(wait) = &plan.end else {
        panic!("{plan:#?}")
    };
    assert_eq!(wait.reason, "OTHER_CLUSTER_MARK");
    let [note] = plan.notes.as_slice() else {
        panic!("{plan:#?}")
    };
    assert_eq!((note.reason, &note.text), ("OtherClusterMark", &wait.text));
    for said in [
        remedy,
        "the uid c0",
        "`uid`",
        &format!("{PREFIX}-tcp-80"),
        "192.0.2.7",
    ] {
        assert!(wait.text.contains(said), "{said}: {}", wait.text);
    }
    let mut end = leave(false);
    end.identity.uids = uids();
    let plan = next(&end, &mut seen);
    let [note] = plan.notes.as_slice() else {
        panic!("{:#?}", plan.notes)
    };
    assert!(note.text.contains("the uid c0"), "{}", note.text);
    assert_eq!(plan.steps, []);
    // That nobody says the UID heals; another UID may be meant.
    if uids().is_unknown() {
        assert!(
            matches!(&plan.end, End::Wait(wait) if wait.reason == "OTHER_CLUSTER_MARK"),
            "{plan:#?}"
        );
        assert_eq!((note.reason, plan.kept), ("OtherClusterMark", vec![]));
    } else {
        assert!(matches!(plan.end, End::Departed), "{plan:#?}");
        assert_eq!((note.reason, plan.kept), ("AddressKept", end.published));
    }
    // Once somebody says that the UID is the cluster's, the balancer is the Service's as before.
    let mut request = serve(&[(80, 30080)], |_| {});
    let both = ["c1", "c0"]
        .iter()
        .filter_map(|uid| ClusterUid::new(uid))
        .collect();
    request.identity.uids = ClusterUids::configured(both);
    let (_, end) = carry_out(&request, &mut seen, |_, step| {
        assert!(!matches!(step, Step::Associate { .. }), "{step:?}");
    });
    assert!(matches!(end, End::Served(served) if served.outputs.address_id.as_str() == "ip"));
}

#[derive(Clone, Copy, PartialEq)]
enum Unless {
    ItIsNotPublished,
    ItIsOnItsWayOut,
    ItIsForAnotherService,
    TheServiceHasRules,
}

#[rstest]
fn a_rule_under_another_uid_holds_nobody_up(
    #[values(
        Unless::ItIsNotPublished,
        Unless::ItIsOnItsWayOut,
        Unless::ItIsForAnotherService,
        Unless::TheServiceHasRules
    )]
    unless: Unless,
) {
    let mut seen = marked_under_another_uid();
    let mut request = serve(&[(443, 30443)], |_| {});
    match unless {
        Unless::ItIsNotPublished => request.published.clear(),
        Unless::ItIsOnItsWayOut => seen.rules[0].state = crate::cloudstack::types::RuleState::Deleting,
        Unless::ItIsForAnotherService => {
            "kcs1 cluster=c0 service=another address=own".clone_into(&mut seen.rules[0].description);
        }
        Unless::TheServiceHasRules => {
            seen.rules
                .push(entity(&rule(443, &mark(UID, AddressWord::Own), "Active")));
        }
    }
    let plan = next(&request, &mut seen);
    assert!(
        plan.notes.iter().all(|note| note.reason != "OtherClusterMark"),
        "{plan:#?}"
    );
    assert!(!plan.steps.is_empty(), "{plan:#?}");
}

#[test]
fn a_service_that_moved_while_its_cluster_had_lost_its_uid_says_at_its_end_what_it_left_behind() {
    let mut seen = marked_under_another_uid();
    let mut moved = rule(443, &mark(UID, AddressWord::Own), "Active");
    moved["publicipid"] = json!("new");
    moved["publicip"] = json!("192.0.2.8");
    seen.rules.push(entity(&moved));
    seen.addresses.push(entity(&json!({
        "id": "new", "ipaddress": "192.0.2.8", "state": "Allocated", "allocated": LONG_AGO, "associatednetworkid": "net",
    })));
    let mut end = leave(false);
    end.published.push(IpAddr::from([192, 0, 2, 8]));
    let plan = next(&end, &mut seen);
    assert_eq!(plan.kept, [IpAddr::from([192, 0, 2, 7])]);
}
