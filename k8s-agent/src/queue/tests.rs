use std::collections::HashSet;

use proptest::prelude::*;
use proto::FaultKind;
use rstest::rstest;

use super::*;

const BACKOFF: Backoff = Backoff {
    first: Duration::from_secs(5),
    longest: Duration::from_mins(5),
};

fn start() -> Instant {
    runtime::clock::now()
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn failures_wait_5_10_20_40_80_160_300_300_seconds() {
    // S-173
    let waits: Vec<u64> = (1..=8)
        .map(|failures| BACKOFF.after(failures).as_secs())
        .collect();
    assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300, 300]);
    assert_eq!(BACKOFF.after(u32::MAX), seconds(300));
}

#[test]
fn a_key_that_is_due_twice_is_given_out_once() {
    let now = start();
    let mut queue = State::new(BACKOFF);
    assert!(queue.add("a", now));
    assert!(!queue.add("a", now));
    assert_eq!(queue.take(now).map(|taken| taken.key), Some("a"));
    assert_eq!(queue.take(now), None);
}

#[test]
fn a_key_added_while_it_is_worked_on_runs_once_more_and_not_before() {
    let now = start();
    let mut queue = State::new(BACKOFF);
    queue.add("a", now);
    queue.take(now);
    queue.add("a", now);
    queue.add("a", now);
    assert_eq!(queue.take(now), None);
    queue.done(&"a", Outcome::Done, now);
    assert_eq!(queue.take(now).map(|taken| taken.key), Some("a"));
    queue.done(&"a", Outcome::Done, now);
    assert_eq!(queue.take(now), None);
}

#[test]
fn an_event_during_back_off_runs_at_once() {
    // S-174
    let now = start();
    let mut queue = State::new(BACKOFF);
    queue.add("a", now);
    queue.take(now);
    queue.done(&"a", Outcome::Failed, now);
    assert_eq!(queue.take(now + seconds(1)), None);
    queue.add("a", now + seconds(1));
    let taken = queue
        .take(now + seconds(1))
        .map(|taken| (taken.key, taken.failures));
    assert_eq!(taken, Some(("a", 1)));
}

#[rstest]
#[case::ok(Outcome::Done, None, 0)] // S-150
#[case::plain_failure(Outcome::Failed, Some(5), 1)] // S-151
#[case::told_when(Outcome::After(Duration::from_secs(42)), Some(42), 0)] // S-152
#[case::never_until_changed(Outcome::Parked, None, 0)]
fn an_outcome_decides_when_the_key_comes_back(
    #[case] outcome: Outcome,
    #[case] after: Option<u64>,
    #[case] failures: u32,
) {
    let now = start();
    let mut queue = State::new(BACKOFF);
    queue.add("a", now);
    queue.take(now);
    assert_eq!(queue.done(&"a", outcome, now + seconds(1)), Some(seconds(1)));
    assert_eq!(queue.next_due(now), after.map(|wait| now + seconds(1 + wait)));
    assert_eq!(queue.failures(&"a"), failures);
}

#[test]
fn waiting_neither_raises_nor_resets_the_count_of_failures() {
    let now = start();
    let mut queue = State::new(BACKOFF);
    queue.add("a", now);
    queue.take(now);
    queue.done(&"a", Outcome::Failed, now);
    queue.add("a", now);
    queue.take(now);
    queue.done(&"a", Outcome::After(seconds(1)), now);
    assert_eq!(queue.failures(&"a"), 1);
}

#[rstest]
#[case::changed(Advice::NeverUntilChanged, Outcome::Parked)]
#[case::back_off(Advice::BackOff, Outcome::Failed)]
#[case::after(Advice::After(Duration::from_secs(7)), Outcome::After(Duration::from_secs(7)))]
fn the_advice_of_a_fault_is_followed(#[case] advice: Advice, #[case] outcome: Outcome) {
    assert_eq!(
        Outcome::from(&Fault::new(FaultKind::Busy, "X", "x").with_advice(advice)),
        outcome
    );
}

#[test]
fn of_two_delayed_adds_the_earlier_counts() {
    let now = start();
    let mut queue = State::new(BACKOFF);
    queue.add_after("a", seconds(10), now);
    queue.add_after("a", seconds(3), now);
    queue.add_after("a", seconds(20), now);
    assert_eq!(queue.next_due(now), Some(now + seconds(3)));
    assert!(queue.take(now + seconds(3)).is_some());
    queue.done(&"a", Outcome::Done, now + seconds(3));
    assert_eq!(queue.take(now + seconds(60)), None);
}

#[derive(Clone, Debug)]
enum Op {
    Add(u8),
    AddAfter(u8, u64),
    Take,
    Done(usize, u8),
    Pass(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        (0..4_u8).prop_map(Op::Add),
        (0..4_u8, 0..30_u64).prop_map(|(key, wait)| Op::AddAfter(key, wait)),
        Just(Op::Take),
        (0..4_usize, 0..4_u8).prop_map(|(nth, outcome)| Op::Done(nth, outcome)),
        (0..40_u64).prop_map(Op::Pass),
    ];
    proptest::collection::vec(op, 0..120)
}

fn outcome(n: u8) -> Outcome {
    match n {
        0 => Outcome::Done,
        1 => Outcome::Failed,
        2 => Outcome::After(seconds(2)),
        _ => Outcome::Parked,
    }
}

proptest! {
    #[test]
    fn no_key_is_with_two_workers_and_none_that_was_added_is_lost(ops in ops()) {
        let mut now = start();
        let mut queue = State::new(BACKOFF);
        let mut running: Vec<u8> = Vec::new();
        // Keys that somebody asked for and no worker has begun since.
        let mut owed: HashSet<u8> = HashSet::new();
        for op in ops {
            match op {
                Op::Add(key) => { queue.add(key, now); owed.insert(key); }
                Op::AddAfter(key, wait) => { queue.add_after(key, seconds(wait), now); owed.insert(key); }
                Op::Take => if let Some(taken) = queue.take(now) {
                    prop_assert!(!running.contains(&taken.key), "{} is with two workers", taken.key);
                    owed.remove(&taken.key);
                    running.push(taken.key);
                },
                Op::Done(nth, n) if nth < running.len() => {
                    let key = running.remove(nth);
                    prop_assert!(queue.done(&key, outcome(n), now).is_some());
                    if matches!(outcome(n), Outcome::Failed | Outcome::After(_)) { owed.insert(key); }
                }
                Op::Done(..) => {}
                Op::Pass(wait) => now += seconds(wait),
            }
        }
        for key in std::mem::take(&mut running) { queue.done(&key, Outcome::Done, now); }
        // Whatever is still owed comes within the longest wait, and then the queue is empty and keeps nothing.
        now += seconds(400);
        while let Some(taken) = queue.take(now) {
            owed.remove(&taken.key);
            queue.done(&taken.key, Outcome::Done, now);
        }
        prop_assert!(owed.is_empty(), "lost: {owed:?}");
        prop_assert_eq!(queue.next_due(now), None);
        prop_assert!(queue.keys.is_empty(), "remembers {:?}", queue.keys);
    }
}

mod driven {
    use super::*;
    use crate::metrics::Metrics;
    use runtime::host::Host;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tokio_util::sync::CancellationToken;

    const FAST: Backoff = Backoff {
        first: Duration::from_millis(1),
        longest: Duration::from_millis(4),
    };

    #[tokio::test]
    async fn a_failing_key_is_tried_until_it_succeeds() {
        let queue = Queue::new("test", FAST, &Metrics::default());
        let host = Host::new();
        let (stop, tries) = (CancellationToken::new(), Arc::new(AtomicU32::new(0)));
        queue.add("a");
        queue
            .work(&host, &stop, |_, failures| {
                let (tries, stop) = (Arc::clone(&tries), stop.clone());
                async move {
                    assert_eq!(tries.fetch_add(1, Ordering::SeqCst), failures);
                    if failures < 3 {
                        return Outcome::Failed;
                    }
                    stop.cancel();
                    Outcome::Done
                }
            })
            .await;
        assert_eq!(tries.load(Ordering::SeqCst), 4);
        assert_eq!(queue.failures(&"a"), 0);
    }

    #[tokio::test]
    async fn keys_added_within_the_gathering_time_are_one_batch() {
        let queue = Queue::new("test", FAST, &Metrics::default());
        let adder = queue.clone();
        let (batch, ()) = tokio::join!(queue.take_batch(Duration::from_millis(50), 500), async {
            adder.add("a");
            tokio::task::yield_now().await;
            adder.add("b");
            adder.add("c");
        });
        assert_eq!(
            batch.into_iter().map(|taken| taken.key).collect::<Vec<_>>(),
            ["a", "b", "c"]
        );
    }

    #[tokio::test]
    async fn a_panic_is_a_failure_and_the_worker_goes_on() {
        let queue = Queue::new("test", FAST, &Metrics::default());
        let (host, stop) = (Host::new(), CancellationToken::new());
        queue.add("a");
        queue
            .work(&host, &stop, |_, failures| {
                let stop = stop.clone();
                async move {
                    assert!(failures > 0, "the first run panics");
                    stop.cancel();
                    Outcome::Done
                }
            })
            .await;
        assert_eq!(queue.failures(&"a"), 0);
        assert!(
            host.scrape().contains("process_contained_panics_total 1"),
            "{}",
            host.scrape()
        );
    }
}
