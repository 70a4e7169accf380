//! Waits until a program has ended, or must be killed.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};

use super::own_delays::OwnDelays;
use super::seen::Stopped;
use crate::run::Shared;
use crate::watch::{self, Event, Monitor};
use crate::world::{Commands, RankExit};
use allranks_model::diagnosis::Diagnosis;
use allranks_model::names::{Rank, WorldSize};
use allranks_suite::case::{ExitCode, ProgramSpec};

/// The shortest sum of delays of the harness for which a program is given more time.
const LEAST_DELAY: Duration = Duration::from_millis(200);
/// The most time that a program is given for delays of the harness, as a multiple of what it may take.
const MOST_DELAYS: u32 = 9;

/// How a program ended, or why it must be killed now.
pub struct ProgramEnd {
    /// How the launcher's process ended; none if there is no launcher, or it has not ended.
    pub launcher: Option<RankExit>,
    /// Why it must be killed; none if it has ended.
    pub stopped: Option<Stopped>,
}

/// Waits for the program's end, a verdict, or the case's time limit. None if the run was interrupted.
pub async fn wait(
    shared: &Shared,
    (program, size): (&ProgramSpec, WorldSize),
    commands: &mut Commands,
    monitor: &mut Monitor,
) -> Option<ProgramEnd> {
    let began = Instant::now();
    let mut delays = OwnDelays::new(watch::PERIOD, began);
    let mut granted = Duration::ZERO;
    let mut ticks = tokio::time::interval(watch::PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut interrupt = shared.interrupt.clone();
    let mut launcher = None;
    let over = |launcher, stopped| Some(ProgramEnd { launcher, stopped });
    loop {
        tokio::select! {
            biased;
            ended = commands.next() => match ended {
                // With several commands each is a rank, with a single one it may be the launcher; the caller knows
                // which.
                Some((_, end)) => launcher = Some(worse(launcher, end)),
                None => return over(launcher, None),
            },
            () = interrupted(&mut interrupt) => return None,
            () = tokio::time::sleep_until(began + program.within.0 + granted) => {
                // The program gets the delays of the harness as additional time.
                let now = Instant::now();
                delays.begin(now);
                let more = delays.within(now - began, now).min(program.within.0 * MOST_DELAYS);
                if more > granted + LEAST_DELAY {
                    granted = more;
                    continue;
                }
                let diagnosis = tokio::task::block_in_place(|| monitor.diagnosis());
                return over(launcher, Some(Stopped::Overdue(diagnosis)));
            }
            _ = ticks.tick() => {
                let began_look = Instant::now();
                delays.begin(began_look);
                let events = tokio::task::block_in_place(|| monitor.look());
                let now = Instant::now();
                delays.end(began_look, now);
                for event in events {
                    match event {
                        Event::Verdict(diagnosis) if !accuses_only_failing_ranks(program, size, &diagnosis) => {
                            let took = Duration::try_from_secs_f64(diagnosis.after_s);
                            let delay = delays.within(took.unwrap_or_default(), now);
                            return over(launcher, Some(Stopped::Verdict(diagnosis, delay)));
                        }
                        Event::Verdict(_)
                        | Event::Still(..)
                        | Event::Moves
                        | Event::NotHung(_)
                        | Event::Note(_)
                        | Event::StillStopped
                        | Event::Unkilled(_) => {}
                    }
                }
            }
        }
    }
}

/// Returns the first of two ends of launchers that is a failure; the later one if neither is.
fn worse(earlier: Option<RankExit>, end: RankExit) -> RankExit {
    match earlier {
        Some(RankExit::Exited { code: 0, .. }) | None => end,
        Some(failed) => failed,
    }
}

/// Returns true if the verdict accuses only ranks that must fail according to the case, and the case expects no hang. The
/// program then goes on, so that the other ranks have the time to notice the failure.
fn accuses_only_failing_ranks(
    program: &ProgramSpec,
    size: WorldSize,
    diagnosis: &Diagnosis,
) -> bool {
    let must_fail = |rank: &Rank| {
        let exit = program.exit_of(*rank, size);
        exit.is_some_and(ExitCode::is_failure) || program.exit_before(*rank, size).is_failure()
    };
    program.hang.is_none()
        && !diagnosis.culprits.is_empty()
        && diagnosis.culprits.iter().all(must_fail)
}

/// Returns when the run is interrupted. Never returns if it cannot be interrupted any more.
async fn interrupted(interrupt: &mut tokio::sync::watch::Receiver<bool>) {
    if interrupt.wait_for(|set| *set).await.is_err() {
        // The sender is gone, so the run cannot be interrupted any more.
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allranks_diagnose::{HangEvidence, diagnose};

    #[test]
    fn a_verdict_on_ranks_that_must_fail_does_not_end_the_program() {
        let program = |yaml: &str| -> ProgramSpec {
            serde_yaml::from_str(&format!("run: [x]\n{yaml}")).unwrap()
        };
        let on = |culprits: &[u32]| Diagnosis {
            culprits: culprits.iter().copied().map(Rank).collect(),
            ..diagnose(&HangEvidence::default())
        };
        let ends_program = |yaml: &str, diagnosis: &Diagnosis| {
            !accuses_only_failing_ranks(&program(yaml), WorldSize(3), diagnosis)
        };
        assert!(ends_program("lines: [a]", &on(&[2])));
        let fails = "exit: [{on: last, is: 42}]";
        assert!(!ends_program(fails, &on(&[2])));
        assert!(ends_program(fails, &on(&[1, 2])) && ends_program(fails, &on(&[])));
        let any = "exit: [{on: last, is: any}]";
        assert!(ends_program(any, &on(&[2])));
        let hangs = format!("{fails}\nhang: {{kind: peer-dead, culprit: last}}");
        assert!(ends_program(&hangs, &on(&[2])));
    }
}
