//! What wakes the watcher: the end of the command, a signal, or the time for the next look.

use std::io;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind, signal};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::watch::command::program::Program;
use crate::watch::detector::monitor::PERIOD;

/// What the watcher has to react to.
pub enum Wake {
    /// The command has ended, with this exit code; an error if its end cannot be known.
    Ended(io::Result<u8>),
    /// The watcher has got a signal that asks it to end.
    Signal(Signal),
    /// It is time for the next look.
    Tick,
}

/// What wakes the watcher besides the end of the command.
pub struct Wakers {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    hangup: unix::Signal,
    ticks: Interval,
}

impl Wakers {
    /// Installs the handlers of signals.
    ///
    /// # Errors
    /// A handler cannot be installed.
    pub fn new() -> io::Result<Self> {
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            ticks,
        })
    }

    /// Waits for what comes next.
    pub async fn next(&mut self, program: &mut Program) -> Wake {
        tokio::select! {
            code = program.wait() => Wake::Ended(code),
            _ = self.interrupt.recv() => Wake::Signal(Signal::INT),
            _ = self.terminate.recv() => Wake::Signal(Signal::TERM),
            _ = self.hangup.recv() => Wake::Signal(Signal::HUP),
            _ = self.ticks.tick() => Wake::Tick,
        }
    }
}
