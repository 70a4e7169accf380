//! The harness's own launcher, proved like a backend is: what must never be called a pass, and the exit code it must
//! end with. Each row of [`TABLE`] is one trial; together they are why an exit code of 0 can be believed.

use allranks_model::outcome::{Outcome, Verdict};

use super::stage::{Stage, assert_reported, check};
use super::{Test, plain};

/// The check that shows every failure.
const SUM: &str = "#0.all_reduce.float32.sum.33";

/// A failure that must be seen.
struct Row {
    /// The trial's name.
    name: &'static str,
    /// What rank 1, or with `all:` every rank, does: see `drivers/one_of_two.py`.
    misbehaviour: &'static str,
    /// What `allranks run` must exit with.
    code: i32,
    /// The outcome that the check must have; none if nothing must run.
    outcome: Option<Outcome>,
    /// A text that the report of it contains.
    words: &'static str,
}

const TABLE: [Row; 7] = [
    Row {
        name: "rank_1_is_killed",
        misbehaviour: "killed",
        code: 1,
        outcome: Some(Outcome::Crash),
        words: "rank 1: its process ended: signal 9 (SIGKILL)",
    },
    Row {
        name: "rank_1_exits_1",
        misbehaviour: "exit=1",
        code: 1,
        outcome: Some(Outcome::Crash),
        words: "rank 1: its process ended: exit 1",
    },
    Row {
        name: "rank_1_exits_42",
        misbehaviour: "exit=42",
        code: 1,
        outcome: Some(Outcome::Crash),
        words: "rank 1: its process ended: exit 42",
    },
    Row {
        name: "one_rank_skips",
        misbehaviour: "skips",
        code: 1,
        outcome: Some(Outcome::Error),
        words: "1 of 2 ranks raised",
    },
    Row {
        name: "one_rank_answers_without_checking",
        misbehaviour: "no-bytes",
        code: 1,
        outcome: Some(Outcome::Crash),
        words: "rank 1: it returns",
    },
    Row {
        name: "zero_elements_are_checked_overall",
        misbehaviour: "all:no-bytes",
        code: 1,
        outcome: Some(Outcome::Crash),
        words: "it returns",
    },
    Row {
        name: "the_selection_is_empty",
        misbehaviour: "none",
        code: 3,
        outcome: None,
        words: "no check was selected",
    },
];

/// Returns every trial of this file.
pub fn tests() -> Vec<Test> {
    TABLE
        .into_iter()
        .map(|row| plain(format!("launcher::{}", row.name), move || prove(&row)))
        .collect()
}

fn prove(row: &Row) {
    let stage = Stage::new(row.name);
    let driver = format!(
        "command:python3 harness/tests/blackbox/drivers/one_of_two.py {}",
        row.misbehaviour
    );
    // The rank that waits for one that skipped waits for ever.
    let deadline = if row.misbehaviour == "skips" { 3 } else { 60 };
    let case = stage.write(
        "case.yaml",
        &format!(
            "id: case\ntitle: what must never pass\ncovers: [COLL-001]\n\
             world: {{platform: cpu, backend: gloo, size: 2, deadline_s: {deadline}}}\n\
             steps:\n  - all_reduce: {{dtype: float32, op: sum, numel: 33}}\n"
        ),
    );
    let mut arguments = vec![case.as_str(), "--driver", &driver];
    if row.outcome.is_none() {
        arguments.extend(["--filter", "no_such_op"]);
    }
    let ran = stage.run_out(&arguments);
    ran.assert_code(row.code);
    let Some(outcome) = row.outcome else {
        ran.assert_says(row.words);
        assert!(!stage.path("out/results.jsonl").exists(), "something ran");
        return;
    };
    let results = stage.results("out");
    assert_reported(&results);
    let shown = check(&results, SUM);
    let told = format!("{}\n{:?}", shown.summary, shown.ranks);
    assert_eq!(shown.outcome, outcome, "{told}");
    assert_eq!(shown.verdict, Verdict::Regression, "{told}");
    assert!(told.contains(row.words), "{told}");
    assert_eq!(results.end.map(|end| end.exit_code), Some(row.code as u8));
}
