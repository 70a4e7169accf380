//! Tells cargo to rebuild when an embedded folder changes. `tests/embedded.rs` compares the list of folders with those that the
//! sources include.

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
