//! # allranks
//!
//! A conformance suite and harness for `torch.distributed` backends. The harness starts real ranks, checks that
//! **every** rank initialises and that **every** rank holds the right bytes, and writes a matrix.
//!
//! Data flows one way, and a stage knows the stage before it by its data type only:
//!
//! ```text
//! case ──► plan ──► run (world ⇄ ranks, protocol) ──► oracle ──► judge ──► report
//!           ▲
//! platform ─┘
//! ```
//!
//! | module       | holds                                                                    |
//! |--------------|--------------------------------------------------------------------------|
//! | [`case`]     | one YAML file: a scenario template and its matrix; strict, with excerpts  |
//! | [`platform`] | a kind of device: declared in YAML, observed by a probe                   |
//! | [`plan`]     | scenarios × checks: what will run, what will not, and why                 |
//! | [`protocol`] | the frames between the harness and a rank (see `harness/PROTOCOL.md`)     |
//! | [`world`]    | ranks started together, their sockets, deadlines and remains; async lives here |
//! | [`oracle`]   | inputs and expected bytes, from the check alone, knowing nothing of torch |
//! | [`script`]   | what each rank does move by move, and what every move must come to       |
//! | [`judge`]    | outcome (what happened) and verdict (what it means)                       |
//! | [`run`]      | ties one scenario together, and many side by side; emits events           |
//! | [`prove`]    | the suite against backends with one seeded bug: the kill matrix           |
//! | [`report`]   | `results.jsonl` and everything rendered from it                           |
//! | [`repro`]    | one check as a Python file that needs only torch, for a vendor's tracker  |
//! | [`diagnose`] | the verdict on a job that hangs, from what is known of every rank             |
//! | [`doctor`]   | what this machine has, what is wrong with it, and the fix for each        |
//! | [`host`]     | this machine from outside: processes, and who listens at a port           |
//! | [`watch`]    | any distributed program under the hang diagnosis                          |
//! | [`yaml`]     | strict YAML for every file people write: places, excerpts, hints             |
//!
//! The library never prints; the command line (`main.rs`, [`cli`]) renders events.

pub mod case;
pub mod cli;
pub mod diagnose;
pub mod doctor;
pub mod dtype;
pub mod host;
pub mod judge;
pub mod names;
pub mod oracle;
pub mod plan;
pub mod platform;
pub mod protocol;
pub mod prove;
pub mod report;
pub mod repro;
pub mod run;
pub mod script;
pub mod suite;
pub mod watch;
pub mod world;
pub mod yaml;
