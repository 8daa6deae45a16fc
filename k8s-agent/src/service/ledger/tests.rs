use std::collections::BTreeSet;

use serde_json::json;

use super::*;
use crate::events::REMINDER;

fn print(service: u8, members: u8) -> Fingerprint {
    Fingerprint {
        service: [service; 32],
        members: [members; 32],
    }
}

fn served(fingerprint: Fingerprint, next_look: Option<Instant>) -> Record {
    Record {
        served: Some(Served {
            fingerprint,
            shown: Shown::default(),
            next_look,
        }),
        ..Record::default()
    }
}

fn start() -> Instant {
    runtime::clock::now()
}

fn notice(text: &str) -> Notice {
    Notice::warning("AddressKept", "", text)
}

fn service(uid: &str) -> Arc<Service> {
    Arc::new(
        serde_json::from_value(json!({"metadata": {"uid": uid, "namespace": "default", "name": "web"}}))
            .unwrap(),
    )
}

#[test]
fn a_backend_is_asked_once_and_then_only_for_a_reason() {
    let now = start();
    let record = served(print(1, 1), Some(now + Duration::from_mins(10)));
    assert_eq!(Record::default().due(print(1, 1), now), Some(Why::First));
    assert_eq!(record.due(print(1, 1), now), None);
    assert_eq!(record.due(print(2, 1), now), Some(Why::Changed));
    assert_eq!(record.due(print(2, 2), now), Some(Why::Changed));
    assert_eq!(record.due(print(1, 2), now), Some(Why::Nodes));
    assert_eq!(
        record.due(print(1, 1), now + Duration::from_mins(10)),
        Some(Why::Drift)
    );
}

#[test]
fn without_a_period_nobody_looks_for_drift() {
    let now = start();
    assert_eq!(next_look(Duration::ZERO, "u1", now), None);
    assert_eq!(
        served(print(1, 1), None).due(print(1, 1), now + Duration::from_hours(24)),
        None
    );
}

#[test]
fn looks_for_drift_are_spread_and_each_service_keeps_its_place() {
    let now = start();
    let period = Duration::from_mins(10);
    let looks: BTreeSet<_> = (0..50)
        .map(|uid| next_look(period, &uid.to_string(), now).unwrap())
        .collect();
    assert!(looks.len() > 30, "only {} different times", looks.len());
    assert!(
        looks
            .iter()
            .all(|look| (480..=720).contains(&look.duration_since(now).as_secs()))
    );
    assert_eq!(next_look(period, "7", now), next_look(period, "7", now));
}

#[test]
fn a_notice_is_told_once_while_it_holds_and_again_when_it_comes_back() {
    let (mut record, now) = (Record::default(), start());
    assert_eq!(
        record.news([notice("a"), notice("b")], now),
        [notice("a"), notice("b")]
    );
    assert_eq!(record.news([notice("a"), notice("b")], now), []);
    assert_eq!(record.news([notice("a")], now), []);
    assert_eq!(record.news([notice("a"), notice("b")], now), [notice("b")]);
}

#[test]
fn what_a_backend_tells_while_at_work_is_not_told_again_at_its_end() {
    let (mut record, now) = (Record::default(), start());
    assert_eq!(record.news_meanwhile([notice("a")], now), [notice("a")]);
    assert_eq!(
        record.news_meanwhile([notice("b"), notice("a")], now),
        [notice("b")]
    );
    assert_eq!(
        record.news([notice("a"), notice("b"), notice("c")], now),
        [notice("c")]
    );
}

#[test]
fn a_fault_is_new_once_and_again_after_a_recovery() {
    let (mut record, now) = (Record::default(), start());
    assert!(record.is_new_fault("no answer", now));
    assert!(!record.is_new_fault("no answer", now));
    assert!(record.is_new_fault("refused", now));
    assert!(!record.is_new_fault("no answer", now), "they take turns");
    assert!(record.recovered());
    assert!(!record.recovered());
    assert!(record.is_new_fault("refused", now));
}

#[test]
fn a_fault_that_counts_seconds_is_no_news_each_second() {
    let (mut record, now) = (Record::default(), start());
    assert!(record.is_new_fault("the router is busy, asking again in 3 s", now));
    assert!(!record.is_new_fault("the router is busy, asking again in 5 s", now));
    let counts = |seconds: u32| notice(&format!("waits for {seconds} s"));
    assert_eq!(record.news([counts(1)], now), [counts(1)]);
    assert_eq!(record.news([counts(2)], now), []);
    assert_eq!(record.news_meanwhile([counts(3)], now), []);
}

#[test]
fn trouble_that_lasts_is_told_again_before_kubernetes_forgets_its_event() {
    let (mut record, now) = (Record::default(), start());
    let soon = now + REMINDER.saturating_sub(Duration::from_secs(1));
    let later = now + REMINDER;
    assert!(later < now + Duration::from_hours(1));
    let worth_knowing = || Notice::normal("ProxyProtocolIgnored", "", "b");
    record.is_new_fault("no answer", now);
    record.is_new_refusal("spec.ports: is empty", now);
    record.news([notice("a"), worth_knowing()], now);
    assert!(!record.is_new_fault("no answer", soon));
    assert!(!record.is_new_refusal("spec.ports: is empty", soon));
    assert_eq!(record.news([notice("a"), worth_knowing()], soon), []);
    assert_eq!(record.news_meanwhile([notice("a")], soon), []);
    assert!(record.is_new_fault("no answer", later));
    assert!(record.is_new_refusal("spec.ports: is empty", later));
    assert_eq!(record.news([notice("a"), worth_knowing()], later), [notice("a")]);
    assert_eq!(
        record.news_meanwhile([notice("a")], later),
        [],
        "told again a moment ago"
    );
}

#[test]
fn the_faults_that_are_remembered_are_few() {
    let (mut record, now) = (Record::default(), start());
    for number in 0..10_000 {
        record.is_new_fault(&format!("port {number} is taken"), now);
    }
    assert!(record.faults.0.len() <= FAULTS);
}

#[test]
fn a_wish_that_is_taken_back_before_it_settled_is_asked_for_again() {
    let now = start();
    let mut record = served(print(1, 1), Some(now + Duration::from_mins(10)));
    assert_eq!(record.due(print(1, 1), now), None);
    record.doubt(now);
    assert_eq!(record.due(print(1, 1), now), Some(Why::Drift));
    let mut never = served(print(1, 1), None);
    never.doubt(now);
    assert_eq!(never.due(print(1, 1), now), Some(Why::Drift));
    record.begin_removal();
    assert_eq!(record.due(print(1, 1), now), Some(Why::First));
}

#[test]
fn modes_that_were_dropped_are_not_written_again_for_the_same_addresses_only() {
    let mut record = Record::default();
    let reached = |proxy| {
        [Reached {
            ip: "192.0.2.1".to_owned(),
            proxy,
        }]
    };
    record.saw_modes_dropped(&reached(true));
    assert_eq!(record.ip_modes(&reached(true)), IpModes::Dropped);
    assert_eq!(record.ip_modes(&reached(false)), IpModes::Kept);
    assert_eq!(Record::default().ip_modes(&reached(true)), IpModes::Kept);
}

#[test]
fn waiting_is_counted_from_the_first_time_until_it_is_over() {
    let (mut record, now) = (Record::default(), start());
    assert_eq!(record.waiting(now), Duration::ZERO);
    assert_eq!(
        record.waiting(now + Duration::from_secs(61)),
        Duration::from_secs(61)
    );
    record.recovered();
    assert_eq!(record.waiting(now + Duration::from_secs(70)), Duration::ZERO);
}

#[test]
fn s_15_s_164_the_balancer_of_a_vanished_or_replaced_service_is_left_behind() {
    let record = Record {
        asked: Some(service("u1")),
        ..Record::default()
    };
    assert!(record.left_behind(None).is_some());
    assert!(record.left_behind(Some(&service("u2"))).is_some());
    assert!(record.left_behind(Some(&service("u1"))).is_none());
    assert!(
        Record::default().left_behind(None).is_none(),
        "S-16: nothing was asked for"
    );
}

#[test]
fn s_23_a_record_is_blank_until_something_is_remembered() {
    let mut record = Record::default();
    assert!(record.is_blank());
    record.is_new_fault("x", start());
    assert!(!record.is_blank());
    assert!(!served(print(1, 1), None).is_blank());
}

#[test]
fn a_wish_rests_for_its_time_and_another_one_does_not() {
    let (mut record, now) = (Record::default(), start());
    let wish = |service, members| Task::Wish(print(service, members));
    assert_eq!(record.rests(&wish(1, 1), now), None);
    record.rest(wish(1, 1), now + Duration::from_secs(5));
    assert_eq!(
        record.rests(&wish(1, 1), now + Duration::from_secs(2)),
        Some(Duration::from_secs(3))
    );
    assert_eq!(record.rests(&wish(1, 1), now + Duration::from_secs(5)), None);
    assert_eq!(
        record.rests(&wish(2, 1), now),
        None,
        "S-174: a change is looked at at once"
    );
    assert_eq!(
        record.rests(&wish(1, 2), now),
        None,
        "S-174: so is a change of the nodes"
    );
}

#[test]
fn a_service_from_before_our_own_write_is_recognised() {
    let versioned = |version: &str| {
        let mut service = Service::clone(&service("u1"));
        service.metadata.resource_version = Some(version.to_owned());
        service
    };
    let (mut record, now) = (Record::default(), start());
    assert!(!record.is_behind(&versioned("9"), now));
    record.wrote(&versioned("10"), now);
    assert!(record.is_behind(&versioned("9"), now));
    assert!(!record.is_behind(&versioned("10"), now) && !record.is_behind(&versioned("11"), now));
    assert!(
        !record.is_behind(&versioned("no number"), now),
        "then nothing is known of their order"
    );
    let later = now + Duration::from_mins(1);
    assert!(
        !record.is_behind(&versioned("9"), later),
        "a cluster that was restored counts anew"
    );
    assert!(
        record.ended().is_behind(&versioned("9"), now),
        "also when the load balancer is gone"
    );
}

#[test]
fn a_backend_that_was_asked_before_another_one_is_known() {
    let asked = Record {
        backend: Some(BackendName::Cloud),
        ..Record::default()
    };
    assert_eq!(
        asked.other_backend(BackendName::Keepalived),
        Some(BackendName::Cloud)
    );
    assert_eq!(asked.other_backend(BackendName::Cloud), None);
    assert_eq!(Record::default().other_backend(BackendName::Cloud), None);
}

#[test]
fn repairs_pause_while_somebody_writes_something_else_again_and_again() {
    let (mut record, now) = (Record::default(), start());
    assert_eq!(record.repair_pauses(now), None);
    assert_eq!(
        record.repair_pauses(now + Duration::from_secs(4)),
        Some(Duration::from_secs(6))
    );
    assert_eq!(record.repair_pauses(now + Duration::from_secs(10)), None);
}
