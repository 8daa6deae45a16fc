//! Tests of the simulator as its users see it.

mod client;
mod control;
mod replay;
