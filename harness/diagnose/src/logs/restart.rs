//! Finds out whether a launcher has started a job again: its ranks make steps after it has said that the job failed, and it gives no
//! table of failures.

use std::sync::LazyLock;

use regex::Regex;

use super::pattern::pattern;

/// What the lines of one file say of starts of the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Restart {
    /// Lines about steps since the launcher has said that the job failed; `None` if it has not.
    steps: Option<usize>,
    /// Whether the launcher has said since then that all ranks of its host have finished.
    has_succeeded: bool,
    /// The number of the start of which the launcher's table shows the errors, from 0.
    attempt: usize,
}

/// What counts of the starts that a launcher says have failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// All: nothing shows that the job was started again.
    All,
    /// Those of the last start, of so many starts.
    Last(usize),
    /// None: the job has gone on.
    None,
}

/// Lines about steps that show that the job goes on; fewer may have been under way when it failed.
const STEPS: usize = 3;
/// What launchers say of a start that has failed: torchrun and Slurm.
const FAILED: &[&str] = &[
    "failed (exitcode: ",
    "; will restart worker group",
    " DUE TO JOB REQUEUE",
];
/// What torchrun says of a start that has come to its end.
const SUCCEEDED: &[&str] = &[
    "(WorkerState.SUCCEEDED)",
    "worker group successfully finished",
];

/// What a user's own launcher says of a start that has ended: `attempt 1/3 exited with code 1`.
static ENDED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?i)\battempt #?\d{1,4}(?:/\d{1,4})? (?:exited|ended|finished|failed|crashed) with(?: exit)? (?:code|status) (-?\d{1,4})\b",
    )
});
/// Where torchrun's table shows an error, the number of the start is in the name of its file.
static ATTEMPT: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"^\s*error_file: \S*/attempt_(\d{1,4})/"));

impl Restart {
    /// Reads the next line. Returns true if a start of the job has ended there.
    pub(super) fn read(&mut self, text: &str) -> bool {
        let ended = ENDED.as_ref().filter(|_| text.contains("ttempt"));
        let ended = ended.and_then(|line| line.captures(text));
        let ended_well = ended.map(|ended| &ended[1] == "0");
        let says = |all: &[&str]| all.iter().any(|words| text.contains(words));
        let has_failed = says(FAILED) || ended_well == Some(false);
        if has_failed {
            self.steps = Some(0);
            self.has_succeeded = false;
        } else if text.starts_with("Root Cause (first observed failure)") {
            self.steps = None;
        } else if text.contains("/attempt_")
            && let Some(found) = ATTEMPT.as_ref().and_then(|line| line.captures(text))
        {
            self.attempt = found[1].parse().unwrap_or(0);
        }
        if says(SUCCEEDED) || ended_well == Some(true) {
            self.has_succeeded = self.steps.is_some();
        }
        has_failed
    }

    /// Counts a line about a step of a rank.
    pub(super) fn step(&mut self) {
        if let Some(steps) = &mut self.steps {
            *steps += 1;
        }
    }

    /// Returns which of the starts that have failed count.
    pub(super) fn kept(self) -> Kept {
        let has_gone_on = self.has_succeeded || self.steps.is_some_and(|steps| steps >= STEPS);
        match (has_gone_on, self.attempt) {
            (true, _) => Kept::None,
            (false, 0) => Kept::All,
            (false, last) => Kept::Last(last + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_without_a_table_of_failures_are_a_restart() {
        let is_one = |steps: usize, end: &str| {
            let mut restart = Restart::default();
            assert!(restart.read("failed (exitcode: 1) local_rank: 3 (pid: 9) of binary: python"));
            (0..steps).for_each(|_| restart.step());
            assert!(!restart.read(end));
            restart.kept() == Kept::None
        };
        assert!(is_one(3, "done"));
        assert!(!is_one(1, "done"));
        assert!(is_one(
            0,
            "[default] worker group successfully finished. Waiting 300 seconds for other agents to finish."
        ));
        assert!(!is_one(3, "Root Cause (first observed failure):"));
    }

    #[test]
    fn a_launcher_of_the_users_own_may_start_the_job_again() {
        let mut restart = Restart::default();
        assert!(restart.read("[driver] attempt 1/3 exited with code 1, restarting on n7"));
        assert_eq!(restart.kept(), Kept::All);
        assert!(!restart.read("[driver] attempt 2 exited with code 0"));
        assert_eq!(restart.kept(), Kept::None);
    }

    #[test]
    fn the_table_tells_which_start_was_the_last() {
        let kept = |file: &str| {
            let mut restart = Restart::default();
            restart.read("failed (exitcode: 1) local_rank: 3 (pid: 9) of binary: python");
            restart.read("Root Cause (first observed failure):");
            restart.read(&format!("  error_file: {file}"));
            restart.kept()
        };
        assert_eq!(kept("/tmp/e/none_4p/attempt_2/3/error.json"), Kept::Last(3));
        assert_eq!(kept("/tmp/e/none_4p/attempt_0/3/error.json"), Kept::All);
        assert_eq!(kept("<N/A>"), Kept::All);
    }
}
