//! How a rank's process ended.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a rank's process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankExit {
    /// It exited. Processes that it had started and left running have been killed.
    Exited {
        /// The exit code.
        code: i32,
        /// Number of processes that it left running.
        left_behind: u32,
    },
    /// This signal ended it.
    Signalled(i32),
    /// It could not be started; the text says why.
    NotStarted(String),
    /// The machine could not start it, or something on the machine ended what runs it: it tells nothing about the rank. The text
    /// says what happened.
    MachineFault(String),
    /// How it ended is not known; the text says why.
    Unknown(String),
}

impl fmt::Display for RankExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited { code, .. } => write!(f, "exit {code}"),
            Self::Signalled(signal) => match signal_name(*signal) {
                Some(name) => write!(f, "signal {signal} ({name})"),
                None => write!(f, "signal {signal}"),
            },
            Self::NotStarted(why) => write!(f, "not started: {why}"),
            Self::MachineFault(why) => write!(f, "{why}"),
            Self::Unknown(why) => write!(f, "unknown: {why}"),
        }
    }
}

/// Returns the name of a signal that ends ranks in practice, if Linux and macOS have the same number for it; otherwise
/// none.
fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        _ => return None,
    })
}
