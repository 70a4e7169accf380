//! This machine seen from outside its programs: what a process does, and who listens at a port. Needs no privileges, and
//! sees what the caller may see: of other users' processes that is little. Linux only; elsewhere nothing is known.
//!
//! In: process ids and ports. Out: facts, or none. Nothing here knows ranks or worlds.

mod command;
mod family;
mod listener;
mod process;
mod script;

pub use command::ask;
pub use family::{Member, members};
pub use listener::{Listener, Voice, addresses, is_heard, listeners, resolves, voice};
pub use process::{Activity, activity, describe, is_asleep, locking, state};
pub use script::script;
