//! The same checks with `--driver python` and `--driver libtorch` have the same outcome and verdict, except for what
//! `fixtures/drivers/libtorch.yaml` lists with its reason.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use allranks_model::outcome::{Outcome, Verdict};
use allranks_model::record::{CheckRecord, Reason};
use allranks_report::Results;
use allranks_runner::probe;
use regex::Regex;
use serde::Deserialize;

use super::Test;
use super::stage::{Stage, checkout, read};

/// Profile core is run in so many parts, because no command may take as long as all of it.
const PARTS: usize = 4;

pub fn tests() -> Vec<Test> {
    let with_both = |name: &str, run: fn()| Test {
        needs_libtorch: true,
        ..super::computing(format!("drivers::{name}"), run)
    };
    vec![
        with_both("agree_on_core", agree_on_core),
        with_both("a_difference_is_found", a_difference_is_found),
        with_both("tell_of_a_hang", tell_of_a_hang),
        super::with_torch("drivers::skeleton", skeleton),
    ]
}

/// The driver that vendors start from passes what it can, and fails nothing.
fn skeleton() {
    let stage = Stage::new("skeleton");
    let python = probe::python(None).path;
    let driver = format!("command:{} fixtures/drivers/skeleton.py", python.display());
    let ran = stage.run_out(&[
        "--driver",
        &driver,
        "--world-size",
        "2",
        "--filter",
        "dtype=float32",
        "cases/collectives/all_reduce.yaml",
    ]);
    ran.assert_code(0);
    let results = stage.results("out");
    let passed = results.checks.iter();
    let passed = passed
        .filter(|check| check.outcome == Outcome::Pass)
        .count();
    assert!(passed > 20, "{passed} checks passed");
}

/// All of profile core. The conformance test has recorded the results of the Python driver, if it ran before; if not, it runs here.
fn agree_on_core() {
    let part = |part| format!("{part}/{PARTS}");
    let Some(python) = recorded() else {
        for number in 1..=PARTS {
            agree(&["--profile", "core", "--shard", &part(number)]);
        }
        return;
    };
    let stage = Stage::new("drivers");
    let mut libtorch: Option<Results> = None;
    for number in 1..=PARTS {
        let selection = ["--profile", "core", "--shard", &part(number)];
        let results = run(&stage, "libtorch", &selection);
        // The next part's go into the same folder.
        fs::remove_dir_all(stage.path("libtorch")).unwrap();
        match &mut libtorch {
            None => libtorch = Some(results),
            Some(all) => all.checks.extend(results.checks),
        }
    }
    assert_alike(&python, &libtorch.unwrap());
}

/// What the conformance test has recorded of the Python driver on the host, in the folder that `ALLRANKS_CONFORMANCE` names;
/// none if there is no such folder.
fn recorded() -> Option<Results> {
    let folder = PathBuf::from(std::env::var_os("ALLRANKS_CONFORMANCE")?);
    if !folder.exists() {
        return None;
    }
    let mut results = read(&folder);
    let is_of_driver =
        |check: &CheckRecord| check.column.platform == "cpu" && check.column.driver == "python";
    results.checks.retain(is_of_driver);
    Some(results)
}

/// What is known of where the drivers part.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    cannot: Vec<UnsupportedCalls>,
    differences: Vec<Difference>,
}

/// Calls that the libtorch driver does not make.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct UnsupportedCalls {
    calls: Vec<String>,
    reason: String,
}

/// Checks whose results differ.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Difference {
    checks: String,
    python: Outcome,
    libtorch: Outcome,
    reason: String,
}

impl Known {
    fn read() -> Self {
        let path = checkout().join("fixtures/drivers/libtorch.yaml");
        let known: Self = serde_yaml::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        let mut reasons = known.cannot.iter().map(|one| &one.reason);
        let mut more = known.differences.iter().map(|one| &one.reason);
        assert!(reasons.all(|reason| !reason.is_empty()) && more.all(|reason| !reason.is_empty()));
        known
    }

    /// Returns true if it says that these two results differ.
    fn lists(&self, python: &CheckRecord, libtorch: &CheckRecord) -> bool {
        self.differences.iter().any(|one| {
            let pattern = Regex::new(&one.checks).unwrap();
            pattern.is_match(python.id.as_str())
                && (one.python, one.libtorch) == (python.outcome, libtorch.outcome)
        })
    }
}

/// The comparison of two runs of the same selection.
#[derive(Debug, Default)]
struct Compared {
    same: usize,
    /// Calls that a driver lacks, each with the number of checks that were not run because of it.
    declined: BTreeMap<String, usize>,
    listed: usize,
    /// What is written nowhere.
    complaints: Vec<String>,
}

fn compare(python: &Results, libtorch: &Results, known: &Known) -> Compared {
    let mut compared = Compared::default();
    let others: BTreeMap<_, _> = libtorch
        .checks
        .iter()
        .map(|check| (check.id.as_str(), check))
        .collect();
    let may_lack: BTreeSet<&str> = known
        .cannot
        .iter()
        .flat_map(|one| one.calls.iter().map(String::as_str))
        .collect();
    if others.len() != python.checks.len() {
        let counts = (python.checks.len(), others.len());
        compared
            .complaints
            .push(format!("{counts:?} checks with python, with libtorch"));
    }
    for one in &python.checks {
        let Some(other) = others.get(one.id.as_str()) else {
            compared.complaints.push(format!("{}: only python", one.id));
            continue;
        };
        let lacks = other
            .summary
            .strip_prefix("the libtorch driver has no call `")
            .and_then(|rest| Some(rest.split_once('`')?.0))
            .filter(|_| other.outcome == Outcome::NotRun);
        if let Some(call) = lacks.filter(|call| may_lack.contains(call)) {
            *compared.declined.entry(call.to_owned()).or_default() += 1;
        } else if (one.outcome, one.verdict) == (other.outcome, other.verdict)
            || comes_and_goes(one, other)
        {
            compared.same += 1;
        } else if known.lists(one, other) {
            compared.listed += 1;
        } else {
            compared.complaints.push(format!(
                "{}: {:?}, {:?} with python; {:?}, {:?} with libtorch: {}",
                one.id, one.outcome, one.verdict, other.outcome, other.verdict, other.summary
            ));
        }
    }
    compared
}

/// Returns true if an entry says that this fails now and then, and it has with one driver only.
fn comes_and_goes(one: &CheckRecord, other: &CheckRecord) -> bool {
    let fits =
        |check: &CheckRecord| [Verdict::Expected, Verdict::KnownFailure].contains(&check.verdict);
    one.expectation.is_some() && one.expectation == other.expectation && fits(one) && fits(other)
}

/// Runs a selection with one driver.
fn run(stage: &Stage, driver: &str, selection: &[&str]) -> Results {
    let out = stage.path(driver).display().to_string();
    let mut arguments = vec!["run"];
    arguments.extend(selection);
    arguments.extend(["--platform", "cpu", "--driver", driver, "--out", &out]);
    let ran = stage.run(&arguments);
    // 4: what it cannot do is not run, and said to be missing.
    let expected = [0, if driver == "libtorch" { 4 } else { 0 }];
    assert!(
        expected.contains(&ran.code),
        "{driver} ended with {}:\n{}{}",
        ran.code,
        ran.stdout,
        ran.stderr
    );
    let results = stage.results(driver);
    assert!(!results.checks.is_empty());
    for check in &results.checks {
        assert_eq!(check.column.driver, driver);
    }
    results
}

fn agree(selection: &[&str]) {
    let stage = Stage::new("drivers");
    let [python, libtorch] = ["python", "libtorch"].map(|driver| run(&stage, driver, selection));
    assert_alike(&python, &libtorch);
}

/// The drivers have the same results, except for the differences that are known.
fn assert_alike(python: &Results, libtorch: &Results) {
    let compared = compare(python, libtorch, &Known::read());
    assert_eq!(compared.complaints, Vec::<String>::new(), "{compared:#?}");
    assert!(compared.same > 0);
}

/// The comparison itself: a verdict that is changed, and a check that is declined for a call that is not listed.
fn a_difference_is_found() {
    let stage = Stage::new("drivers-differ");
    let selection = ["--profile", "smoke", "--world-size", "2"];
    let [mut python, mut libtorch] =
        ["python", "libtorch"].map(|driver| run(&stage, driver, &selection));
    let mut known = Known::read();
    let before = compare(&python, &libtorch, &known);
    assert_eq!(before.complaints.len(), 0);
    assert_eq!(
        before.declined.keys().collect::<Vec<_>>(),
        ["all_gather_object"]
    );

    let changed = libtorch
        .checks
        .iter_mut()
        .find(|check| check.outcome == Outcome::Pass)
        .unwrap();
    changed.outcome = Outcome::Mismatch;
    let id = changed.id.to_string();
    let complaints = compare(&python, &libtorch, &known).complaints;
    assert!(
        matches!(&complaints[..], [one] if one.starts_with(&id)),
        "{complaints:?}"
    );

    known.differences.push(Difference {
        checks: regex::escape(&id),
        python: Outcome::Pass,
        libtorch: Outcome::Mismatch,
        reason: "a reason".to_owned(),
    });
    assert_eq!(compare(&python, &libtorch, &known).listed, 1);
    // An intermittent failure is no difference, if the same entry says so of both.
    known.differences.clear();
    let entry = Some(Reason {
        at: "known.yaml:1".to_owned(),
        text: "It fails now and then.".to_owned(),
        url: None,
    });
    let changed = libtorch
        .checks
        .iter_mut()
        .find(|check| check.id.as_str() == id);
    let changed = changed.unwrap();
    (changed.verdict, changed.expectation) = (Verdict::KnownFailure, entry.clone());
    assert_eq!(compare(&python, &libtorch, &known).complaints.len(), 1);
    let same = python
        .checks
        .iter_mut()
        .find(|check| check.id.as_str() == id);
    same.unwrap().expectation = entry;
    assert_eq!(compare(&python, &libtorch, &known).complaints.len(), 0);
    known.cannot.clear();
    let complaints = compare(&python, &libtorch, &known).complaints;
    assert!(
        complaints[0].contains("all_gather_object"),
        "{complaints:?}"
    );
}

/// What the flight recorders of hung ranks have under way is quoted by the verdict, and is the same with both.
fn tell_of_a_hang() {
    const TOLD: &str = "flight recorder of rank 0: all_reduce number 2 of group 0 default_pg, ";
    let stage = Stage::new("drivers-hang");
    let case = stage.write(
        "case.yaml",
        "id: case\ntitle: rank 1 leaves out the second sum\ncovers: [DIAG-003]\n\
         world: {size: 2, timeout_s: 15, deadline_s: 40}\n\
         steps:\n  - script:\n      name: skipped\n      hang: {kind: collective-skipped, culprit: last}\n      moves:\n\
         \x20       - all_reduce: {}\n        - all_reduce: {judged: false}\n          on: first\n\
         \x20       - sleep: {ms: 20000}\n          on: last\n",
    );
    for driver in ["python", "libtorch"] {
        let results = run(&stage, driver, &[&case]);
        let told: Vec<&String> = results
            .checks
            .iter()
            .filter_map(|check| check.diagnosis.as_ref())
            .flat_map(|told| &told.evidence)
            .filter(|line| line.starts_with("flight recorder"))
            .collect();
        assert!(
            matches!(&told[..], [one] if one.starts_with(TOLD)),
            "{driver}: {told:?}"
        );
    }
}
