//! Probes platforms on this machine: asks a Python interpreter, or the libtorch driver, whether a platform can be used,
//! and how many devices it has.

mod autoload;
#[cfg(test)]
mod installations;
mod libtorch;
#[expect(clippy::module_inception, reason = "the probe of one interpreter")]
mod probe;
mod python;

pub use autoload::{AUTOLOAD, EntryPoint, remedy};
pub use libtorch::{libtorch, probe_libtorch};
pub use probe::{IMPORT_PATIENCE, Observed, probe, probe_all};
pub use python::{Interpreter, python};
