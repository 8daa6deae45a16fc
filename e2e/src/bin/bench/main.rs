//! Placeholder of the benchmarks until their rows exist.
fn main() {}
