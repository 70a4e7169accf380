//! For how long a rank may keep others waiting in code of its own.

use crate::watch::trace::own_wait::OwnWait;

/// How long, in multiples of the user's patience, a rank that others wait for may be in a wait of its own (a lock, a
/// data loader, a breakpoint) before it is reported as behind.
pub const WAITING_PATIENCES: u32 = 3;
/// The same of a rank that is idle.
pub const IDLE_PATIENCES: u32 = 5;
/// The same of a rank at work.
pub const WORKING_PATIENCES: u32 = 10;

/// What a rank that others wait for does.
#[derive(Clone, Copy, Debug)]
pub struct LateRank {
    /// What it is in.
    pub wait: OwnWait,
    /// True if it may wait for requests for as long as there are none.
    pub is_served: bool,
    /// True if others wait for news from it, such as the next request.
    pub has_news: bool,
    /// True if processes below it work.
    pub has_work_below: bool,
    /// True if its interpreter has not answered for long.
    pub is_silent: bool,
    /// True if it is in a call, such as one of another world.
    pub is_in_call: bool,
    /// True if it works by itself.
    pub is_at_work: bool,
}

impl LateRank {
    /// Returns how many times the patience it may take; `None` if it may take for ever.
    #[must_use]
    pub fn patiences(self) -> Option<u32> {
        match self.wait {
            // It waits for ranks itself.
            _ if self.is_in_call && !self.is_silent => None,
            // A server waits for as long as there are none.
            OwnWait::Requests if self.is_served => None,
            // The device may wait for a collective of the other ranks that no dump shows, such as one of a CUDA graph.
            OwnWait::Device => None,
            OwnWait::Breakpoint | OwnWait::UnwokenEventLoop => Some(WAITING_PATIENCES),
            // Whatever may wake it is not seen: it gets as long as what works.
            OwnWait::EventLoop => Some(WORKING_PATIENCES),
            _ if self.has_work_below => Some(WORKING_PATIENCES),
            // There may be no news yet.
            OwnWait::Handover if self.has_news => Some(WORKING_PATIENCES),
            OwnWait::DataLoader | OwnWait::Lock | OwnWait::Handover => Some(WAITING_PATIENCES),
            // A training step does not keep the interpreter from answering for this long.
            _ if self.is_silent => Some(IDLE_PATIENCES),
            _ if self.is_at_work => Some(WORKING_PATIENCES),
            _ => Some(IDLE_PATIENCES),
        }
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
            has_news: true,
            has_work_below,
            is_silent: false,
            is_in_call: false,
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
        // Its device may wait for the ranks that wait for it.
        assert_eq!(times(OwnWait::Device, true), None);
        let left = LateRank {
            is_served: false,
            ..late(OwnWait::Requests, false)
        };
        assert_eq!(left.patiences(), Some(IDLE_PATIENCES));
        assert_eq!(times(OwnWait::EventLoop, false), Some(WORKING_PATIENCES));
        assert_eq!(times(OwnWait::Handover, false), Some(WORKING_PATIENCES));
        let awaited = LateRank {
            has_news: false,
            ..late(OwnWait::Handover, false)
        };
        assert_eq!(awaited.patiences(), Some(WAITING_PATIENCES));
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
        // The record of a silent interpreter may be old.
        let in_call = |late| LateRank {
            is_in_call: true,
            ..late
        };
        assert_eq!(in_call(working).patiences(), None);
        assert_eq!(in_call(silent).patiences(), Some(IDLE_PATIENCES));
    }
}
