use std::time::Duration;

use super::*;
use crate::run::program::lines::LogMatches;
use allranks_diagnose::{HangEvidence, diagnose};
use allranks_model::diagnosis::{Diagnosis, HangKind};

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
    let passes =
        |yaml: &str, seen: &ProgramRanks| judged(yaml, seen, ProgramCheck::Exit).0 == Outcome::Pass;
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

/// A check's class is that of the rank that is quoted, whatever the ranks after it did.
#[test]
fn the_class_is_that_of_the_rank_that_is_named_first() {
    let mut all = seen(rank(None, Some(15), &[LineMatch::Missing]));
    all.ranks[0] = rank(Some(42), None, &[LineMatch::TooEarly(1)]);
    for (rank, ended) in [(0, 7), (1, 8)] {
        let exit_record = all.ranks[rank].exit_record.as_mut().unwrap();
        exit_record.ended_us = Some(ended);
    }
    let expected = (Outcome::Crash, "exit-code", "rank 0: exit 42");
    assert_fails("lines: [a]", &all, ProgramCheck::Exit, expected);
    let expected = (Outcome::Mismatch, "line-too-early", "rank 0: printed `a`");
    assert_fails("lines: [a]", &all, ProgramCheck::Line(0), expected);
    all.ranks.swap(0, 1);
    let expected = (Outcome::Mismatch, "line-too-early", "rank 1: printed `a`");
    assert_fails("lines: [a]", &all, ProgramCheck::Line(0), expected);
    all.ranks[1] = rank(Some(0), None, &[LineMatch::Found(1)]);
    all.ranks[1].exit_record.as_mut().unwrap().ended_us = Some(3);
    let asked = "exit: [{on: last, is: 42}]";
    let expected = (Outcome::Mismatch, "exit-code", "rank 1: exit 0");
    assert_fails(asked, &all, ProgramCheck::Exit, expected);
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
        "the program ended before a verdict was given; it must be peer-dead of rank 1",
    );
    assert_fails(asked, &seen(fine()), ProgramCheck::Verdict, expected);
    let expected = (
        Outcome::Hang,
        "wrong-verdict",
        "no verdict was given within 60 s",
    );
    assert_fails(asked, &overdue, ProgramCheck::Verdict, expected);
}
