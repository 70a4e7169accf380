//! Judges what a program's ranks left behind. Every rank votes: a rank that left nothing is a failure.
//!
//! In: the case's program and what was seen. Out: a [`CheckResult`] for each [`ProgramCheck`], and for the two checks
//! of every scenario.
//! Nothing here looks at a process or a file.

use std::fmt::Write;

use super::lines::LineMatch;
use super::placement_faults::{placement_faults, sum_of_local_sizes};
use super::seen::{ProgramRanks, RankSeen, Stopped};
use crate::check_result::CheckResult;
use crate::world::{ExitRecord, RankAssignment, RankExit};
use allranks_diagnose::list;
use allranks_model::names::{Rank, WorldSize};
use allranks_model::outcome::Outcome;
use allranks_model::placement::Placement;
use allranks_model::record::RankLine;
use allranks_suite::case::{ExitCode, ProgramSpec};
use allranks_suite::plan::{ProgramCheck, hang};

/// The longest quotation of a log line, in characters.
const MAX_QUOTE: usize = 160;

/// The facts that a program's checks are judged by.
pub struct ProgramEvidence<'a> {
    /// What the case says of the program.
    pub program: &'a ProgramSpec,
    /// The number of its ranks.
    pub size: WorldSize,
    /// Where the plan has the ranks.
    pub placement: &'a Placement,
    /// What was seen of its processes.
    pub seen: &'a ProgramRanks,
}

/// What is wrong with one rank: the outcome and class of a check in which nothing else is wrong, and the rank's line.
struct RankFault {
    outcome: Outcome,
    class: &'static str,
    line: RankLine,
}

impl ProgramEvidence<'_> {
    /// Judges the check `init`: every rank must have been started, at the place that the plan has for it, and the local sizes
    /// that the launcher told must add up to the world size.
    pub fn init(&self) -> CheckResult {
        let faults = self.faults(|_, rank| {
            let text = match &rank.exit_record {
                None if rank.has_begun() => format!(
                    "it was started {}; it must be {}",
                    times(rank.starts()),
                    times(rank.earlier.len() + 1)
                ),
                None => "it was never started".to_owned(),
                Some(ExitRecord {
                    error: Some(error), ..
                }) => format!("it could not be started: {error}"),
                Some(_) => return None,
            };
            Some((Outcome::InitFailed, "not-started", text))
        });
        if !faults.is_empty() {
            return self.verdict(faults);
        }
        let assignments: Vec<Option<&RankAssignment>> =
            self.seen.ranks.iter().map(RankSeen::assignment).collect();
        let faults = placement_faults(self.placement, self.size, &assignments).into_iter();
        let faults = faults.map(|line| RankFault {
            outcome: Outcome::InitFailed,
            class: "placement",
            line,
        });
        let found = self.verdict(faults.collect());
        match sum_of_local_sizes(&assignments) {
            Some(sum) if sum != self.size.0 => CheckResult {
                summary: format!(
                    "{}; the local sizes of all nodes add up to {sum}, and the world has {} ranks",
                    found.summary, self.size
                ),
                ..found
            },
            Some(_) | None => found,
        }
    }

    /// Judges the check `end`: the program must end by itself, unless the case expects a hang, and leave no
    /// process behind.
    pub fn end(&self) -> CheckResult {
        if let Some(stopped) = &self.seen.stopped
            && self.program.hang.is_none()
        {
            return CheckResult::bare(Outcome::Hang, Some("killed"), self.why_killed(stopped));
        }
        let orphans = &self.seen.orphans;
        let Some((owner, _)) = orphans.first() else {
            return CheckResult::passed(vec![1; self.size.count()]);
        };
        let left = match owner {
            Some(rank) => format!("rank {rank} left"),
            None => "it left".to_owned(),
        };
        let ranks = orphans
            .iter()
            .filter_map(|(owner, what)| {
                Some(RankLine {
                    rank: (*owner)?,
                    text: format!("left behind: {what}"),
                })
            })
            .collect();
        let of_all = match orphans.len() {
            1 => String::new(),
            count => format!(" ({count} processes in all)"),
        };
        let summary = format!("{left} a process running: {}{of_all}", orphans[0].1);
        CheckResult {
            ranks,
            ..CheckResult::bare(Outcome::Crash, Some("left-behind"), summary)
        }
    }

    /// Judges one check of the program.
    pub fn judge(&self, program_check: ProgramCheck) -> CheckResult {
        match program_check {
            ProgramCheck::Exit => self.exits(),
            ProgramCheck::LauncherExit => self.launcher(),
            ProgramCheck::Line(index) => self.line(index),
            ProgramCheck::Never(index) => self.never(index),
            ProgramCheck::Verdict => self.hang(),
        }
    }

    fn exits(&self) -> CheckResult {
        let faults = self.faults(|number, rank| {
            if let Some(text) = self.earlier_end(number, rank) {
                return Some((Outcome::Mismatch, "exit-code", text));
            }
            let asked = self.program.exit_of(number, self.size)?;
            let end = rank.end();
            if end.as_ref().is_some_and(|end| is_required_end(end, asked)) {
                return None;
            }
            let (outcome, class, said) = match &end {
                Some(RankExit::Exited { code: 0, .. }) => {
                    (Outcome::Mismatch, "exit-code", "exit 0".to_owned())
                }
                Some(end @ RankExit::Signalled(_)) => (Outcome::Crash, "signal", end.to_string()),
                Some(end) => (Outcome::Crash, "exit-code", end.to_string()),
                // The summary then says that the program was killed.
                None if self.seen.stopped.is_some() && rank.has_begun() => {
                    (Outcome::Hang, "hang", "it had not ended".to_owned())
                }
                None => {
                    let said = match rank.has_begun() {
                        true => "its end was not recorded: its launcher, or the rank itself, killed the rank wrapper",
                        false => "it was never started",
                    };
                    (Outcome::Crash, "no-exit-record", said.to_owned())
                }
            };
            let text = format!("{said}; it must be {asked}{}", quoted_last_line(rank));
            Some((outcome, class, text))
        });
        match &self.seen.stopped {
            Some(stopped) if !faults.is_empty() => {
                let finding =
                    CheckResult::bare(Outcome::Hang, Some("hang"), self.why_killed(stopped));
                CheckResult {
                    ranks: lines(faults),
                    diagnosis: stopped.diagnosis().cloned().map(Box::new),
                    ..finding
                }
            }
            Some(_) | None => self.verdict(faults),
        }
    }

    /// Returns what is wrong with how a rank ended in a start before the last; none if nothing is.
    fn earlier_end(&self, number: Rank, rank: &RankSeen) -> Option<String> {
        let asked = self.program.exit_before(number, self.size);
        let mut starts = (1..).zip(&rank.earlier);
        starts.find_map(|(start, record)| {
            let end = record.as_ref().and_then(ExitRecord::end);
            match end {
                Some(end) if is_required_end(&end, asked) => None,
                Some(end) => Some(format!("{end} in start {start}; it must be {asked}")),
                None => Some(format!("the end of its start {start} was not recorded")),
            }
        })
    }

    /// Judges whether the launcher's exit code is a failure exactly if it must be.
    fn launcher(&self) -> CheckResult {
        let must_succeed = self.program.launcher_succeeds(self.size);
        let succeeded = match &self.seen.launcher {
            Some(RankExit::Exited { code, .. }) => Some(*code == 0),
            Some(RankExit::MachineFault(why)) => {
                return CheckResult::bare(Outcome::HarnessError, Some("machine"), why.clone());
            }
            Some(RankExit::Signalled(_) | RankExit::NotStarted(_) | RankExit::Unknown(_)) => {
                Some(false)
            }
            None => None,
        };
        if succeeded.is_some() && succeeded == must_succeed {
            return CheckResult::passed(vec![1; self.size.count()]);
        }
        let ended = match &self.seen.launcher {
            Some(end) => end.to_string(),
            None => "it had not ended".to_owned(),
        };
        let must = match must_succeed {
            Some(true) => "exit 0, for no rank was to fail",
            Some(false) => "a failure, for a rank was to fail",
            None => "anything",
        };
        let outcome = match succeeded {
            None => Outcome::Hang,
            Some(true) => Outcome::Mismatch,
            Some(false) => Outcome::Crash,
        };
        CheckResult {
            ranks: self.ends(),
            ..CheckResult::bare(
                outcome,
                Some("launcher-exit"),
                format!("torchrun ended with {ended}; it must be {must}"),
            )
        }
    }

    fn line(&self, index: usize) -> CheckResult {
        let asked = &self.program.lines[index].line;
        let outcome = match self.seen.stopped {
            Some(_) => Outcome::Hang,
            None => Outcome::Mismatch,
        };
        let faults = self.faults(|_, rank| match rank.log_matches.lines[index] {
            LineMatch::NotRequired | LineMatch::Found(_) => None,
            LineMatch::TooEarly(number) => {
                let text = format!(
                    "printed `{asked}` on line {number} of its log, before what must come first"
                );
                Some((outcome, "line-too-early", text))
            }
            LineMatch::Missing => {
                let text = format!("did not print `{asked}`{}", quoted_last_line(rank));
                Some((outcome, "line-missing", text))
            }
        });
        self.verdict(faults)
    }

    fn never(&self, index: usize) -> CheckResult {
        let faults = self.faults(|_, rank| {
            let (number, line) = rank.log_matches.never[index].as_ref()?;
            let text = format!(
                "printed on line {number} of its log what must not be there: {}",
                quoted(line)
            );
            Some((Outcome::Mismatch, "line-forbidden", text))
        });
        // A rank that never started printed nothing, which is no proof of its silence.
        let silent = self.seen.ranks.iter().any(|rank| !rank.has_begun());
        match faults.is_empty() && silent {
            true => self.init(),
            false => self.verdict(faults),
        }
    }

    fn hang(&self) -> CheckResult {
        let Some(spec) = &self.program.hang else {
            return CheckResult::bare(Outcome::HarnessError, None, "no verdict was asked for");
        };
        let wanted = hang(spec, self.size);
        let blamed = list(&wanted.culprits);
        let must = format!("it must be {} of rank {blamed}", wanted.kind);
        let (fault, diagnosis) = match &self.seen.stopped {
            None => (
                Some(format!(
                    "the program ended before a verdict was given; {must}"
                )),
                None,
            ),
            Some(Stopped::Overdue(diagnosis)) => (
                Some(format!(
                    "no verdict was given within {:.0} s; {must}",
                    self.program.within.0.as_secs_f64()
                )),
                diagnosis.as_ref(),
            ),
            Some(Stopped::Verdict(diagnosis, delay)) => {
                let within = wanted.within.as_secs_f64();
                let took = diagnosis.after_s - delay.as_secs_f64();
                let fault =
                    if diagnosis.kind != wanted.kind || diagnosis.culprits != wanted.culprits {
                        Some(format!(
                            "the verdict is {} ({}); {must}",
                            diagnosis.kind, diagnosis.summary
                        ))
                    } else if took > within {
                        Some(format!(
                            "the verdict took {took:.1} s; it must come within {within:.1} s"
                        ))
                    } else {
                        None
                    };
                (fault, Some(diagnosis))
            }
        };
        let finding = match fault {
            None => CheckResult::passed(vec![1; self.size.count()]),
            Some(text) => CheckResult {
                ranks: diagnosis.map_or_else(|| self.ends(), |diagnosis| diagnosis.places.clone()),
                ..CheckResult::bare(Outcome::Hang, Some("wrong-verdict"), text)
            },
        };
        CheckResult {
            diagnosis: diagnosis.cloned().map(Box::new),
            ..finding
        }
    }

    /// Returns what is wrong with each rank for which `fault` returns something: an outcome, a class, and a text.
    fn faults(
        &self,
        fault: impl Fn(Rank, &RankSeen) -> Option<(Outcome, &'static str, String)>,
    ) -> Vec<RankFault> {
        self.size
            .ranks()
            .zip(&self.seen.ranks)
            .filter_map(|(rank, seen)| {
                let (outcome, class, text) = fault(rank, seen)?;
                let line = RankLine { rank, text };
                Some(RankFault {
                    outcome,
                    class,
                    line,
                })
            })
            .collect()
    }

    /// Passes if there are no faults. Otherwise outcome, class and summary are those of the rank that ended first, and the
    /// summary counts the faults.
    fn verdict(&self, faults: Vec<RankFault>) -> CheckResult {
        // The first rank that ended is the likely cause: launchers end the others, or the others notice.
        let when = |fault: &&RankFault| {
            let seen = &self.seen.ranks[fault.line.rank.index()];
            let ended = seen.exit_record.as_ref().and_then(|one| one.ended_us);
            (ended.is_none(), ended)
        };
        let Some(first) = faults.iter().min_by_key(when) else {
            return CheckResult::passed(vec![1; self.size.count()]);
        };
        let mut summary = format!("rank {}: {}", first.line.rank, first.line.text);
        if faults.len() > 1 {
            // Writing to a string cannot fail.
            let _ = write!(summary, " ({} of {} ranks)", faults.len(), self.size);
        }
        let result = CheckResult::bare(first.outcome, Some(first.class), summary);
        CheckResult {
            ranks: lines(faults),
            ..result
        }
    }

    /// Returns how each rank ended, one line for each.
    fn ends(&self) -> Vec<RankLine> {
        let ranks = self.size.ranks().zip(&self.seen.ranks);
        ranks
            .map(|(rank, seen)| {
                let text = match seen.end() {
                    Some(end) => format!("{end}{}", quoted_last_line(seen)),
                    None => "no end is known".to_owned(),
                };
                RankLine { rank, text }
            })
            .collect()
    }

    fn why_killed(&self, stopped: &Stopped) -> String {
        let limit = self.program.within.0.as_secs_f64();
        match stopped {
            Stopped::Verdict(diagnosis, _) => format!("{}: {}", diagnosis.kind, diagnosis.summary),
            Stopped::Overdue(diagnosis) => {
                let diagnosis = diagnosis.as_ref();
                let verdict = diagnosis
                    .map_or_else(String::new, |diagnosis| format!(": {}", diagnosis.summary));
                format!("it had not ended after {limit:.0} s{verdict}")
            }
        }
    }
}

/// Returns the line of each rank.
fn lines(faults: Vec<RankFault>) -> Vec<RankLine> {
    faults.into_iter().map(|fault| fault.line).collect()
}

/// Returns a number of times in words.
fn times(count: usize) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        more => format!("{more} times"),
    }
}

/// Returns true if a rank ended as the case requires.
fn is_required_end(end: &RankExit, required: ExitCode) -> bool {
    match (end, required) {
        (RankExit::Exited { code, .. }, ExitCode::Code(wanted)) => *code == i32::from(wanted),
        (RankExit::Signalled(signal), ExitCode::Signal(wanted)) => *signal == wanted,
        (RankExit::Exited { code, .. }, ExitCode::Failed) => *code != 0,
        (RankExit::Signalled(_), ExitCode::Failed) => true,
        (RankExit::Exited { .. } | RankExit::Signalled(_), ExitCode::Any) => true,
        (RankExit::Exited { .. }, ExitCode::Signal(_))
        | (RankExit::Signalled(_), ExitCode::Code(_)) => false,
        (RankExit::NotStarted(_) | RankExit::MachineFault(_) | RankExit::Unknown(_), _) => false,
    }
}

/// Returns the last line of a rank's log, quoted, which often says why the rank ended.
fn quoted_last_line(rank: &RankSeen) -> String {
    match &rank.log_matches.last {
        Some(line) => format!("; its last line: {}", quoted(line)),
        None => "; it printed nothing".to_owned(),
    }
}

fn quoted(line: &str) -> String {
    let mut short: String = line.chars().take(MAX_QUOTE).collect();
    if short.len() < line.len() {
        short.push('…');
    }
    format!("\"{short}\"")
}

#[cfg(test)]
mod tests;
