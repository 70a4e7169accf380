//! Any distributed program under the hang diagnosis, seen from outside.
//!
//! In: a command. Out: [`Event`]s while it runs, and how it ended. The program is not asked for anything: its ranks are
//! found by their environments, their processes and sockets are looked at, and Python processes keep a [`call_trace`] of
//! their torch.distributed calls, by a module that Python itself loads at start. From these, [`evidence`] for
//! [`allranks_diagnose`]; [`hang_detector`] decides when there is something to say.
//!
//! | module | holds |
//! |---|---|
//! | `program` | starting the command, passing signals on, killing what it leaves |
//! | `guard` | the process between this one and the command |
//! | `call_trace` | what a Python process writes down |
//! | `job` | which processes are ranks |
//! | `hosts` | which addresses are the same place |
//! | `evidence` | what all that says of each rank |
//! | `hang_detector` | when to speak |
//! | `node_evidence` | what one node has seen, as a file, and the verdict on the files of several |
//! | `attach` | a job that was not started by this program |
//!
//! [`Monitor`] is the part of it that a run of the suite uses for the programs it starts itself.
//!
//! Linux only; elsewhere no ranks are found, and the command just runs.

mod attach;
mod call_trace;
mod evidence;
mod guard;
mod hang_detector;
mod hosts;
mod job;
mod node_evidence;
mod program;
mod recorder;
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
pub use guard::guard;
pub use hang_detector::Event;
pub use node_evidence::{EvidenceError, WorldReport, is_evidence, judge};

pub(crate) use program::{FOLDER, unpack_modules};

use allranks_model::diagnosis::Diagnosis;
use hang_detector::HangDetector;
use job::Job;
use node_evidence::NodeEvidence;
use program::Program;

/// From one look to the next.
pub(crate) const PERIOD: Duration = Duration::from_millis(250);

/// What to watch, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The command.
    pub command: Vec<OsString>,
    /// This program, which runs the guard.
    pub binary: PathBuf,
    /// Whether Python processes keep a diary.
    pub stacks: bool,
    /// After how long without any progress something is said even if nothing is proved.
    pub patience: Duration,
    /// Whether a verdict ends the program.
    pub kill_on_verdict: bool,
    /// The folder for what is seen of each world, to be judged together with what other nodes see.
    pub evidence: Option<PathBuf>,
}

/// How a watched command came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself: its exit code, or 128 and the number of the signal.
    Own(u8),
    /// A verdict ended it.
    Verdict,
    /// Whoever started it ended it, by two signals: 128 and the number of the last.
    Interrupted(u8),
}

/// Looks at the processes of one program from outside.
#[derive(Debug)]
pub(crate) struct Monitor {
    job: Job,
    vigil: HangDetector,
}

impl Monitor {
    /// Looks at the processes that carry this token, whose Python processes keep diaries in that folder.
    pub(crate) fn new(token: &str, diaries: &Path, patience: Duration) -> Self {
        Self {
            job: Job::new(token, diaries),
            vigil: HangDetector::new(patience),
        }
    }

    /// Looks again: what there is to say. To be called every [`PERIOD`]; takes milliseconds.
    pub(crate) fn look(&mut self) -> Vec<Event> {
        self.job.look();
        self.vigil.consider(&mut self.job)
    }

    /// What can be said of it now, whether anything is proved or not; none of a program without ranks.
    pub(crate) fn diagnosis(&mut self) -> Option<Diagnosis> {
        self.vigil.diagnosis(&self.job)
    }

    /// The version of torch that some process has imported, as its diary says.
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
    fn keep(&mut self, monitor: &Monitor, is_told: bool) -> io::Result<()> {
        let Some(folder) = &self.settings.evidence else {
            return Ok(());
        };
        self.looks += 1;
        if !is_told && !self.looks.is_multiple_of(EVIDENCE_LOOKS) {
            return Ok(());
        }
        let mut living = BTreeMap::new();
        for (ranks, still) in monitor.vigil.stills(&monitor.job) {
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
/// It cannot be started, or the machine does not let it be watched.
pub async fn watch(settings: &Settings, tell: &mut dyn FnMut(Event)) -> io::Result<Ending> {
    let mut signals = [
        (Signal::INT, signal(SignalKind::interrupt())?),
        (Signal::TERM, signal(SignalKind::terminate())?),
        (Signal::HUP, signal(SignalKind::hangup())?),
    ];
    let mut program = Program::start(settings)?;
    let mut lookout = Monitor::new(program.token(), program.diaries(), settings.patience);
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
                // What it left behind.
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
        // Who is about to end by a signal is no news.
        if is_asked {
            continue;
        }
        let events = lookout.look();
        evidence.keep(&lookout, !events.is_empty())?;
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

/// Kills everything, and tells what could not be killed.
async fn end(program: &mut Program, tell: &mut dyn FnMut(Event)) {
    let left = program.kill().await;
    if !left.is_empty() {
        tell(Event::Unkilled(left));
    }
}
