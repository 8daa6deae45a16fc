//! How long waits are, as a whole: one factor for all of them, so that tests need not wait.

use std::time::Duration;

/// Scales every wait that this program chooses itself. Waits that a server demands are not scaled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace(f64);

impl Pace {
    /// Waits as long as they are meant.
    pub const REAL: Self = Self(1.0);

    /// Waits multiplied by a factor, such as `0.01`; factors below zero or without a value count as zero.
    pub fn scaled(factor: f64) -> Self {
        Self(if factor.is_finite() { factor.max(0.0) } else { 0.0 })
    }

    /// How long to wait.
    pub fn of(self, wait: Duration) -> Duration {
        Duration::try_from_secs_f64(wait.as_secs_f64() * self.0).unwrap_or(Duration::MAX)
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self::REAL
    }
}
