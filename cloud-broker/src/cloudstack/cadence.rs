//! When jobs are asked for. Pure.
//!
//! Decides the time of every poll from what earlier jobs of the sort took while about as many were running: servers that do
//! them one after the other slow all of them down. What is not known is searched for in growing steps; what is known roughly is
//! searched for in small ones; what is known is waited for. Now and then one job is asked for early, ever more seldom while that
//! is in vain, and at once after a job that took much longer than usual: so one slow job does not make the next ones slow.
//! What one job of many tells goes for the others that are still searched for. Nothing is asked for earlier than a server that is not busy needs, since a poll costs as much as any call.

use std::collections::HashMap;
use std::time::Duration;

use super::{Command, Pace};

/// Steps of a search, as parts of the time since the start: where nothing is known, and the first one where something is.
const COARSE: f64 = 0.6;
const FINE: f64 = 0.08;
const SHORTEST: Duration = Duration::from_millis(30);
const LONGEST: Duration = Duration::from_secs(5);
/// Two polls so near to one another tell when the job ended.
const EXACT: f64 = 0.15;
const MARGIN: f64 = 1.02;
const SHAVE: f64 = 0.995;
/// A job that took so many times the usual time is asked whether it was an exception.
const MUCH_LONGER: f64 = 1.5;
const FIRST_RESTS: u32 = 2;
const MOST_RESTS: u32 = 64;
const LONGEST_USUAL: Duration = Duration::from_mins(1);

/// Jobs that take about the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Sort {
    /// They write to the database.
    Database,
    /// An address is taken.
    Associate,
    /// An address is given back, with every rule on it.
    Release,
    /// A router gets other firewall rules or ACL items.
    Filter,
    /// A router gets another load balancer configuration.
    Balance,
}

impl Sort {
    /// Those whose jobs change a router.
    const OF_ROUTERS: [Self; 3] = [Self::Filter, Self::Balance, Self::Release];

    fn of(command: Command) -> Self {
        let balances = [
            Command::UpdateLoadBalancerRule,
            Command::DeleteLoadBalancerRule,
            Command::AssignToLoadBalancerRule,
            Command::RemoveFromLoadBalancerRule,
        ];
        if command == Command::AssociateIpAddress {
            Self::Associate
        } else if command == Command::DisassociateIpAddress {
            Self::Release
        } else if balances.contains(&command) {
            Self::Balance
        } else if command.touches_router() {
            Self::Filter
        } else {
            Self::Database
        }
    }

    /// What they take on a server that has little else to do and a router that answers at once (4.22, simulated routers).
    fn at_best(self) -> Duration {
        Duration::from_millis(match self {
            Self::Database => 100,
            Self::Associate => 130,
            Self::Filter => 110,
            Self::Balance => 280,
            Self::Release => 650,
        })
    }
}

/// What times are kept for: a sort of jobs, while about so many are running (as a power of two).
type Key = (Sort, u32);

/// What is known of jobs.
#[derive(Debug, Clone, Copy)]
struct Known {
    usual: Duration,
    /// Where jobs end some time earlier: when they were still pending.
    after: Option<Duration>,
    /// What was usual before a job that took much longer.
    before: Option<Duration>,
    /// Jobs until the next one is asked for early, and how many the next rest has.
    rest: u32,
    rests: u32,
}

impl Known {
    fn new(usual: Duration) -> Self {
        Self {
            usual,
            after: None,
            before: None,
            rest: FIRST_RESTS,
            rests: FIRST_RESTS,
        }
    }
}

/// How one job is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    /// The first answer is wanted so long after the start.
    pub(super) first: Duration,
    aim: Aim,
    key: Key,
    /// Polls before the plan was made.
    polls: u32,
}

impl Plan {
    /// Whether it is a guess when the job will be over.
    pub(super) fn is_search(&self) -> bool {
        matches!(self.aim, Aim::Search)
    }

    /// Whether it is for a job of the same sort.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.key.0 == other.key.0
    }
}

#[derive(Debug, Clone, Copy)]
enum Aim {
    /// Nothing is known.
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
    known: HashMap<Key, Known>,
    pace: Pace,
}

impl Cadence {
    pub(super) fn new(pace: Pace) -> Self {
        Self {
            known: HashMap::new(),
            pace,
        }
    }

    /// How to ask for the next job of a command, while so many are running with it.
    pub(super) fn plan(&mut self, command: Command, running: usize) -> Plan {
        let key = (Sort::of(command), running.max(1).ilog2());
        let at_best = self.at_best(key);
        let Some(known) = self.known.get_mut(&key) else {
            return Plan {
                first: self.guess(key),
                aim: Aim::Search,
                key,
                polls: 0,
            };
        };
        let early = known.before.unwrap_or(known.usual / 2).max(at_best);
        let certain = known.after.is_none() || known.before.is_some();
        if certain && known.rest == 0 && early < known.usual.mul_f64(SHAVE * SHAVE) {
            // Only one at a time.
            known.rest = known.rests;
            known.before = None;
            return Plan {
                first: early,
                aim: Aim::Early(known.usual),
                key,
                polls: 0,
            };
        }
        Plan {
            first: known.usual,
            aim: Aim::Usual,
            key,
            polls: 0,
        }
    }

    /// How to go on asking for a job that so many polls found pending, now that another one of its sort has ended: soon again, if
    /// it is one of the last or would be asked for in ever larger steps, and should be over before the next one.
    pub(super) fn go_on(
        &self,
        plan: &Plan,
        ended: &Plan,
        (polls, elapsed): (u32, Duration),
        is_last: bool,
    ) -> Option<Plan> {
        let usual = self.known.get(&ended.key)?.usual;
        let is_near = elapsed.mul_f64(1.0 + COARSE) >= usual;
        let is_wanted = (plan.is_search() || is_last) && plan.is_like(ended) && is_near;
        is_wanted.then_some(Plan {
            first: usual,
            aim: Aim::Usual,
            key: plan.key,
            polls,
        })
    }

    /// How long to wait after a poll, the n-th, that found the job pending so long after its start.
    pub(super) fn wait(&self, plan: &Plan, polls: u32, elapsed: Duration) -> Duration {
        let polls = polls.saturating_sub(plan.polls);
        let fine = |polls: u32| {
            elapsed.mul_f64((FINE * f64::from(1_u32 << polls.saturating_sub(1).min(8))).min(COARSE))
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
    pub(super) fn learn(&mut self, plan: &Plan, seen: Seen) {
        let before = self.known.get(&plan.key).copied();
        let mut known = before.unwrap_or(Known::new(plan.first));
        match (plan.aim, seen.pending) {
            // Jobs are fast again; perhaps even faster.
            (Aim::Early(_), None) => {
                known = Known::new(plan.first);
                known.rest = 0;
            }
            // In vain, as expected.
            (Aim::Early(_), Some(_)) if seen.polls == 2 => {
                known.rests = (known.rests * 2).min(MOST_RESTS);
                known.rest = known.rests;
            }
            (Aim::Search | Aim::Usual, None) => {
                known.rest = known.rest.saturating_sub(1);
                match known.after {
                    Some(pending) => self.between(&mut known, pending, plan.first),
                    None => known.usual = known.usual.mul_f64(SHAVE),
                }
            }
            (Aim::Search | Aim::Usual | Aim::Early(_), Some(pending)) => {
                self.between(&mut known, pending, seen.over);
            }
        }
        if let Some(before) = before.filter(|before| known.usual > before.usual.mul_f64(MUCH_LONGER)) {
            known.before = before.before.or(Some(before.usual));
            known.rest = 0;
            known.rests = FIRST_RESTS;
        }
        let at_best = self.at_best(plan.key);
        known.usual = known.usual.clamp(at_best, LONGEST_USUAL.max(at_best));
        self.known.insert(plan.key, known);
    }

    /// A job was pending at one time and over at another.
    fn between(&self, known: &mut Known, pending: Duration, over: Duration) {
        let between = over.saturating_sub(pending);
        if between <= over.mul_f64(EXACT).max(self.pace.of(SHORTEST) * 2) {
            known.after = None;
            known.usual = over.mul_f64(MARGIN);
        } else {
            known.after = Some(pending);
            known.usual = pending + between / 2;
        }
    }

    /// When to ask first where nothing is known of just this: what fewer jobs at once take, else what other changes of
    /// routers take, for those differ less than routers do.
    fn guess(&self, key: Key) -> Duration {
        let (sort, running) = key;
        let usual = |key: Key| Some(self.known.get(&key)?.usual);
        let fewer = (0..running).rev().find_map(|running| usual((sort, running)));
        let of_routers = || {
            let others = Sort::OF_ROUTERS
                .into_iter()
                .filter(|_| Sort::OF_ROUTERS.contains(&sort));
            others.filter_map(|sort| usual((sort, running))).min()
        };
        let guess = fewer.or_else(of_routers).unwrap_or_default();
        guess.max(self.at_best(key))
    }

    fn at_best(&self, key: Key) -> Duration {
        self.pace.of(key.0.at_best())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ASSIGN: Command = Command::AssignToLoadBalancerRule;

    fn at_best(command: Command) -> Duration {
        Sort::of(command).at_best()
    }

    /// Asks for one job that takes so long, by a plan; returns the polls it cost and when its end was seen.
    fn follow(cadence: &mut Cadence, plan: Plan, takes: Duration) -> (u32, Duration) {
        let (mut now, mut polls, mut pending) = (plan.first, 1, None);
        while now < takes {
            pending = Some(now);
            now += cadence.wait(&plan, polls, now);
            polls += 1;
            assert!(polls < 100, "it asks too often");
        }
        let seen = Seen {
            pending,
            polls,
            over: now,
        };
        cadence.learn(&plan, seen);
        (polls, now)
    }

    fn ask(cadence: &mut Cadence, takes: Duration) -> (u32, Duration) {
        let plan = cadence.plan(ASSIGN, 1);
        follow(cadence, plan, takes)
    }

    fn asks(cadence: &mut Cadence, takes: Duration, times: usize) -> Vec<(u32, Duration)> {
        (0..times).map(|_| ask(cadence, takes)).collect()
    }

    /// So many jobs at once, each of which takes so long; the polls that they cost if each is asked for by itself.
    fn at_once(cadence: &mut Cadence, takes: &[u64]) -> u32 {
        let plans: Vec<Plan> = takes.iter().map(|_| cadence.plan(ASSIGN, takes.len())).collect();
        let polls = plans
            .into_iter()
            .zip(takes)
            .map(|(plan, millis)| follow(cadence, plan, Duration::from_millis(*millis)).0);
        polls.sum()
    }

    #[test]
    fn jobs_of_a_fast_server_cost_one_poll_each_and_are_not_asked_for_earlier_than_the_guess() {
        let mut cadence = Cadence::new(Pace::REAL);
        for (polls, seen) in asks(&mut cadence, Duration::from_millis(90), 50) {
            assert_eq!((polls, seen), (1, at_best(ASSIGN)));
        }
    }

    #[test]
    fn the_time_of_slow_jobs_is_found_with_few_polls_and_then_kept() {
        let mut cadence = Cadence::new(Pace::REAL);
        let takes = Duration::from_secs(2);
        let seen = asks(&mut cadence, takes, 30);
        let (first, later) = seen.split_at(3);
        assert!(
            first.iter().map(|(polls, _)| polls).sum::<u32>() <= 14,
            "{first:?}"
        );
        let polls: u32 = later.iter().map(|(polls, _)| polls).sum();
        assert!(polls <= 35, "{polls} polls for {} jobs: {later:?}", later.len());
        assert!(
            later.iter().all(|(_, seen)| *seen < takes.mul_f64(1.15)),
            "{later:?}"
        );
    }

    #[test]
    fn one_slow_job_does_not_make_the_next_ones_slow() {
        let mut cadence = Cadence::new(Pace::REAL);
        let fast = Duration::from_millis(280);
        asks(&mut cadence, fast, 3);
        ask(&mut cadence, Duration::from_secs(4));
        for (polls, seen) in asks(&mut cadence, fast, 12) {
            assert!(
                polls == 1 && seen < Duration::from_millis(300),
                "{polls} {seen:?}"
            );
        }
    }

    #[test]
    fn jobs_that_became_slow_are_soon_waited_for() {
        let mut cadence = Cadence::new(Pace::REAL);
        asks(&mut cadence, Duration::from_millis(280), 9);
        let slow = asks(&mut cadence, Duration::from_secs(4), 40);
        let polls: u32 = slow.iter().map(|(polls, _)| polls).sum();
        assert!(polls <= 56, "{polls} polls: {slow:?}");
    }

    #[test]
    fn only_one_of_many_jobs_at_a_time_is_asked_for_early() {
        let mut cadence = Cadence::new(Pace::REAL);
        let early = |plan: &Plan| matches!(plan.aim, Aim::Early(_));
        let mut plan = cadence.plan(ASSIGN, 1);
        while !early(&plan) {
            asks(&mut cadence, Duration::from_secs(2), 1);
            plan = cadence.plan(ASSIGN, 1);
        }
        let others: Vec<Plan> = (0..20).map(|_| cadence.plan(ASSIGN, 1)).collect();
        assert!(!others.iter().any(early), "{others:?}");
    }

    #[test]
    fn jobs_that_run_beside_many_have_a_time_of_their_own() {
        let mut cadence = Cadence::new(Pace::REAL);
        let crowd = [280, 560, 840, 1_120, 1_400, 1_680, 1_960, 2_240, 2_520, 2_800];
        asks(&mut cadence, Duration::from_millis(280), 3);
        at_once(&mut cadence, &crowd);
        let again = at_once(&mut cadence, &crowd);
        assert!(again <= 14, "{again} polls");
        assert_eq!(
            ask(&mut cadence, Duration::from_millis(280)),
            (1, at_best(ASSIGN))
        );
    }

    #[test]
    fn what_one_change_of_a_router_takes_is_expected_of_another() {
        let mut cadence = Cadence::new(Pace::REAL);
        let takes = Duration::from_secs(2);
        asks(&mut cadence, takes, 2);
        let open = cadence.plan(Command::CreateFirewallRule, 1);
        let associate = cadence.plan(Command::AssociateIpAddress, 1);
        assert!(open.first > takes.mul_f64(0.9), "{open:?}");
        assert_eq!(associate.first, at_best(Command::AssociateIpAddress));
    }

    #[test]
    fn a_job_of_a_minute_is_not_asked_for_more_than_a_few_times() {
        let mut cadence = Cadence::new(Pace::REAL);
        let (polls, _) = ask(&mut cadence, Duration::from_mins(1));
        assert!(polls <= 20, "{polls} polls");
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
                let late = takes.mul_f64(1.0 + COARSE).max(longest.mul_f64(1.0 + COARSE) * 21 / 20);
                prop_assert!(seen <= late + at_best(ASSIGN) * 2, "{:?} for {:?}", seen, takes);
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
            prop_assert!(scaled_seen <= seen.mul_f64(factor * 1.7) + Duration::from_micros(10));
        }
    }
}
