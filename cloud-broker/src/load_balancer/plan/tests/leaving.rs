//! Balancers that leave an address: what proves it, and what a release left half done.

use super::*;

/// The address as a release left it that took the rules and failed then.
fn half_released(tagged: bool) -> Observation {
    let mut seen = seen(&[], tagged);
    let mut address = seen.addresses.remove(0);
    address.state = crate::cloudstack::types::AddressState::Releasing;
    seen.unsettled = Some(vec![address]);
    seen
}

fn releases(rounds: &[Vec<Step>]) -> usize {
    let all = rounds.iter().flatten();
    all.filter(|step| matches!(step, Step::Release { .. })).count()
}

#[test]
fn a_release_that_took_the_rules_and_failed_is_ended_by_whoever_began_it() {
    let mut seen = seen(&[rule(80, &mark(UID, AddressWord::Own), "Active")], false);
    let request = leave(false);
    let plan = next(&request, &mut seen);
    let Some(step @ Step::Release { .. }) = plan.steps.first().map(|planned| &planned.step) else {
        panic!("{plan:#?}")
    };
    let begun = step.begins(&request.identity, &seen).unwrap();
    seen.apply(&begun);
    // The router refused at the end: no rule is left, and the list does not show the address.
    let mut after = half_released(false);
    after.begun = seen.begun.clone();
    after.addresses = std::mem::take(&mut after.unsettled).unwrap();
    let (rounds, end) = carry_out(&request, &mut after, |_, _| {});
    assert_eq!(releases(&rounds), 1, "{rounds:#?}");
    assert!(matches!(end, End::Departed));
    // A Service that goes on elsewhere ends it, too.
    let mut after = half_released(false);
    after.begun = seen.begun.clone();
    after.addresses = std::mem::take(&mut after.unsettled).unwrap();
    after.addresses.push(entity(&json!({
        "id": "new", "ipaddress": "192.0.2.8", "state": "Allocated", "allocated": LONG_AGO, "associatednetworkid": "net",
    })));
    let mut moved = rule(80, &mark(UID, AddressWord::Own), "Active");
    moved["publicipid"] = json!("new");
    moved["publicip"] = json!("192.0.2.8");
    after.rules = vec![entity(&moved)];
    let mut request = serve(&[(80, 30080)], |_| {});
    request.published = vec![IpAddr::from([192, 0, 2, 8])];
    let (rounds, _) = carry_out(&request, &mut after, |_, _| {});
    assert_eq!(releases(&rounds), 1, "{rounds:#?}");
}

#[test]
fn an_address_that_somebody_took_after_a_release_is_not_released_again() {
    let mut seen = seen(&[], false);
    let request = leave(false);
    let step = Step::Release {
        address: AddressId::parse("ip").unwrap(),
        ip: IpAddr::from([192, 0, 2, 7]),
    };
    let begun = step.begins(&request.identity, &seen).unwrap();
    seen.apply(&begun);
    seen.addresses[0].allocated = Timestamp::parse(NOW);
    let (rounds, end) = carry_out(&request, &mut seen, |_, _| {});
    assert_eq!(rounds.len(), 0, "{rounds:#?}");
    assert!(matches!(end, End::Departed));
}

#[rstest]
#[case::the_tag_proves_it(true, 1)]
#[case::nothing_proves_it(false, 0)]
fn a_release_that_a_broker_before_this_one_began_is_ended_where_a_tag_proves_it(
    #[case] tagged: bool,
    #[case] expected: usize,
) {
    let mut seen = half_released(tagged);
    let request = leave(false);
    let first = next(&request, &mut seen.clone());
    let (rounds, end) = carry_out(&request, &mut seen, |_, _| {});
    assert_eq!(releases(&rounds), expected);
    assert!(matches!(end, End::Departed));
    // Where it can't be ended it is said.
    let kept: Vec<&str> = first.notes.iter().map(|note| note.reason).collect();
    assert_eq!(kept, if tagged { vec![] } else { vec!["AddressKept"] });
}

#[rstest]
#[case::its_own(true, true, false, 1)]
#[case::one_that_nothing_proves(false, true, false, 0)]
#[case::one_that_it_never_published(true, false, false, 0)]
#[case::its_own_that_is_kept(true, true, true, 0)]
fn an_address_whose_rules_somebody_deleted_goes_with_the_service_where_a_tag_proves_it(
    #[case] tagged: bool,
    #[case] published: bool,
    #[case] keep: bool,
    #[case] expected: usize,
) {
    let mut seen = seen(&[], tagged);
    seen.features.may_untag = true;
    let mut request = leave(keep);
    if !published {
        request.published.clear();
    }
    let (rounds, end) = carry_out(&request, &mut seen, |_, _| {});
    assert_eq!(releases(&rounds), expected, "{rounds:#?}");
    assert!(matches!(end, End::Departed));
    assert_eq!(seen.addresses.len(), 1 - expected);
    // A kept one is nobody's any more.
    assert!(!keep || seen.addresses[0].tags.is_empty());
}

#[rstest]
#[case::for_this_service(true, 1)]
#[case::for_another_one_by_another_broker(false, 0)]
fn an_address_without_a_rule_that_was_taken_today_goes_with_the_service_that_it_was_taken_for(
    #[case] for_this: bool,
    #[case] expected: usize,
) {
    let mut seen = seen(&[], true);
    seen.addresses[0].allocated = Timestamp::parse(NOW);
    let request = leave(false);
    if for_this {
        let id = &seen.addresses[0].id;
        let taken = JobView::Succeeded {
            address: Some(id.clone()),
            allocated: Timestamp::parse(NOW),
        };
        let job = crate::load_balancer::ownership::job_id(&request.identity, id, 0);
        seen.jobs.insert(job, taken);
    }
    let first = next(&request, &mut seen.clone());
    let kept: Vec<&str> = first.notes.iter().map(|note| note.reason).collect();
    assert_eq!(kept, if for_this { vec![] } else { vec!["AddressKept"] });
    let (rounds, end) = carry_out(&request, &mut seen, |_, _| {});
    assert_eq!(releases(&rounds), expected, "{rounds:#?}");
    assert!(matches!(end, End::Departed));
}

#[rstest]
fn the_rules_of_an_own_address_go_with_its_release_and_never_before(
    #[values(true, false)] may_tag: bool,
    #[values(1, 3)] ports: u16,
) {
    let rules: Vec<Value> = (80..80 + ports)
        .map(|port| rule(port, &mark(UID, AddressWord::Own), "Active"))
        .collect();
    let mut seen = seen(&rules, false);
    seen.features.may_tag = may_tag;
    let (rounds, _) = carry_out(&leave(false), &mut seen, |seen, step| {
        let is_release = matches!(step, Step::Release { .. });
        assert!(
            is_release || on_address(seen).len() == usize::from(ports),
            "{step:?}"
        );
    });
    assert_eq!(releases(&rounds), 1);
    assert_eq!((seen.rules.len(), seen.addresses.len()), (0, 0));
}

#[test]
fn a_release_that_another_service_began_here_is_left_to_it() {
    let mut seen = half_released(true);
    let id = AddressId::parse("ip").unwrap();
    let begun = crate::load_balancer::observation::BegunRelease {
        service: "another".to_owned(),
        allocated: Timestamp::parse(LONG_AGO),
    };
    seen.apply(&Change::ReleaseBegun(id, begun));
    let (rounds, end) = carry_out(&leave(false), &mut seen, |_, _| {});
    assert_eq!(rounds.len(), 0, "{rounds:#?}");
    assert!(matches!(end, End::Departed));
}

#[rstest]
#[case::one_is_left(&["Deleting"])]
#[case::several_are_left(&["Deleting", "Deleting"])]
fn the_half_deleted_rules_of_an_older_controller_go_and_the_address_is_kept(
    #[case] states: &[&str],
    #[values(false, true)] releasing: bool,
) {
    let rules: Vec<Value> = (80..)
        .zip(states)
        .map(|(port, state)| rule(port, "", state))
        .collect();
    let mut seen = seen(&rules, false);
    if releasing {
        seen.addresses[0].state = crate::cloudstack::types::AddressState::Releasing;
    }
    let request = leave(false);
    let first = next(&request, &mut seen.clone());
    assert!(
        first.notes.iter().any(|note| note.reason == "AddressKept"),
        "{first:#?}"
    );
    let (_, end) = carry_out(&request, &mut seen, |_, _| {});
    assert!(matches!(end, End::Departed), "{end:?}");
    assert_eq!(on_address(&seen), []);
    assert_eq!(seen.addresses.len(), 1);
}

#[test]
fn a_service_whose_rules_an_older_controller_half_deleted_gets_new_ones_elsewhere() {
    let mut seen = seen(&[rule(80, "", "Deleting")], false);
    seen.addresses[0].state = crate::cloudstack::types::AddressState::Releasing;
    let mut request = serve(&[(80, 30080)], |_| {});
    request.published.clear();
    let (_, end) = carry_out(&request, &mut seen, |_, _| {});
    assert!(
        matches!(&end, End::Served(served) if served.outputs.address_id.as_str() == "free"),
        "{end:?}"
    );
    assert_eq!(on_address(&seen), []);
}

#[rstest]
#[case::may_be_removed(true, 1)]
#[case::may_not(false, 0)]
fn a_kept_address_loses_the_tag_or_it_is_said_that_it_can_not(
    #[case] may_untag: bool,
    #[case] untags: usize,
) {
    let mut seen = seen(&[rule(80, &mark(UID, AddressWord::Own), "Active")], true);
    seen.features.may_untag = may_untag;
    let request = leave(true);
    let first = next(&request, &mut seen.clone());
    let said = first.notes.iter().any(|note| note.text.contains(TAG_KEY));
    assert_eq!(said, !may_untag, "{:#?}", first.notes);
    let (rounds, end) = carry_out(&request, &mut seen, |_, _| {});
    let untagged = rounds
        .iter()
        .flatten()
        .filter(|step| matches!(step, Step::Untag { .. }));
    assert_eq!(untagged.count(), untags);
    assert!(matches!(end, End::Departed));
    assert_eq!(seen.addresses.len(), 1);
}

#[rstest]
#[case::machines_of_the_nodes_are_visible(true, None)]
#[case::nothing_of_the_cluster_is_visible(false, Some("SCOPE_CHANGED"))]
fn an_address_that_nobody_sees_ends_a_balancer_only_where_the_cluster_is_visible(
    #[case] nodes_visible: bool,
    #[case] waits: Option<&str>,
) {
    let mut seen = seen(&[], false);
    seen.addresses.clear();
    seen.digits.insert(IpAddr::from([192, 0, 2, 7]), None);
    let mut request = leave(false);
    request.nodes_visible = nodes_visible;
    let end = next(&request, &mut seen).end;
    let reason = if let End::Wait(wait) = &end {
        Some(wait.reason)
    } else {
        None
    };
    assert_eq!(reason, waits);
    assert_eq!(matches!(end, End::Departed), nodes_visible);
}

#[derive(Clone, Copy, PartialEq)]
enum Meanwhile {
    Nothing,
    ItIsFree,
    SomebodyTookIt,
}

#[derive(Clone, Copy, PartialEq)]
enum Began {
    ThisProcess,
    AnotherBroker,
    AnotherBrokerAndTheServiceGoesOn,
}

/// What is found on the address in the turn to release it.
fn found_in_turn(meanwhile: Meanwhile, seen: &mut Observation) {
    let id = AddressId::parse("ip").unwrap();
    let (listed, unsettled) = (seen.address(&id).cloned(), seen.unsettled.iter().flatten().next());
    let mut address = listed.or(unsettled.cloned()).unwrap();
    seen.addresses.retain(|other| other.id != id);
    seen.unsettled = seen.unsettled.take().map(|_| Vec::new());
    seen.holders.insert(id.clone(), Holders::default());
    match meanwhile {
        Meanwhile::Nothing => {}
        Meanwhile::ItIsFree => {
            seen.rules.clear();
            seen.invisible.insert(id);
            return;
        }
        Meanwhile::SomebodyTookIt => {
            seen.rules.clear();
            address.state = crate::cloudstack::types::AddressState::Allocated;
            address.allocated = Timestamp::parse(NOW);
            address.tags.clear();
        }
    }
    seen.addresses.push(address);
}

#[rstest]
fn a_release_is_done_again_only_if_the_address_is_still_being_released_when_it_is_ones_turn(
    #[values(Meanwhile::Nothing, Meanwhile::ItIsFree, Meanwhile::SomebodyTookIt)] meanwhile: Meanwhile,
    #[values(
        Began::ThisProcess,
        Began::AnotherBroker,
        Began::AnotherBrokerAndTheServiceGoesOn
    )]
    began: Began,
) {
    let mut seen = half_released(began == Began::AnotherBroker);
    let mut request = leave(false);
    match began {
        Began::ThisProcess => {
            let id = AddressId::parse("ip").unwrap();
            let begun = crate::load_balancer::observation::BegunRelease {
                service: UID.to_owned(),
                allocated: Timestamp::parse(LONG_AGO),
            };
            seen.apply(&Change::ReleaseBegun(id, begun));
            seen.addresses = seen.unsettled.take().unwrap();
        }
        Began::AnotherBroker => {}
        Began::AnotherBrokerAndTheServiceGoesOn => {
            request = serve(&[(80, 30080)], |_| {});
            seen.addresses = seen.unsettled.take().unwrap();
            seen.rules = vec![entity(&rule(80, &mark(UID, AddressWord::Own), "Active"))];
        }
    }
    let mut looked = false;
    let plan = loop {
        let plan = plan(&request, &seen);
        if plan.needs.is_empty() {
            break plan;
        }
        for need in &plan.needs {
            if matches!(need, Need::Holders(id) if id.as_str() == "ip") {
                looked = true;
                found_in_turn(meanwhile, &mut seen);
            } else {
                look(need, &mut seen);
            }
        }
    };
    assert!(looked, "{plan:#?}");
    let is_release = |planned: &&super::super::Planned| matches!(planned.step, Step::Release { .. });
    let releases = plan.steps.iter().filter(is_release).count();
    assert_eq!(
        releases,
        usize::from(meanwhile == Meanwhile::Nothing),
        "{plan:#?}"
    );
}
