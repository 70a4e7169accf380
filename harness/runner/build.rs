//! Tells cargo which folders of Python modules this crate carries, so that a change in one of them makes a new binary.
//! `../tests/embedded.rs` compares the list with what the sources include.

fn main() {
    for path in ["python/allranks_rank", "python/allranks_watch"] {
        println!("cargo::rerun-if-changed={path}");
    }
}
