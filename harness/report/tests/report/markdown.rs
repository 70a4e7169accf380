//! `summary.md`: the right counts, bounded lists, and no markup from data.

use allranks_report::markdown::render;

use crate::sample::{self, Shape};

#[test]
fn says_what_a_job_page_needs() {
    let page = render(&sample::results(Shape::default()));
    for needed in [
        "## ❌ allranks: ",
        "| <code>cpu/gloo/ws2</code> | host |",
        "| <code>sim/simccl/ws8</code> | simulated |",
        "(<https://github.com/pytorch/pytorch/issues/162237>)",
        "none counts as a pass",
        "needs 8 devices, this machine has 4",
        "exit code 1 (unexpected results)",
        "torch 2.11.0",
        "### Observed",
        "| <code>cpu/gloo</code> | accumulates | float32 | dtype \\(",
        "run <code>invented-sample</code>",
    ] {
        assert!(page.contains(needed), "no {needed:?} in:\n{page}");
    }
}

#[test]
fn lists_are_bounded_and_say_so() {
    let results = sample::results(Shape {
        columns: 40,
        checks: 30,
        hostile: true,
    });
    let page = render(&results);
    let failing = results
        .checks
        .iter()
        .filter(|check| check.status().is_failing());
    let more = failing.count() - 50;
    assert!(page.contains(&format!("… and {more} more")), "{more}");
    assert!(page.len() < 128 * 1024, "{} bytes", page.len());
}

#[test]
fn data_becomes_neither_markup_nor_a_table_cell() {
    let page = render(&sample::results(Shape {
        hostile: true,
        ..Shape::default()
    }));
    for forbidden in [
        "<script",
        "<img",
        "](javascript",
        "<javascript",
        "@everyone",
        "\u{1b}",
        "<!--",
    ] {
        assert!(!page.contains(forbidden), "{forbidden:?} got through");
    }
    for row in page.lines().filter(|line| line.starts_with("| ✗")) {
        let bars = row.replace("\\|", "").matches('|').count();
        assert_eq!(bars, 4, "{row}");
    }
}

#[test]
fn a_good_run_and_a_cut_off_one_differ_in_the_first_line() {
    let mut results = sample::results(Shape::default());
    results.checks.retain(|check| !check.status().is_failing());
    results.end.as_mut().unwrap().exit_code = 0;
    assert!(render(&results).starts_with("## ✅"));
    results.end = None;
    let page = render(&results);
    assert!(
        page.starts_with("## ❌") && page.contains("cut off"),
        "{page}"
    );
    results.checks.clear();
    results.scenarios.clear();
    assert!(render(&results).starts_with("## ❌"));
}

#[test]
fn the_command_is_quoted_for_a_shell() {
    let mut results = sample::results(Shape::default());
    results.run.arguments = vec!["run".into(), "my cases".into()];
    let page = render(&results);
    assert!(page.contains("<code>allranks run &#39;my cases&#39;</code>"));
}
