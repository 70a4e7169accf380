//! Runs that were cut off, several versions of torch, and runs of several pipelines.

use std::collections::BTreeMap;
use std::path::PathBuf;

use allranks_history::{Added, Identity, Store};
use allranks_model::evidence::Evidence;
use allranks_model::names::WorldSize;
use allranks_model::outcome::{Outcome, Verdict};
use allranks_model::record::{CheckRecord, Column, Counts, EndRecord, FORMAT, RunRecord};
use allranks_model::status::Status;
use allranks_report::Results;
use allranks_report::past_runs::Facts;

fn check(name: &str, torch: &str, outcome: Outcome) -> CheckRecord {
    CheckRecord {
        format: FORMAT,
        id: format!("case@cpu.gloo.ws2#{name}").as_str().into(),
        scenario: "case@cpu.gloo.ws2".into(),
        case: "case".into(),
        column: Column {
            platform: "cpu".into(),
            backend: "gloo".into(),
            world_size: WorldSize(2),
            nodes: 1,
            driver: "python".into(),
            launcher: "local".into(),
            evidence: Evidence::Simulated,
            torch: torch.into(),
            label: String::new(),
        },
        covers: vec!["COLL-001".into(), "TYPE-002".into()],
        params: BTreeMap::new(),
        at: String::new(),
        outcome,
        verdict: match outcome {
            Outcome::Pass => Verdict::Expected,
            Outcome::NotRun => Verdict::NotRun,
            _ => Verdict::Regression,
        },
        summary: String::new(),
        remark: None,
        class: None,
        difference: None,
        ranks: Vec::new(),
        diagnosis: None,
        expectation: None,
        observations: BTreeMap::new(),
        checked: Vec::new(),
        duration_us: 1,
    }
}

fn run(started: u64, planned: u64, checks: Vec<CheckRecord>, has_ended: bool) -> Results {
    let mut results = Results::new(
        PathBuf::from("."),
        RunRecord {
            format: FORMAT,
            allranks: "0.1.0".into(),
            name: format!("run{started}"),
            started,
            seed: 1,
            profile: None,
            arguments: Vec::new(),
            planned: Counts {
                scenarios: 1,
                checks: planned,
            },
            requirements: BTreeMap::new(),
            absent: Vec::new(),
            origin: None,
        },
    );
    results.checks = checks;
    results.end = has_ended.then(|| EndRecord {
        format: FORMAT,
        duration_ms: 1,
        verdicts: BTreeMap::new(),
        outcomes: BTreeMap::new(),
        issues: Vec::new(),
        exit_code: 0,
    });
    results
}

fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::create(&folder.path().join("history.sqlite")).unwrap();
    (folder, store)
}

fn statuses(store: &Store, pipeline: &str) -> Vec<(String, Vec<Option<Status>>)> {
    let past_runs = store.past_runs(pipeline, 30, None).unwrap();
    let of = |marks: &[Option<allranks_report::past_runs::Mark>]| {
        marks
            .iter()
            .map(|mark| mark.map(|mark| mark.status))
            .collect()
    };
    let mut told: Vec<_> = past_runs
        .series
        .iter()
        .map(|one| (format!("{} {}", one.id, one.column.torch), of(&one.marks)))
        .collect();
    told.sort_by(|one, other| one.0.cmp(&other.0));
    told
}

/// One of two results of a check would take the place of the other.
#[test]
fn a_merge_with_labels_is_refused() {
    let (_folder, mut store) = store();
    let mut check = check("a", "2.11.0", Outcome::Pass);
    check.column.label = "0.4.0".into();
    let results = run(1, 1, vec![check], true);
    let error = store.add(&results, &Facts::new(), "nightly").unwrap_err();
    assert!(error.to_string().contains("0.4.0"), "{error}");
}

#[test]
fn a_run_that_was_cut_off_passes_nothing_and_is_replaced_when_there_is_more_of_it() {
    let (_folder, mut store) = store();
    let facts = Facts::new();
    let pass = |name: &str| check(name, "2.11.0", Outcome::Pass);
    let whole = run(1, 2, vec![pass("a"), pass("b")], true);
    let part = run(2, 2, vec![pass("a")], false);
    assert_eq!(store.add(&whole, &facts, "nightly").unwrap(), Added::New);
    assert_eq!(store.add(&part, &facts, "nightly").unwrap(), Added::New);
    assert_eq!(store.add(&part, &facts, "nightly").unwrap(), Added::Already);
    let passed = Some(Status::Passed);
    assert_eq!(
        statuses(&store, "nightly"),
        [
            ("case@cpu.gloo.ws2#a ".to_owned(), vec![passed, passed]),
            ("case@cpu.gloo.ws2#b ".to_owned(), vec![passed, None]),
        ]
    );
    let past_runs = store.past_runs("nightly", 30, None).unwrap().runs;
    assert_eq!(
        past_runs
            .iter()
            .map(|past_run| (past_run.is_whole, past_run.missing))
            .collect::<Vec<_>>(),
        [(true, 0), (false, 1)]
    );
    let more = run(
        2,
        2,
        vec![pass("a"), check("b", "2.11.0", Outcome::Hang)],
        true,
    );
    assert_eq!(
        store.add(&more, &facts, "nightly").unwrap(),
        Added::Continued
    );
    assert_eq!(
        statuses(&store, "nightly")[1].1,
        [passed, Some(Status::Regression)]
    );
    // An older copy takes nothing back, and what is whole does not change.
    assert!(store.add(&part, &facts, "nightly").is_err());
    let past_runs = store.past_runs("nightly", 30, None).unwrap().runs;
    assert_eq!(past_runs.len(), 2);
    assert!(past_runs[1].is_whole);
}

#[test]
fn a_series_goes_on_with_another_torch_but_where_one_run_has_several() {
    let (_folder, mut store) = store();
    let facts = Facts::new();
    let one = |torch: &str| check("a", torch, Outcome::Pass);
    for (started, torch) in [(1, "2.10.0"), (2, "2.11.0")] {
        store
            .add(&run(started, 1, vec![one(torch)], true), &facts, "nightly")
            .unwrap();
    }
    assert_eq!(statuses(&store, "nightly").len(), 1);
    let both = run(3, 2, vec![one("2.10.0"), one("2.11.0")], true);
    store.add(&both, &facts, "versions").unwrap();
    let told = statuses(&store, "versions");
    assert_eq!(
        told.iter()
            .map(|(name, _)| name.as_str())
            .collect::<Vec<_>>(),
        ["case@cpu.gloo.ws2#a 2.10.0", "case@cpu.gloo.ws2#a 2.11.0"]
    );
    assert_eq!(store.pipelines().unwrap(), ["nightly", "versions"]);
}

#[test]
fn the_store_gives_back_what_the_results_say() {
    let (folder, mut store) = store();
    let facts = Facts::from([("kernel".to_owned(), "Linux".to_owned())]);
    let results = run(
        1,
        2,
        vec![
            check("a", "2.11.0", Outcome::Hang),
            check("b", "", Outcome::NotRun),
        ],
        true,
    );
    store.add(&results, &facts, "nightly").unwrap();
    drop(store);
    let store = Store::open(&folder.path().join("history.sqlite")).unwrap();
    let stored = store.past_runs("nightly", 30, None).unwrap();
    let mut wanted = allranks_report::past_runs::PastRuns::new("nightly");
    wanted.push(&results, facts.clone());
    assert_eq!(stored.runs, wanted.runs);
    let told = |past_runs: &allranks_report::past_runs::PastRuns| {
        let mut told: Vec<_> = past_runs
            .series
            .iter()
            .map(|one| {
                let mark = one.marks[0].unwrap();
                let texts = (
                    past_runs.texts[mark.torch].clone(),
                    past_runs.texts[mark.kind].clone(),
                );
                (
                    one.id.clone(),
                    one.column.clone(),
                    one.covers.clone(),
                    mark.status,
                    texts,
                )
            })
            .collect();
        told.sort_by(|one, other| one.0.cmp(&other.0));
        told
    };
    assert_eq!(told(&stored), told(&wanted));
    let identity = Identity::of(&results, &facts);
    let found = store.find(&results).unwrap().unwrap();
    assert_eq!(
        (&found.identity, found.pipeline.as_str(), &found.facts),
        (&identity, "nightly", &facts)
    );
    let other = run(1, 2, Vec::new(), true);
    assert_eq!(store.find(&other).unwrap(), None);
    assert!(
        store
            .past_runs("nightly", 30, Some((&identity, 1)))
            .unwrap()
            .runs
            .is_empty()
    );
}
