//! Watches of one job on two hosts, `allranks watch --job`: one verdict for the job, by the evidence of both.

use std::fs;
use std::process::Command;

use serde_json::Value;

use super::nodes::{no_filters, no_hosts};
use super::stage::{Stage, checkout};
use super::watch::python;
use super::{Test, unless_lacking, with_torch};

/// A job of two ranks on two hosts, and what must be said of it.
struct Job {
    name: &'static str,
    /// The fault of `hosts/job.sh`.
    fault: &'static str,
    /// What the program does, of `fixtures/hangs/programs/job.py`.
    thing: &'static str,
    /// The verdict's kind and culprits, and a word in it; none: there is none.
    verdict: Option<(&'static str, &'static [u64], &'static str)>,
    codes: &'static str,
}

const JOBS: [Job; 4] = [
    Job {
        name: "healthy",
        fault: "none",
        thing: "healthy",
        verdict: None,
        codes: "codes 0 0\n",
    },
    Job {
        name: "a_collective_that_differs_on_the_other_host",
        fault: "none",
        thing: "other_collective",
        verdict: Some((
            "collective-mismatch",
            &[0, 1],
            "evidence of ranks 1 is from h2",
        )),
        codes: "codes 1 1\n",
    },
    Job {
        name: "a_rank_that_leaves_the_others_alone",
        fault: "none",
        thing: "leaves_quietly",
        verdict: Some(("collective-skipped", &[1], "evidence of ranks 1 is from h2")),
        codes: "codes 1 1\n",
    },
    Job {
        name: "the_rendezvous_is_filtered",
        fault: "master",
        thing: "healthy",
        verdict: Some(("master-unreachable", &[], "10.79.0.11:29500")),
        codes: "codes 1 1\n",
    },
];

/// Returns every trial of this file.
pub fn tests() -> Vec<Test> {
    let (hosts, filters) = (no_hosts(), no_filters());
    let test = |job: Job| {
        let name = format!("watch::job::{}", job.name);
        let lacks = match job.fault {
            "none" => &hosts,
            _ => &filters,
        };
        unless_lacking(lacks.clone(), with_torch(name, move || judge(&job)))
    };
    JOBS.into_iter().map(test).collect()
}

fn judge(job: &Job) {
    let stage = Stage::new(&format!("job-{}-{}", job.fault, job.thing));
    let temporary = stage.path("tmp");
    fs::create_dir_all(&temporary).unwrap();
    let mut command = Command::new("unshare");
    let words = [
        "--user",
        "--map-root-user",
        "--net",
        "--mount",
        "--uts",
        "sh",
    ];
    command
        .args(words)
        .arg(checkout().join("harness/tests/blackbox/hosts/job.sh"))
        .arg(env!("CARGO_BIN_EXE_allranks"))
        .arg(stage.out())
        .args([job.fault, &python(), "fixtures/hangs/programs/job.py"])
        .arg(job.thing)
        .env("TMPDIR", temporary);
    let ran = stage.start(stage.marked(command)).end();
    stage.assert_nothing_remains();
    let said = ["out.h1", "out.h2"]
        .map(|name| fs::read_to_string(stage.path(name)).unwrap_or_default())
        .join("\n-- h2:\n");
    ran.assert_code(0);
    assert_eq!(ran.stdout, job.codes, "{said}");
    let told = said.matches("allranks watch: hang: ").count();
    let Some((kind, culprits, words)) = job.verdict else {
        assert_eq!(told, 0, "{said}");
        assert!(!stage.path("out.evidence/one").exists(), "evidence is left");
        return;
    };
    assert_eq!(told, 1, "one verdict for the job: {said}");
    assert!(said.contains(words), "{said}");
    let text = fs::read_to_string(stage.path("out.json")).unwrap();
    let record: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(record["kind"], kind, "{said}");
    let found = record["culprits"].as_array().unwrap().iter();
    let found: Vec<u64> = found.filter_map(Value::as_u64).collect();
    assert_eq!(found, culprits, "{said}");
}
