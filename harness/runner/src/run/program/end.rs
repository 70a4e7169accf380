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

/// Delays of the harness for which a program is given more time. Shorter ones do not count.
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
            () = asked(&mut interrupt) => return None,
            () = tokio::time::sleep_until(began + program.within.0 + granted) => {
                // What the harness itself was late by, the program has more: once it is seen what has happened meanwhile.
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
                let looks = Instant::now();
                delays.begin(looks);
                let events = tokio::task::block_in_place(|| monitor.look());
                let now = Instant::now();
                delays.end(looks, now);
                for event in events {
                    match event {
                        Event::Verdict(diagnosis) if !is_as_it_is_to(program, size, &diagnosis) => {
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

/// Returns true if each culprit of the verdict is a rank that the case says must fail, and no hang is expected: the
/// other ranks are then left the time to notice by themselves.
fn is_as_it_is_to(program: &ProgramSpec, size: WorldSize, diagnosis: &Diagnosis) -> bool {
    let is_to_fail = |rank: &Rank| {
        let exit = program.exit_of(*rank, size);
        exit.is_some_and(ExitCode::is_failure) || program.exit_before(*rank, size).is_failure()
    };
    program.hang.is_none()
        && !diagnosis.culprits.is_empty()
        && diagnosis.culprits.iter().all(is_to_fail)
}

/// Returns when the run is interrupted; never, if it cannot be any more.
async fn asked(interrupt: &mut tokio::sync::watch::Receiver<bool>) {
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
    fn a_verdict_on_ranks_that_are_to_fail_is_no_news() {
        let program = |yaml: &str| -> ProgramSpec {
            serde_yaml::from_str(&format!("run: [x]\n{yaml}")).unwrap()
        };
        let on = |culprits: &[u32]| Diagnosis {
            culprits: culprits.iter().copied().map(Rank).collect(),
            ..diagnose(&HangEvidence::default())
        };
        let is_news = |yaml: &str, diagnosis: &Diagnosis| {
            !is_as_it_is_to(&program(yaml), WorldSize(3), diagnosis)
        };
        assert!(is_news("lines: [a]", &on(&[2])));
        let fails = "exit: [{on: last, is: 42}]";
        assert!(!is_news(fails, &on(&[2])));
        assert!(is_news(fails, &on(&[1, 2])) && is_news(fails, &on(&[])));
        let any = "exit: [{on: last, is: any}]";
        assert!(is_news(any, &on(&[2])));
        let hangs = format!("{fails}\nhang: {{kind: peer-dead, culprit: last}}");
        assert!(is_news(&hangs, &on(&[2])));
    }
}
