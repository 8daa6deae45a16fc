//! Placeholder of the demo until its steps exist.
fn main() {}
