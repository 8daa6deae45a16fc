//! Whether this process may act, as one value that everybody watches.

use std::future::Future;
use std::time::{Duration, Instant};

use runtime::clock;
use tokio::sync::watch;

use crate::lease::Fence;

/// Where this process stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Another process leads, or nobody yet.
    Waiting,
    /// This process leads.
    Leading {
        /// What writing calls carry.
        fence: Fence,
        /// From then on another process could lead; nothing limits it without election.
        until: Option<Instant>,
    },
    /// This process led and never will again.
    Ended,
}

/// This process does not lead, or can't be sure of it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this process does not lead")]
pub struct NotLeading;

/// Publishes the standing. Held by the election alone.
#[derive(Debug)]
pub struct Throne(watch::Sender<Standing>);

/// Reads the standing.
#[derive(Clone, Debug)]
pub struct Leadership(watch::Receiver<Standing>);

impl Leadership {
    /// A standing that starts with waiting.
    pub fn contested() -> (Throne, Self) {
        let (sender, receiver) = watch::channel(Standing::Waiting);
        (Throne(sender), Self(receiver))
    }

    /// The fence for a writing call; only while the lease can't have run out.
    pub fn fence(&self) -> Result<Fence, NotLeading> {
        match &*self.0.borrow() {
            Standing::Leading { fence, until } if until.is_none_or(|until| clock::now() < until) => {
                Ok(fence.clone())
            }
            Standing::Leading { .. } | Standing::Waiting | Standing::Ended => Err(NotLeading),
        }
    }

    /// Whether this process may act now.
    pub fn may_write(&self) -> bool {
        self.fence().is_ok()
    }

    /// For how long this process has believed that it leads although its lease could have run out; nothing if all is well.
    pub fn overdue(&self) -> Option<Duration> {
        match &*self.0.borrow() {
            Standing::Leading {
                until: Some(until), ..
            } => clock::now().checked_duration_since(*until),
            Standing::Leading { until: None, .. } | Standing::Waiting | Standing::Ended => None,
        }
    }

    /// Waits until this process leads. Never ends if it never does.
    pub async fn begun(&self) {
        let mut standing = self.0.clone();
        if standing
            .wait_for(|standing| matches!(standing, Standing::Leading { .. }))
            .await
            .is_err()
        {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until this process may not act any more.
    pub async fn over(&self) {
        let mut standing = self.0.clone();
        loop {
            let until = match &*standing.borrow_and_update() {
                Standing::Leading { until, .. } => *until,
                Standing::Waiting | Standing::Ended => return,
            };
            if until.is_some_and(|until| until <= clock::now()) {
                return;
            }
            let run_out = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until.into()).await,
                    None => std::future::pending().await,
                }
            };
            let changed = async {
                if standing.changed().await.is_err() {
                    // Nobody can end it: there is no election any more, or never was one.
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                () = run_out => {}
                () = changed => {}
            }
        }
    }

    /// Runs `action` as long as this process may act, and drops it when it may not any more.
    pub async fn hold<T>(&self, action: impl Future<Output = T>) -> Result<T, NotLeading> {
        self.fence()?;
        tokio::select! {
            done = action => Ok(done),
            () = self.over() => Err(NotLeading),
        }
    }
}

impl Throne {
    /// This process leads, and may act until then.
    pub fn lead(&self, fence: Fence, until: Option<Instant>) {
        self.0.send_replace(Standing::Leading { fence, until });
    }

    /// This process does not lead any more.
    pub fn end(&self) {
        self.0.send_replace(Standing::Ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fence() -> Fence {
        Fence {
            lease_uid: "lease".into(),
            transitions: 3,
        }
    }

    #[tokio::test]
    async fn nothing_may_be_written_before_the_lease_is_held() {
        let (throne, leadership) = Leadership::contested();
        assert_eq!(leadership.fence(), Err(NotLeading));
        assert_eq!(leadership.hold(async { 1 }).await, Err(NotLeading));
        throne.lead(fence(), None);
        leadership.begun().await;
        assert_eq!(leadership.fence(), Ok(fence()));
        assert_eq!(leadership.hold(async { 1 }).await, Ok(1));
    }

    #[tokio::test]
    async fn a_running_action_is_dropped_when_the_lease_could_have_run_out() {
        let (throne, leadership) = Leadership::contested();
        throne.lead(fence(), Some(clock::now() + Duration::from_millis(20)));
        assert_eq!(
            leadership.hold(std::future::pending::<()>()).await,
            Err(NotLeading)
        );
        assert_eq!(leadership.fence(), Err(NotLeading), "no renewal came");
    }

    #[tokio::test]
    async fn a_renewal_keeps_a_running_action_alive() {
        let (throne, leadership) = Leadership::contested();
        throne.lead(fence(), Some(clock::now() + Duration::from_millis(20)));
        let action = leadership.hold(async {
            throne.lead(fence(), Some(clock::now() + Duration::from_mins(1)));
            tokio::time::sleep(Duration::from_millis(40)).await;
        });
        assert_eq!(action.await, Ok(()));
    }

    #[tokio::test]
    async fn losing_the_lease_drops_a_running_action() {
        let (throne, leadership) = Leadership::contested();
        throne.lead(fence(), None);
        let (held, ()) = tokio::join!(leadership.hold(std::future::pending::<()>()), async {
            throne.end();
        });
        assert_eq!(held, Err(NotLeading));
    }

    #[tokio::test]
    async fn without_election_nothing_ends_it() {
        let (throne, leadership) = Leadership::contested();
        throne.lead(fence(), None);
        drop(throne);
        assert!(leadership.may_write());
        assert_eq!(
            leadership.hold(async { tokio::task::yield_now().await }).await,
            Ok(())
        );
    }
}
