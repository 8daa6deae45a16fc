//! The one place that reads clocks. Everything that decides takes the time as an argument.

use std::time::{Duration, Instant, SystemTime};

/// Monotonic time, for measuring and for deadlines.
#[expect(clippy::disallowed_methods, reason = "this is the place")]
pub fn now() -> Instant {
    Instant::now()
}

/// Wall-clock time, for what people and other machines read.
#[expect(clippy::disallowed_methods, reason = "this is the place")]
pub fn wall() -> SystemTime {
    SystemTime::now()
}

/// Wall-clock time since 1970, or zero on a clock before that.
pub fn unix() -> Duration {
    wall().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
