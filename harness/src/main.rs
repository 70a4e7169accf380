//! The `allranks` binary.
fn main() {}
