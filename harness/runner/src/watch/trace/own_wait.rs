//! Says what a rank is in at a line of its own code, and what to do about it.

use serde::{Deserialize, Serialize};

/// What a rank is in at a line of its own code, by the frames of libraries below that line. `kind_of_place` of `allranks_place.py` has
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
    /// A call that waits until an accelerator has done what it was given, such as `Tensor.item()`.
    #[serde(rename = "device")]
    Device,
    /// A wait for a process that it has started.
    #[serde(rename = "child process")]
    ChildProcess,
    /// An event loop that nothing can wake.
    #[serde(rename = "event loop")]
    EventLoop,
    /// An event loop that sleeps although callbacks are ready.
    #[serde(rename = "unwoken event loop")]
    UnwokenEventLoop,
    /// A wait for requests from outside of the job, or for answers of other ranks.
    #[serde(rename = "requests")]
    Requests,
    /// A lock, a queue, or a process of multiprocessing.
    #[serde(rename = "lock")]
    Lock,
    /// A lock or a queue, while another thread of its own pauses or waits for another process, and may hand something over later.
    #[serde(rename = "handover")]
    Handover,
    /// A wait at a connection.
    #[serde(rename = "connection")]
    Connection,
    /// Nothing that is known.
    #[default]
    #[serde(rename = "", other)]
    Unknown,
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
            Self::Lock | Self::Handover => {
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
            Self::Unknown | Self::Backward | Self::Torch | Self::Device | Self::Requests => {
                return None;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_those_of_the_call_trace_and_others_are_unknown() {
        let trace = include_str!("../../../python/allranks_watch/allranks_place.py");
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
