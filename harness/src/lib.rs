//! # allranks
//!
//! A conformance suite and harness for `torch.distributed` backends. The harness starts real ranks, checks that
//! **every** rank initialises and that **every** rank holds the right bytes, and writes a matrix.
//!
//! This package is the command line and what belongs to it; everything else is in the crates below it. Data flows one way, and a
//! stage knows the stage before it by its data type only:
//!
//! ```text
//! case ──► plan ──► run (world ⇄ ranks, protocol) ──► oracle ──► verdict ──► report
//!           ▲
//! platform ─┘
//! ```
//!
//! | crate                | holds                                                                               |
//! |----------------------|-------------------------------------------------------------------------------------|
//! | `allranks-model`     | the vocabulary that every layer shares; no I/O                                       |
//! | `allranks-yaml`      | strict YAML for every file people write: places, excerpts, hints                     |
//! | `allranks-host`      | this machine from outside: processes, listeners                                      |
//! | `allranks-protocol`  | the frames between the harness and a rank                                            |
//! | `allranks-suite`     | cases, platform files, profiles, requirements, expectations, and the plan            |
//! | `allranks-oracle`    | inputs and expected bytes, from the check alone, knowing nothing of torch            |
//! | `allranks-diagnose`  | the verdict on a job that hangs, from what is known of every rank                    |
//! | `allranks-report`    | `results.jsonl` and everything rendered from it                                      |
//! | `allranks-history`   | stored runs: the verdicts of many nights in one SQLite file                           |
//! | `allranks-runner`    | worlds, scripts and runs; watched jobs; probes of platforms                          |
//!
//! | module     | holds                                                                    |
//! |------------|--------------------------------------------------------------------------|
//! | [`cli`]    | the command line: arguments in, text and exit codes out                    |
//! | [`conclusion`] | the result of a run: its issues, its last record, its exit code          |
//! | [`suite`]  | the checkout's or the embedded cases, platforms and expectations          |
//! | [`claim`]  | packages of conformance claims, and their verifier                        |
//! | [`doctor`] | what this machine has, what is wrong with it, and the fix for each         |
//! | [`kubernetes`] | manifests whose Pods are node agents                                   |
//! | [`prove`]  | the suite against backends with one seeded bug: the kill matrix            |
//! | [`repro`]  | one check as a Python file that needs only torch, for a vendor's tracker   |
//!
//! The libraries never print; the command line (`main.rs`, [`cli`]) renders events.

pub mod claim;
pub mod cli;
pub mod conclusion;
pub mod doctor;
pub mod kubernetes;
pub mod prove;
pub mod repro;
pub mod suite;
