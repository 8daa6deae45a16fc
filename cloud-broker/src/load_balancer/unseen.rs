//! Machines that were looked for and not seen. Pure.
//!
//! Decides whether such a machine is a reason to read the list again. It is once in a while, and none once there are too many of
//! them to remember: a caller may name any number of machines that do not exist.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::cloudstack::types::MachineId;

/// How long a machine that is not visible is not looked for again.
const A_WHILE: Duration = Duration::from_mins(1);
/// Machines that are remembered; far more than an account has.
const MOST: usize = 20_000;

/// What is remembered.
#[derive(Debug, Default)]
pub(super) struct Unseen(BTreeMap<MachineId, Instant>);

impl Unseen {
    /// Remembers machines; tells whether one of them is news.
    pub(super) fn is_news<'m>(
        &mut self,
        machines: impl IntoIterator<Item = &'m MachineId>,
        now: Instant,
    ) -> bool {
        self.0
            .retain(|_, since| now.saturating_duration_since(*since) < A_WHILE);
        let mut is_news = false;
        for machine in machines {
            if let Some(since) = self.0.get_mut(machine) {
                *since = now;
            } else if self.0.len() < MOST {
                self.0.insert(machine.clone(), now);
                is_news = true;
            }
        }
        is_news
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "any instant will do to start from")]
mod tests {
    use super::*;

    fn machines(numbers: std::ops::Range<usize>) -> Vec<MachineId> {
        numbers
            .map(|number| MachineId::parse(&format!("m-{number}")).unwrap())
            .collect()
    }

    #[test]
    fn machines_that_nobody_sees_are_news_once_in_a_while_and_never_too_many() {
        let (mut unseen, now) = (Unseen::default(), Instant::now());
        let few = machines(0..3);
        assert!(unseen.is_news(&few, now));
        assert!(!unseen.is_news(&few, now));
        assert!(!unseen.is_news(&few[..0], now));
        let later = now + A_WHILE;
        assert!(unseen.is_news(&few, later));
        assert!(unseen.is_news(&machines(0..MOST + 1000), later));
        assert!(!unseen.is_news(&machines(100_000..100_010), later));
        assert_eq!(unseen.0.len(), MOST);
    }
}
