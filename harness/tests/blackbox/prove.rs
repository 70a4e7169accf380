//! `allranks prove` from outside: what becomes of a mutant, and the exit code that says so.

use allranks::prove::{Kill, MatrixRecord, MutantOutcome};

use super::stage::{Stage, checkout};
use super::{Test, computing, plain};

/// Gloo, of which all_reduce does nothing if the mutant's name says so.
const PACKAGE: &str = r#"
import os
import torch.distributed as dist


class Done:
    def wait(self):
        return True


if os.environ["ALLRANKS_MUTANT"] != "sound":
    dist.all_reduce = lambda tensor, **how: Done()
"#;

/// Returns every trial of this file.
pub fn tests() -> Vec<Test> {
    let refused =
        |name: &'static str, code, words: &'static str, arguments: &'static [&'static str]| {
            plain(format!("prove::{name}"), move || {
                let stage = Stage::new("prove");
                let out = stage.out().display().to_string();
                let mut all = vec!["prove", "--out", &out];
                all.extend(arguments);
                stage.run(&all).assert_code(code).assert_says(words);
                assert!(!stage.path("out/kills.jsonl").exists(), "something ran");
            })
        };
    vec![
        refused(
            "unknown_mutant",
            2,
            "there is no mutant `no_such_bug`",
            &["no_such_bug"],
        ),
        refused(
            "no_index",
            2,
            "index.yaml",
            &["--mutants", "no/such/folder"],
        ),
        refused("unknown_panel", 2, "--panel", &["--panel", "slow"]),
        plain("prove::a_bad_index", a_bad_index),
        computing("prove::every_fate_has_its_name", fates),
        computing("prove::a_binary_alone", a_binary_alone),
    ]
}

fn a_bad_index() {
    let stage = Stage::new("bad_index");
    let index = "- {name: a, breaks: COLL-001, filter: x, clas: no-op}\n";
    stage.write("mutants/index.yaml", index);
    let folder = stage.path("mutants").display().to_string();
    let out = stage.out().display().to_string();
    let ran = stage.run(&["prove", "--mutants", &folder, "--out", &out]);
    ran.assert_code(2).assert_says("clas");
}

fn lines(stage: &Stage, file: &str) -> Vec<MatrixRecord> {
    let text = std::fs::read_to_string(stage.path(file)).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn kills(lines: &[MatrixRecord]) -> Vec<&Kill> {
    lines
        .iter()
        .filter_map(|line| match line {
            MatrixRecord::Mutant(kill) => Some(&**kill),
            MatrixRecord::Prove(_) | MatrixRecord::Healthy(_) | MatrixRecord::End(_) => None,
        })
        .collect()
}

/// A bug that is killed, one under another name, one that only other requirements' checks see, one that no check sees,
/// and one that no check looks for.
fn fates() {
    let stage = Stage::new("fates");
    let sum = "case=collectives/all_reduce dtype=float32 op=sum numel=33";
    let broadcast = "case=collectives/broadcast dtype=float32 numel=33";
    let index = format!(
        "- {{name: killed, breaks: COLL-002, filter: {sum}, class: no-op}}\n\
         - {{name: misnamed, breaks: COLL-002, filter: {sum}, class: own-times-world}}\n\
         - {{name: incidental, breaks: DOWN-001, filter: {sum}, class: no-op}}\n\
         - {{name: survived, breaks: COLL-002, filter: {broadcast}, class: no-op}}\n\
         - {{name: sound, breaks: COLL-002, filter: {sum}, class: no-op}}\n\
         - {{name: untried, breaks: COLL-002, filter: no_such_check, class: no-op}}\n"
    );
    stage.write("mutants/index.yaml", &index);
    stage.write("mutants/allranks_mutants/__init__.py", PACKAGE);
    let folder = stage.path("mutants").display().to_string();
    let out = stage.out().display().to_string();
    let all = [
        "prove",
        "--mutants",
        &folder,
        "--panel",
        "none",
        "--out",
        &out,
    ];
    stage.run(&all).assert_code(1);
    let lines = lines(&stage, "out/kills.jsonl");
    let mut fates: Vec<(&str, MutantOutcome)> = kills(&lines)
        .iter()
        .map(|kill| (kill.name.as_str(), kill.outcome))
        .collect();
    fates.sort_unstable();
    let expected = [
        ("incidental", MutantOutcome::Incidental),
        ("killed", MutantOutcome::Killed),
        ("misnamed", MutantOutcome::Misnamed),
        ("sound", MutantOutcome::Survived),
        ("survived", MutantOutcome::Survived),
        ("untried", MutantOutcome::Untried),
    ];
    assert_eq!(fates, expected);
    let Some(MatrixRecord::End(tail)) = lines.last() else {
        panic!("the last line is {:?}", lines.last());
    };
    let tally = tail.tally;
    assert_eq!((tally.killed, tally.survived, tail.exit_code), (1, 2, 1));
    // What was not killed can be looked into, and what was killed leaves nothing.
    assert!(stage.path("out/mutants/survived/own/logs").is_dir());
    assert!(!stage.path("out/mutants/killed").exists());
    for page in ["out/kills.md", "out/kills.html"] {
        let text = std::fs::read_to_string(stage.path(page)).unwrap();
        assert!(text.contains("1 of 6 mutants killed"), "{text}");
        assert!(text.contains("misnamed"), "{text}");
    }
    // One that is killed alone is a success.
    let out = stage.path("one").display().to_string();
    let one = [
        "prove",
        "killed",
        "--mutants",
        &folder,
        "--panel",
        "none",
        "--out",
        &out,
    ];
    stage.run(&one).assert_code(0);
    // And is never overwritten.
    stage.run(&one).assert_code(2).assert_says("another proof");
}

/// The binary as `cargo install` leaves it has its mutants.
fn a_binary_alone() {
    let stage = Stage::new("prove_alone");
    let folder = stage.path("empty");
    std::fs::create_dir(&folder).unwrap();
    let arguments = [
        "prove",
        "barrier_no_op",
        "second_all_reduce_hangs",
        "--out",
        "run",
    ];
    let mut command = stage.command(&arguments);
    command.current_dir(&folder);
    stage.start(command).end().assert_code(0);
    stage.assert_nothing_remains();
    let lines = lines(&stage, "empty/run/kills.jsonl");
    let (hangs, other): (Vec<&Kill>, Vec<&Kill>) = kills(&lines)
        .into_iter()
        .partition(|kill| kill.name == "second_all_reduce_hangs");
    assert!(other[0].shared_checks > 100, "{}", other[0].shared_checks);
    assert!(
        hangs[0].stopped.is_some(),
        "the shared checks go on after a hang"
    );
    assert!(!checkout().join("run").exists());
}
