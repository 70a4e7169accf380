//! Runs any distributed program under the hang diagnosis, which looks at it from outside.
//!
//! In: a command. Out: [`Event`]s while it runs, and how it ended. The program needs no changes: its ranks are found by
//! their environments, their processes and sockets are looked at, and Python processes write a [`call_trace`] of their
//! torch.distributed calls, by a module that Python itself loads at start. From these comes the [`evidence`] for
//! [`allranks_diagnose`]; [`hang_detector`] decides when a verdict is reported.
//!
//! | module | holds |
//! |---|---|
//! | `program` | starts the command, passes signals on, kills what it leaves |
//! | `subreaper` | the process between the watcher and the command |
//! | `call_trace` | reads what a Python process writes of its calls |
//! | `record` | reads what torch's flight recorder writes |
//! | `recorder` | puts the recorded collectives into the call trace |
//! | `device_messages` | finds the messages that a rank's device has not carried out |
//! | `job` | finds the ranks among the processes |
//! | `hosts` | decides which addresses name the same host |
//! | `evidence` | builds the hang evidence of each rank |
//! | `hang_detector` | decides when hang evidence is reported |
//! | `below` | what the processes below ranks have used of the processor |
//! | `reach` | whether an endpoint that ranks dial can be reached |
//! | `node_evidence` | keeps what one node has seen as a file, and merges the files of several |
//! | `attach` | looks at a job that was not started by this program |
//!
//! A run of the suite watches the programs that it starts itself by [`Monitor`].
//!
//! Linux only; elsewhere no ranks are found, and the command just runs.

mod attach;
mod below;
mod call_trace;
mod device_messages;
mod evidence;
mod hang_detector;
mod hosts;
mod job;
mod node_evidence;
mod program;
mod reach;
mod record;
mod recorder;
mod subreaper;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

pub use attach::{Attached, attach};
pub use hang_detector::Event;
pub use node_evidence::{EvidenceError, WorldReport, is_evidence, judge};
pub use subreaper::subreaper;

pub(crate) use program::{FOLDER, unpack_modules};

use allranks_model::diagnosis::Diagnosis;
use hang_detector::HangDetector;
use job::Job;
use node_evidence::NodeEvidence;
use program::Program;

/// Interval between two looks.
pub(crate) const PERIOD: Duration = Duration::from_millis(250);

/// What is watched, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// Path of the allranks binary, which runs the subreaper.
    pub binary: PathBuf,
    /// True if Python processes write call traces.
    pub stacks: bool,
    /// How long nothing moves before a verdict or a report that is not proved.
    pub patience: Duration,
    /// True if a verdict ends the program.
    pub kill_on_verdict: bool,
    /// The folder for what is seen of each world, to be judged together with what other nodes see.
    pub evidence: Option<PathBuf>,
}

/// How a watched command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself: its exit code, or 128 and the number of the signal.
    Own(u8),
    /// Killed because of a verdict.
    Verdict,
    /// Killed after two signals to the watcher: 128 and the number of the last.
    Interrupted(u8),
}

/// Looks at the processes of one program from outside.
#[derive(Debug)]
pub(crate) struct Monitor {
    job: Job,
    detector: HangDetector,
}

impl Monitor {
    /// Makes a monitor of the processes that carry this token, whose Python processes write call traces into this
    /// folder.
    pub(crate) fn new(token: &str, call_traces: &Path, patience: Duration) -> Self {
        Self {
            job: Job::new(token, call_traces),
            detector: HangDetector::new(patience),
        }
    }

    /// Looks at the processes again. Returns what must be reported. To be called every [`PERIOD`]; takes milliseconds.
    pub(crate) fn look(&mut self) -> Vec<Event> {
        self.job.look();
        self.detector.consider(&mut self.job)
    }

    /// Returns the diagnosis at this moment, whether it is proved or not; none of a program without ranks.
    pub(crate) fn diagnosis(&mut self) -> Option<Diagnosis> {
        self.detector.diagnosis(&self.job)
    }

    /// Returns the version of torch that some process has imported, from its call trace; none if that is not known.
    pub(crate) fn torch(&self) -> Option<String> {
        self.job.torch()
    }
}

/// From one writing of evidence to the next, in looks.
const EVIDENCE_LOOKS: u32 = 8;

/// Writes what is seen of each world into files of a folder.
#[derive(Debug)]
struct EvidenceFiles<'a> {
    settings: &'a Settings,
    looks: u32,
    /// By world: its file, and when the first of its ranks was seen.
    files: BTreeMap<String, (PathBuf, f64)>,
}

impl EvidenceFiles<'_> {
    /// Writes every few looks, and when there is something to tell. A world of which no rank lives keeps the file that was written last, unless another one lives.
    fn keep(&mut self, monitor: &Monitor, is_reported: bool) -> io::Result<()> {
        let Some(folder) = &self.settings.evidence else {
            return Ok(());
        };
        self.looks += 1;
        if !is_reported && !self.looks.is_multiple_of(EVIDENCE_LOOKS) {
            return Ok(());
        }
        let mut living = BTreeMap::new();
        for (ranks, still) in monitor.detector.stills(&monitor.job) {
            let Some(key) = ranks.first().map(|(_, process)| process.place()) else {
                continue;
            };
            let began = self
                .files
                .get(&key)
                .map_or_else(node_evidence::now, |(_, began)| *began);
            let is_whole = evidence::is_whole(&ranks, true);
            let one = NodeEvidence::of(&ranks, began, still, self.settings.patience, is_whole);
            living.insert(key, (one.write(folder)?, began));
        }
        if !living.is_empty() {
            let past = std::mem::replace(&mut self.files, living);
            for (path, _) in past.values() {
                if !self.files.values().any(|(kept, _)| kept == path) {
                    let _ = std::fs::remove_file(path);
                }
            }
        }
        Ok(())
    }

    /// Nothing hangs that has ended well.
    fn remove(&self) {
        for (path, _) in self.files.values() {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Runs the command to its end and tells what is seen of it.
///
/// # Errors
/// The command cannot be started, or a signal handler cannot be installed.
pub async fn watch(settings: &Settings, tell: &mut dyn FnMut(Event)) -> io::Result<Ending> {
    let mut signals = [
        (Signal::INT, signal(SignalKind::interrupt())?),
        (Signal::TERM, signal(SignalKind::terminate())?),
        (Signal::HUP, signal(SignalKind::hangup())?),
    ];
    let mut program = Program::start(settings)?;
    let mut monitor = Monitor::new(program.token(), program.call_traces(), settings.patience);
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut evidence = EvidenceFiles {
        settings,
        looks: 0,
        files: BTreeMap::new(),
    };
    let mut is_asked = false;
    loop {
        let [int, term, hup] = &mut signals;
        let asked = tokio::select! {
            code = program.wait() => {
                // Processes that it left behind.
                end(&mut program, tell).await;
                let code = code?;
                if code == 0 {
                    evidence.remove();
                }
                return Ok(Ending::Own(code));
            }
            _ = int.1.recv() => Some(int.0),
            _ = term.1.recv() => Some(term.0),
            _ = hup.1.recv() => Some(hup.0),
            _ = ticks.tick() => None,
        };
        if let Some(asked) = asked {
            if is_asked {
                end(&mut program, tell).await;
                return Ok(Ending::Interrupted(128 + asked.as_raw() as u8));
            }
            is_asked = true;
            program.pass_on(asked);
            continue;
        }
        // A verdict on ranks that are about to end by a signal is no news.
        if is_asked {
            continue;
        }
        let events = monitor.look();
        evidence.keep(&monitor, !events.is_empty())?;
        for event in events {
            let is_verdict = matches!(event, Event::Verdict(_));
            tell(event);
            if is_verdict && settings.kill_on_verdict {
                end(&mut program, tell).await;
                return Ok(Ending::Verdict);
            }
        }
    }
}

/// Kills everything, and reports what could not be killed.
async fn end(program: &mut Program, tell: &mut dyn FnMut(Event)) {
    let left = program.kill().await;
    if !left.is_empty() {
        tell(Event::Unkilled(left));
    }
}
