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
//! | `evidence` | builds the hang evidence of a job |
//! | `compared_world` | describes each rank of one world, from its call trace |
//! | `sub_world` | finds a world that only some of a job's ranks are in |
//! | `hang_detector` | detects hangs in all worlds of a program |
//! | `world_detector` | decides when hang evidence of one world is reported |
//! | `late_rank` | how long a rank may keep others waiting, and what to do about it |
//! | `own_wait` | what a rank's own code waits in, and for how long it may |
//! | `below` | what the processes below ranks have used of the processor |
//! | `reach` | whether an endpoint that ranks dial can be reached |
//! | `evidence_files` | the files of one watch, written anew while its worlds live |
//! | `node_evidence` | keeps what one node has seen as a file, and merges the files of several |
//! | `shared_job` | judges the evidence of all nodes of a job while it runs |
//! | `other_watches` | the other watches of a job on several nodes, and which of them go on |
//! | `unreachable_master` | finds a rank 0 whose endpoint another host cannot reach |
//! | `member` | what one watch of a job on several nodes tells the others of itself |
//! | `lone_worlds` | finds processes that were started as one world and are each alone |
//! | `idle_launcher` | finds a launcher that waits for other nodes |
//! | `deadlock` | finds ranks whose threads wait for each other |
//! | `script` | finds a shell script that may still start ranks |
//! | `file_locks` | finds ranks that wait for the lock of a file |
//! | `shared_memory` | finds ranks that may wait for what another one writes into shared memory |
//! | `kernel_wait` | what a process waits for, by where it sleeps in the kernel |
//! | `attach` | looks at a job that was not started by this program |
//!
//! A run of the suite watches the programs that it starts itself by [`Monitor`].
//!
//! Linux only; elsewhere no ranks are found, and the command just runs.

mod attach;
mod below;
mod call_trace;
mod compared_world;
mod deadlock;
mod device_messages;
mod evidence;
mod evidence_files;
mod file_locks;
mod hang_detector;
mod hosts;
mod idle_launcher;
mod job;
mod kernel_wait;
mod late_rank;
mod lone_worlds;
mod member;
mod node_evidence;
mod other_watches;
mod own_wait;
mod program;
mod reach;
mod record;
mod recorder;
mod script;
mod shared_job;
mod shared_memory;
mod sub_world;
mod subreaper;
#[cfg(test)]
mod tests;
mod unreachable_master;
mod world_detector;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

pub use attach::{Attached, attach};
pub use hang_detector::Event;
pub use node_evidence::{EvidenceError, WorldReport, is_evidence, judge};
pub use subreaper::subreaper;

pub(crate) use program::{FOLDER, unpack_modules};

use allranks_model::diagnosis::Diagnosis;
use evidence_files::EvidenceFiles;
use hang_detector::HangDetector;
use job::Job;
use program::Program;
use shared_job::SharedJob;

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
    /// True if that folder is shared with the watches of the job's other nodes, and one verdict is reported for all.
    pub is_shared: bool,
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
    has_noted_lone: bool,
    /// When the monitor was made, and its patience; `None` once a rank, or a launcher without ranks, has been seen.
    without_ranks: Option<(Instant, Duration)>,
}

impl Monitor {
    /// Makes a monitor of the processes that carry this token, whose Python processes write call traces into this
    /// folder.
    pub(crate) fn new(token: &str, call_traces: &Path, patience: Duration) -> Self {
        Self {
            job: Job::new(token, call_traces),
            detector: HangDetector::new(patience),
            has_noted_lone: false,
            without_ranks: Some((Instant::now(), patience)),
        }
    }

    /// Looks at the processes again. Returns what must be reported. To be called every [`PERIOD`]; takes milliseconds.
    pub(crate) fn look(&mut self) -> Vec<Event> {
        self.job.look();
        let mut events = self.detector.consider(&mut self.job);
        if !self.has_noted_lone
            && let Some(text) = lone_worlds::lone_worlds(&self.job.living())
        {
            self.has_noted_lone = true;
            events.push(Event::Note(text));
        }
        events.extend(self.idle_launcher().map(Event::Note));
        events
    }

    /// Returns, once, a line on a launcher that has started no rank within the patience.
    fn idle_launcher(&mut self) -> Option<String> {
        let (since, patience) = self.without_ranks?;
        if !self.job.ranks().is_empty() {
            self.without_ranks = None;
            return None;
        }
        if since.elapsed() < patience {
            return None;
        }
        self.without_ranks = None;
        let pids = self.job.pids.iter();
        let commands: Vec<_> = pids
            .map(|pid| (*pid, allranks_host::arguments(*pid)))
            .collect();
        idle_launcher::idle_launcher(&commands, since.elapsed())
    }

    /// Returns the diagnosis at this moment, whether it is proved or not; none of a program without ranks.
    pub(crate) fn diagnosis(&mut self) -> Option<Diagnosis> {
        self.detector.diagnosis(&self.job)
    }

    /// Returns the endpoints that ranks dial and that cannot be reached from here, each with the reason.
    fn unreached(&mut self) -> Vec<(String, String)> {
        self.detector.unreached(&self.job)
    }

    /// Returns the version of torch that some process has imported, from its call trace; none if that is not known.
    pub(crate) fn torch(&self) -> Option<String> {
        self.job.torch()
    }
}

/// From one writing of evidence to the next, in looks.
const EVIDENCE_LOOKS: u32 = 8;

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
    let mut evidence = EvidenceFiles::new(settings);
    let shared = settings.evidence.as_deref().filter(|_| settings.is_shared);
    let mut shared = shared.map(SharedJob::join).transpose()?;
    let mut looks = 0_u32;
    let mut is_asked = false;
    loop {
        let [int, term, hup] = &mut signals;
        let asked = tokio::select! {
            code = program.wait() => {
                // Processes that it left behind.
                end(&mut program, tell).await;
                let code = code?;
                match &mut shared {
                    Some(shared) => {
                        // How its ranks ended may be what others wait for.
                        monitor.job.look();
                        evidence.write(&monitor, true);
                        let _ = shared.end(code);
                    }
                    None if code == 0 => evidence.remove(),
                    None => {}
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
                let code = 128 + asked.as_raw() as u8;
                leave(shared.as_mut(), code);
                return Ok(Ending::Interrupted(code));
            }
            is_asked = true;
            program.pass_on(asked);
            continue;
        }
        // A verdict on ranks that are about to end by a signal is no news.
        if is_asked {
            continue;
        }
        let mut events = monitor.look();
        // The job is worth more than what is written of it.
        let lost = evidence.write(&monitor, !events.is_empty());
        if let Some(shared) = &mut shared {
            shared.note(&events);
            events.clear();
            looks += 1;
            if looks.is_multiple_of(EVIDENCE_LOOKS) {
                // A file system that fails for a moment must not end the job; others see that no beat comes.
                events = shared.look(monitor.unreached()).unwrap_or_default();
                if settings.kill_on_verdict && events.is_empty() && shared.is_condemned() {
                    end(&mut program, tell).await;
                    leave(Some(shared), 1);
                    return Ok(Ending::Verdict);
                }
            }
        }
        for event in lost.map(Event::Note).into_iter().chain(events) {
            // What has stopped a rank may let it go on.
            let is_final = match &event {
                Event::StillStopped => true,
                Event::Verdict(_) => shared.is_some() || !hang_detector::is_of_stopped(&event),
                _ => false,
            };
            tell(event);
            if is_final && settings.kill_on_verdict {
                end(&mut program, tell).await;
                leave(shared.as_mut(), 1);
                return Ok(Ending::Verdict);
            }
        }
    }
}

/// Tells the watches of other nodes that this one ends, if there are any.
fn leave(shared: Option<&mut SharedJob>, code: u8) {
    if let Some(shared) = shared {
        // They see it without that, half a minute later.
        let _ = shared.end(code);
    }
}

/// Kills everything, and reports what could not be killed.
async fn end(program: &mut Program, tell: &mut dyn FnMut(Event)) {
    let left = program.kill().await;
    if !left.is_empty() {
        tell(Event::Unkilled(left));
    }
}
