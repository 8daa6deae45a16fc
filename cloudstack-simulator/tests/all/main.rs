//! Tests of the simulator as its users see it.

mod control;
