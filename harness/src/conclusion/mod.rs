//! The result of a run: its issues, its last record, its exit code.

mod end_record;
mod exit;
mod run_issue;

pub use end_record::{end_record, exit};
pub use exit::Exit;
pub use run_issue::RunIssue;
