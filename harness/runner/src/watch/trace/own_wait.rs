//! Says what a rank is in at a line of its own code: how long it may keep others waiting there, and what to do about it.

use serde::{Deserialize, Serialize};

/// How long, in multiples of the user's patience, a rank that others wait for may be in a wait of its own (a lock, a
/// data loader, a breakpoint), idle, or at work, before it is reported as behind.
pub const WAITING_PATIENCES: u32 = 3;
pub const IDLE_PATIENCES: u32 = 5;
pub const WORKING_PATIENCES: u32 = 10;

/// What a rank is in at a line of its own code, by the frames of libraries below that line. `kind_of_place` of `allranks_trace.py` has
/// the same names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OwnWait {
    /// A breakpoint, or a debugger.
    #[serde(rename = "breakpoint")]
    Breakpoint,
    /// A data loader of torch.
    #[serde(rename = "data loader")]
    DataLoader,
    /// A backward pass.
    #[serde(rename = "backward")]
    Backward,
    /// Code of torch.
    #[serde(rename = "torch")]
    Torch,
    /// A wait for a process that it has started.
    #[serde(rename = "child process")]
    ChildProcess,
    /// An event loop that nothing can wake.
    #[serde(rename = "event loop")]
    EventLoop,
    /// An event loop that sleeps although callbacks are ready.
    #[serde(rename = "unwoken event loop")]
    UnwokenEventLoop,
    /// A wait for requests from outside of the job.
    #[serde(rename = "requests")]
    Requests,
    /// A lock, a queue, or a process of multiprocessing.
    #[serde(rename = "lock")]
    Lock,
    /// A wait at a connection.
    #[serde(rename = "connection")]
    Connection,
    /// Nothing that is known.
    #[default]
    #[serde(rename = "", other)]
    Unknown,
}

/// What a rank that others wait for does.
#[derive(Clone, Copy, Debug)]
pub struct LateRank {
    /// What it is in.
    pub wait: OwnWait,
    /// True if it may wait for requests for as long as there are none.
    pub is_served: bool,
    /// True if processes below it work.
    pub has_work_below: bool,
    /// True if its interpreter has not answered for long.
    pub is_silent: bool,
    /// True if it works by itself.
    pub is_at_work: bool,
}

impl LateRank {
    /// Returns how many times the patience it may take; `None` if it may take for ever.
    #[must_use]
    pub fn patiences(self) -> Option<u32> {
        match self.wait {
            // A server waits for as long as there are none.
            OwnWait::Requests if self.is_served => None,
            OwnWait::Breakpoint | OwnWait::UnwokenEventLoop => Some(WAITING_PATIENCES),
            // Whatever may wake it is not seen: it gets as long as what works.
            OwnWait::EventLoop => Some(WORKING_PATIENCES),
            _ if self.has_work_below => Some(WORKING_PATIENCES),
            OwnWait::DataLoader | OwnWait::Lock => Some(WAITING_PATIENCES),
            // A training step does not keep the interpreter from answering for this long.
            _ if self.is_silent => Some(IDLE_PATIENCES),
            _ if self.is_at_work => Some(WORKING_PATIENCES),
            _ => Some(IDLE_PATIENCES),
        }
    }
}

impl OwnWait {
    /// Returns what to do about a rank that is in it; `None` if nothing is known.
    #[must_use]
    pub fn advice(self) -> Option<&'static str> {
        Some(match self {
            Self::Breakpoint => {
                "a breakpoint or a debugger holds that rank: remove it, or let it go on"
            }
            Self::DataLoader => {
                "that rank waits for its data loader: try num_workers=0; look for workers that are stuck, or for a lock that was held at fork"
            }
            Self::Lock => {
                "that rank waits for a lock, a queue or a process of its own: look at which thread or process has it"
            }
            Self::ChildProcess => {
                "that rank waits for a process that it has started: look at what that process does"
            }
            Self::Connection => {
                "that rank waits for another process to send to it or to read: ss -tnp | grep PID says which; give the connection a timeout"
            }
            Self::UnwokenEventLoop => {
                "callbacks are ready in that rank's event loop, and it sleeps: what another thread gives to it (a queue's item, a future's result) must go through loop.call_soon_threadsafe or asyncio.run_coroutine_threadsafe"
            }
            Self::EventLoop => {
                "nothing can wake that rank's event loop: look for a task that has ended with an error, and for what should have set the future or event that is awaited there"
            }
            Self::Unknown | Self::Backward | Self::Torch | Self::Requests => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_works_gets_more_time_than_what_waits_and_a_server_any() {
        let late = |wait, has_work_below| LateRank {
            wait,
            is_served: true,
            has_work_below,
            is_silent: false,
            is_at_work: false,
        };
        let times = |wait, has_work_below| late(wait, has_work_below).patiences();
        assert_eq!(times(OwnWait::Lock, false), Some(WAITING_PATIENCES));
        assert_eq!(times(OwnWait::DataLoader, false), Some(WAITING_PATIENCES));
        // A pool of processes that tokenises, and a data loader that decodes.
        assert_eq!(times(OwnWait::Lock, true), Some(WORKING_PATIENCES));
        assert_eq!(times(OwnWait::DataLoader, true), Some(WORKING_PATIENCES));
        assert_eq!(times(OwnWait::ChildProcess, true), Some(WORKING_PATIENCES));
        assert_eq!(times(OwnWait::ChildProcess, false), Some(IDLE_PATIENCES));
        // Nothing below a rank brings it out of a debugger.
        assert_eq!(times(OwnWait::Breakpoint, true), Some(WAITING_PATIENCES));
        assert_eq!(times(OwnWait::Requests, false), None);
        let left = LateRank {
            is_served: false,
            ..late(OwnWait::Requests, false)
        };
        assert_eq!(left.patiences(), Some(IDLE_PATIENCES));
        assert_eq!(times(OwnWait::EventLoop, false), Some(WORKING_PATIENCES));
        let silent = LateRank {
            is_silent: true,
            is_at_work: true,
            ..late(OwnWait::Unknown, true)
        };
        assert_eq!(silent.patiences(), Some(WORKING_PATIENCES));
        let silent = LateRank {
            has_work_below: false,
            ..silent
        };
        assert_eq!(silent.patiences(), Some(IDLE_PATIENCES));
        let working = LateRank {
            is_silent: false,
            ..silent
        };
        assert_eq!(working.patiences(), Some(WORKING_PATIENCES));
    }

    #[test]
    fn the_names_are_those_of_the_call_trace_and_others_are_unknown() {
        let trace = include_str!("../../../python/allranks_watch/allranks_trace.py");
        let (_, rest) = trace.split_once("def kind_of_place").unwrap();
        let (body, _) = rest.split_once("\ndef ").unwrap();
        let mut returned = 0;
        for line in body.lines() {
            let Some(name) = line.trim().strip_prefix("return \"") else {
                continue;
            };
            let name = name.trim_end_matches('"');
            let wait: OwnWait = serde_json::from_str(&format!("\"{name}\"")).unwrap();
            assert_eq!(wait == OwnWait::Unknown, name.is_empty(), "{name}");
            assert_eq!(serde_json::to_string(&wait).unwrap(), format!("\"{name}\""));
            returned += 1;
        }
        assert!(returned > 9, "{returned}");
        let newer: OwnWait = serde_json::from_str("\"barrier of files\"").unwrap();
        assert_eq!(newer, OwnWait::Unknown);
    }
}
