//! The lines of `results.jsonl`: the one source every report is rendered from. The format is a contract; a change
//! that a reader could notice raises [`FORMAT`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::diagnosis::Diagnosis;
use crate::evidence::Evidence;
use crate::names::{CaseId, CheckId, Rank, RequirementId, ScenarioId, WorldSize};
use crate::outcome::{Outcome, Verdict};

/// The parameter of a scenario's `init` that says what must fail in it.
pub const REFUSED: &str = "refused";

/// The trouble of a run that was stopped.
pub const STOPPED: &str = "interrupted";

/// The summary of a check that was not run because the run was stopped.
pub const INTERRUPTED: &str = "the run was interrupted";

/// The format number in every line.
pub const FORMAT: u32 = 1;

/// One line of `results.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Record {
    /// First line.
    Run(RunRecord),
    /// One for each scenario, after its checks.
    Scenario(Box<ScenarioRecord>),
    /// One for each check.
    Check(Box<CheckRecord>),
    /// Last line; a file without one belongs to a run that was cut off.
    End(EndRecord),
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// [`FORMAT`].
    pub format: u32,
    /// Version of allranks.
    pub allranks: String,
    /// The run's name: the output folder's.
    pub name: String,
    /// Seconds since the epoch.
    pub started: u64,
    /// Seed of all inputs.
    pub seed: u64,
    /// Profile, if one was used.
    pub profile: Option<String>,
    /// The command line, without the program.
    pub arguments: Vec<String>,
    /// Scenarios and checks planned.
    pub planned: Counts,
    /// The sentences of the requirements that the planned cases cover, so that reports need no other file.
    #[serde(default)]
    pub requirements: BTreeMap<RequirementId, String>,
    /// Platforms that were looked for and are not here: nothing of theirs was run, and nothing of it is a pass.
    #[serde(default)]
    pub absent: Vec<Absent>,
    /// What the run was made from; none where `allranks run` did not make it, and in results of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// What a run was made from, as SHA-256 digests in hexadecimal. Only a run of the same things can be continued.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Of the planned cases.
    pub suite: String,
    /// Of the expectations and waivers.
    pub expectations: String,
    /// Of each platform with what was found of it: its version of torch and its devices.
    pub platforms: BTreeMap<String, String>,
}

/// A platform, or one of its backends, that is not here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    /// Its name.
    pub platform: String,
    /// Why, one line.
    pub reason: String,
}

/// A count of scenarios and of checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Scenarios.
    pub scenarios: u64,
    /// Checks.
    pub checks: u64,
}

/// One scenario: where it ran and what its ranks did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScenarioRecord {
    /// [`FORMAT`].
    pub format: u32,
    /// Its id.
    pub id: ScenarioId,
    /// Its case.
    pub case: CaseId,
    /// The case's title.
    pub title: String,
    /// The matrix column.
    pub column: Column,
    /// Why it did not run, or why its world was lost; none if all went well.
    pub trouble: Option<String>,
    /// Milliseconds since the run began.
    pub start_ms: u64,
    /// Milliseconds it took.
    pub duration_ms: u64,
    /// Worlds started for it: 1, plus one for each time a world was lost.
    pub worlds: u32,
    /// The ranks of its last world.
    pub ranks: Vec<RankRecord>,
}

/// Where a scenario ran; scenarios with equal columns share a column of the matrix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Column {
    /// Platform name.
    pub platform: String,
    /// Backend name.
    pub backend: String,
    /// World size.
    pub world_size: WorldSize,
    /// Driver name.
    pub driver: String,
    /// Launcher name.
    pub launcher: String,
    /// What a result proves.
    pub evidence: Evidence,
    /// Torch version the ranks reported, or was found before they were started; empty if neither.
    pub torch: String,
}

/// What became of one rank's process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankRecord {
    /// The rank.
    pub rank: Rank,
    /// Its process id; 0 if it never said hello.
    pub pid: u32,
    /// `exit 0`, `signal 9 (SIGKILL)`, `killed by allranks`, `unknown`.
    pub end: String,
    /// Its log, relative to the run's folder.
    pub log: String,
    /// What it did and when, for the timeline: at most a few hundred spans.
    pub spans: Vec<Span>,
}

/// A stretch of a rank's time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// What it did: `init_process_group`, or the check's id without the scenario.
    pub label: String,
    /// Microseconds since the scenario began.
    pub start_us: u64,
    /// Microseconds since the scenario began; none if it never ended.
    pub end_us: Option<u64>,
    /// Whether it ended well.
    pub ok: bool,
}

/// One check: outcome, verdict, and everything needed to act on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckRecord {
    /// [`FORMAT`].
    pub format: u32,
    /// Its id.
    pub id: CheckId,
    /// Its scenario.
    pub scenario: ScenarioId,
    /// Its case.
    pub case: CaseId,
    /// The matrix column.
    pub column: Column,
    /// Requirements covered.
    pub covers: Vec<RequirementId>,
    /// Axes of the init recipe and of the sweep, with values: `dtype` → `float32`.
    pub params: BTreeMap<String, String>,
    /// Where its step is written, `cases/collectives/all_reduce.yaml:12`.
    pub at: String,
    /// What happened.
    pub outcome: Outcome,
    /// What it means.
    pub verdict: Verdict,
    /// One line for people: what was wrong, or for a pass nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub summary: String,
    /// The part of the summary that is about the verdict, in brackets at its end or all of it; none if the verdict is plain
    /// from the outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
    /// What a mismatch looks like: `avg-divided-twice`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Details of a mismatch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
    /// One line for each rank, where they differ or fail: what it did or raised.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<RankLine>,
    /// The verdict on a world that hung, or on ranks that contradicted each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnosis: Option<Box<Diagnosis>>,
    /// The expectation that matched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expectation: Option<Reason>,
    /// What was seen of the backend that no check judges by itself: `accumulates` → `float32`, `deterministic` → `yes`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub observations: BTreeMap<String, String>,
    /// Elements checked on each rank; a pass has more than zero on every rank or says why not.
    pub checked: Vec<u64>,
    /// Microseconds from the first rank's start to the last one's end.
    pub duration_us: u64,
}

/// The first wrong element.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// Which buffer: `output`, `output[2]`, `input`, `guard`.
    pub buffer: String,
    /// The first rank that is wrong.
    pub rank: Rank,
    /// The first wrong element on it.
    pub index: u64,
    /// What it must be.
    pub expected: String,
    /// What it is.
    pub actual: String,
    /// Wrong elements, over all ranks.
    pub wrong: u64,
    /// Elements compared, over all ranks.
    pub of: u64,
    /// Every rank with something wrong.
    pub ranks: Vec<Rank>,
}

/// What one rank has to say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankLine {
    /// The rank.
    pub rank: Rank,
    /// `RuntimeError: ...`, `in all_reduce for 10.2 s`, `killed by signal 9`.
    pub text: String,
}

/// Why a verdict is what it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// Where it is written, `expectations/gloo.yaml:12`.
    pub at: String,
    /// The sentence.
    pub text: String,
    /// The public issue.
    pub url: Option<String>,
}

/// How the run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndRecord {
    /// [`FORMAT`].
    pub format: u32,
    /// Milliseconds the run took.
    pub duration_ms: u64,
    /// Checks by verdict name.
    pub verdicts: BTreeMap<String, u64>,
    /// Checks by outcome name.
    pub outcomes: BTreeMap<String, u64>,
    /// Troubles that belong to no check: stale expectations, interruption, disk full.
    pub troubles: Vec<String>,
    /// The exit code the run ended with.
    pub exit_code: u8,
}
