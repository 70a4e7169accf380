//! Both dialects of JUnit, held against what their readers demand.

mod validator;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use allranks_model::names::Rank;
use allranks_model::outcome::{Outcome, Verdict};
use allranks_model::record::{RankLine, RankRecord};
use allranks_model::status::Status;
use allranks_report::Results;
use allranks_report::junit::{Dialect, EXCERPTS_LIMIT, SYSTEM_OUT_LIMIT, render};

use crate::sample::{self, HOSTILE, Shape};
use validator::{Case, Document, validate};

const DIALECTS: [Dialect; 2] = [Dialect::Strict, Dialect::Extended];

fn valid(results: &Results, dialect: Dialect) -> Document {
    let bytes = render(results, dialect).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    validate(&text, dialect).unwrap_or_else(|problem| panic!("{dialect:?}: {problem}"))
}

#[test]
fn both_dialects_obey_the_rules_on_plain_and_on_hostile_results() {
    for hostile in [false, true] {
        for columns in [0, 1, 9, 40] {
            let results = sample::results(Shape {
                columns,
                hostile,
                ..Shape::default()
            });
            for dialect in DIALECTS {
                let document = valid(&results, dialect);
                assert_eq!(document.cases.len(), results.checks.len());
            }
        }
    }
}

#[test]
fn every_status_is_shown_as_what_it_is() {
    let results = sample::results(Shape::default());
    let document = valid(&results, Dialect::Strict);
    let cases: BTreeMap<&str, &Case> = document
        .cases
        .iter()
        .map(|case| (case.name.as_str(), case))
        .collect();
    for check in &results.checks {
        let case = cases[check.id.as_str()];
        let wanted = match check.status() {
            Status::Passed => None,
            Status::Refused => Some(("skipped", "refused-as-declared")),
            Status::KnownFailure => Some(("skipped", "known-failure")),
            Status::Waived => Some(("skipped", "waived")),
            Status::NotRun => Some(("skipped", "not-run")),
            Status::Regression => Some(("failure", check.outcome.name())),
            Status::UnexpectedPass => Some(("failure", "unexpected-pass")),
            Status::HarnessError => Some(("error", "harness-error")),
        };
        let found = case.result.as_ref();
        let found = found.map(|result| (result.element.as_str(), result.type_.as_str()));
        assert_eq!(found, wanted, "{}", check.id);
        assert_eq!(case.system_out.is_some(), check.status().is_failing());
        if let Some(result) = &case.result
            && check.status().is_failing()
        {
            assert!(result.text.starts_with(&result.message), "{}", check.id);
            assert!(
                result.text.contains(&format!("\n at {}", check.at)),
                "{}",
                result.text
            );
        }
    }
    let kinds: std::collections::BTreeSet<_> = results.checks.iter().map(|c| c.status()).collect();
    assert_eq!(
        kinds.len(),
        Status::ALL.len(),
        "the sample has every status"
    );
}

#[test]
fn a_known_failure_names_its_issue() {
    let document = valid(&sample::results(Shape::default()), Dialect::Strict);
    let known = document.cases.iter().find_map(|case| {
        let result = case.result.as_ref()?;
        (result.type_ == "known-failure").then_some(result)
    });
    let message = &known.unwrap().message;
    assert!(
        message.ends_with("https://github.com/pytorch/pytorch/issues/162237"),
        "{message}"
    );
}

#[test]
fn classname_and_suite_name_platform_backend_and_size() {
    let document = valid(&sample::results(Shape::default()), Dialect::Strict);
    assert_eq!(document.suites[0].name, "acme/acmeccl/ws2");
    assert!(
        document.suites[0]
            .properties
            .contains(&("evidence".into(), "hardware".into()))
    );
    assert_eq!(
        document.cases[0].classname,
        "acme.acmeccl.ws2.rendezvous.init.methods"
    );
}

#[test]
fn the_extended_dialect_says_where_and_with_what() {
    let results = sample::results(Shape::default());
    let document = valid(&results, Dialect::Extended);
    let case = &document.cases[0];
    assert_eq!(
        case.attributes["file"],
        "cases/rendezvous/init/methods.yaml"
    );
    assert_eq!(case.attributes["line"], "8");
    let property = |name: &str| {
        let mut pairs = case.properties.iter();
        pairs
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    };
    assert_eq!(property("requirements"), Some("INIT-001,INIT-002"));
    assert_eq!(property("param.dtype"), Some("float32"));
    assert_eq!(property("observed.accumulates"), Some("dtype"));
    assert_eq!(property("outcome"), Some("pass"));
}

#[test]
fn a_run_that_was_cut_off_is_valid_and_not_green() {
    let mut results = sample::results(Shape::default());
    results.checks.retain(|check| !check.status().is_failing());
    results.scenarios.truncate(3);
    results.end = None;
    for dialect in DIALECTS {
        let document = valid(&results, dialect);
        let error = document.cases.last().unwrap().result.as_ref().unwrap();
        assert_eq!(
            (error.element.as_str(), error.type_.as_str()),
            ("error", "cut-off")
        );
        assert!(
            error.message.contains("never recorded"),
            "{}",
            error.message
        );
    }
}

#[test]
fn a_scenario_without_checks_is_an_error() {
    let mut results = sample::results(Shape::default());
    let lost = results.scenarios[0].id.clone();
    results.scenarios[0].failure = Some("no world".into());
    results.checks.retain(|check| check.scenario != lost);
    let document = valid(&results, Dialect::Strict);
    let case = document
        .cases
        .iter()
        .find(|case| case.name == lost.as_str())
        .unwrap();
    assert_eq!(case.result.as_ref().unwrap().message, "no world");
}

#[test]
fn a_failure_in_any_words_is_told_in_them() {
    for text in HOSTILE {
        let mut results = sample::results(Shape {
            columns: 1,
            ..Shape::default()
        });
        let lost = results.scenarios[0].id.clone();
        results.scenarios[0].failure = Some(format!("{text} ]]></error><error>"));
        results.checks.retain(|check| check.scenario != lost);
        for dialect in DIALECTS {
            let document = valid(&results, dialect);
            let case = document
                .cases
                .iter()
                .find(|case| case.name == lost.as_str());
            let error = case.unwrap().result.as_ref().unwrap();
            assert!(error.text.ends_with(" ]]></error><error>"), "{error:?}");
        }
    }
}

#[test]
fn equal_names_are_told_apart() {
    let mut results = sample::results(Shape::default());
    let twin = results.checks[0].clone();
    results.checks.push(twin.clone());
    results.checks.push(twin);
    valid(&results, Dialect::Strict);
}

/// One failing check with a rank whose log is given.
fn with_log(folder: &Path, log: &str, bytes: &[u8]) -> Results {
    let mut results = sample::results(Shape {
        columns: 1,
        checks: 1,
        hostile: false,
    });
    results.folder = folder.to_owned();
    results.sources = vec![folder.to_owned()];
    let scenario = &mut results.scenarios[0];
    scenario.ranks = vec![RankRecord {
        rank: Rank(0),
        pid: 1,
        end: "signal 9 (SIGKILL)".into(),
        log: log.into(),
        spans: Vec::new(),
    }];
    let check = &mut results.checks[0];
    check.outcome = Outcome::Crash;
    check.verdict = Verdict::Regression;
    check.ranks = vec![RankLine {
        rank: Rank(0),
        text: "killed".into(),
    }];
    let path = folder.join(log);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
    results
}

#[test]
fn the_end_of_a_huge_log_in_no_encoding_is_quoted() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = Vec::new();
    for line in 0..40_000 {
        log.extend_from_slice(format!("line {line} ").as_bytes());
        log.extend_from_slice(HOSTILE[line % HOSTILE.len()].as_bytes());
        log.extend_from_slice(b"\xff\xfe\xed\xa0\x80 lone surrogate \xc3\n");
    }
    log.extend_from_slice(b"the last line ]]> ends it");
    assert!(log.len() > 1_500_000);
    let results = with_log(folder.path(), "logs/a/rank0.log", &log);
    for dialect in DIALECTS {
        let document = valid(&results, dialect);
        let out = document.cases[0].system_out.as_ref().unwrap();
        assert!(out.contains("logs/a/rank0.log"));
        assert!(out.contains("signal 9 (SIGKILL)"));
        assert!(
            out.ends_with("the last line ]]> ends it"),
            "{}",
            &out[out.len() - 200..]
        );
        assert!(out.len() > SYSTEM_OUT_LIMIT / 2 && out.len() <= SYSTEM_OUT_LIMIT);
    }
}

#[test]
fn files_outside_the_run_are_not_quoted() {
    let folder = tempfile::tempdir().unwrap();
    let inside = folder.path().join("run");
    let mut results = with_log(folder.path(), "secret", b"the secret");
    results.folder = inside.clone();
    results.sources = vec![inside.clone()];
    fs::create_dir_all(&inside).unwrap();
    let outside = folder.path().join("secret");
    for log in ["../secret", outside.to_str().unwrap(), "link"] {
        results.scenarios[0].ranks[0].log = log.into();
        let _ = std::os::unix::fs::symlink(&outside, inside.join("link"));
        let text = String::from_utf8(render(&results, Dialect::Strict).unwrap()).unwrap();
        assert!(!text.contains("the secret"), "{log}");
    }
    results.sources.push(folder.path().to_owned());
    let text = String::from_utf8(render(&results, Dialect::Strict).unwrap()).unwrap();
    assert!(
        text.contains("the secret"),
        "a merged folder is quoted from"
    );
}

#[test]
fn a_thousand_failures_stay_below_what_gitlab_takes() {
    let folder = tempfile::tempdir().unwrap();
    let mut results = with_log(folder.path(), "log", &b"a line of a log\n".repeat(10_000));
    let check = results.checks[0].clone();
    for index in 0..1_000 {
        let mut check = check.clone();
        check.id.0.push_str(&index.to_string());
        results.checks.push(check);
    }
    let document = valid(&results, Dialect::Extended);
    let outs = document
        .cases
        .iter()
        .filter_map(|case| case.system_out.as_ref());
    let bytes: usize = outs.map(String::len).sum();
    assert!(
        bytes > EXCERPTS_LIMIT && bytes < EXCERPTS_LIMIT + (2 << 20),
        "{bytes}"
    );
}
