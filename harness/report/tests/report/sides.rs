//! What differs between backends, and that merged results begin with it.

use allranks_model::outcome::{Outcome, Verdict};
use allranks_model::status::Status;
use allranks_report::Results;
use allranks_report::console::summarise;
use allranks_report::html;
use allranks_report::markdown;
use allranks_report::sides::Sides;

use crate::sample;

/// Two backends: they agree on COLL-001, and of COLL-002 one gets a check of two wrong.
fn results() -> Results {
    let mut results = sample::results(sample::Shape::default());
    results.scenarios.clear();
    results.checks.clear();
    for (backend, is_right) in [("gloo", true), ("mine", false)] {
        for index in 0..3 {
            let mut check = sample::passing_check(index);
            check.id.0.push_str(backend);
            backend.clone_into(&mut check.column.backend);
            check.covers = vec![if index == 0 { "COLL-001" } else { "COLL-002" }.into()];
            if index == 2 && !is_right {
                (check.outcome, check.verdict) = (Outcome::Hang, Verdict::Regression);
            }
            results.checks.push(check);
        }
    }
    results
}

#[test]
fn a_requirement_that_stands_differently_has_a_row() {
    let sides = Sides::of(&results()).unwrap();
    assert_eq!(sides.names, ["cpu/gloo", "cpu/mine"]);
    assert_eq!((sides.alike, sides.rows.len()), (1, 1));
    assert_eq!(sides.rows[0].requirement.as_str(), "COLL-002");
    let cells: Vec<_> = sides.rows[0]
        .cells
        .iter()
        .map(|cell| cell.map(|one| (one.status, one.count, one.of)))
        .collect();
    assert_eq!(
        cells,
        [
            Some((Status::Passed, 2, 2)),
            Some((Status::Regression, 1, 2))
        ]
    );
}

#[test]
fn one_backend_has_nothing_to_differ_from() {
    let mut results = results();
    results
        .checks
        .retain(|check| check.column.backend == "gloo");
    assert_eq!(Sides::of(&results), None);
}

#[test]
fn a_program_is_no_side_of_its_backend_and_comes_last() {
    let mut results = results();
    let mut of_program = results.checks[..3].to_vec();
    for check in &mut of_program {
        check.id.0.push_str("program");
        "program".clone_into(&mut check.column.driver);
    }
    results.checks.extend(of_program);
    let sides = Sides::of(&results).unwrap();
    assert_eq!(
        sides.names,
        ["cpu/gloo python", "cpu/mine python", "cpu/gloo program"]
    );
    results
        .checks
        .retain(|check| check.column.backend == "gloo");
    assert_eq!(Sides::of(&results), None);
}

#[test]
fn versions_of_torch_are_sides_in_their_own_order() {
    let mut results = results();
    results
        .checks
        .retain(|check| check.column.backend == "gloo");
    let mut other = results.checks.clone();
    for check in &mut results.checks {
        "2.9.0".clone_into(&mut check.column.torch);
    }
    for check in &mut other {
        "2.11.0".clone_into(&mut check.column.torch);
    }
    results.checks.extend(other);
    let sides = Sides::of(&results).unwrap();
    assert_eq!(
        sides.names,
        ["cpu/gloo torch 2.9.0", "cpu/gloo torch 2.11.0"]
    );
}

#[test]
fn reports_begin_with_what_differs() {
    let results = results();
    let summary = markdown::render(&results);
    let differs = summary.find("### What differs").unwrap();
    assert!(differs < summary.find("| column |").unwrap(), "{summary}");
    assert!(summary.contains("✗ 1 of 2 regression"), "{summary}");
    let mut out = Vec::new();
    summarise(&mut out, &results, &[]).unwrap();
    let text = anstream::adapter::strip_str(std::str::from_utf8(&out).unwrap()).to_string();
    assert!(
        text.starts_with("1 requirement not alike on every side:\n  COLL-002\n"),
        "{text}"
    );
    let page = html::render(&results);
    assert!(page.find("id=\"sides\"").unwrap() < page.find("id=\"kinds\"").unwrap());
}
