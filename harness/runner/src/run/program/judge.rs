//! Judges what a program's ranks left behind. Every rank votes: a rank that left nothing is a failure.
//!
//! In: the case's program and what was seen. Out: a [`CheckResult`] for each [`ProgramCheck`], and for the two checks
//! of every scenario.
//! Nothing here looks at a process or a file.

use std::fmt::Write;
use std::time::Duration;

use super::lines::{LineMatch, LogMatches};
use super::placement_faults::{placement_faults, sum_of_local_sizes};
use crate::check_result::CheckResult;
use crate::world::{ExitRecord, RankExit, Slot};
use allranks_diagnose::list;
use allranks_model::diagnosis::Diagnosis;
use allranks_model::names::{Rank, WorldSize};
use allranks_model::outcome::Outcome;
use allranks_model::placement::Placement;
use allranks_model::record::RankLine;
use allranks_suite::case::{ExitCode, ProgramSpec};
use allranks_suite::plan::{ProgramCheck, hang};

/// The longest quotation of a log line, in characters.
const QUOTED: usize = 160;

/// What was seen of a program's processes.
#[derive(Debug)]
pub struct ProgramRanks {
    /// For each rank, what was seen of it.
    pub ranks: Vec<RankSeen>,
    /// How the launcher's own process ended; none if the ranks were started without one.
    pub launcher: Option<RankExit>,
    /// Why the harness killed the program; none if it ended by itself.
    pub stopped: Option<Stopped>,
    /// Processes that still ran after all ranks had ended: the rank that each belongs to, if known, and its command.
    pub orphans: Vec<(Option<Rank>, String)>,
}

/// What was seen of one rank.
#[derive(Debug)]
pub struct RankSeen {
    /// The exit record of each start before the last; none where there is none.
    pub earlier: Vec<Option<ExitRecord>>,
    /// The exit record that its rank wrapper wrote, as read before anything was killed; none if there is none.
    pub exit_record: Option<ExitRecord>,
    /// What was found in its log.
    pub log_matches: LogMatches,
}

/// Why the harness killed a program.
#[derive(Debug)]
pub enum Stopped {
    /// A hang verdict was given, and of the time that it took, this much were delays of the harness itself.
    Verdict(Diagnosis, Duration),
    /// It ran longer than the case allows; with the diagnosis at that moment, if there is one.
    Overdue(Option<Diagnosis>),
}

impl Stopped {
    fn diagnosis(&self) -> Option<&Diagnosis> {
        match self {
            Self::Verdict(diagnosis, _) => Some(diagnosis),
            Self::Overdue(diagnosis) => diagnosis.as_ref(),
        }
    }
}

impl RankSeen {
    fn end(&self) -> Option<RankExit> {
        self.exit_record.as_ref().and_then(ExitRecord::end)
    }

    /// Returns what its launcher told it; none if it was never started.
    pub fn slot(&self) -> Option<&Slot> {
        self.exit_record.as_ref()?.slot.as_ref()
    }

    fn has_begun(&self) -> bool {
        self.starts() > 0
    }

    /// Returns how often it was started.
    fn starts(&self) -> usize {
        let all = self.earlier.iter().chain([&self.exit_record]);
        all.flatten().filter(|one| one.pid.is_some()).count()
    }
}

/// The facts that a program's checks are judged by.
pub struct ProgramEvidence<'a> {
    pub program: &'a ProgramSpec,
    pub size: WorldSize,
    /// Where the plan has the ranks.
    pub placement: &'a Placement,
    pub seen: &'a ProgramRanks,
}

impl ProgramEvidence<'_> {
    /// Judges the check `init`: every rank must have been started, at the place that the plan has for it, and the local sizes that
    /// the launcher told must add up to the world size.
    pub fn init(&self) -> CheckResult {
        let faults = self.faults(|_, rank| match &rank.exit_record {
            None if rank.has_begun() => Some(format!(
                "it was started {}; it must be {}",
                times(rank.starts()),
                times(rank.earlier.len() + 1)
            )),
            None => Some("it was never started".to_owned()),
            Some(ExitRecord {
                error: Some(error), ..
            }) => Some(format!("it could not be started: {error}")),
            Some(_) => None,
        });
        if !faults.is_empty() {
            return self.verdict(faults, Outcome::InitFailed, "not-started");
        }
        let slots: Vec<Option<&Slot>> = self.seen.ranks.iter().map(RankSeen::slot).collect();
        let faults = placement_faults(self.placement, self.size, &slots);
        let found = self.verdict(faults, Outcome::InitFailed, "placement");
        match sum_of_local_sizes(&slots) {
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

    /// Judges the check `teardown`: the program must end by itself, unless the case expects a hang, and leave no
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
        let mut outcome = Outcome::Mismatch;
        let mut class = "exit-code";
        let faults = self.faults(|number, rank| {
            if let Some(fault) = self.earlier_end(number, rank) {
                return Some(fault);
            }
            let asked = self.program.exit_of(number, self.size)?;
            let end = rank.end();
            if end.as_ref().is_some_and(|end| is_as_asked(end, asked)) {
                return None;
            }
            let said = match &end {
                Some(RankExit::Exited { code: 0, .. }) => "exit 0".to_owned(),
                Some(end) => {
                    outcome = Outcome::Crash;
                    if matches!(end, RankExit::Signalled(_)) {
                        class = "signal";
                    }
                    end.to_string()
                }
                None if self.seen.stopped.is_some() && rank.has_begun() => {
                    "it had not ended".to_owned()
                }
                None => {
                    outcome = Outcome::Crash;
                    class = "no-exit-record";
                    match rank.has_begun() {
                        true => "its end was not recorded: its launcher, or the rank itself, killed the rank wrapper".to_owned(),
                        false => "it was never started".to_owned(),
                    }
                }
            };
            Some(format!("{said}; it must be {asked}{}", quoted_last_line(rank)))
        });
        match &self.seen.stopped {
            Some(stopped) if !faults.is_empty() => {
                let finding =
                    CheckResult::bare(Outcome::Hang, Some("hang"), self.why_killed(stopped));
                CheckResult {
                    ranks: faults,
                    diagnosis: stopped.diagnosis().cloned().map(Box::new),
                    ..finding
                }
            }
            Some(_) | None => self.verdict(faults, outcome, class),
        }
    }

    /// Returns what is wrong with how a rank ended in a start before the last; none if nothing is.
    fn earlier_end(&self, number: Rank, rank: &RankSeen) -> Option<String> {
        let asked = self.program.exit_before(number, self.size);
        let mut starts = (1..).zip(&rank.earlier);
        starts.find_map(|(start, record)| {
            let end = record.as_ref().and_then(ExitRecord::end);
            match end {
                Some(end) if is_as_asked(&end, asked) => None,
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
        let mut class = "line-missing";
        let faults = self.faults(|_, rank| match rank.log_matches.lines[index] {
            LineMatch::NotAsked | LineMatch::Found(_) => None,
            LineMatch::TooEarly(number) => {
                class = "line-too-early";
                Some(format!(
                    "printed `{asked}` on line {number} of its log, before what must come first"
                ))
            }
            LineMatch::Missing => {
                Some(format!("did not print `{asked}`{}", quoted_last_line(rank)))
            }
        });
        match self.seen.stopped {
            Some(_) => self.verdict(faults, Outcome::Hang, class),
            None => self.verdict(faults, Outcome::Mismatch, class),
        }
    }

    fn never(&self, index: usize) -> CheckResult {
        let faults = self.faults(|_, rank| {
            let (number, line) = rank.log_matches.never[index].as_ref()?;
            Some(format!(
                "printed on line {number} of its log what must not be there: {}",
                quoted(line)
            ))
        });
        // A rank that never started printed nothing, which is no proof of its silence.
        let silent = self.seen.ranks.iter().any(|rank| !rank.has_begun());
        match faults.is_empty() && silent {
            true => self.init(),
            false => self.verdict(faults, Outcome::Mismatch, "line-forbidden"),
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
                    "it came to its end, and no verdict was given; {must}"
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

    /// Returns one line for each rank for which `fault` returns a text.
    fn faults(&self, mut fault: impl FnMut(Rank, &RankSeen) -> Option<String>) -> Vec<RankLine> {
        self.size
            .ranks()
            .zip(&self.seen.ranks)
            .filter_map(|(rank, seen)| {
                let text = fault(rank, seen)?;
                Some(RankLine { rank, text })
            })
            .collect()
    }

    /// Passes if there are no faults. Otherwise the summary quotes the fault of the rank that ended first, and counts
    /// them.
    fn verdict(&self, faults: Vec<RankLine>, outcome: Outcome, class: &str) -> CheckResult {
        // The first rank that ended is the likely cause: launchers end the others, or the others notice.
        let when = |fault: &&RankLine| {
            let seen = &self.seen.ranks[fault.rank.index()];
            let ended = seen.exit_record.as_ref().and_then(|one| one.ended_us);
            (ended.is_none(), ended)
        };
        let Some(first) = faults.iter().min_by_key(when) else {
            return CheckResult::passed(vec![1; self.size.count()]);
        };
        let mut summary = format!("rank {}: {}", first.rank, first.text);
        if faults.len() > 1 {
            // Writing to a string cannot fail.
            let _ = write!(summary, " ({} of {} ranks)", faults.len(), self.size);
        }
        CheckResult {
            ranks: faults,
            ..CheckResult::bare(outcome, Some(class), summary)
        }
    }

    /// Returns how each rank ended, one line for each.
    fn ends(&self) -> Vec<RankLine> {
        self.faults(|_, rank| {
            Some(match rank.end() {
                Some(end) => format!("{end}{}", quoted_last_line(rank)),
                None => "no end is known".to_owned(),
            })
        })
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

/// Returns a number of times in words.
fn times(count: usize) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        more => format!("{more} times"),
    }
}

fn is_as_asked(end: &RankExit, asked: ExitCode) -> bool {
    match (end, asked) {
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
    let mut short: String = line.chars().take(QUOTED).collect();
    if short.len() < line.len() {
        short.push('…');
    }
    format!("\"{short}\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use allranks_diagnose::{HangEvidence, diagnose};
    use allranks_model::diagnosis::HangKind;

    const SIZE: WorldSize = WorldSize(2);

    fn program(yaml: &str) -> ProgramSpec {
        serde_yaml::from_str(&format!("run: [x]\n{yaml}")).unwrap()
    }

    fn rank(code: Option<i32>, signal: Option<i32>, lines: &[LineMatch]) -> RankSeen {
        RankSeen {
            earlier: Vec::new(),
            exit_record: Some(ExitRecord {
                pid: Some(1),
                code,
                signal,
                ended_us: None,
                ..ExitRecord::default()
            }),
            log_matches: LogMatches {
                lines: lines.to_vec(),
                never: vec![None],
                last: Some("the end".to_owned()),
            },
        }
    }

    fn fine() -> RankSeen {
        rank(Some(0), None, &[LineMatch::Found(1)])
    }

    fn seen(second: RankSeen) -> ProgramRanks {
        ProgramRanks {
            ranks: vec![fine(), second],
            launcher: None,
            stopped: None,
            orphans: Vec::new(),
        }
    }

    fn judged(
        yaml: &str,
        seen: &ProgramRanks,
        program_check: ProgramCheck,
    ) -> (Outcome, Option<String>, String) {
        let program = program(yaml);
        let evidence = ProgramEvidence {
            program: &program,
            size: SIZE,
            placement: &Placement::one_node(SIZE),
            seen,
        };
        let found = evidence.judge(program_check);
        if found.outcome == Outcome::Pass {
            assert_eq!(found.checked, [1, 1]);
        }
        (found.outcome, found.class, found.summary)
    }

    #[track_caller]
    fn assert_fails(
        yaml: &str,
        seen: &ProgramRanks,
        program_check: ProgramCheck,
        expected: (Outcome, &str, &str),
    ) {
        let (outcome, class, summary) = judged(yaml, seen, program_check);
        assert_eq!(
            (outcome, class.as_deref()),
            (expected.0, Some(expected.1)),
            "{summary}"
        );
        assert!(summary.contains(expected.2), "{summary}");
    }

    #[test]
    fn every_rank_s_end_counts() {
        let passes = |yaml: &str, seen: &ProgramRanks| {
            judged(yaml, seen, ProgramCheck::Exit).0 == Outcome::Pass
        };
        assert!(passes("lines: [a]", &seen(fine())));
        let failed = seen(rank(Some(42), None, &[LineMatch::Found(1)]));
        let expected = (
            Outcome::Crash,
            "exit-code",
            "rank 1: exit 42; it must be exit 0; its last line: \"the end\"",
        );
        assert_fails("lines: [a]", &failed, ProgramCheck::Exit, expected);
        assert!(passes("exit: [{on: last, is: 42}]", &failed));
        assert!(passes("exit: [{on: last, is: failed}]", &failed));
        let killed = seen(rank(None, Some(9), &[LineMatch::Found(1)]));
        let expected = (
            Outcome::Crash,
            "signal",
            "signal 9 (SIGKILL); it must be exit 42",
        );
        assert_fails(
            "exit: [{on: last, is: 42}]",
            &killed,
            ProgramCheck::Exit,
            expected,
        );
        assert!(passes("exit: [{on: last, is: SIGKILL}]", &killed));
        let expected = (
            Outcome::Mismatch,
            "exit-code",
            "rank 1: exit 0; it must be signal 9 (SIGKILL)",
        );
        assert_fails(
            "exit: [{on: last, is: SIGKILL}]",
            &seen(fine()),
            ProgramCheck::Exit,
            expected,
        );
        // An unknown end fails the check whichever exit is asked for.
        let unseen = seen(rank(None, None, &[LineMatch::Found(1)]));
        let expected = (
            Outcome::Crash,
            "no-exit-record",
            "rank 1: its end was not recorded",
        );
        assert_fails(
            "exit: [{on: last, is: any}]",
            &unseen,
            ProgramCheck::Exit,
            expected,
        );
    }

    #[test]
    fn every_start_of_every_rank_counts() {
        let yaml = "restarts: 1\nexit_before: [{on: last, is: 42}]\nlines: [a]";
        let mut all = seen(fine());
        let judge = |all: &ProgramRanks| judged(yaml, all, ProgramCheck::Exit);
        // The first start of the first rank was not recorded.
        all.ranks[0].earlier = vec![None];
        all.ranks[1].earlier = vec![fine_end(42)];
        let (outcome, class, text) = judge(&all);
        assert_eq!(outcome, Outcome::Mismatch, "{class:?} {text}");
        assert!(text.contains("start 1 was not recorded"), "{text}");
        // Any end will do for the first, and 42 is the last one's.
        all.ranks[0].earlier = vec![fine_end(1)];
        assert_eq!(judge(&all).0, Outcome::Pass);
        all.ranks[1].earlier = vec![fine_end(0)];
        let (_, _, text) = judge(&all);
        assert!(text.contains("in start 1; it must be exit 42"), "{text}");
        // A rank that was not started again.
        all.ranks[1].earlier = vec![fine_end(42)];
        all.ranks[1].exit_record = None;
        let program = program(yaml);
        let evidence = ProgramEvidence {
            program: &program,
            size: SIZE,
            placement: &Placement::one_node(SIZE),
            seen: &all,
        };
        let result = evidence.init();
        assert_eq!(result.outcome, Outcome::InitFailed);
        assert!(
            result.summary.contains("started once; it must be twice"),
            "{}",
            result.summary
        );
    }

    fn fine_end(code: i32) -> Option<ExitRecord> {
        rank(Some(code), None, &[]).exit_record
    }

    #[test]
    fn the_first_to_end_is_named_first() {
        let mut seen = seen(rank(None, Some(9), &[LineMatch::Found(1)]));
        seen.ranks[0] = rank(None, Some(15), &[LineMatch::Found(1)]);
        for (rank, ended) in [(0, 8), (1, 7)] {
            let exit_record = seen.ranks[rank].exit_record.as_mut().unwrap();
            exit_record.ended_us = Some(ended);
        }
        let expected = (Outcome::Crash, "signal", "rank 1: signal 9 (SIGKILL)");
        assert_fails("lines: [a]", &seen, ProgramCheck::Exit, expected);
    }

    #[test]
    fn a_rank_that_was_never_started_is_a_failure_of_everything() {
        let mut absent = seen(fine());
        absent.ranks[1] = RankSeen {
            earlier: Vec::new(),
            exit_record: None,
            log_matches: LogMatches {
                lines: vec![LineMatch::Missing],
                never: vec![None],
                last: None,
            },
        };
        let yaml = "lines: [a]\nnever: [b]";
        let program = program(yaml);
        let evidence = ProgramEvidence {
            program: &program,
            size: SIZE,
            placement: &Placement::one_node(SIZE),
            seen: &absent,
        };
        let init = evidence.init();
        assert_eq!(init.outcome, Outcome::InitFailed);
        assert_eq!(init.summary, "rank 1: it was never started");
        for program_check in [
            ProgramCheck::Exit,
            ProgramCheck::Line(0),
            ProgramCheck::Never(0),
        ] {
            assert_ne!(
                evidence.judge(program_check).outcome,
                Outcome::Pass,
                "{program_check:?}"
            );
        }
    }

    #[test]
    fn lines_are_every_rank_s() {
        let expected = (
            Outcome::Mismatch,
            "line-missing",
            "rank 1: did not print `a`",
        );
        let mute = seen(rank(Some(0), None, &[LineMatch::Missing]));
        assert_fails("lines: [a]", &mute, ProgramCheck::Line(0), expected);
        let expected = (Outcome::Mismatch, "line-too-early", "on line 7 of its log");
        let early = seen(rank(Some(0), None, &[LineMatch::TooEarly(7)]));
        assert_fails("lines: [a]", &early, ProgramCheck::Line(0), expected);
        let mut loud = seen(fine());
        loud.ranks[1].log_matches.never = vec![Some((3, "bad thing".to_owned()))];
        let expected = (
            Outcome::Mismatch,
            "line-forbidden",
            "rank 1: printed on line 3",
        );
        assert_fails("never: [bad]", &loud, ProgramCheck::Never(0), expected);
    }

    #[test]
    fn a_launcher_that_hides_a_failure_is_one() {
        let exited = |code| {
            let left_behind = 0;
            Some(RankExit::Exited { code, left_behind })
        };
        let under = |launcher| ProgramRanks {
            launcher,
            ..seen(fine())
        };
        let asked = "exit: [{on: last, is: 42}]";
        let expected = (
            Outcome::Mismatch,
            "launcher-exit",
            "ended with exit 0; it must be a failure",
        );
        assert_fails(
            asked,
            &under(exited(0)),
            ProgramCheck::LauncherExit,
            expected,
        );
        assert_eq!(
            judged(asked, &under(exited(1)), ProgramCheck::LauncherExit).0,
            Outcome::Pass
        );
        let expected = (
            Outcome::Crash,
            "launcher-exit",
            "ended with exit 1; it must be exit 0",
        );
        assert_fails(
            "lines: [a]",
            &under(exited(1)),
            ProgramCheck::LauncherExit,
            expected,
        );
    }

    #[test]
    fn what_the_harness_was_late_by_is_no_time_of_the_verdict() {
        let asked = "hang: {kind: peer-dead, culprit: last, within: 5s}";
        let verdict = |delay: u64| {
            let diagnosis = Diagnosis {
                kind: HangKind::PeerDead,
                culprits: vec![Rank(1)],
                after_s: 11.4,
                ..diagnose(&HangEvidence::default())
            };
            let stopped = Stopped::Verdict(diagnosis, Duration::from_secs(delay));
            ProgramRanks {
                stopped: Some(stopped),
                ..seen(fine())
            }
        };
        let (outcome, _, said) = judged(asked, &verdict(7), ProgramCheck::Verdict);
        assert_eq!(outcome, Outcome::Pass, "{said}");
        let expected = (
            Outcome::Hang,
            "wrong-verdict",
            "the verdict took 6.4 s; it must come within 5.0 s",
        );
        assert_fails(asked, &verdict(5), ProgramCheck::Verdict, expected);
    }

    #[test]
    fn what_was_killed_is_a_hang_and_what_was_to_hang_and_does_not_is_wrong() {
        let mut overdue = seen(rank(None, None, &[LineMatch::Missing]));
        overdue.stopped = Some(Stopped::Overdue(None));
        let expected = (Outcome::Hang, "hang", "it had not ended after 60 s");
        assert_fails("lines: [a]", &overdue, ProgramCheck::Exit, expected);
        let asked = "hang: {kind: peer-dead, culprit: last}";
        let expected = (
            Outcome::Hang,
            "wrong-verdict",
            "no verdict was given; it must be peer-dead of rank 1",
        );
        assert_fails(asked, &seen(fine()), ProgramCheck::Verdict, expected);
        let expected = (
            Outcome::Hang,
            "wrong-verdict",
            "no verdict was given within 60 s",
        );
        assert_fails(asked, &overdue, ProgramCheck::Verdict, expected);
    }
}
