//! Tests of the simulator as its users see it.

mod behaviour;
mod client;
mod control;
mod data_path;
mod faults;
mod replay;
