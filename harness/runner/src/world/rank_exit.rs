//! How a rank's process ended.

use std::fmt;

/// How a rank's process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RankExit {
    /// It called exit; what it had started and left running was `left_behind` processes, now killed.
    Exited {
        /// Exit code.
        code: i32,
        /// Processes it left.
        left_behind: u32,
    },
    /// A signal killed it.
    Signalled(i32),
    /// It never started.
    NotStarted(String),
    /// Nobody can tell.
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
            Self::Unknown(why) => write!(f, "unknown: {why}"),
        }
    }
}

/// Names of the signals that end ranks in practice; numbers of Linux and macOS where they agree.
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
