//! The verdict on a job from the logs of its ranks alone.
//!
//! In: files, folders, or a stream. Out: a [`Report`]. Logs are cut, buffered and silent about much, so what they show
//! is likely and not proved, unless an error names its own cause. A rank that only waits, or whose error says that
//! others went away, is never the culprit.
//!
//! | module | holds |
//! |---|---|
//! | `source` | files, and which parts of them are read |
//! | `owner` | the rank of a file, by its name |
//! | `line` | one line: rank, time, text |
//! | `moment` | times at the start of lines |
//! | `phase` | `Before X`, `After X`, and what X is |
//! | `failure` | tracebacks, and what torch's messages say of ranks |
//! | `environment` | printed variables: `MASTER_PORT=29500` |
//! | `launcher` | torchrun's table of failures |
//! | `watchdog` | the numbers in the lines of NCCL's watchdog |
//! | `story` | everything that one rank wrote, in order |
//! | `job` | all ranks together, as evidence for the rules |
//! | `behind` | ranks that have not come to where the others wait |
//! | `verdict` | the rules for logs, and their order |
//!
//! A new kind of line needs a reader like `watchdog`, called in `story`.

mod behind;
mod environment;
mod failure;
mod job;
mod launcher;
mod line;
mod moment;
mod owner;
mod phase;
mod source;
mod story;
mod verdict;
mod watchdog;

use serde::Serialize;

use allranks_model::diagnosis::Diagnosis;
use allranks_model::record::RankLine;
pub use source::{LogError, Source, read};

/// The version of a report's JSON format.
const FORMAT: u32 = 1;

/// What the logs of a job show.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The version of this JSON format.
    pub format: u32,
    /// What is wrong; `None` if the logs show nothing wrong.
    pub verdict: Option<Diagnosis>,
    /// Where every rank is; empty if there is a verdict, which says so itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<RankLine>,
    /// Notes on how the logs were read.
    pub notes: Vec<String>,
}

/// Reports what these logs show.
///
/// # Errors
/// No line of them belongs to a rank, or they say nothing of where ranks are.
pub fn report(sources: &[Source]) -> Result<Report, LogError> {
    let (job, notes) = job::Job::of(sources)?;
    if job.is_silent() {
        return Err(LogError::Silent);
    }
    let verdict = verdict::verdict(&job);
    let places = match &verdict {
        Some(_) => Vec::new(),
        None => job.places(),
    };
    Ok(Report {
        format: FORMAT,
        verdict,
        places,
        notes,
    })
}
