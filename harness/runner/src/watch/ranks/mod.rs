//! The ranks among the processes of a program.
//!
//! | module | holds |
//! |---|---|
//! | `job` | finds the ranks among the processes |
//! | `script` | finds a shell script that may still start ranks |
//! | `lone_worlds` | finds processes that were started as one world and are each alone |
//! | `idle_launcher` | finds a launcher that waits for other nodes |

pub(super) mod idle_launcher;
pub(super) mod job;
pub(super) mod lone_worlds;
pub(super) mod script;
