//! Logs in `fixtures/logs/`, each folder with a label that says what is wrong with the job and which ranks caused it. The
//! binary reads each folder and must say the same; a rank that is named and that no label names is accused falsely.
//!
//! A world of ten thousand ranks, made here, is read by the same command.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use allranks_model::diagnosis::HangKind;
use serde::Deserialize;
use serde_json::Value;

const FOLDER: &str = "../fixtures/logs";

/// What a person says of a folder.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Label {
    #[serde(rename = "about")]
    _about: String,
    /// A kind of verdict, `none`, `not-known` or `refused`.
    kind: String,
    culprits: Vec<u64>,
    /// Other kinds that are right, too.
    #[serde(default)]
    also: Vec<String>,
    /// Where the logs come from.
    source: String,
}

fn diagnose(arguments: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_allranks"))
        .arg("diagnose")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn as_json(paths: &[&Path]) -> (Option<i32>, Value) {
    let mut arguments = vec![Path::new("--json")];
    arguments.extend(paths);
    let output = diagnose(&arguments);
    let report = serde_json::from_slice(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    (
        output.status.code(),
        report.unwrap_or_else(|error| panic!("{error}: {complaint}")),
    )
}

fn folders() -> Vec<PathBuf> {
    let entries = fs::read_dir(FOLDER).unwrap();
    let mut folders: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    folders
}

fn label(folder: &Path) -> Label {
    let text = fs::read_to_string(folder.join("label.yaml")).unwrap();
    serde_yaml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
}

/// The kind, the culprits and the exit code of what the binary says of a folder.
fn said(folder: &Path) -> (String, Vec<u64>, Option<i32>) {
    let output = diagnose(&[Path::new("--json"), folder]);
    let code = output.status.code();
    let Ok(report) = serde_json::from_slice::<Value>(&output.stdout) else {
        let kind = if code == Some(2) {
            "refused"
        } else {
            "not-known"
        };
        return (kind.to_owned(), Vec::new(), code);
    };
    assert_eq!(report["format"], 1);
    let verdict = &report["verdict"];
    let nothing = match report["not_known"].is_array() {
        true => "not-known",
        false => "none",
    };
    let kind = verdict["kind"].as_str().unwrap_or(nothing);
    let culprits = verdict["culprits"].as_array().into_iter().flatten();
    (
        kind.to_owned(),
        culprits.filter_map(Value::as_u64).collect(),
        code,
    )
}

#[test]
fn every_folder_gets_its_verdict() {
    let mut wrong = Vec::new();
    for folder in folders() {
        let label = label(&folder);
        let (kind, culprits, code) = said(&folder);
        let expected = match kind.as_str() {
            "none" | "slow" => 0,
            "refused" => 2,
            "not-known" => 3,
            _ => 1,
        };
        let is_kind = label.kind == kind || label.also.contains(&kind);
        if !is_kind || label.culprits != culprits || code != Some(expected) {
            wrong.push(format!(
                "{}: expected {} {:?}, got {kind} {culprits:?} and exit {code:?}",
                folder.display(),
                label.kind,
                label.culprits
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn there_is_enough_to_be_wrong_about() {
    let labels: Vec<Label> = folders().iter().map(|folder| label(folder)).collect();
    let count = |is: &dyn Fn(&Label) -> bool| labels.iter().filter(|label| is(label)).count();
    assert!(count(&|label| label.source.contains("make.py")) >= 16);
    assert!(count(&|label| label.source.contains("https://github.com/")) >= 30);
    assert!(count(&|label| label.kind == "none") >= 10);
    assert!(count(&|label| label.culprits.is_empty()) >= 50);
    assert!(count(&|label| !label.culprits.is_empty()) >= 35);
}

#[test]
fn a_verdict_reads_like_this() {
    let folder = Path::new(FOLDER).join("late-to-barrier");
    let output = diagnose(&[&folder]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    let expected = "\
behind: rank 3 has not come to barrier, where ranks 0–2 wait (likely)
  culprit: rank 3
  victims: ranks 0–2
  where each rank is:
    ranks 0–2: in barrier
    rank 3: after all_reduce
  why:
    - ranks 0–2 wait in barrier
    - the log ends there: rank 3: after all_reduce
";
    assert!(text.starts_with(expected), "{text}");
}

#[test]
fn what_cannot_be_read_is_a_usage_error() {
    let empty = tempfile::tempdir().unwrap();
    let without_rank = empty.path().join("job.log");
    for (path, complaint) in [
        (
            Path::new("no/such/rank0.log"),
            "no such file or folder: no/such/rank0.log",
        ),
        (empty.path(), "no logs in "),
        (&without_rank, "nothing says which rank wrote these lines"),
    ] {
        if path == without_rank {
            fs::write(path, "Before barrier\n").unwrap();
        }
        let output = diagnose(&[path]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.contains(complaint) && said.contains("hint: "),
            "{said}"
        );
    }
}

#[test]
fn ten_thousand_ranks_are_a_few_lines() {
    const RANKS: usize = 10_000;
    const LATE: usize = 4711;
    let folder = tempfile::tempdir().unwrap();
    for rank in 0..RANKS {
        let mut text = format!(
            "[Rank {rank}] Before init_process_group\n[Rank {rank}] After init_process_group\n"
        );
        for step in 0..10 {
            text += &format!("[Rank {rank}] Before all_reduce of step {step}\n");
            if step == 9 {
                break;
            }
            text += &format!("[Rank {rank}] After all_reduce of step {step}\nloss {step}.{rank}\n");
            if rank == LATE && step == 8 {
                break;
            }
        }
        fs::write(folder.path().join(format!("rank{rank}.log")), text).unwrap();
    }
    let output = diagnose(&[folder.path()]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with("behind: rank 4711 has not come to all_reduce of step 9"),
        "{text}"
    );
    assert!(
        text.contains("ranks 0–4710, 4712–9999: in all_reduce of step 9"),
        "{text}"
    );
    assert!(text.lines().count() < 20);
}

#[test]
fn ten_thousand_ranks_at_one_place_accuse_no_rank() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.log");
    let lines: String = (0..10_000)
        .map(|rank| format!("[Rank {rank}] Before barrier\n"))
        .collect();
    fs::write(&path, lines).unwrap();
    let (code, report) = as_json(&[&path]);
    assert_eq!(code, Some(1));
    assert_eq!(report["verdict"]["kind"], "unknown");
    assert_eq!(report["verdict"]["culprits"], serde_json::json!([]));
}

/// What a label of `fixtures/jobs` says, as far as it is looked at here.
#[derive(Deserialize)]
struct JobLabel {
    name: String,
    command: String,
    #[serde(default)]
    kinds: Vec<HangKind>,
    #[serde(default)]
    culprits: Vec<Vec<u32>>,
}

#[test]
fn every_labelled_job_has_its_files_and_a_label_that_can_be_right() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/jobs");
    let text = fs::read_to_string(folder.join("labels.yaml")).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let jobs: Vec<JobLabel> = serde_json::from_str(&lines.join("\n")).unwrap();
    let mut names = BTreeSet::new();
    for job in &jobs {
        assert!(names.insert(&job.name), "{} is there twice", job.name);
        let is_program = |word: &&str| word.ends_with(".py") || word.ends_with(".sh");
        for word in job.command.split_whitespace().filter(is_program) {
            let file = folder.join(word.rsplit('/').next().unwrap_or(word));
            assert!(
                file.is_file() || word.starts_with('$'),
                "{}: no {word}",
                job.name
            );
        }
        assert_eq!(
            job.kinds.is_empty(),
            job.culprits.is_empty(),
            "{}",
            job.name
        );
    }
}
