//! Tells cargo which folders the binary carries, so that a change in one of them makes a new binary.

fn main() {
    for folder in [
        "python/allranks_rank",
        "python/allranks_watch",
        "../cases",
        "../fixtures/platforms",
        "../fixtures/expectations",
        "../fixtures/mutants",
    ] {
        println!("cargo::rerun-if-changed={folder}");
    }
}
