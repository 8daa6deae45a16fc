//! How often entries had to be put right.
//!
//! Decides when somebody else seems to fight over an entry, so that it is left alone for a while. Time is an argument.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// So many repairs of one entry within [`WINDOW`] are a fight.
const LIMIT: usize = 5;
/// Repairs longer ago are forgotten.
const WINDOW: Duration = Duration::from_mins(10);

/// The repairs of the last minutes.
#[derive(Debug, Default)]
pub struct Repairs {
    by_key: BTreeMap<String, Vec<Instant>>,
}

impl Repairs {
    /// Takes up a repair.
    pub fn record(&mut self, key: &str, now: Instant) {
        self.by_key.entry(key.to_owned()).or_default().push(now);
    }

    /// Entries to leave alone for now.
    pub fn contested(&mut self, now: Instant) -> BTreeSet<String> {
        self.by_key.retain(|_, times| {
            times.retain(|time| now.saturating_duration_since(*time) < WINDOW);
            !times.is_empty()
        });
        let fights = self.by_key.iter().filter(|(_, times)| times.len() >= LIMIT);
        fights.map(|(key, _)| key.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_repairs_in_ten_minutes_are_a_fight_that_ends_with_time() {
        #[expect(clippy::disallowed_methods, reason = "any instant will do")]
        let start = Instant::now();
        let at = |minutes: u64| start + Duration::from_secs(minutes * 60);
        let mut repairs = Repairs::default();
        for minute in 0..4 {
            repairs.record("10.0.0.1", at(minute));
        }
        repairs.record("10.0.0.2", at(3));
        assert!(repairs.contested(at(3)).is_empty());
        repairs.record("10.0.0.1", at(4));
        assert_eq!(repairs.contested(at(4)), ["10.0.0.1".to_owned()].into());
        assert!(repairs.contested(at(10)).is_empty());
    }
}
