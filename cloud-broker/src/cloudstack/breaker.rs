//! When calls are held back because the API does not answer. Pure.
//!
//! Decides whether a call may go, given the time. It opens after a few failures in a row, lets one call through when the
//! time has come, and closes at the first answer of any kind: a refusal is an answer.

use std::time::{Duration, Instant};

/// Failures in a row that open it.
const THRESHOLD: u32 = 5;
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// What the breaker does at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    /// Calls go.
    Closed,
    /// Calls are held back.
    Open {
        /// Since when no call was answered.
        since: Instant,
    },
}

/// Whether a call may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// It may.
    Go,
    /// It may, and it decides for the others.
    Probe,
    /// It may not, for so long.
    Wait(Duration),
}

/// The state machine.
#[derive(Debug)]
pub(super) struct Breaker {
    failures: u32,
    since: Option<Instant>,
    open: Option<Open>,
    first_wait: Duration,
    longest_wait: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    wait: Duration,
    until: Instant,
    probing: bool,
}

impl Breaker {
    /// `scale` shortens or stretches the waits.
    pub(super) fn new(scale: impl Fn(Duration) -> Duration) -> Self {
        let (first_wait, longest_wait) = (scale(FIRST_WAIT), scale(LONGEST_WAIT));
        Self {
            failures: 0,
            since: None,
            open: None,
            first_wait,
            longest_wait,
        }
    }

    /// Asks for a call. Whoever gets `Go` or `Probe` must report what became of it.
    pub(super) fn admit(&mut self, now: Instant) -> Admission {
        match &mut self.open {
            None => Admission::Go,
            Some(open) if now < open.until => Admission::Wait(open.until - now),
            Some(open) if open.probing => Admission::Wait(open.wait),
            Some(open) => {
                open.probing = true;
                Admission::Probe
            }
        }
    }

    /// How long a call would be held back now.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        self.open
            .filter(|open| now < open.until)
            .map(|open| open.until - now)
    }

    /// A call was answered.
    pub(super) fn answered(&mut self) {
        self.failures = 0;
        self.since = None;
        self.open = None;
    }

    /// A call was not answered.
    pub(super) fn failed(&mut self, now: Instant, probe: bool) {
        self.failures = self.failures.saturating_add(1);
        self.since.get_or_insert(now);
        let wait = match self.open {
            Some(open) if probe => (open.wait * 2).min(self.longest_wait),
            Some(_) => return,
            None if self.failures < THRESHOLD => return,
            None => self.first_wait,
        };
        self.open = Some(Open {
            wait,
            until: now + wait,
            probing: false,
        });
    }

    /// A call was given up before it could show anything.
    pub(super) fn abandoned(&mut self, probe: bool) {
        if let Some(open) = self.open.as_mut().filter(|_| probe) {
            open.probing = false;
        }
    }

    pub(super) fn state(&self) -> BreakerState {
        match (self.open, self.since) {
            (Some(open), since) => BreakerState::Open {
                since: since.unwrap_or(open.until),
            },
            (None, _) => BreakerState::Closed,
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "any instant will do to start from")]
mod tests {
    use super::*;

    fn opened(start: Instant) -> Breaker {
        let mut breaker = Breaker::new(|wait| wait);
        for _ in 0..THRESHOLD {
            assert_eq!(breaker.admit(start), Admission::Go);
            breaker.failed(start, false);
        }
        breaker
    }

    #[test]
    fn a_few_failures_in_a_row_open_it_and_one_answer_in_between_does_not_count() {
        let now = Instant::now();
        let mut breaker = Breaker::new(|wait| wait);
        for _ in 0..3 {
            for _ in 1..THRESHOLD {
                breaker.failed(now, false);
            }
            breaker.answered();
        }
        assert_eq!(breaker.state(), BreakerState::Closed);
        assert_eq!(opened(now).state(), BreakerState::Open { since: now });
    }

    #[test]
    fn an_open_breaker_lets_one_call_through_when_the_time_has_come() {
        let now = Instant::now();
        let mut breaker = opened(now);
        assert_eq!(breaker.admit(now), Admission::Wait(FIRST_WAIT));
        let later = now + FIRST_WAIT;
        assert_eq!(breaker.admit(later), Admission::Probe);
        assert!(matches!(breaker.admit(later), Admission::Wait(_)));
        breaker.answered();
        assert_eq!(breaker.admit(later), Admission::Go);
    }

    #[test]
    fn every_failed_probe_doubles_the_wait_up_to_a_limit() {
        let mut now = Instant::now();
        let mut breaker = opened(now);
        let mut waits = Vec::new();
        for _ in 0..7 {
            let Admission::Wait(wait) = breaker.admit(now) else {
                panic!("it is open")
            };
            waits.push(wait.as_secs());
            now += wait;
            assert_eq!(breaker.admit(now), Admission::Probe);
            breaker.failed(now, true);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
    }

    #[test]
    fn a_probe_that_was_given_up_makes_room_for_the_next() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let later = now + FIRST_WAIT;
        assert_eq!(breaker.admit(later), Admission::Probe);
        breaker.abandoned(true);
        assert_eq!(breaker.admit(later), Admission::Probe);
    }

    #[test]
    fn calls_that_were_under_way_when_it_opened_do_not_prolong_the_wait() {
        let now = Instant::now();
        let mut breaker = opened(now);
        breaker.failed(now + FIRST_WAIT / 2, false);
        assert_eq!(breaker.admit(now + FIRST_WAIT), Admission::Probe);
    }
}
