//! Turns: what balancers of an account do one after the other.
//!
//! Decides in which order turns are waited for. Leaves to [`crate::cloudstack`] who gets one next, and to `run` what is looked at
//! in it.

use std::collections::BTreeSet;

use super::plan::Step;
use crate::cloudstack::types::AddressId;
use crate::cloudstack::{Api, AssociateTurn, ReleaseTurn};

/// Turns that steps may need, taken before what they are based on was looked at.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// To take an address; only until the server has begun to.
    pub(super) associate: Option<AssociateTurn>,
    /// To release these addresses, or to be the first on them.
    pub(super) release: Vec<ReleaseTurn>,
}

impl Turns {
    /// The turn for this address, if it is held.
    pub(super) fn of(&self, address: &AddressId) -> Option<&ReleaseTurn> {
        self.release.iter().find(|turn| turn.address() == address)
    }

    /// Takes the turn to take an address. Turns about addresses are given back meanwhile: whoever holds one of them may wait for
    /// the same, and what was looked at in them has to be looked at again.
    pub(super) async fn take_to_associate(&mut self, api: &Api) {
        self.release.clear();
        self.associate = Some(api.turn_to_associate().await);
    }

    /// Takes the turns for these addresses. Tells whether others were given back for it and taken anew, so that what was looked
    /// at in them has to be looked at again: turns are waited for in the order of the addresses' ids only, so that two calls
    /// that hold what the other one needs never wait for each other.
    pub(super) async fn take_to_release(&mut self, api: &Api, addresses: BTreeSet<AddressId>) -> bool {
        if addresses.iter().all(|address| self.of(address).is_some()) {
            return false;
        }
        let held = std::mem::take(&mut self.release);
        let anew = !held.is_empty();
        let mut all = addresses;
        all.extend(held.iter().map(|turn| turn.address().clone()));
        drop(held);
        for address in &all {
            self.release.push(api.turn_to_release(address).await);
        }
        anew
    }

    /// The turn for a step, if it needs one that is held.
    pub(super) fn give(&mut self, step: &Step) -> Turn {
        match step {
            Step::Associate { .. } => self.associate.take().map_or(Turn::None, Turn::Associate),
            Step::DeleteRule { address, .. } => {
                let held = address.as_ref().and_then(|address| self.of(address));
                held.cloned().map_or(Turn::None, Turn::Release)
            }
            Step::Release { address, .. } => self.of(address).cloned().map_or(Turn::None, Turn::Release),
            Step::CreateRule { .. }
            | Step::UpdateRule { .. }
            | Step::Assign { .. }
            | Step::Remove { .. }
            | Step::OpenFirewall { .. }
            | Step::CloseFirewall { .. }
            | Step::AllowInAcl(_)
            | Step::DropFromAcl { .. }
            | Step::Tag { .. }
            | Step::Untag { .. } => Turn::None,
        }
    }
}

/// The turn that a step has.
#[derive(Debug)]
pub(super) enum Turn {
    /// None is held for it.
    None,
    /// To take an address.
    Associate(AssociateTurn),
    /// To decide what becomes of an address.
    Release(ReleaseTurn),
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use futures::FutureExt as _;
    use tokio_util::sync::CancellationToken;
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::cloudstack::{Account, ApiKeys, Environment, Settings};
    use crate::metrics::CloudStackMetrics;

    fn api() -> Api {
        runtime::host::install_tls_provider();
        let keys = ApiKeys {
            api_key: "key".into(),
            secret_key: "secret".into(),
        };
        let settings = Settings::new("http://127.0.0.1:1/client/api".parse().unwrap(), keys);
        let environment = Environment {
            tasks: TaskTracker::new(),
            shutdown: CancellationToken::new(),
            metrics: CloudStackMetrics::default(),
        };
        let account: Arc<Account> = Account::new("main", &settings, environment).unwrap();
        Api::new(account, "tenant", None)
    }

    fn address(name: &str) -> AddressId {
        AddressId::parse(name).unwrap()
    }

    fn set(names: &[&str]) -> BTreeSet<AddressId> {
        names.iter().map(|name| address(name)).collect()
    }

    #[tokio::test]
    async fn two_calls_that_need_what_the_other_one_holds_get_it_one_after_the_other() {
        let api = api();
        let (mut one, mut other) = (Turns::default(), Turns::default());
        assert!(!one.take_to_release(&api, set(&["a"])).await);
        assert!(!other.take_to_release(&api, set(&["b"])).await);
        let done = |mut turns: Turns, needed: &'static str| {
            let api = api.clone();
            async move {
                let anew = turns.take_to_release(&api, set(&[needed])).await;
                let both = turns.of(&address("a")).is_some() && turns.of(&address("b")).is_some();
                (anew, both)
            }
        };
        let both = futures::future::join(done(one, "b"), done(other, "a"));
        let both = tokio::time::timeout(Duration::from_secs(20), both).await;
        assert_eq!(both.unwrap(), ((true, true), (true, true)));
    }

    #[tokio::test]
    async fn turns_that_are_held_already_are_kept() {
        let api = api();
        let mut turns = Turns::default();
        turns.take_to_release(&api, set(&["a", "b"])).await;
        assert!(!turns.take_to_release(&api, set(&["b"])).await);
        assert!(api.turn_to_release(&address("a")).now_or_never().is_none());
    }

    #[tokio::test]
    async fn who_waits_to_take_an_address_keeps_nobody_from_another_one() {
        let api = api();
        let (mut first, mut second) = (Turns::default(), Turns::default());
        first.take_to_associate(&api).await;
        second.take_to_release(&api, set(&["a"])).await;
        let waits = second.take_to_associate(&api);
        tokio::pin!(waits);
        assert!(waits.as_mut().now_or_never().is_none());
        assert!(first.take_to_release(&api, set(&["a"])).now_or_never().is_some());
    }
}
