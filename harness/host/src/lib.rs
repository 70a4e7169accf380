//! This machine seen from outside its programs: what a process does, and who listens at a port. Needs no privileges, and
//! sees what the caller may see: of other users' processes that is little. Linux only; elsewhere nothing is known.
//!
//! In: process ids and ports. Out: facts, or none. Nothing here knows ranks or worlds.

mod command;
mod listener;
mod process;
mod process_table;
mod script;
mod tagged_processes;
mod thread;

pub use command::run_with_timeout;
pub use listener::{Listener, StoreReply, addresses, is_heard, listeners, probe_store, resolves};
pub use process::{Activity, activity, describe, is_asleep, locking, state};
pub use process_table::{ProcessEntry, has_mapped, network, processes};
pub use script::script;
pub use tagged_processes::{TaggedProcess, members};
pub use thread::{Thread, threads};
