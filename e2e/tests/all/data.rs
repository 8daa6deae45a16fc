//! What packets do: through the simulator's router, which is a real HAProxy.

use e2e::runner::Scenario;

/// All of them.
pub(crate) fn all() -> Vec<Scenario> {
    Vec::new()
}
