//! A month of nightly runs, stored and looked at: two regressions and a fix, each with a change of the environment, one flaky check,
//! and a run that was cut off. The runs are made up, record by record.

use std::collections::BTreeMap;
use std::path::PathBuf;

use allranks_model::evidence::Evidence;
use allranks_model::names::WorldSize;
use allranks_model::outcome::{Outcome, Verdict};
use allranks_model::record::{
    CheckRecord, Column, Counts, EndRecord, FORMAT, Record, RunRecord, ScenarioRecord,
};
use serde_json::{Value, json};

use super::stage::Stage;
use super::{Test, plain};

const NIGHTS: usize = 30;
/// The first night with torch 2.11.0, which breaks a sum.
const NEW_TORCH: usize = 11;
/// The first night with another kernel, on which a comparison of NaN is right again.
const NEW_KERNEL: usize = 17;
/// The first night with another driver, on which sends hang.
const NEW_DRIVER: usize = 21;
/// The nights on which a check fails by itself.
const FLAKES: [usize; 3] = [4, 8, 25];
/// The night that was cut off.
const CUT_OFF: usize = 14;

const CASES: [&str; 4] = [
    "collectives/all_reduce/dtypes",
    "p2p/pairs",
    "groups/subgroups",
    "numerics/special_values",
];

/// Returns every trial of this file.
pub fn tests() -> Vec<Test> {
    vec![
        plain("history::a_month_on_the_console", show_on_console),
        plain("history::a_month_on_the_page", show_on_page),
        plain("history::a_month_as_json", show_as_json),
        plain("history::of_runs_added_at_once_and_twice", add_at_once),
        plain("history::of_what_cannot_be_used", refuse),
    ]
}

/// A stage with the runs of a month.
fn month(name: &str) -> (Stage, Vec<String>) {
    let stage = Stage::new(name);
    let runs = (0..NIGHTS).map(|night| write(&stage, night)).collect();
    (stage, runs)
}

fn torch(night: usize) -> &'static str {
    match night < NEW_TORCH {
        true => "2.10.0",
        false => "2.11.0",
    }
}

/// Writes the folder of a night.
pub fn write(stage: &Stage, night: usize) -> String {
    let name = format!("night{:02}", night + 1);
    let checks: Vec<CheckRecord> = CASES
        .iter()
        .flat_map(|case| [2, 4].map(|size| (*case, size)))
        .flat_map(|(case, size)| (0..5).map(move |index| check(night, case, size, index)))
        .collect();
    let run = RunRecord {
        format: FORMAT,
        allranks: "0.1.0".into(),
        name: name.clone(),
        started: 1_793_491_200 + 86_400 * night as u64,
        seed: 1,
        profile: Some("core".into()),
        arguments: vec!["run".into()],
        planned: Counts {
            scenarios: 0,
            checks: checks.len() as u64,
        },
        requirements: BTreeMap::new(),
        absent: Vec::new(),
        origin: None,
    };
    let is_cut_off = night == CUT_OFF;
    let kept = if is_cut_off {
        checks.len() / 2
    } else {
        checks.len()
    };
    let failing = checks.iter().any(|check| check.status().is_failing());
    let mut records = vec![Record::Run(run)];
    let scenarios: Vec<Record> = checks.iter().step_by(5).map(scenario).collect();
    records.extend(
        checks
            .into_iter()
            .take(kept)
            .map(Box::new)
            .map(Record::Check),
    );
    if !is_cut_off {
        records.extend(scenarios);
        records.push(Record::End(EndRecord {
            format: FORMAT,
            duration_ms: 60_000,
            verdicts: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            issues: Vec::new(),
            exit_code: u8::from(failing),
        }));
    }
    let lines: Vec<String> = records
        .iter()
        .map(|record| serde_json::to_string(record).unwrap() + "\n")
        .collect();
    stage.write(&format!("{name}/results.jsonl"), &lines.concat());
    let environment = json!({
        "format": 1,
        "system": if night < NEW_KERNEL { "Linux 6.1.0 x86_64" } else { "Linux 6.6.0 x86_64" },
        "network": {"hostname": "node1"},
        "devices": [{
            "name": "Pretended 1",
            "driver": if night < NEW_DRIVER { "580.1" } else { "580.2" },
        }],
        "torch": {"import": {"works": {"version": torch(night), "nccl": "2.28.9"}}},
    });
    stage.write(
        &format!("{name}/environment.json"),
        &environment.to_string(),
    );
    stage.path(&name).display().to_string()
}

fn scenario(check: &CheckRecord) -> Record {
    Record::Scenario(Box::new(ScenarioRecord {
        format: FORMAT,
        id: check.scenario.clone(),
        case: check.case.clone(),
        title: "made up".into(),
        column: check.column.clone(),
        failure: None,
        start_ms: 0,
        duration_ms: 10,
        worlds: 1,
        ranks: Vec::new(),
    }))
}

fn check(night: usize, case: &str, size: u32, index: usize) -> CheckRecord {
    let scenario = format!("{case}@cpu.gloo.ws{size}");
    let (outcome, class, summary) = match (case, size, index) {
        ("collectives/all_reduce/dtypes", ..) if night >= NEW_TORCH => (
            Outcome::Mismatch,
            Some("avg-divided-twice"),
            "divided twice",
        ),
        ("p2p/pairs", 4, _) if night >= NEW_DRIVER => {
            (Outcome::Hang, None, "rank 1 waits for rank 0")
        }
        ("groups/subgroups", 2, 3) if FLAKES.contains(&night) => {
            (Outcome::Error, None, "connection reset by peer")
        }
        ("numerics/special_values", ..) if night < NEW_KERNEL => {
            (Outcome::Mismatch, Some("nan-dropped"), "a NaN is lost")
        }
        _ => (Outcome::Pass, None, ""),
    };
    CheckRecord {
        format: FORMAT,
        id: format!("{scenario}#0.call.{index}").as_str().into(),
        scenario: scenario.as_str().into(),
        case: case.into(),
        column: Column {
            platform: "cpu".into(),
            backend: "gloo".into(),
            world_size: WorldSize(size),
            nodes: 1,
            driver: "python".into(),
            launcher: "local".into(),
            evidence: Evidence::Host,
            torch: torch(night).into(),
            label: String::new(),
        },
        covers: vec!["COLL-001".into()],
        params: BTreeMap::new(),
        at: "made_up.yaml:1".into(),
        outcome,
        verdict: match outcome {
            Outcome::Pass => Verdict::Expected,
            _ => Verdict::Regression,
        },
        summary: summary.into(),
        remark: None,
        class: class.map(str::to_owned),
        difference: None,
        ranks: Vec::new(),
        diagnosis: None,
        expectation: None,
        observations: BTreeMap::new(),
        checked: vec![33; size as usize],
        duration_us: 10,
    }
}

/// Stores all runs, in another order than they ran in.
fn store(stage: &Stage, runs: &[String]) -> String {
    let db = stage.path("history.sqlite").display().to_string();
    let mut arguments = vec!["history", "add", "--db", &db];
    arguments.extend(runs.iter().rev().map(String::as_str));
    let ran = stage.run(&arguments);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(
        ran.stdout
            .contains("stored night15: 20 checks; 20 planned checks left no record"),
        "{}",
        ran.stdout
    );
    db
}

const OWNERS: &str = "collectives/ @sums\np2p/ @sends\n";

fn show_on_console() {
    let (stage, runs) = month("history");
    let db = store(&stage, &runs);
    let owners = stage.write("OWNERS", OWNERS);
    let ran = stage.run(&["history", "--db", &db, "--owners", &owners]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    // What a terminal shows without scrolling back far: the causes stand before the list of runs.
    let (first, runs) = ran.stdout.split_once("2026-11-01  night01").unwrap();
    let blocks: Vec<&str> = first.split("\n\n").map(str::trim).collect();
    let [head, sends, sums, flaky, fixed, _] = blocks.as_slice() else {
        panic!("{first}");
    };
    assert_eq!(
        *head,
        "30 runs of pipeline nightly, 2026-11-01 to 2026-11-30"
    );
    let holds = |block: &str, texts: &[&str]| {
        for text in texts {
            assert!(block.contains(text), "no `{text}` in:\n{block}");
        }
    };
    holds(
        sends,
        &[
            "✗ broken  5 checks  hang: rank 1 waits for rank 0",
            "since  night22 (2026-11-22)",
            "changed  driver 580.1 → 580.2\n",
            "cpu/gloo/ws4\n",
            "@sends",
        ],
    );
    holds(
        sums,
        &[
            "✗ broken  10 checks  avg-divided-twice",
            "since  night12 (2026-11-12)",
            "changed  torch 2.10.0 → 2.11.0\n",
            "cpu/gloo/ws2, cpu/gloo/ws4",
            "@sums",
        ],
    );
    holds(
        flaky,
        &[
            "~ flaky  1 check  error: connection reset by peer",
            "groups/subgroups@cpu.gloo.ws2#0.call.3",
            "in 3 of 29 runs (4–26 %)",
        ],
    );
    assert!(!flaky.contains("changed"), "{flaky}");
    holds(
        fixed,
        &[
            "✓ fixed  10 checks  nan-dropped",
            "since  night18 (2026-11-18)",
            "changed  kernel Linux 6.1.0 x86_64 → Linux 6.6.0 x86_64\n",
        ],
    );
    holds(
        runs,
        &["20 without a record, not whole", "[torch 2.10.0 → 2.11.0]"],
    );
    assert!(
        runs.ends_with("checks: 15 broken, 1 flaky, 10 fixed, 14 steady\n"),
        "{runs}"
    );

    let ran = stage.run(&[
        "history",
        "--db",
        &db,
        "--last",
        "5",
        "subgroups",
        "ws2",
        "COLL-001",
    ]);
    holds(
        &ran.stdout,
        &["groups/subgroups@cpu.gloo.ws2#0.call.3  cpu/gloo/ws2\n  ✗✓✓✓✓  failed in 1 of 5"],
    );
    assert!(!ran.stdout.contains("p2p"), "{}", ran.stdout);
}

/// The data of the page in a folder.
fn page(folder: PathBuf) -> Value {
    let page = std::fs::read_to_string(folder.join("report.html")).unwrap();
    let (_, data) = page.split_once("id=\"data\">").unwrap();
    serde_json::from_str(data.split_once("</script").unwrap().0).unwrap()
}

fn show_on_page() {
    let (stage, runs) = month("history-page");
    // The newest is not stored: the page takes it from its folder.
    let db = store(&stage, &runs[..NIGHTS - 1]);
    let newest = &runs[NIGHTS - 1];
    let ran = stage.run(&["report", newest, "--history", &db]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    let data = page(PathBuf::from(newest));
    let trend = &data["trend"];
    assert_eq!(trend["nights"].as_array().unwrap().len(), NIGHTS);
    assert_eq!(trend["nights"][CUT_OFF]["missing"], 20);
    let told: Vec<(&str, &str)> = trend["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| {
            (
                group["words"].as_str().unwrap(),
                group["changed"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("broken", "driver 580.1 → 580.2"),
            ("broken", "torch 2.10.0 → 2.11.0"),
            ("flaky", ""),
            ("fixed", "kernel Linux 6.1.0 x86_64 → Linux 6.6.0 x86_64"),
        ]
    );
    let summary = std::fs::read_to_string(PathBuf::from(newest).join("summary.md")).unwrap();
    assert!(
        summary.contains("### Over 30 runs") && summary.contains("torch 2.10.0 → 2.11.0"),
        "{summary}"
    );

    // An older run is compared with those before it alone, though later ones are stored.
    let older = &runs[NEW_TORCH];
    stage.run(&["report", older, "--history", &db]);
    let data = page(PathBuf::from(older));
    assert_eq!(
        data["trend"]["nights"].as_array().unwrap().len(),
        NEW_TORCH + 1
    );
    assert_eq!(data["trend"]["groups"][0]["words"], "newly broken");
}

fn show_as_json() {
    let (stage, runs) = month("history-json");
    let db = store(&stage, &runs);
    let ran = stage.run(&["history", "--db", &db, "--json"]);
    let whole: Value = serde_json::from_str(&ran.stdout).unwrap();
    let trend = &whole["pipelines"][0];
    assert_eq!(trend["pipeline"], "nightly");
    assert_eq!(trend["checks"].as_array().unwrap().len(), 26);
    let group = &trend["groups"][0];
    assert_eq!(
        (&group["course"], &group["checks"]),
        (&json!("broken"), &json!(5))
    );
    assert_eq!(
        group["turn"],
        json!({
            "before": NEW_DRIVER - 1,
            "after": NEW_DRIVER,
            "changes": [{"name": "driver", "old": "580.1", "new": "580.2"}],
            "is_known": true,
        })
    );
    // The run that was cut off says nothing of the checks after that.
    let marks = trend["checks"].as_array().unwrap().iter();
    let lost: Vec<&Value> = marks
        .filter(|check| check["marks"][CUT_OFF].is_null())
        .collect();
    assert!(!lost.is_empty());
    assert!(lost.iter().all(|check| check["ran"] == NIGHTS - 1));
}

fn add_at_once() {
    let (stage, runs) = month("history-at-once");
    let db = stage.path("all.sqlite").display().to_string();
    // Every run twice, all at the same time, into a file that is not there yet.
    let running: Vec<_> = runs
        .iter()
        .chain(&runs)
        .map(|run| stage.start(stage.command(&["history", "add", "--db", &db, run])))
        .collect();
    let mut stored = 0;
    for one in running {
        let ran = one.end();
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        stored += usize::from(ran.stdout.starts_with("stored "));
    }
    assert_eq!(stored, NIGHTS);
    let ran = stage.run(&["history", "--db", &db]);
    assert!(
        ran.stdout.starts_with("30 runs of pipeline nightly"),
        "{}",
        ran.stdout
    );
    assert!(!stage.path("all.sqlite-journal").exists());
}

fn refuse() {
    let stage = Stage::new("history-refuse");
    let run = write(&stage, 0);
    let text = stage.write(
        "text.sqlite",
        "this is no database, but a text that is long enough to look like one\n",
    );
    let db = stage.path("db").display().to_string();
    for (arguments, code, said) in [
        (vec!["history", "--db", &db], 2, "there is no file"),
        (
            vec!["report", &run, "--history", &db],
            2,
            "there is no file",
        ),
        (
            vec!["history", "add", &run, "--db", &text],
            2,
            "is no history of allranks",
        ),
        (vec!["history", "add", "nowhere", "--db", &db], 2, "nowhere"),
        (vec!["history", "add", &run, "--db", &db], 0, ""),
        (
            vec!["history", "--db", &db, "nosuchcheck"],
            3,
            "no check matches",
        ),
        (
            vec!["history", "--db", &db, "--pipeline", "other"],
            3,
            "has no such run",
        ),
    ] {
        let ran = stage.run(&arguments);
        assert_eq!(ran.code, code, "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(said), "{arguments:?}: {}", ran.stderr);
    }
    // Another result under the name and the time of a whole run.
    let path = PathBuf::from(&run).join("results.jsonl");
    let edited = std::fs::read_to_string(&path)
        .unwrap()
        .replacen("regression", "expected", 1);
    std::fs::write(&path, edited).unwrap();
    let ran = stage.run(&["history", "add", &run, "--db", &db]);
    assert_eq!(ran.code, 2);
    assert!(
        ran.stderr
            .contains("stored already, whole and with other results"),
        "{}",
        ran.stderr
    );
}
