#![expect(clippy::disallowed_methods, reason = "any instant will do to start from")]

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn claim(tenant: &str, class: CommandClass) -> Claim {
    Claim {
        tenant: tenant.into(),
        share: 1,
        class,
    }
}

fn budget(per_second: f64, burst: f64, now: Instant) -> Budget {
    Budget::new(Rate { per_second, burst }, now)
}

#[test]
fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
    let now = Instant::now();
    let mut budget = budget(2.0, 3.0, now);
    let tickets: Vec<Ticket> = (0..6)
        .map(|_| budget.enqueue(&claim("a", CommandClass::Read)))
        .collect();
    assert_eq!(budget.grant(now), tickets[..3]);
    assert!(budget.grant(now + SECOND / 4).is_empty());
    assert_eq!(budget.grant(now + SECOND), tickets[3..5]);
    assert_eq!(budget.grant(now + 2 * SECOND), tickets[5..]);
    assert_eq!(budget.next_grant(now + 2 * SECOND), None);
}

#[test]
fn the_next_grant_is_foretold() {
    let now = Instant::now();
    let mut budget = budget(2.0, 1.0, now);
    budget.enqueue(&claim("a", CommandClass::Read));
    budget.enqueue(&claim("a", CommandClass::Read));
    assert_eq!(budget.grant(now).len(), 1);
    let next = budget.next_grant(now).unwrap();
    assert!(next > now + SECOND / 4 && next <= now + SECOND * 6 / 10);
    assert_eq!(budget.grant(next).len(), 1);
}

#[test]
fn a_flood_of_reads_does_not_hold_a_write_back() {
    let now = Instant::now();
    let mut budget = budget(1.0, 3.0, now);
    for _ in 0..100 {
        budget.enqueue(&claim("a", CommandClass::Read));
    }
    let write = budget.enqueue(&claim("a", CommandClass::Write));
    let poll = budget.enqueue(&claim("a", CommandClass::Poll));
    let granted = budget.grant(now);
    assert!(granted.contains(&write) && granted.contains(&poll) && granted.len() == 3);
}

#[test]
fn a_flood_of_writes_does_not_hold_a_read_back() {
    let now = Instant::now();
    let mut budget = budget(1.0, 3.0, now);
    for _ in 0..100 {
        budget.enqueue(&claim("a", CommandClass::Write));
    }
    let read = budget.enqueue(&claim("b", CommandClass::Read));
    assert!(budget.grant(now).contains(&read));
}

#[test]
fn a_share_is_a_number_of_turns_in_a_row() {
    let now = Instant::now();
    let mut budget = budget(1.0, 8.0, now);
    let big = Claim {
        share: 3,
        ..claim("big", CommandClass::Read)
    };
    let bigs: Vec<Ticket> = (0..20).map(|_| budget.enqueue(&big)).collect();
    for _ in 0..20 {
        budget.enqueue(&claim("small", CommandClass::Read));
    }
    let granted = budget.grant(now);
    assert_eq!(granted.iter().filter(|ticket| bigs.contains(ticket)).count(), 6);
}

#[test]
fn whoever_leaves_the_line_costs_nothing() {
    let now = Instant::now();
    let mut budget = budget(1.0, 1.0, now);
    let first = budget.enqueue(&claim("a", CommandClass::Read));
    let second = budget.enqueue(&claim("b", CommandClass::Read));
    budget.cancel(first);
    assert_eq!(budget.grant(now), [second]);
    assert_eq!(budget.next_grant(now), None);
}

#[test]
fn a_refused_call_holds_everybody_back_for_as_long_as_the_server_says() {
    let now = Instant::now();
    let mut budget = budget(100.0, 100.0, now);
    budget.throttled(now, 3 * SECOND);
    budget.enqueue(&claim("a", CommandClass::Write));
    assert!(budget.grant(now + 2 * SECOND).is_empty());
    let next = budget.next_grant(now).unwrap();
    assert!(next >= now + 3 * SECOND);
    assert_eq!(budget.grant(next + SECOND).len(), 1);
}

#[test]
fn one_wave_of_refusals_lowers_the_rate_once_and_time_brings_it_back() {
    let now = Instant::now();
    let mut budget = budget(100.0, 100.0, now);
    for _ in 0..10 {
        budget.throttled(now, SECOND);
    }
    assert!((budget.rate().per_second - 100.0 * CUT).abs() < 0.001);
    budget.throttled(now + 2 * SECOND, SECOND);
    assert!((budget.rate().per_second - 100.0 * CUT * CUT).abs() < 0.001);
    budget.grant(now + 600 * SECOND);
    assert!((budget.rate().per_second - 100.0).abs() < 0.001);
}

#[test]
fn the_servers_word_counts_where_it_is_lower() {
    let now = Instant::now();
    let mut budget = budget(10.0, 20.0, now);
    budget.server_grants(Some(Rate::of_window(25, SECOND)));
    assert_eq!(
        budget.rate(),
        Rate {
            per_second: 10.0,
            burst: 10.0
        }
    );
    budget.server_grants(None);
    assert_eq!(
        budget.rate(),
        Rate {
            per_second: 10.0,
            burst: 20.0
        }
    );
}

/// Calls that go in each window of a server that counts them in fixed windows.
fn calls_by_window(budget: &mut Budget, start: Instant, window: Duration, windows: u32) -> Vec<usize> {
    for _ in 0..10_000 {
        budget.enqueue(&claim("a", CommandClass::Read));
    }
    let steps = 50;
    (0..windows)
        .map(|number| {
            (0..steps)
                .map(|step| {
                    budget
                        .grant(start + window * number + window * step / steps)
                        .len()
                })
                .sum()
        })
        .collect()
}

proptest! {
    #[test]
    fn what_goes_fits_into_every_window_of_the_server(calls in 3u32..200, seconds in 1u64..60) {
        let now = Instant::now();
        let window = Duration::from_secs(seconds);
        let mut budget = Budget::new(Rate::of_window(calls, window), now);
        for granted in calls_by_window(&mut budget, now, window, 4) {
            prop_assert!(granted <= calls as usize, "{} of {}", granted, calls);
        }
    }

    #[test]
    fn nobody_waits_longer_than_a_turn_of_everybody_else(
        loud in 1usize..200,
        tenants in 1usize..6,
        class in prop::sample::select(vec![CommandClass::Read, CommandClass::Write, CommandClass::Poll]),
    ) {
        let now = Instant::now();
        let mut budget = budget(1.0, 1000.0, now);
        for _ in 0..loud {
            budget.enqueue(&claim("loud", class));
        }
        let quiet: Vec<Ticket> =
            (0..tenants).map(|number| budget.enqueue(&claim(&format!("quiet-{number}"), class))).collect();
        let granted = budget.grant(now);
        for ticket in quiet {
            let place = granted.iter().position(|granted| *granted == ticket).unwrap();
            prop_assert!(place <= tenants, "place {} among {} tenants", place, tenants + 1);
        }
    }

    #[test]
    fn every_call_that_stays_in_line_goes_exactly_once(
        steps in prop::collection::vec((0u8..4, 0usize..3, 0usize..3, 0u64..500), 1..80),
    ) {
        let start = Instant::now();
        let mut now = start;
        let mut budget = budget(5.0, 4.0, now);
        let mut waiting = std::collections::BTreeSet::new();
        let classes = [CommandClass::Read, CommandClass::Write, CommandClass::Poll];
        for (action, tenant, class, millis) in steps {
            now += Duration::from_millis(millis);
            match action {
                0 | 1 => {
                    waiting.insert(budget.enqueue(&claim(&format!("t{tenant}"), classes[class])));
                }
                2 => {
                    if let Some(ticket) = waiting.iter().nth(tenant).copied() {
                        budget.cancel(ticket);
                        waiting.remove(&ticket);
                    }
                }
                _ => budget.throttled(now, Duration::from_millis(millis)),
            }
            for ticket in budget.grant(now) {
                prop_assert!(waiting.remove(&ticket), "{} went twice or had left", ticket);
            }
        }
        for _ in 0..1000 {
            let Some(next) = budget.next_grant(now) else { break };
            now = next;
            for ticket in budget.grant(now) {
                prop_assert!(waiting.remove(&ticket));
            }
        }
        prop_assert!(waiting.is_empty(), "{:?} never went", waiting);
    }
}

#[test]
fn a_wait_without_measure_holds_nobody_back_for_ever() {
    let now = Instant::now();
    let mut budget = budget(1.0, 1.0, now);
    let ticket = budget.enqueue(&claim("a", CommandClass::Read));
    budget.throttled(now, Duration::MAX);
    assert!(budget.next_grant(now).unwrap() <= now + 20 * SECOND);
    assert_eq!(budget.grant(now + 20 * SECOND), [ticket]);
}

#[test]
fn another_configuration_ends_a_block() {
    let now = Instant::now();
    let mut budget = budget(1.0, 1.0, now);
    let ticket = budget.enqueue(&claim("a", CommandClass::Read));
    budget.throttled(now, 300 * SECOND);
    assert!(budget.grant(now + 20 * SECOND).is_empty());
    budget.configure(Rate {
        per_second: 1.0,
        burst: 1.0,
    });
    assert_eq!(budget.grant(now + 20 * SECOND), [ticket]);
}
