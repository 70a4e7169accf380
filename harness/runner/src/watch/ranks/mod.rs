//! The ranks among the processes of a program.
//!
//! | module | holds |
//! |---|---|
//! | `job` | follows the ranks of a program over time |
//! | `script` | finds a shell script that may still start ranks |
//! | `lone_worlds` | finds processes that were started as one world and are each alone |
//! | `idle_launcher` | finds a launcher that waits for other nodes |
//! | `claimed_rank` | finds the ranks among processes by what they claim to be |
//! | `rank_process` | a process that is a rank |
//! | `worlds` | the worlds that ranks are in |

pub(super) mod claimed_rank;
pub(super) mod idle_launcher;
pub(super) mod job;
pub(super) mod lone_worlds;
pub(super) mod rank_process;
pub(super) mod script;
pub(super) mod worlds;
