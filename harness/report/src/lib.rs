//! Renders reports. A [`Record`](allranks_model::record::Record) is what a run writes down; everything else is rendered from
//! [`Results`], all records of a run. Nothing here drives a run.
//!
//! | module       | renders                                                                  |
//! |--------------|--------------------------------------------------------------------------|
//! | [`jsonl`]    | `results.jsonl`, the source of all others; writes and reads it            |
//! | [`console`]  | the terminal: progress, failures as they occur, a summary                 |
//! | [`html`]     | `report.html`, the matrix and the details of every failure              |
//! | [`junit`]    | `junit.xml` and `junit-extended.xml`, for CI systems                     |
//! | [`markdown`] | `summary.md`, for the job page of a CI system                             |
//! | [`metrics`]  | `metrics.txt`, for GitLab and Prometheus                                 |
//!
//! [`recipe`] recommends an init recipe for each backend.
//!
//! [`trend`] says what broke over many runs ([`past_runs`]), when, and what had changed by then.
//!
//! [`write_all`] renders them into a run's folder. [`merge`] makes one result set of several, [`diff`] says what changed between
//! two.

pub mod check_set;
mod command_line;
pub mod console;
mod details;
pub mod diff;
mod excerpt;
pub mod facts;
mod files;
mod hangs;
pub mod html;
mod index;
pub mod jsonl;
pub mod junit;
pub mod markdown;
pub mod merge;
pub mod metrics;
mod observed;
pub mod owners;
mod packed_checks;
pub mod past_runs;
pub mod recipe;
mod repeat;
mod results;
#[cfg(test)]
mod sample_run;
pub mod sides;
mod status_counts;
pub mod text;
pub mod trend;
mod versions;
pub mod wilson;

pub use command_line::command_line;
pub use details::{DetailLine, details, failing_ranks, summary_line};
pub use files::{write_all, write_with};
pub use packed_checks::PackedChecks;
pub use repeat::{repeat_command, repro_command};
pub use results::{PackedResults, Results, ScenariosByCheck, column_names};
pub use status_counts::{Headline, StatusCounts, exit_meaning};
pub use versions::{Row, Versions};
