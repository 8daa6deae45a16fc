//! Tests of the simulator as its users see it.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test may fall over, print its counts and spawn what it needs"
)]

mod behaviour;
mod client;
mod control;
mod data_path;
mod faults;
mod replay;
