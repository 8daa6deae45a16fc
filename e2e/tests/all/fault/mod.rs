//! What happens when something is broken: one clear line, nothing deleted, and all is well again when it is mended.

mod away;
mod config;
mod crashes;
mod refused;
mod secrets;

use e2e::runner::Scenario;

/// All of them.
pub(crate) fn all() -> Vec<Scenario> {
    [
        away::all(),
        config::all(),
        refused::all(),
        secrets::all(),
        crashes::all(),
    ]
    .concat()
}
