//! The lines of `results.jsonl`, from which every report is rendered. The format is a contract; a change that a reader could notice
//! raises [`FORMAT`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::diagnosis::Diagnosis;
use crate::evidence::Evidence;
use crate::names::{CaseId, CheckId, Rank, RequirementId, ScenarioId, WorldSize};
use crate::outcome::{Outcome, Verdict};

pub use crate::rank_line::RankLine;

/// The parameter of a scenario's `init` that names what must be refused in it.
pub const REFUSED: &str = "refused";

/// The issue of a run that was stopped.
pub const STOPPED: &str = "interrupted";

/// The summary of a check that was not run because the run was stopped.
pub const INTERRUPTED: &str = "the run was interrupted";

/// The format number in every line.
pub const FORMAT: u32 = 1;

/// One line of `results.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Record {
    /// The first line of a file.
    Run(RunRecord),
    /// One line for each scenario, after those of its checks.
    Scenario(Box<ScenarioRecord>),
    /// One line for each check.
    Check(Box<CheckRecord>),
    /// The last line; a file without one is of a run that was cut off.
    End(EndRecord),
}

/// What a run was asked to do, and with what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The format number, [`FORMAT`].
    pub format: u32,
    /// Version of allranks that made the run.
    pub allranks: String,
    /// Name of the run, which is that of its output folder.
    pub name: String,
    /// When the run began, in seconds since the Unix epoch.
    pub started: u64,
    /// Seed that all inputs are derived from.
    pub seed: u64,
    /// Name of the profile; `None`: none was used.
    pub profile: Option<String>,
    /// The command line, without the program.
    pub arguments: Vec<String>,
    /// Numbers of scenarios and checks planned.
    pub planned: Counts,
    /// The sentences of the requirements that the planned cases cover, so that reports need no other file.
    #[serde(default)]
    pub requirements: BTreeMap<RequirementId, String>,
    /// Platforms that were looked for and are not on this machine: none of their checks ran, and none counts as a pass.
    #[serde(default)]
    pub absent: Vec<Absent>,
    /// What the run was made from; none where `allranks run` did not make it, and in results of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Box<Origin>>,
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
    /// Which suite and driver they are. `None` in results of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<SuiteIdentity>,
    /// The platform, expectation and waiver files that were given besides the suite's own, in the order in which they count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<InputFile>,
    /// Number of devices found of each platform that has devices.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, u32>,
    /// Scenarios that this machine cannot run, each with the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub too_large: BTreeMap<ScenarioId, String>,
}

/// Which suite a run was made from, as SHA-256 digests in hexadecimal of its files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuiteIdentity {
    /// The commit of the checkout, with `-dirty` behind it if files of it were changed. `None`: it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The digest of cases, profiles and the programs that cases run.
    pub cases: String,
    /// The digest of the file of requirements.
    pub requirements: String,
    /// The digest of the suite's own platform files.
    pub platforms: String,
    /// The digest of the suite's own expectation files.
    pub expectations: String,
    /// The digest of the driver: of the Python driver that the binary contains, or of the file of the program. Empty if it is not known.
    pub driver: String,
}

/// A file that was given to a run, and is kept in its folder `inputs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputFile {
    /// Path in the folder: `platforms/01-mine.yaml`.
    pub path: String,
    /// SHA-256 of its bytes, in hexadecimal.
    pub sha256: String,
}

/// A platform, or one of its backends, that is not on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    /// Name of the platform, or of platform and backend.
    pub platform: String,
    /// Why it is absent, in one line.
    pub reason: String,
}

/// Numbers of scenarios and of checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Number of scenarios.
    pub scenarios: u64,
    /// Number of checks.
    pub checks: u64,
}

/// One scenario: where it ran and what its ranks did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScenarioRecord {
    /// The format number, [`FORMAT`].
    pub format: u32,
    /// Id of the scenario.
    pub id: ScenarioId,
    /// Id of the scenario's case.
    pub case: CaseId,
    /// Title of the case.
    pub title: String,
    /// Where it ran: its column of the matrix.
    pub column: Column,
    /// Why the scenario did not run, or why its world failed; `None` if neither happened.
    /// In JSON the field is `trouble`.
    #[serde(rename = "trouble")]
    pub failure: Option<String>,
    /// When it began, in milliseconds since the run began.
    pub start_ms: u64,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// Number of worlds started for it: one, and one more for each world that failed and was replaced.
    pub worlds: u32,
    /// The ranks of its last world.
    pub ranks: Vec<RankRecord>,
}

/// Where a scenario ran; scenarios with equal columns share a column of the matrix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Column {
    /// Name of the platform.
    pub platform: String,
    /// Name of the backend.
    pub backend: String,
    /// Number of ranks in the world.
    pub world_size: WorldSize,
    /// Number of nodes that the ranks were on; left out if it is 1.
    #[serde(default = "one_node", skip_serializing_if = "is_one_node")]
    pub nodes: u32,
    /// Name of the driver.
    pub driver: String,
    /// Name of the launcher.
    pub launcher: String,
    /// The kind of device it ran on.
    pub evidence: Evidence,
    /// Torch's version as the ranks reported it, or as it was found before they were started; empty if neither is known.
    pub torch: String,
    /// What tells results of this column from others that they were merged with, such as a version of the backend; empty if nothing
    /// had to.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
}

fn one_node() -> u32 {
    1
}

fn is_one_node(nodes: &u32) -> bool {
    *nodes == 1
}

/// How one rank's process ran and ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankRecord {
    /// Rank in the world.
    pub rank: Rank,
    /// Process id of the rank; 0 if it never sent `hello`.
    pub pid: u32,
    /// How the process ended: `exit 0`, `signal 9 (SIGKILL)`, `killed by allranks` or `unknown`.
    pub end: String,
    /// Path of the rank's log, relative to the run's folder.
    pub log: String,
    /// What the rank did and when, for the timeline: at most a few hundred spans.
    pub spans: Vec<Span>,
}

/// A period in which a rank did one thing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// What the rank did: `init_process_group`, or the check's id without the scenario.
    pub label: String,
    /// When it began, in microseconds since the scenario began.
    pub start_us: u64,
    /// When it ended, in microseconds since the scenario began; `None` if it never did.
    pub end_us: Option<u64>,
    /// Whether it ended without an error.
    pub ok: bool,
}

/// One check: outcome, verdict, and the details needed to act on them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckRecord {
    /// The format number, [`FORMAT`].
    pub format: u32,
    /// Id of the check.
    pub id: CheckId,
    /// Id of the check's scenario.
    pub scenario: ScenarioId,
    /// Id of the check's case.
    pub case: CaseId,
    /// Where it ran: its column of the matrix.
    pub column: Column,
    /// Ids of the requirements that the check covers.
    pub covers: Vec<RequirementId>,
    /// The check's values on the axes of the init recipe and of the sweep: `dtype` → `float32`.
    pub params: BTreeMap<String, String>,
    /// Where its step is written, `cases/collectives/all_reduce.yaml:12`.
    pub at: String,
    /// What happened in the check.
    pub outcome: Outcome,
    /// What the outcome means against platform file and expectations.
    pub verdict: Verdict,
    /// What was wrong, in one line for people; empty for a plain pass.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub summary: String,
    /// The part of the summary that explains the verdict: in brackets at its end, or all of it. `None` if the verdict needs no
    /// explanation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
    /// Class of a mismatch, the known bug that it looks like: `avg-divided-twice`. `None` if there is no mismatch, or no class fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The first wrong element of a mismatch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
    /// What each rank did or raised, one line each; empty if there is nothing to tell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<RankLine>,
    /// The hang verdict, if the world hung or its ranks contradicted each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnosis: Option<Box<Diagnosis>>,
    /// The expectation that matched; `None` if none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expectation: Option<Reason>,
    /// What was observed of the backend beyond right and wrong: `accumulates` → `float32`, `deterministic` → `yes`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub observations: BTreeMap<String, String>,
    /// Number of elements compared on each rank; a pass has more than 0 on every rank, or its summary says why not.
    pub checked: Vec<u64>,
    /// Microseconds from the start of the check's first rank to the end of its last.
    pub duration_us: u64,
}

/// The first wrong element of a mismatch, and how many are wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Name of the buffer: `output`, `output[2]`, `input` or `guard`.
    pub buffer: String,
    /// The lowest rank that has a wrong element.
    pub rank: Rank,
    /// Index of the first wrong element in the buffer.
    pub index: u64,
    /// The value that it must have, as text.
    pub expected: String,
    /// The value that it has, as text.
    pub actual: String,
    /// Number of wrong elements, over all ranks.
    pub wrong: u64,
    /// Number of elements compared, over all ranks.
    pub of: u64,
    /// Every rank that has a wrong element.
    pub ranks: Vec<Rank>,
}

/// An expectation that matched a check, and so the reason for its verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// File and line of the expectation: `expectations/gloo.yaml:12`.
    pub at: String,
    /// The reason that the expectation gives.
    pub text: String,
    /// Link to a public issue; `None` if the expectation has none.
    pub url: Option<String>,
}

/// How a run ended, with totals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndRecord {
    /// The format number, [`FORMAT`].
    pub format: u32,
    /// How long the run took, in milliseconds.
    pub duration_ms: u64,
    /// Number of checks by name of the verdict.
    pub verdicts: BTreeMap<String, u64>,
    /// Number of checks by name of the outcome.
    pub outcomes: BTreeMap<String, u64>,
    /// Problems that belong to no check: expectations out of date, an interruption, a full disk.
    /// In JSON the field is `troubles`.
    #[serde(rename = "troubles")]
    pub issues: Vec<String>,
    /// Exit code of the run.
    pub exit_code: u8,
}
