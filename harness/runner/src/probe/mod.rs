//! Probes platforms on this machine: asks a Python interpreter, or the libtorch driver, whether a platform can be used,
//! and how many devices it has.

mod autoload;
#[cfg(test)]
mod installations;
mod interpreter;
mod libtorch;
mod probe_script;
mod python;

pub use autoload::{AUTOLOAD, EntryPoint, remedy};
pub use interpreter::{IMPORT_PATIENCE, ProbeResult, probe, probe_all};
pub use libtorch::{libtorch, probe_libtorch};
pub use python::{Interpreter, python};
