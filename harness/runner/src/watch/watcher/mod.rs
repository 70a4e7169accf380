//! Starts a command, looks at it again and again, and ends with it.

mod wakers;

use std::io;

use crate::watch::command::program::Program;
use crate::watch::command::settings::{Ending, Settings};
use crate::watch::detector::event::Event;
use crate::watch::detector::monitor::Monitor;
use crate::watch::nodes::evidence_files::{EVIDENCE_LOOKS, EvidenceFiles};
use crate::watch::nodes::shared_job::SharedJob;
use wakers::{Wake, Wakers};

/// Runs the command to its end and tells what is seen of it.
///
/// # Errors
/// The command cannot be started, or a signal handler cannot be installed.
pub async fn watch(settings: &Settings, tell: &mut dyn FnMut(Event)) -> io::Result<Ending> {
    let mut wakers = Wakers::new()?;
    let mut watcher = Watcher::start(settings, tell)?;
    let mut is_asked_to_end = false;
    loop {
        match wakers.next(&mut watcher.program).await {
            Wake::Ended(code) => return watcher.ended(code).await,
            Wake::Signal(signal) if is_asked_to_end => {
                let code = 128 + signal.as_raw() as u8;
                return Ok(watcher.kill(code, Ending::Interrupted(code)).await);
            }
            Wake::Signal(signal) => {
                is_asked_to_end = true;
                watcher.program.pass_on(signal);
            }
            // A verdict on ranks that are about to end by a signal is no news.
            Wake::Tick if is_asked_to_end => {}
            Wake::Tick => {
                if watcher.look() {
                    return Ok(watcher.kill(1, Ending::Verdict).await);
                }
            }
        }
    }
}

/// A command that runs, and what is seen of it.
struct Watcher<'a> {
    /// True if a verdict ends the command.
    kill_on_verdict: bool,
    /// Takes what is to be reported.
    tell: &'a mut dyn FnMut(Event),
    program: Program,
    monitor: Monitor,
    evidence: EvidenceFiles<'a>,
    /// What the watches of the job's other nodes know; `None` if this one judges alone.
    shared: Option<SharedJob>,
    /// Number of looks since the start, if there are such watches.
    looks: u32,
}

impl<'a> Watcher<'a> {
    /// Starts the command, and joins the watches of the job's other nodes if the settings name a folder that they share.
    ///
    /// # Errors
    /// The command cannot be started, or that folder cannot be written to.
    fn start(settings: &'a Settings, tell: &'a mut dyn FnMut(Event)) -> io::Result<Self> {
        let program = Program::start(settings)?;
        let shared = settings.evidence.as_deref().filter(|_| settings.is_shared);
        Ok(Self {
            kill_on_verdict: settings.kill_on_verdict,
            tell,
            monitor: Monitor::new(program.token(), program.call_traces(), settings.patience),
            program,
            evidence: EvidenceFiles::new(settings),
            shared: shared.map(SharedJob::join).transpose()?,
            looks: 0,
        })
    }

    /// Looks at the command's processes once. Returns true if a verdict that ends the command has been reported.
    fn look(&mut self) -> bool {
        let found = self.monitor.look();
        // The job is worth more than what is written of it.
        let lost = self.evidence.write(&self.monitor, !found.is_empty());
        let Some(events) = self.share(found) else {
            return true;
        };
        for event in lost.map(Event::Note).into_iter().chain(events) {
            let is_final = self.is_final(&event);
            (self.tell)(event);
            if is_final && self.kill_on_verdict {
                return true;
            }
        }
        false
    }

    /// Tells the watches of the other nodes, if there are any, what was found here. Returns what is to be reported here; `None` if
    /// another watch has reported a verdict that ends the command.
    fn share(&mut self, found: Vec<Event>) -> Option<Vec<Event>> {
        let Some(shared) = &mut self.shared else {
            return Some(found);
        };
        shared.note(&found);
        self.looks += 1;
        if !self.looks.is_multiple_of(EVIDENCE_LOOKS) {
            return Some(Vec::new());
        }
        // A file system that fails for a moment must not end the job; others see that no beat comes.
        let events = shared.look(self.monitor.unreached()).unwrap_or_default();
        if self.kill_on_verdict && events.is_empty() && shared.is_condemned() {
            return None;
        }
        Some(events)
    }

    /// Returns true if an event is a verdict on ranks that nothing will let go on. What has stopped a rank may.
    fn is_final(&self, event: &Event) -> bool {
        match event {
            Event::StillStopped => true,
            Event::Verdict(_) => self.shared.is_some() || !event.is_of_stopped(),
            _ => false,
        }
    }

    /// Kills the command, and tells the watches of other nodes that it ended with this exit code. Returns `ending`.
    async fn kill(mut self, code: u8, ending: Ending) -> Ending {
        self.end_processes().await;
        if let Some(shared) = &mut self.shared {
            // They see it without that, half a minute later.
            let _ = shared.end(code);
        }
        ending
    }

    /// Ends what the command has left behind, and either keeps its evidence for the other nodes or removes it.
    async fn ended(mut self, code: io::Result<u8>) -> io::Result<Ending> {
        self.end_processes().await;
        let code = code?;
        match &mut self.shared {
            Some(shared) => {
                // How its ranks ended may be what others wait for.
                self.monitor.job.look();
                self.evidence.write(&self.monitor, true);
                let _ = shared.end(code);
            }
            None if code == 0 => self.evidence.remove(),
            None => {}
        }
        Ok(Ending::Own(code))
    }

    /// Kills all processes, and reports what could not be killed.
    async fn end_processes(&mut self) {
        let left = self.program.kill().await;
        if !left.is_empty() {
            (self.tell)(Event::Unkilled(left));
        }
    }
}
