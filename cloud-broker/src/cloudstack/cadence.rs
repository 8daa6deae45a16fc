//! When jobs of each command are asked for. Pure.
//!
//! Decides the time of every poll from what earlier jobs of the command took. What is not known is searched for in growing
//! steps; what is known roughly is searched for in small ones; what is known is waited for. Now and then one job is asked
//! for at half the time, ever more seldom while that is in vain: so one slow job does not make the next ones slow. Nothing
//! is asked for earlier than the first guess, since most servers are that fast and a poll costs as much as any call.

use std::collections::HashMap;
use std::time::Duration;

use super::{Command, Pace};

/// Steps of a search, as parts of the time since the start: where nothing is known, and the first one where something is.
const COARSE: f64 = 0.5;
const FINE: f64 = 0.08;
const COARSEST: f64 = 0.6;
const SHORTEST: Duration = Duration::from_millis(30);
const LONGEST: Duration = Duration::from_secs(5);
/// Two polls so near to one another tell when the job ended.
const EXACT: f64 = 0.15;
const MARGIN: f64 = 1.02;
const SHAVE: f64 = 0.99;
const MOST_RESTS: u32 = 64;
const LONGEST_USUAL: Duration = Duration::from_mins(1);

/// What is known of a command.
#[derive(Debug, Clone, Copy)]
struct Known {
    usual: Duration,
    /// Whether jobs end about then, rather than some time later.
    exact: bool,
    /// Jobs until the next one is asked for early, and how many the next rest has.
    rest: u32,
    rests: u32,
}

/// How one job is asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Plan {
    pub(super) first: Duration,
    aim: Aim,
}

#[derive(Debug, Clone, Copy, Default)]
enum Aim {
    /// Nothing is known.
    #[default]
    Search,
    /// It usually takes so long.
    Usual,
    /// It usually takes this long, and is asked for early.
    Early(Duration),
}

/// What was seen of a job.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// Time of the last poll that found it pending.
    pub(super) pending: Option<Duration>,
    pub(super) polls: u32,
    /// Time of the poll that found it over.
    pub(super) over: Duration,
}

/// What was learned.
#[derive(Debug)]
pub(super) struct Cadence {
    known: HashMap<Command, Known>,
    pace: Pace,
}

impl Cadence {
    pub(super) fn new(pace: Pace) -> Self {
        Self {
            known: HashMap::new(),
            pace,
        }
    }

    /// How to ask for the next job of a command.
    pub(super) fn plan(&mut self, command: Command) -> Plan {
        let guess = self.guess(command);
        let Some(known) = self.known.get_mut(&command) else {
            return Plan {
                first: guess,
                aim: Aim::Search,
            };
        };
        let early = (known.usual / 2).max(guess);
        if known.exact && known.rest == 0 && early < known.usual.mul_f64(SHAVE) {
            // Only one at a time.
            known.rest = known.rests;
            return Plan {
                first: early,
                aim: Aim::Early(known.usual),
            };
        }
        Plan {
            first: known.usual,
            aim: Aim::Usual,
        }
    }

    /// How long to wait after a poll, the n-th, that found the job pending so long after its start.
    pub(super) fn wait(&self, plan: &Plan, polls: u32, elapsed: Duration) -> Duration {
        let fine = |polls: u32| {
            elapsed.mul_f64((FINE * f64::from(1_u32 << polls.saturating_sub(1).min(8))).min(COARSEST))
        };
        let wait = match plan.aim {
            Aim::Search => elapsed.mul_f64(COARSE),
            Aim::Usual => fine(polls),
            Aim::Early(usual) if polls == 1 => usual.saturating_sub(elapsed),
            Aim::Early(_) => fine(polls - 1),
        };
        wait.clamp(self.pace.of(SHORTEST), self.pace.of(LONGEST))
    }

    /// Learns from a job that is over.
    pub(super) fn learn(&mut self, command: Command, plan: &Plan, seen: Seen) {
        let guess = self.guess(command);
        let before = self.known.get(&command).copied();
        let mut known = before.unwrap_or(Known {
            usual: plan.first,
            exact: true,
            rest: 0,
            rests: 1,
        });
        match (plan.aim, seen.pending) {
            (Aim::Early(_), None) => {
                known = Known {
                    usual: plan.first,
                    exact: true,
                    rest: 0,
                    rests: 1,
                };
            }
            // In vain, as expected.
            (Aim::Early(_), Some(_)) if seen.polls == 2 => {
                known.rests = (known.rests * 2).min(MOST_RESTS);
                known.rest = known.rests;
            }
            (Aim::Search | Aim::Usual, None) => {
                known.exact = true;
                known.rest = known.rest.saturating_sub(1);
                known.usual = known.usual.mul_f64(SHAVE);
            }
            (Aim::Search | Aim::Usual | Aim::Early(_), Some(pending)) => {
                known.exact = seen.over.saturating_sub(pending)
                    <= seen.over.mul_f64(EXACT).max(self.pace.of(SHORTEST) * 2);
                known.usual = if known.exact { seen.over } else { pending }.mul_f64(MARGIN);
            }
        }
        known.usual = known.usual.clamp(guess, LONGEST_USUAL.max(guess));
        self.known.insert(command, known);
    }

    fn guess(&self, command: Command) -> Duration {
        self.pace.of(command.first_poll())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ASSIGN: Command = Command::AssignToLoadBalancerRule;

    /// Asks for one job that takes so long; returns the polls it cost and when its end was seen.
    fn ask(cadence: &mut Cadence, takes: Duration) -> (u32, Duration) {
        let plan = cadence.plan(ASSIGN);
        let (mut now, mut polls, mut pending) = (plan.first, 1, None);
        while now < takes {
            pending = Some(now);
            now += cadence.wait(&plan, polls, now);
            polls += 1;
            assert!(polls < 100, "it asks too often");
        }
        cadence.learn(
            ASSIGN,
            &plan,
            Seen {
                pending,
                polls,
                over: now,
            },
        );
        (polls, now)
    }

    fn asks(cadence: &mut Cadence, takes: Duration, times: usize) -> Vec<(u32, Duration)> {
        (0..times).map(|_| ask(cadence, takes)).collect()
    }

    #[test]
    fn jobs_of_a_fast_server_cost_one_poll_each_and_are_not_asked_for_earlier_than_the_guess() {
        let mut cadence = Cadence::new(Pace::REAL);
        for (polls, seen) in asks(&mut cadence, Duration::from_millis(90), 50) {
            assert_eq!((polls, seen), (1, ASSIGN.first_poll()));
        }
    }

    #[test]
    fn the_time_of_slow_jobs_is_found_with_few_polls_and_then_kept() {
        let mut cadence = Cadence::new(Pace::REAL);
        let takes = Duration::from_secs(2);
        let seen = asks(&mut cadence, takes, 30);
        let (first, later) = seen.split_at(3);
        assert!(
            first.iter().map(|(polls, _)| polls).sum::<u32>() <= 20,
            "{first:?}"
        );
        let polls: u32 = later.iter().map(|(polls, _)| polls).sum();
        assert!(polls <= 36, "{polls} polls for {} jobs: {later:?}", later.len());
        assert!(
            later.iter().all(|(_, seen)| *seen < takes.mul_f64(1.15)),
            "{later:?}"
        );
    }

    #[test]
    fn one_slow_job_does_not_make_the_next_ones_slow() {
        let mut cadence = Cadence::new(Pace::REAL);
        let fast = Duration::from_millis(100);
        asks(&mut cadence, fast, 3);
        ask(&mut cadence, Duration::from_secs(4));
        let after = asks(&mut cadence, fast, 12);
        assert!(
            after
                .iter()
                .skip(6)
                .all(|(_, seen)| *seen < Duration::from_millis(300)),
            "{after:?}"
        );
    }

    #[test]
    fn only_one_of_many_jobs_at_a_time_is_asked_for_early() {
        let mut cadence = Cadence::new(Pace::REAL);
        let early = |plan: &Plan| matches!(plan.aim, Aim::Early(_));
        let mut plan = cadence.plan(ASSIGN);
        while !early(&plan) {
            asks(&mut cadence, Duration::from_secs(2), 1);
            plan = cadence.plan(ASSIGN);
        }
        let others: Vec<Plan> = (0..20).map(|_| cadence.plan(ASSIGN)).collect();
        assert!(!others.iter().any(early), "{others:?}");
    }

    #[test]
    fn a_job_of_a_minute_is_not_asked_for_more_than_a_few_times() {
        let mut cadence = Cadence::new(Pace::REAL);
        let (polls, _) = ask(&mut cadence, Duration::from_mins(1));
        assert!(polls <= 26, "{polls} polls");
    }

    proptest! {
        #[test]
        fn every_job_is_seen_to_end_soon_after_it_ended(millis in prop::collection::vec(1u64..20_000, 1..30)) {
            let mut cadence = Cadence::new(Pace::REAL);
            let mut longest = Duration::ZERO;
            for millis in millis {
                let takes = Duration::from_millis(millis);
                longest = longest.max(takes);
                let (polls, seen) = ask(&mut cadence, takes);
                let late = takes.mul_f64(1.0 + COARSEST).max(longest.mul_f64(1.0 + COARSE) * 21 / 20);
                prop_assert!(seen <= late + ASSIGN.first_poll() * 2, "{:?} for {:?}", seen, takes);
                prop_assert!(polls <= 24, "{} polls for {:?}", polls, takes);
            }
        }

        #[test]
        fn the_pace_scales_every_wait(factor in 0.001f64..0.1, millis in 1u64..5_000) {
            let mut real = Cadence::new(Pace::REAL);
            let mut scaled = Cadence::new(Pace::scaled(factor));
            let takes = Duration::from_millis(millis);
            let (polls, seen) = ask(&mut real, takes);
            let (scaled_polls, scaled_seen) = ask(&mut scaled, takes.mul_f64(factor));
            prop_assert!(polls.abs_diff(scaled_polls) <= 1, "{} against {} polls", polls, scaled_polls);
            prop_assert!(scaled_seen <= seen.mul_f64(factor * 1.5) + Duration::from_micros(10));
        }
    }
}
