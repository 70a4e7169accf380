//! Tells cargo which folders the binary carries, so that a change in one of them makes a new binary.

fn main() {
    for folder in [
        "cases",
        "platforms",
        "sim",
        "mutants",
        "programs",
        "expectations",
    ] {
        // Through the link: cargo looks at the files, not at the link itself.
        println!("cargo::rerun-if-changed=embedded/{folder}/");
    }
}
