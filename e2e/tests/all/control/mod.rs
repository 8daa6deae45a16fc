//! What is ordered from CloudStack: on the simulator and on a real management server.

mod addresses;
mod leaders;
mod members;
pub(crate) mod nodes;
mod ports;
mod restarts;
mod services;
mod shapes;
pub(crate) mod take_over;

use e2e::runner::Scenario;

/// All of them.
pub(crate) fn all() -> Vec<Scenario> {
    [
        take_over::all(),
        nodes::all(),
        services::all(),
        ports::all(),
        addresses::all(),
        members::all(),
        restarts::all(),
        shapes::all(),
        leaders::all(),
    ]
    .concat()
}
