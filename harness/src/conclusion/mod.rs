//! What a run amounts to: its problems, its last record, and the exit code.

mod end_record;
mod exit;
mod run_issue;

pub use end_record::{end_record, exit};
pub use exit::Exit;
pub use run_issue::RunIssue;
