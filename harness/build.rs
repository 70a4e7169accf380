//! Tells cargo which folders the binary carries, so that a change in one of them makes a new binary. `tests/embedded.rs` compares
//! the list with what the sources include.

fn main() {
    for path in [
        "embedded/cases",
        "embedded/expectations",
        "embedded/mutants",
        "embedded/platforms",
        "embedded/programs",
        "embedded/sim",
    ] {
        println!("cargo::rerun-if-changed={path}");
    }
}
