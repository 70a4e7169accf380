//! The command that is watched, and the process between it and the watcher.
//!
//! | module | holds |
//! |---|---|
//! | `program` | starts the command, passes signals on, kills what it leaves |
//! | `subreaper` | the process between the watcher and the command |
//! | `settings` | what is watched, and how it ended |

pub(super) mod program;
pub(super) mod settings;
pub(super) mod subreaper;
