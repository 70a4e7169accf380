//! Runs any distributed program under the hang diagnosis, which looks at it from outside.
//!
//! In: a command. Out: [`Event`]s while it runs, and how it ended. The program needs no changes: its ranks are found by
//! their environments, their processes and sockets are looked at, and Python processes write a call trace ([`trace`]) of their
//! torch.distributed calls, by a module that Python itself loads at start. From these comes the [`evidence`] for
//! [`allranks_diagnose`]; [`detector`] decides when a verdict is reported.
//!
//! | module | holds |
//! |---|---|
//! | `command` | the command that is watched, and the process between it and the watcher |
//! | `trace` | what a Python process writes of its calls, and torch's flight recorder in it beside them |
//! | `recorder` | merges what torch's flight recorder knows of a rank with what its call trace saw |
//! | `ranks` | the ranks among the processes of a program |
//! | `endpoints` | the addresses at which ranks meet |
//! | `waits` | what a rank waits for besides its peers, and for how long it may |
//! | `evidence` | the hang evidence of one world, from its processes and their call traces |
//! | `detector` | when what is seen of a program is worth a report |
//! | `nodes` | what the watches of a job on several nodes tell each other, and the verdict from all of it |
//! | `attach` | looks at a job that was not started by this program |
//! | `watcher` | starts a command, looks at it again and again, and ends with it |
//!
//! Each folder uses those above it in this table, and none below it.
//!
//! A run of the suite watches the programs that it starts itself by [`Monitor`].
//!
//! Linux only; elsewhere no ranks are found, and the command just runs.

mod attach;
mod command;
mod detector;
mod endpoints;
mod evidence;
mod nodes;
mod ranks;
mod recorder;
#[cfg(test)]
mod tests;
mod trace;
mod waits;
mod watcher;

pub use attach::{Attached, attach};
pub use command::settings::{Ending, Settings};
pub use command::subreaper::subreaper;
pub use detector::event::Event;
pub use nodes::evidence_paths::is_evidence;
pub use nodes::node_evidence::EvidenceError;
pub use nodes::world_report::{WorldReport, judge};
pub use watcher::watch;

pub(crate) use command::program::{FOLDER, unpack_modules};
pub(crate) use detector::monitor::{Monitor, PERIOD};
