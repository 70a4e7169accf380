//! Tells cargo which folders of Python modules this crate carries, so that a change in one of them makes a new binary.

fn main() {
    for folder in ["allranks_rank", "allranks_watch"] {
        println!("cargo::rerun-if-changed=python/{folder}/");
    }
}
