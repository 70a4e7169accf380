//! The `cargo test` target.
fn main() {}
