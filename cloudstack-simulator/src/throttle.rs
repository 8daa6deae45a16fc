//! The limit of calls per account and window.

use std::collections::HashMap;
use std::time::Duration;

use uuid::Uuid;

use crate::clock::Stamp;
use crate::error::ApiError;
use crate::state::World;

/// Calls of one account in the present window.
#[derive(Debug, Clone, Copy)]
struct Window {
    ends: Stamp,
    calls: u64,
}

/// Fixed windows: one starts with the first call after the last one ended.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    windows: HashMap<Uuid, Window>,
}

/// The limit that holds, if any.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) most: u64,
    pub(crate) seconds: u64,
}

impl Limit {
    /// Reads the settings.
    pub(crate) fn of(world: &World) -> Option<Self> {
        if !world.is_set("api.throttling.enabled") {
            return None;
        }
        let number = |name: &str| {
            world
                .number_setting(name)
                .and_then(|value| u64::try_from(value).ok())
        };
        Some(Self {
            most: number("api.throttling.max")?,
            seconds: number("api.throttling.interval")?,
        })
    }
}

impl Throttle {
    /// Counts a call, or refuses it. Refused calls do not prolong the window.
    pub(crate) fn admit(
        &mut self,
        world: &World,
        account: Uuid,
        (now, scale): (Stamp, f64),
    ) -> Result<(), ApiError> {
        let Some(limit) = Limit::of(world) else {
            return Ok(());
        };
        let fresh = Window {
            ends: now.plus(Duration::from_secs(limit.seconds).mul_f64(scale)),
            calls: 0,
        };
        let window = self.windows.entry(account).or_insert(fresh);
        if window.ends <= now {
            *window = fresh;
        }
        if window.calls >= limit.most {
            return Err(ApiError::with_code(
                429,
                format!(
                    "The given user has reached his/her account api limit, please retry after [{}] ms.",
                    window.ends.since(now)
                ),
            ));
        }
        window.calls += 1;
        Ok(())
    }

    /// Calls made and milliseconds left in the account's window.
    pub(crate) fn used(&self, account: Uuid, now: Stamp) -> Option<(u64, u64)> {
        let window = self.windows.get(&account).filter(|window| window.ends > now)?;
        Some((window.calls, window.ends.since(now)))
    }

    /// Ends all windows.
    pub(crate) fn end(&mut self) {
        self.windows.clear();
    }

    /// Forgets the window of an account.
    pub(crate) fn reset(&mut self, account: Uuid) {
        self.windows.remove(&account);
    }
}
