//! The course of a check over many runs: what is broken, flaky or fixed, and what only looks like it.

use allranks_model::outcome::{Outcome, Verdict};
use allranks_report::past_runs::{Facts, PastRuns};
use allranks_report::trend::{Trend, TrendQuery, TrendState};

use crate::sample;

/// Looks at one check over runs. Of `runs` each letter is one: `P` passed, `F` failed, `K` failed as known, `U` passed against what is
/// known, `R` was refused, `N` was not run, `T` trouble of the harness, `.` no record. Of `environments` each letter is one
/// environment; `?` is not known.
fn look(runs: &str, environments: &str) -> Trend {
    assert_eq!(runs.len(), environments.len());
    let mut past_runs = PastRuns::new("nightly");
    for (past_run, (run, environment)) in runs.chars().zip(environments.chars()).enumerate() {
        let mut results = sample::results(sample::Shape::default());
        results.run.name = format!("n{past_run}");
        results.run.started = 86_400 * past_run as u64;
        let mut check = sample::passing_check(0);
        (check.outcome, check.verdict) = match run {
            'P' => (Outcome::Pass, Verdict::Expected),
            'F' => (Outcome::Mismatch, Verdict::Regression),
            'K' => (Outcome::Mismatch, Verdict::KnownFailure),
            'U' => (Outcome::Pass, Verdict::UnexpectedPass),
            'R' => (Outcome::Unsupported, Verdict::Expected),
            'N' => (Outcome::NotRun, Verdict::NotRun),
            'T' => (Outcome::HarnessError, Verdict::Regression),
            '.' => (Outcome::Pass, Verdict::Expected),
            other => panic!("{other}"),
        };
        results.checks = if run == '.' { Vec::new() } else { vec![check] };
        let facts = match environment {
            '?' => Facts::new(),
            other => Facts::from([("kernel".to_owned(), other.to_string())]),
        };
        past_runs.push(&results, facts);
    }
    let query = TrendQuery {
        with_steady: true,
        ..TrendQuery::default()
    };
    Trend::of(&past_runs, &query)
}

fn state(runs: &str, environments: &str) -> TrendState {
    look(runs, environments).checks[0].state
}

#[test]
fn a_check_that_turned_once_is_broken_or_fixed() {
    for (runs, environments, wanted) in [
        ("PPPP", "aaaa", TrendState::Steady),
        ("PRPR", "abab", TrendState::Steady),
        ("PPPF", "aaab", TrendState::Broken),
        // Nothing that is recorded changed, and still it broke: a cable may have.
        ("PPPF", "aaaa", TrendState::Broken),
        ("PPFF", "aaaa", TrendState::Broken),
        ("RRFF", "aabb", TrendState::Broken),
        ("FFPP", "aabb", TrendState::Fixed),
        ("KKUU", "aabb", TrendState::Fixed),
        ("FFFF", "abcd", TrendState::Failing),
        ("KKKK", "abcd", TrendState::Excused),
        ("PPKK", "aabb", TrendState::Excused),
        ("NNTN", "aaaa", TrendState::Unknown),
        ("PPPN", "aaaa", TrendState::Lost),
        ("PPP.", "aaaa", TrendState::Lost),
        // A harness that failed says nothing of the backend.
        ("PPPT", "aaaa", TrendState::Lost),
        ("PTTP", "aaaa", TrendState::Steady),
    ] {
        assert_eq!(state(runs, environments), wanted, "{runs} {environments}");
    }
}

#[test]
fn a_check_is_flaky_if_it_turns_by_itself() {
    for (runs, environments, wanted) in [
        ("PPFPP", "aaaaa", TrendState::Flaky),
        ("FFPFF", "aaaaa", TrendState::Flaky),
        ("PPFPF", "aaaaa", TrendState::Flaky),
        ("PNF.P", "aaaaa", TrendState::Flaky),
        // Broken by one change, and fixed by another.
        ("PPFPP", "aabcc", TrendState::Fixed),
        // What is not known proves nothing.
        ("PPFPP", "?????", TrendState::Fixed),
        // To and fro, whatever changed.
        ("PFPFP", "abcde", TrendState::Flaky),
        // Flaky once, and now it does not come back.
        ("PFPPPFFF", "aaaaabbb", TrendState::Broken),
        ("PFPPPFF", "aaaaabb", TrendState::Flaky),
    ] {
        assert_eq!(state(runs, environments), wanted, "{runs} {environments}");
    }
}

#[test]
fn what_changed_is_what_differs_between_the_last_good_run_and_the_first_bad_one() {
    let told = |runs: &str, environments: &str| {
        let trend = look(runs, environments);
        let mut text = Vec::new();
        trend.write(&mut text, false).unwrap();
        String::from_utf8(text).unwrap()
    };
    let text = told("PPFF", "aabb");
    assert!(text.contains("since  n2 (1970-01-03)\n"), "{text}");
    assert!(text.contains("changed  kernel a → b\n"), "{text}");
    assert!(text.contains("runs  ✓✓✗✗\n"), "{text}");
    assert!(text.contains("in 2 of 4 runs (15–85 %)"), "{text}");
    // A change before the last good run, and one after the first bad one, are none.
    let text = told("PPFF", "abbc");
    assert!(
        text.contains("nothing that is recorded of the environment"),
        "{text}"
    );
    let text = told("PN.F", "abcd");
    assert!(
        text.contains("since  n3 (1970-01-04); the last before was n0 (1970-01-01), with nothing known of 2 runs between"),
        "{text}"
    );
    assert!(text.contains("changed  kernel a → d\n"), "{text}");
    let text = told("PF", "??");
    assert!(
        text.contains("changed  not known: the environment of one of the runs was not stored"),
        "{text}"
    );
    let text = told("PPKU", "aaaa");
    assert!(
        text.contains("its entry in the expectations has to go"),
        "{text}"
    );
}

#[test]
fn what_was_not_run_counts_in_no_rate() {
    let check = &look("PNF.RTFP", "aaaaaaaa").checks[0];
    assert_eq!((check.failed, check.ran), (2, 4));
}
