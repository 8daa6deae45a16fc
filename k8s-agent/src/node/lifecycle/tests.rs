use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::node::presence::Machine;

const RULES: Rules = Rules {
    grace: Duration::from_secs(30),
    per_minute: 10,
    brake_minimum: 3,
    brake_percent: 33,
    brake_window: Duration::from_mins(10),
    retry: Backoff {
        first: Duration::from_secs(10),
        longest: Duration::from_mins(5),
    },
};

fn node(uid: &str) -> Sight {
    Sight {
        uid: uid.into(),
        ..Sight::default()
    }
}

fn ready(uid: &str) -> Sight {
    Sight {
        ready: true,
        ..node(uid)
    }
}

fn machine(power: Power) -> Presence {
    Presence::Found(Box::new(Machine {
        power,
        ..Machine::example()
    }))
}

fn gone() -> Presence {
    Presence::Gone(Proof::example())
}

fn unknown(why: Why) -> Presence {
    Presence::Unknown {
        why,
        text: "x".into(),
    }
}

/// Observes the nodes from `start` until `seconds` later, then judges with one answer for all that were asked.
fn judge_after(
    history: &mut History,
    nodes: &[Sight],
    answer: &Presence,
    (start, seconds): (Instant, u64),
) -> Vec<Verdict> {
    history.observe(nodes, start);
    let now = start + Duration::from_secs(seconds);
    let asked = history.observe(nodes, now);
    let answers = asked.into_iter().map(|(uid, _)| (uid, answer.clone())).collect();
    judge(history, nodes, &answers, at(now, Some("scope")))
}

fn at(now: Instant, scope: Option<&str>) -> Moment<'_> {
    Moment {
        rules: &RULES,
        scope,
        now,
    }
}

/// Judges, and every deletion comes about.
fn judge(
    history: &mut History,
    nodes: &[Sight],
    answers: &HashMap<String, Presence>,
    moment: Moment<'_>,
) -> Vec<Verdict> {
    let verdicts = history.judge(nodes, answers, moment);
    for _ in verdicts.iter().filter(|it| matches!(it, Verdict::Delete(_))) {
        history.deleted(moment.now);
    }
    verdicts
}

fn start() -> Instant {
    runtime::clock::now()
}

#[rstest]
#[case::gone(node("a"), gone(), Verdict::Delete(Proof::example()))] // L-01, L-11, L-28
#[case::unknown(node("a"), unknown(Why::NotYet), Verdict::Leave)] // L-02, L-23
#[case::found(node("a"), machine(Power::Running), Verdict::Leave)] // L-03
#[case::nothing_visible(node("a"), unknown(Why::NothingVisible), Verdict::Hold(Held::NothingVisible))]
#[case::two_machines(node("a"), unknown(Why::Ambiguous), Verdict::Leave)]
#[case::stopped(node("a"), machine(Power::Stopped), Verdict::Taint)] // L-20
#[case::stopped_and_tainted(Sight { tainted: true, ..node("a") }, machine(Power::Stopped), Verdict::Leave)]
#[case::runs_again(Sight { tainted: true, ..node("a") }, machine(Power::Running), Verdict::Untaint)] // L-48
#[case::starting(Sight { tainted: true, ..node("a") }, machine(Power::Changing), Verdict::Leave)]
#[case::foreign(Sight { foreign: true, ..node("a") }, gone(), Verdict::Leave)] // L-47
#[case::being_deleted(Sight { deleting: true, ..node("a") }, gone(), Verdict::Leave)]
fn a_node_that_is_not_ready_is_judged_by_its_machine(
    #[case] sight: Sight,
    #[case] presence: Presence,
    #[case] expected: Verdict,
) {
    let verdicts = judge_after(&mut History::default(), &[sight], &presence, (start(), 31));
    assert_eq!(verdicts, [expected]);
}

#[rstest]
#[case::gone(ready("a"), gone(), Verdict::Leave)] // L-06, L-16
#[case::stopped(ready("a"), machine(Power::Stopped), Verdict::Leave)] // L-27
#[case::tainted(Sight { tainted: true, ..ready("a") }, gone(), Verdict::Untaint)] // L-40
fn a_ready_node_is_believed_and_not_the_cloud(
    #[case] sight: Sight,
    #[case] presence: Presence,
    #[case] expected: Verdict,
) {
    let (mut history, now) = (History::default(), start());
    assert!(
        history.observe(std::slice::from_ref(&sight), now).is_empty(),
        "it is not even asked for"
    );
    let answers = [("a".to_owned(), presence)].into();
    assert_eq!(history.judge(&[sight], &answers, at(now, None)), [expected]);
}

#[test]
fn a_node_is_kept_during_the_grace_time() {
    // L-45
    let now = start();
    assert_eq!(
        judge_after(&mut History::default(), &[node("a")], &gone(), (now, 29)),
        [Verdict::Leave]
    );
}

#[test]
fn the_broker_is_told_how_long_a_node_has_not_been_ready_by_our_own_clock() {
    let (mut history, now) = (History::default(), start());
    let after = |seconds| now + Duration::from_secs(seconds);
    assert_eq!(
        history.observe(&[node("a")], now),
        [("a".to_owned(), Some(Duration::ZERO))]
    );
    assert_eq!(
        history.observe(&[node("a")], after(9)),
        [("a".to_owned(), Some(Duration::from_secs(9)))]
    );
    // Ready in between: it starts again.
    history.observe(&[ready("a")], after(10));
    assert_eq!(
        history.observe(&[node("a")], after(12)),
        [("a".to_owned(), Some(Duration::ZERO))]
    );
    // Another node under the same name is another node.
    assert_eq!(
        history.observe(&[node("b")], after(60)),
        [("b".to_owned(), Some(Duration::ZERO))]
    );
}

fn nodes(not_ready: usize, all: usize) -> Vec<Sight> {
    (0..all)
        .map(|n| {
            if n < not_ready {
                node(&n.to_string())
            } else {
                ready(&n.to_string())
            }
        })
        .collect()
}

#[rstest]
#[case::three_of_three(3, 3, true)]
#[case::four_of_four(4, 4, false)]
#[case::a_third(33, 100, false)] // only ten a minute, but no brake
#[case::more_than_a_third(34, 100, false)]
#[case::four_of_twelve(4, 13, true)]
#[case::five_of_twelve(5, 13, false)]
fn deletion_is_held_while_too_many_go_at_once(
    #[case] not_ready: usize,
    #[case] all: usize,
    #[case] deleted: bool,
) {
    // L-46
    let verdicts = judge_after(
        &mut History::default(),
        &nodes(not_ready, all),
        &gone(),
        (start(), 31),
    );
    let deletions = verdicts
        .iter()
        .filter(|it| matches!(it, Verdict::Delete(_)))
        .count();
    let braked = verdicts
        .iter()
        .filter(|it| matches!(it, Verdict::Hold(Held::TooMany { .. })))
        .count();
    if deleted {
        assert_eq!((deletions, braked), (not_ready, 0));
    } else {
        assert!(
            deletions == 0 || (not_ready == 33 && deletions == RULES.per_minute && braked == 0),
            "{deletions}"
        );
    }
}

#[test]
fn no_more_than_ten_are_deleted_in_a_minute() {
    let (mut history, now) = (History::default(), start());
    let all = nodes(30, 100);
    let count = |verdicts: Vec<Verdict>| {
        verdicts
            .iter()
            .filter(|it| matches!(it, Verdict::Delete(_)))
            .count()
    };
    assert_eq!(count(judge_after(&mut history, &all, &gone(), (now, 31))), 10);
    assert_eq!(count(judge_after(&mut history, &all, &gone(), (now, 90))), 0);
    assert_eq!(count(judge_after(&mut history, &all, &gone(), (now, 92))), 10);
}

#[test]
fn a_deletion_that_failed_costs_no_other_node_its_turn() {
    let (mut history, now) = (History::default(), start());
    let all = nodes(30, 100);
    let deleted = |verdicts: Vec<Verdict>| {
        verdicts
            .iter()
            .filter(|it| matches!(it, Verdict::Delete(_)))
            .count()
    };
    history.observe(&all, now);
    let answers: HashMap<_, _> = all.iter().map(|node| (node.uid.clone(), gone())).collect();
    let after = |seconds| at(now + Duration::from_secs(seconds), Some("scope"));
    assert_eq!(deleted(history.judge(&all, &answers, after(31))), 10);
    // kube-apiserver refused all but one.
    history.deleted(now + Duration::from_secs(31));
    assert_eq!(deleted(history.judge(&all, &answers, after(36))), 9);
    assert_eq!(deleted(history.judge(&all, &answers, after(91))), 10);
}

#[test]
fn nodes_whose_deletion_is_refused_keep_no_other_node_from_its_turn() {
    let (mut history, now) = (History::default(), start());
    let all = nodes(15, 100);
    history.observe(&all, now);
    let answers: HashMap<_, _> = all.iter().map(|node| (node.uid.clone(), gone())).collect();
    // kube-apiserver refuses the first ten, and lets the others be deleted.
    let mut pass = |seconds| {
        let moment = at(now + Duration::from_secs(seconds), Some("scope"));
        let verdicts = history.judge(&all, &answers, moment);
        let deleted: Vec<usize> = verdicts
            .iter()
            .enumerate()
            .filter(|(_, it)| matches!(it, Verdict::Delete(_)))
            .map(|(n, _)| n)
            .collect();
        for n in deleted.iter().filter(|n| **n < 10) {
            history.failed(&n.to_string(), RULES.retry, moment.now);
        }
        deleted
    };
    assert_eq!(pass(31), (0..10).collect::<Vec<_>>());
    assert_eq!(pass(36), (10..15).collect::<Vec<_>>(), "the first ten rest");
    assert_eq!(
        pass(41),
        [0, 1, 2, 3, 4, 10, 11, 12, 13, 14],
        "the first wait is over, and who was refused comes after the others"
    );
}

#[test]
fn a_node_whose_deletion_is_refused_is_tried_ever_more_seldom_until_it_was_ready() {
    let (mut history, now) = (History::default(), start());
    let mut waits = Vec::new();
    let mut second = 0;
    let mut last = None;
    while waits.len() < 7 {
        let verdicts = judge_after(&mut history, &[node("a")], &gone(), (now, second));
        if verdicts == [Verdict::Delete(Proof::example())] {
            waits.extend(last.map(|last| second - last));
            last = Some(second);
            history.failed("a", RULES.retry, now + Duration::from_secs(second));
        }
        second += 1;
    }
    assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300]);
    assert_eq!(history.failures("a"), 8);
    history.observe(&[ready("a")], now);
    assert_eq!(history.failures("a"), 0);
}

#[test]
fn time_alone_does_not_release_the_brake_and_fewer_nodes_do() {
    let (mut history, now) = (History::default(), start());
    let held = |verdicts: Vec<Verdict>| {
        verdicts
            .iter()
            .any(|it| matches!(it, Verdict::Hold(Held::TooMany { .. })))
    };
    assert!(held(judge_after(&mut history, &nodes(6, 10), &gone(), (now, 31))));
    assert!(
        held(judge_after(&mut history, &nodes(6, 10), &gone(), (now, 4000))),
        "after more than an hour"
    );
    let verdicts = judge_after(&mut history, &nodes(3, 10), &gone(), (now, 4001));
    assert_eq!(
        verdicts
            .iter()
            .filter(|it| matches!(it, Verdict::Delete(_)))
            .count(),
        3
    );
}

#[test]
fn a_person_releases_the_brake_for_one_node() {
    let mut all = nodes(6, 10);
    all[2].confirmed = true;
    let verdicts = judge_after(&mut History::default(), &all, &gone(), (start(), 31));
    let deleted: Vec<usize> = verdicts
        .iter()
        .enumerate()
        .filter(|(_, it)| matches!(it, Verdict::Delete(_)))
        .map(|(n, _)| n)
        .collect();
    assert_eq!(deleted, [2]);
    let verdicts = judge_after(
        &mut History::default(),
        &all,
        &unknown(Why::NotYet),
        (start(), 31),
    );
    assert!(
        verdicts.iter().all(|it| *it == Verdict::Leave),
        "a confirmation is no proof"
    );
}

#[rstest]
#[case::same_scope(Some("one"), true)]
#[case::other_scope(Some("two"), false)]
#[case::unknown_scope(None, false)]
fn a_machine_seen_in_another_scope_does_not_count_as_gone(
    #[case] scope: Option<&str>,
    #[case] deleted: bool,
) {
    let (mut history, now) = (History::default(), start());
    let all = [node("a")];
    history.observe(&all, now);
    history.judge(
        &all,
        &[("a".to_owned(), machine(Power::Running))].into(),
        at(now, Some("one")),
    );
    let later = now + Duration::from_secs(31);
    history.observe(&all, later);
    let verdicts = history.judge(&all, &[("a".to_owned(), gone())].into(), at(later, scope));
    let expected = if deleted {
        Verdict::Delete(Proof::example())
    } else {
        Verdict::Hold(Held::ScopeChanged)
    };
    assert_eq!(verdicts, [expected]);
}

proptest! {
    #[test]
    fn nothing_is_deleted_without_proof_grace_and_brake(
        rounds in proptest::collection::vec(
            (proptest::collection::vec((any::<bool>(), 0..5_u8), 0..15), 0..60_u64),
            0..20,
        ),
    ) {
        let (mut history, mut now) = (History::default(), start());
        let mut not_ready_since: HashMap<String, Instant> = HashMap::new();
        let mut deletions: Vec<Instant> = Vec::new();
        for (round, pass) in rounds {
            now += Duration::from_secs(pass);
            let sights: Vec<Sight> = round.iter().enumerate()
                .map(|(n, (ready, _))| Sight { ready: *ready, ..node(&n.to_string()) }).collect();
            for sight in &sights {
                if sight.ready { not_ready_since.remove(&sight.uid); }
                else { not_ready_since.entry(sight.uid.clone()).or_insert(now); }
            }
            not_ready_since.retain(|uid, _| sights.iter().any(|sight| sight.uid == *uid));
            history.observe(&sights, now);
            let answers = round.iter().enumerate().map(|(n, (_, answer))| (n.to_string(), match answer {
                0 => machine(Power::Running),
                1 => machine(Power::Stopped),
                2 => unknown(Why::NotYet),
                _ => gone(),
            })).collect::<HashMap<_, _>>();
            let verdicts = judge(&mut history, &sights, &answers, at(now, Some("scope")));
            let since = not_ready_since.values().map(|since| *since + RULES.grace).filter(|since| *since <= now);
            let lately = since.filter(|since| now - *since <= RULES.brake_window).count();
            for (sight, verdict) in sights.iter().zip(&verdicts) {
                if matches!(verdict, Verdict::Delete(_)) {
                    prop_assert!(!sight.ready);
                    prop_assert_eq!(&answers[&sight.uid], &gone());
                    prop_assert!(now - not_ready_since[&sight.uid] >= RULES.grace);
                    prop_assert!(lately <= RULES.limit(sights.len()), "{lately} at once");
                    deletions.push(now);
                }
            }
            let lately = deletions.iter().filter(|at| now - **at < MINUTE).count();
            prop_assert!(lately <= RULES.per_minute, "{lately} in a minute");
        }
    }
}
