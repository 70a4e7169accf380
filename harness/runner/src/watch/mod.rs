//! Runs any distributed program under the hang diagnosis, which looks at it from outside.
//!
//! In: a command. Out: [`Event`]s while it runs, and how it ended. The program needs no changes: its ranks are found by
//! their environments, their processes and sockets are looked at, and Python processes write a call trace ([`trace`]) of their
//! torch.distributed calls, by a module that Python itself loads at start. From these comes the [`evidence`] for
//! [`allranks_diagnose`]; [`detector`] decides when a verdict is reported.
//!
//! | module | holds |
//! |---|---|
//! | `command` | the command that is watched, and the process between it and the watcher |
//! | `trace` | what a Python process writes of its calls, and torch's flight recorder in it beside them |
//! | `recorder` | merges what torch's flight recorder knows of a rank with what its call trace saw |
//! | `ranks` | the ranks among the processes of a program |
//! | `endpoints` | the addresses at which ranks meet |
//! | `waits` | what a rank waits for besides its peers, and for how long it may |
//! | `evidence` | the hang evidence of one world, from its processes and their call traces |
//! | `detector` | when what is seen of a program is worth a report |
//! | `nodes` | what the watches of a job on several nodes tell each other, and the verdict from all of it |
//! | `attach` | looks at a job that was not started by this program |
//!
//! Each folder uses those above it in this table, and none below it.
//!
//! A run of the suite watches the programs that it starts itself by [`Monitor`].
//!
//! Linux only; elsewhere no ranks are found, and the command just runs.

mod attach;
mod command;
mod detector;
mod endpoints;
mod evidence;
mod nodes;
mod ranks;
mod recorder;
#[cfg(test)]
mod tests;
mod trace;
mod waits;

use std::io;

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

pub use attach::{Attached, attach};
pub use command::settings::{Ending, Settings};
pub use command::subreaper::subreaper;
pub use detector::event::Event;
pub use nodes::evidence_paths::is_evidence;
pub use nodes::node_evidence::EvidenceError;
pub use nodes::world_report::{WorldReport, judge};

pub(crate) use command::program::{FOLDER, unpack_modules};
pub(crate) use detector::monitor::{Monitor, PERIOD};

use command::program::Program;
use nodes::evidence_files::{EVIDENCE_LOOKS, EvidenceFiles};
use nodes::shared_job::SharedJob;

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
                Event::Verdict(_) => shared.is_some() || !event.is_of_stopped(),
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
