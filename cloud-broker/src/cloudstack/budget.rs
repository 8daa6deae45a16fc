//! Who may call next. Pure.
//!
//! Decides, given the time, which waiting calls may go: one budget per account, reads, polls and writes in turn, tenants of
//! each class in turn by their shares. Facts: a server counts calls per account in fixed windows, so burst plus refill must
//! fit into one window; a refused call (429) was not executed; the number must also do for other programs on the account.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::CommandClass;

/// Part of the server's limit that is left to others on the account.
const RESERVE: f64 = 0.2;
/// What a 429 leaves of the rate, how low that may go, and how it comes back.
const CUT: f64 = 0.6;
const LOWEST: f64 = 0.1;
const RECOVERY_STEP: f64 = 0.1;
const RECOVERY_EVERY: Duration = Duration::from_secs(30);

/// How many calls may go.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rate {
    /// Calls per second, on average.
    pub(super) per_second: f64,
    /// Calls at once after a silence.
    pub(super) burst: f64,
}

impl Rate {
    /// What fits into a window of a server, after others have had their part.
    pub(super) fn of_window(calls: u32, window: Duration) -> Self {
        let usable = (f64::from(calls) * (1.0 - RESERVE)).max(1.0);
        // Half at once, half refilled during the window; at least one at once.
        let burst = (usable / 2.0).max(1.0);
        let refill = (usable - burst).max(usable / 2.0);
        Self {
            per_second: refill / window.as_secs_f64().max(0.001),
            burst,
        }
    }

    fn at_most(self, other: Self) -> Self {
        Self {
            per_second: self.per_second.min(other.per_second),
            burst: self.burst.min(other.burst),
        }
    }
}

/// A call that waits, or has its turn.
pub(super) type Ticket = u64;

/// Who asks for a turn.
#[derive(Debug, Clone)]
pub(super) struct Claim {
    pub(super) tenant: Arc<str>,
    /// Turns in a row, at least one.
    pub(super) share: u32,
    pub(super) class: CommandClass,
}

#[derive(Debug, Default)]
struct Queue {
    /// Waiting calls of each tenant.
    tenants: HashMap<Arc<str>, VecDeque<Ticket>>,
    /// Tenants with waiting calls, the next one first, with the turns that are left to it.
    order: VecDeque<(Arc<str>, u32)>,
}

/// The state machine.
#[derive(Debug)]
pub(super) struct Budget {
    configured: Rate,
    server: Option<Rate>,
    factor: f64,
    tokens: f64,
    refilled: Instant,
    blocked: Option<Instant>,
    lowered: Option<Instant>,
    queues: BTreeMap<CommandClass, Queue>,
    shares: HashMap<Arc<str>, u32>,
    last_class: CommandClass,
    next_ticket: Ticket,
}

impl Budget {
    pub(super) fn new(configured: Rate, now: Instant) -> Self {
        Self {
            configured,
            server: None,
            factor: 1.0,
            tokens: configured.burst,
            refilled: now,
            blocked: None,
            lowered: None,
            queues: BTreeMap::new(),
            shares: HashMap::new(),
            last_class: CommandClass::Read,
            next_ticket: 0,
        }
    }

    /// The operator changed the configured rate.
    /// Whatever held everybody back belongs to what was there before.
    pub(super) fn configure(&mut self, rate: Rate) {
        self.configured = rate;
        self.blocked = None;
    }

    /// The server said how many calls it grants; `None` if it does not count.
    pub(super) fn server_grants(&mut self, rate: Option<Rate>) {
        self.server = rate;
    }

    /// Joins the line.
    pub(super) fn enqueue(&mut self, claim: &Claim) -> Ticket {
        self.next_ticket += 1;
        let share = claim.share.max(1);
        self.shares.insert(Arc::clone(&claim.tenant), share);
        let queue = self.queues.entry(claim.class).or_default();
        let line = queue.tenants.entry(Arc::clone(&claim.tenant)).or_default();
        if line.is_empty() {
            queue.order.push_back((Arc::clone(&claim.tenant), share));
        }
        line.push_back(self.next_ticket);
        self.next_ticket
    }

    /// Leaves the line.
    pub(super) fn cancel(&mut self, ticket: Ticket) {
        for queue in self.queues.values_mut() {
            for line in queue.tenants.values_mut() {
                line.retain(|waiting| *waiting != ticket);
            }
            queue.tidy();
        }
    }

    /// The calls that may go now, in this order.
    pub(super) fn grant(&mut self, now: Instant) -> Vec<Ticket> {
        self.refill(now);
        let mut granted = Vec::new();
        if self.blocked.is_some() {
            return granted;
        }
        while self.tokens >= 1.0 {
            let Some(ticket) = self.pick() else { break };
            self.tokens -= 1.0;
            granted.push(ticket);
        }
        granted
    }

    /// When the next call may go; `None` if nobody waits.
    pub(super) fn next_grant(&self, now: Instant) -> Option<Instant> {
        if self.queues.values().all(|queue| queue.order.is_empty()) {
            return None;
        }
        let missing = (1.0 - self.tokens).max(0.0) / self.rate().per_second.max(0.001);
        // A little more than exact, so that rounding does not ask for another look.
        let filled = later(
            self.refilled,
            Duration::from_secs_f64(missing.min(3600.0)) + Duration::from_micros(100),
        );
        Some(self.blocked.map_or(filled, |until| until.max(filled)).max(now))
    }

    /// The server refused a call because there were too many. Holds everybody back and lowers the rate, once per wave.
    pub(super) fn throttled(&mut self, now: Instant, after: Duration) {
        self.refill(now);
        let until = later(now, after);
        if self.lowered.is_none_or(|lowered| now >= lowered) {
            self.factor = (self.factor * CUT).max(LOWEST);
        }
        // Whatever is refused until then belongs to the same wave.
        self.lowered = Some(self.lowered.map_or(until, |lowered| lowered.max(until)));
        self.blocked = Some(self.blocked.map_or(until, |blocked| blocked.max(until)));
        self.tokens = 0.0;
    }

    fn rate(&self) -> Rate {
        let rate = self
            .server
            .map_or(self.configured, |server| self.configured.at_most(server));
        Rate {
            per_second: rate.per_second * self.factor,
            burst: (rate.burst * self.factor).max(1.0),
        }
    }

    fn refill(&mut self, now: Instant) {
        if let Some(until) = self.blocked {
            if now < until {
                return;
            }
            self.blocked = None;
            self.refilled = self.refilled.max(until);
        }
        if let Some(lowered) = self.lowered
            && self.factor < 1.0
        {
            let steps = now.saturating_duration_since(lowered).as_secs() / RECOVERY_EVERY.as_secs();
            if steps > 0 {
                let steps = u32::try_from(steps).unwrap_or(u32::MAX);
                self.factor = (self.factor + RECOVERY_STEP * f64::from(steps)).min(1.0);
                self.lowered = Some(later(lowered, RECOVERY_EVERY * steps.min(1_000_000)));
            }
        }
        let rate = self.rate();
        let passed = now.saturating_duration_since(self.refilled).as_secs_f64();
        self.tokens = (self.tokens + passed * rate.per_second).min(rate.burst);
        self.refilled = self.refilled.max(now);
    }

    /// The next call: classes in turn, inside one tenants in turn, inside one first come first served.
    fn pick(&mut self) -> Option<Ticket> {
        let turn = [CommandClass::Write, CommandClass::Poll, CommandClass::Read];
        let last = turn
            .iter()
            .position(|class| *class == self.last_class)
            .unwrap_or(0);
        for step in 1..=turn.len() {
            let Some(class) = turn.iter().cycle().nth(last + step).copied() else {
                continue;
            };
            if let Some(ticket) = self
                .queues
                .get_mut(&class)
                .and_then(|queue| queue.pick(&self.shares))
            {
                self.last_class = class;
                return Some(ticket);
            }
        }
        None
    }
}

/// A time that lies too far ahead to be told is no wait at all.
fn later(at: Instant, wait: Duration) -> Instant {
    at.checked_add(wait).unwrap_or(at)
}

impl Queue {
    fn pick(&mut self, shares: &HashMap<Arc<str>, u32>) -> Option<Ticket> {
        let (tenant, turns) = self.order.pop_front()?;
        let line = self.tenants.get_mut(&tenant)?;
        let ticket = line.pop_front();
        if line.is_empty() {
            self.tenants.remove(&tenant);
        } else if turns > 1 {
            self.order.push_front((tenant, turns - 1));
        } else {
            let share = shares.get(&tenant).copied().unwrap_or(1);
            self.order.push_back((tenant, share));
        }
        ticket
    }

    fn tidy(&mut self) {
        self.tenants.retain(|_, line| !line.is_empty());
        self.order.retain(|(tenant, _)| self.tenants.contains_key(tenant));
    }
}

#[cfg(test)]
mod tests;
