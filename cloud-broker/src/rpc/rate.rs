//! How many calls a tenant may make, so that one agent that runs wild does not take the broker from the others.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use proto::{Advice, Fault, FaultKind};

use crate::tenant::ClusterName;

/// Calls per second; an agent with a thousand Services needs a fraction of it.
const PER_SECOND: NonZeroU32 = NonZeroU32::new(100).unwrap();
/// Calls at once, as after a restart of an agent.
const BURST: NonZeroU32 = NonZeroU32::new(2000).unwrap();

/// Counts the calls of every tenant.
pub(super) struct Rate {
    limiter: DefaultKeyedRateLimiter<ClusterName>,
}

impl Default for Rate {
    fn default() -> Self {
        Self {
            limiter: RateLimiter::keyed(Quota::per_second(PER_SECOND).allow_burst(BURST)),
        }
    }
}

impl Rate {
    /// Counts a call, or says when the next one may come.
    pub(super) fn count(&self, cluster: &ClusterName) -> Result<(), Fault> {
        self.limiter.check_key(cluster).map_err(|early| {
            let wait = early
                .wait_time_from(DefaultClock::default().now())
                .max(Duration::from_millis(1));
            let text = format!("cluster {cluster} makes more than {PER_SECOND} calls a second");
            Fault::new(FaultKind::Busy, "TOO_MANY_CALLS", text).with_advice(Advice::After(wait))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_that_calls_too_often_is_told_when_to_come_back_and_others_are_not() {
        let (rate, wild, calm) = (
            Rate::default(),
            ClusterName::new("wild"),
            ClusterName::new("calm"),
        );
        let refused = (0..BURST.get() * 2)
            .find_map(|_| rate.count(&wild).err())
            .unwrap();
        assert_eq!(refused.kind, FaultKind::Busy);
        assert!(matches!(refused.advice, Advice::After(wait) if wait > Duration::ZERO));
        assert_eq!(rate.count(&calm), Ok(()));
    }
}
