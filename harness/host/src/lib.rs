//! Facts about this machine: the state of a process, and which process listens at a port. Needs no privileges, and sees what the
//! caller may see, which is little of other users' processes. Linux only; elsewhere nothing is known.
//!
//! Functions take process ids and ports, and return facts, or `None` where these cannot be read. Nothing here knows ranks or
//! worlds.

mod charged_time;
mod command;
mod deadlock;
mod environment;
mod file_lock;
mod idle_time;
mod listener;
mod process;
mod process_table;
mod processor_time;
mod python_command;
mod shared_file;
mod tagged_processes;
mod thread;

pub use charged_time::{ChargedTime, processor_time, time_ready};
pub use command::run_with_timeout;
pub use deadlock::{Deadlock, deadlock, polls_for};
pub use environment::environment;
pub use file_lock::{FileLock, file_locks};
pub use idle_time::idle_time;
pub use listener::{
    Listener, StoreReply, addresses, has_listener, holder_of_other_end, is_connected_to, listeners,
    probe_store, resolves,
};
pub use process::{
    Activity, activity, arguments, describe, is_asleep, is_ending, reads_a_pipe, sleeps_in, state,
};
pub use process_table::{ProcessEntry, age, descendants, has_mapped, network, processes};
pub use processor_time::processor_times_below;
pub use python_command::python_command;
pub use shared_file::{SharedFile, shared_files};
pub use tagged_processes::{TaggedProcess, members};
pub use thread::{Thread, main_thread, threads};
