//! What happens when something is broken.

use e2e::runner::Scenario;

/// All of them.
pub(crate) fn all() -> Vec<Scenario> {
    Vec::new()
}
