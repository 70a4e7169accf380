//! Expectations files: known failures, each pinned with a public link, and the verdict that an outcome has against them.
//!
//! In: an outcome, what the platform file declares, and the entries. Out: a verdict and its reason.

mod entry;
mod failing_outcome;
mod file;
mod judgement;
mod proposal;
mod schema;
mod verdict;
mod waiver;

pub use entry::{Entry, EntryKind, Expectations, Match, Point, Size};
pub use judgement::Judgement;
pub use proposal::{CheckAtPoint, Examples, NewEntry, Proposal, Remark, propose};
pub use schema::{schema, waiver_schema};
pub use verdict::{FAILED_TWICE, NO_WORLD};
pub use waiver::{Waiver, end_of_day, is_forbidden, is_too_broad};
