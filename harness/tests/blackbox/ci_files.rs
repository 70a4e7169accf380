//! The files of `ci/examples`, and `ci/nightly`, which all of them call.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_yaml::Value;

use super::history;
use super::stage::{Ran, Stage, checkout};
use super::{Test, plain};

const FILES: [&str; 5] = [
    "github.yml",
    "gitlab.yml",
    "buildkite.yml",
    "Jenkinsfile",
    "allranks-nightly.service",
];

/// Returns every trial of this file.
pub fn tests() -> Vec<Test> {
    vec![
        plain("ci_files::are_what_their_systems_read", read_examples),
        plain("ci_files::give_options_that_exist", know_options),
        plain("ci_files::a_merged_night_with_its_summaries", merge_night),
        plain("ci_files::a_night_over_another", refuse_used_folder),
    ]
}

fn text(name: &str) -> String {
    fs::read_to_string(checkout().join("ci/examples").join(name)).unwrap()
}

fn yaml(name: &str) -> Value {
    serde_yaml::from_str(&text(name)).unwrap()
}

/// What can be said without the systems' own schemas, which `ci/lint-ci` asks.
fn read_examples() {
    let github = yaml("github.yml");
    let jobs = github["jobs"].as_mapping().unwrap();
    for (name, job) in jobs {
        assert!(job["timeout-minutes"].is_number(), "{name:?}");
        let steps = job["steps"].as_sequence().unwrap();
        let runs = steps.iter().filter_map(|step| step["run"].as_str());
        assert!(
            runs.clone().any(|run| run.starts_with("ci/nightly ")),
            "{name:?}"
        );
        // Artefacts are wanted most of what failed.
        for step in steps {
            let uses = step["uses"].as_str().unwrap_or_default();
            if uses.starts_with("actions/upload-artifact") {
                assert_eq!(step["if"].as_str(), Some("always()"), "{name:?}");
            }
        }
        let needs = job["needs"].as_str();
        assert!(
            needs.is_none_or(|needs| jobs.contains_key(needs)),
            "{name:?}"
        );
    }
    let shards = &github["jobs"]["shard"]["strategy"]["matrix"]["part"];
    let run = github["jobs"]["shard"]["steps"][1]["run"].as_str().unwrap();
    let all = shards.as_sequence().unwrap().len();
    assert!(run.contains(&format!("/{all}")), "{run}");

    let gitlab = yaml("gitlab.yml");
    let stages = gitlab["stages"].as_sequence().unwrap();
    for job in ["core", "shard", "merge", "hardware"] {
        assert!(stages.contains(&gitlab[job]["stage"]), "{job}");
        let script = gitlab[job]["script"][0].as_str().unwrap();
        assert!(script.contains("ci/nightly "), "{script}");
    }
    let reports = &gitlab[".results"]["artifacts"]["reports"];
    assert_eq!(reports["junit"], "target/nightly/junit.xml");
    assert_eq!(reports["metrics"], "target/nightly/metrics.txt");

    let buildkite = yaml("buildkite.yml");
    let steps = buildkite["steps"].as_sequence().unwrap();
    let keys: BTreeSet<&str> = steps
        .iter()
        .map(|step| step["key"].as_str().unwrap())
        .collect();
    assert_eq!(keys.len(), steps.len());
    for step in steps {
        assert!(
            step["command"].as_str().unwrap().contains("ci/nightly "),
            "{step:?}"
        );
        let needs = step["depends_on"].as_str();
        assert!(needs.is_none_or(|needs| keys.contains(needs)), "{step:?}");
    }

    let jenkins = text("Jenkinsfile");
    let count = |bracket: char| jenkins.chars().filter(|one| *one == bracket).count();
    assert_eq!(count('{'), count('}'));
    assert_eq!(count('['), count(']'));
    // A step `junit` for every folder of results, so that nothing fails unseen.
    assert_eq!(
        jenkins.matches("junit 'target/nightly/junit.xml'").count(),
        3
    );

    let service = text("allranks-nightly.service");
    assert!(
        service.contains("\nExecStart=/opt/allranks/ci/nightly "),
        "{service}"
    );
    assert!(text("allranks-nightly.timer").contains("\nOnCalendar="));
}

/// Each option that the files hand to `ci/nightly` is one of `allranks run`.
fn know_options() {
    let stage = Stage::new("ci-options");
    let help = stage.run(&["run", "--help"]).stdout;
    for file in FILES {
        for line in text(file)
            .lines()
            .filter(|line| line.contains("ci/nightly --"))
        {
            let (_, words) = line.split_once("ci/nightly").unwrap();
            for word in words
                .split_whitespace()
                .filter(|word| word.starts_with("--"))
            {
                let word = word.trim_matches(|one: char| !(one.is_ascii_lowercase() || one == '-'));
                let is_known = word == "--merge" || help.contains(&format!("{word} <"));
                assert!(is_known, "{file}: {word} in {line}");
            }
        }
    }
}

/// `ci/nightly` with the binary under test, on the stage.
fn nightly(stage: &Stage, arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
    let mut command = Command::new(checkout().join("ci/nightly"));
    command
        .args(arguments)
        .env("ALLRANKS_BIN", env!("CARGO_BIN_EXE_allranks"))
        .env("ALLRANKS_OUT", stage.out())
        .env_remove("GITHUB_STEP_SUMMARY")
        .env_remove("BUILDKITE")
        .envs(variables.iter().copied());
    stage.start(stage.marked(command)).end()
}

fn merge_night() {
    let stage = Stage::new("ci-night");
    let (before, last) = (history::write(&stage, 20), history::write(&stage, 21));
    let db = stage.path("history.sqlite").display().to_string();
    let stored = stage.run(&["history", "add", &before, "--db", &db]);
    assert_eq!(stored.code, 0, "{}", stored.stderr);
    let summary = stage.write("step-summary.md", "what was there\n");
    let agent = stage.write(
        "bin/buildkite-agent",
        "#!/bin/sh\nd=$(dirname \"$0\")\necho \"$@\" >\"$d/arguments\"\ncat >\"$d/annotation\"\n",
    );
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
    let bin = Path::new(&agent).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let variables = [
        ("ALLRANKS_HISTORY", db.as_str()),
        ("GITHUB_STEP_SUMMARY", &summary),
        ("BUILDKITE", "true"),
        ("BUILDKITE_LABEL", "night"),
        ("PATH", &path),
    ];
    let ran = nightly(&stage, &["--merge", &last], &variables);
    // Something failed, though all of it was merged.
    assert_eq!(ran.code, 1, "{}{}", ran.stdout, ran.stderr);
    let written = fs::read_to_string(&summary).unwrap();
    let cause = "driver 580.1 → 580.2";
    assert!(written.starts_with("what was there\n## "), "{written}");
    assert!(
        written.contains("newly broken") && written.contains(cause),
        "{written}"
    );
    let read = |name: &str| fs::read_to_string(bin.join(name)).unwrap();
    assert_eq!(
        read("arguments"),
        "annotate --style error --context allranks-night\n"
    );
    assert!(written.ends_with(&read("annotation")));
    let metrics = fs::read_to_string(stage.out().join("metrics.txt")).unwrap();
    let failed = "allranks_checks{column=\"cpu/gloo/ws4\",status=\"regression\"} 10\n";
    assert!(
        metrics.contains(failed) && metrics.ends_with("# EOF\n"),
        "{metrics}"
    );
    let shown = stage.run(&["history", "--db", &db]);
    assert!(
        shown.stdout.starts_with("2 runs of pipeline nightly"),
        "{}",
        shown.stdout
    );
}

/// A run that cannot begin must not pass for the one that lies in its folder.
fn refuse_used_folder() {
    let stage = Stage::new("ci-used");
    fs::rename(history::write(&stage, 0), stage.out()).unwrap();
    let summary = stage.write("step-summary.md", "");
    let ran = nightly(
        &stage,
        &["--profile", "smoke"],
        &[("GITHUB_STEP_SUMMARY", &summary)],
    );
    assert_eq!(ran.code, 2);
    assert!(
        ran.stderr.contains("holds the results of another run"),
        "{}",
        ran.stderr
    );
    assert_eq!(fs::read_to_string(&summary).unwrap(), "");
}
