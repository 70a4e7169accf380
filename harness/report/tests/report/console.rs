//! The terminal: failures at once and in full, nothing that steers the terminal, a summary that calls nothing a pass
//! that is none.

use allranks_model::record::Record;
use allranks_report::Results;
use allranks_report::console::{Console, Progress, summarise};

use crate::sample::{self, Shape};

fn shown(results: &Results) -> String {
    let mut out = Vec::new();
    let mut console = Console::new(&mut out, Progress::None);
    for record in sample::records(results) {
        console.record(&record).unwrap();
    }
    console.finish();
    plain(&out)
}

fn summary(results: &Results) -> String {
    let mut out = Vec::new();
    summarise(
        &mut out,
        results,
        &["target/allranks/x/report.html".as_ref()],
    )
    .unwrap();
    plain(&out)
}

/// As a stream that is no terminal shows it.
fn plain(bytes: &[u8]) -> String {
    anstream::adapter::strip_str(std::str::from_utf8(bytes).unwrap()).to_string()
}

#[test]
fn a_mismatch_is_shown_in_full_as_soon_as_it_occurs() {
    let results = sample::results(Shape::default());
    let check = results
        .checks
        .iter()
        .find(|check| check.difference.is_some() && check.status().is_failing())
        .unwrap();
    let mut out = Vec::new();
    let mut console = Console::new(&mut out, Progress::None)
        .titles([(check.case.clone(), "the title".to_owned())]);
    console.record(&Record::Run(results.run.clone())).unwrap();
    console
        .record(&Record::Check(Box::new(check.clone())))
        .unwrap();
    let text = plain(&out);
    for needed in [
        check.id.as_str(),
        "the title",
        "expected  -12.5",
        "actual  -3.125",
        "element 28 on rank 1",
        "avg-divided-twice",
        "the average divided by the world size once more",
        &format!("logs/{}/", check.scenario.as_str().replace('/', "_")),
        &format!(
            "allranks run cases/ --profile core --seed 7 --filter '{}'",
            check.id
        ),
    ] {
        assert!(text.contains(needed), "no {needed:?} in:\n{text}");
    }
}

#[test]
fn a_hang_says_where_each_rank_is() {
    let text = shown(&sample::results(Shape::default()));
    assert!(
        text.contains("ranks 0, 2–7  in all_reduce for 10.2 s"),
        "{text}"
    );
    assert!(text.contains("rank 1  not in any call"), "{text}");
}

#[test]
fn passes_and_known_failures_are_not_shown_one_by_one() {
    let results = sample::results(Shape::default());
    let text = shown(&results);
    for check in &results.checks {
        let detailed = text.contains(&format!(" {}\n", check.id));
        assert_eq!(detailed, check.status().is_failing(), "{}", check.id);
    }
}

#[test]
fn hostile_text_cannot_steer_the_terminal() {
    let results = sample::results(Shape {
        hostile: true,
        ..Shape::default()
    });
    let mut out = Vec::new();
    let mut console = Console::new(&mut out, Progress::None);
    for record in sample::records(&results) {
        console.record(&record).unwrap();
    }
    summarise(&mut out, &results, &[]).unwrap();
    let text = String::from_utf8(out).unwrap();
    // Every escape left is one of ours: a style, `ESC [ digits ; m`.
    for (at, _) in text.match_indices('\u{1b}') {
        let rest = text[at + 1..].strip_prefix('[').unwrap();
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != ';')
            .unwrap();
        assert_eq!(&rest[end..=end], "m");
        assert!(
            !rest.starts_with("31mred"),
            "an escape of the data got through"
        );
    }
    let steering = |c: char| c.is_control() && !matches!(c, '\n' | '\u{1b}');
    assert_eq!(text.find(steering), None);
}

#[test]
fn without_a_terminal_progress_is_a_line_now_and_then() {
    let mut lines = Vec::new();
    let mut console = Console::new(Vec::new(), Progress::Lines(Box::new(&mut lines)));
    for record in sample::records(&sample::results(Shape::default())) {
        console.record(&record).unwrap();
    }
    console.tick().unwrap();
    drop(console);
    assert_eq!(
        String::from_utf8(lines).unwrap(),
        "",
        "ten seconds have not passed"
    );
}

#[test]
fn the_summary_counts_what_is_no_pass_and_says_why() {
    let results = sample::results(Shape::default());
    let text = summary(&results);
    let count = |wanted: &str| {
        let checks = results.checks.iter();
        checks
            .filter(|check| check.verdict.name() == wanted)
            .count()
    };
    for needed in [
        format!("k {:>7} known failure (no pass", count("known-failure")),
        format!("– {:>7} not run (no pass", count("not-run")),
        "needs 8 devices, this machine has 4".to_owned(),
        "exit code 1: unexpected results".to_owned(),
        "target/allranks/x/report.html".to_owned(),
        "cpu/gloo/ws2 (host)".to_owned(),
        "sim/simccl/ws8 (simulated)".to_owned(),
    ] {
        assert!(text.contains(&needed), "no {needed:?} in:\n{text}");
    }
}

#[test]
fn a_run_that_was_cut_off_is_not_called_good() {
    let mut results = sample::results(Shape::default());
    results.checks.retain(|check| !check.status().is_failing());
    results.end = None;
    let text = summary(&results);
    assert!(text.contains("the run was cut off"), "{text}");
    assert!(text.contains("planned, never recorded"), "{text}");
}

#[test]
fn what_failed_comes_before_the_title_of_the_case() {
    let results = sample::results(Shape::default());
    let check = results
        .checks
        .iter()
        .find(|check| check.status().is_failing());
    let check = check.unwrap();
    let mut out = Vec::new();
    let mut console = Console::new(&mut out, Progress::None)
        .titles([(check.case.clone(), "the title".to_owned())]);
    console
        .record(&Record::Check(Box::new(check.clone())))
        .unwrap();
    let text = plain(&out);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].ends_with(check.id.as_str()), "{text}");
    assert_eq!(lines[1].trim(), allranks_report::summary_line(check));
    assert_eq!(lines[2].trim(), "the title");
}

#[test]
fn the_summary_groups_failures_by_kind() {
    let mut results = sample::results(Shape::default());
    results.checks.clear();
    for index in 0..7 {
        let mut check = sample::passing_check(index);
        check.outcome = allranks_model::outcome::Outcome::Mismatch;
        check.verdict = allranks_model::outcome::Verdict::Regression;
        check.summary = format!("element {index} is wrong");
        check.class = Some("tail-not-reduced".to_owned());
        results.checks.push(check);
    }
    let text = summary(&results);
    assert!(
        text.contains("✗ regression 7 checks in 1 column: tail-not-reduced\n"),
        "{text}"
    );
    let told = results
        .checks
        .iter()
        .filter(|check| text.contains(&format!("    {}\n", check.id)));
    assert_eq!(told.count(), 3, "{text}");
    assert!(
        text.contains("element 2 is wrong") && !text.contains("element 3 is wrong"),
        "{text}"
    );
    assert!(text.contains("… and 4 more"), "{text}");
}
