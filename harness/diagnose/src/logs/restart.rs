//! Finds out whether a launcher has started a job again: its ranks make steps after it has said that the job failed, and it gives no
//! table of failures.

/// What the lines of one file say of starts of the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Restart {
    /// Lines about steps since the launcher has said that the job failed; `None` if it has not.
    steps: Option<usize>,
    /// Whether the launcher has said since then that all ranks of its host have finished.
    has_succeeded: bool,
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

impl Restart {
    /// Reads the next line. Returns true if a start of the job has ended there.
    pub(super) fn read(&mut self, text: &str) -> bool {
        let has_failed = FAILED.iter().any(|words| text.contains(words));
        if has_failed {
            self.steps = Some(0);
            self.has_succeeded = false;
        } else if text.starts_with("Root Cause (first observed failure)") {
            self.steps = None;
        }
        if SUCCEEDED.iter().any(|words| text.contains(words)) {
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

    /// Returns true if the job was started again.
    pub(super) fn is_one(self) -> bool {
        self.has_succeeded || self.steps.is_some_and(|steps| steps >= STEPS)
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
            restart.is_one()
        };
        assert!(is_one(3, "done"));
        assert!(!is_one(1, "done"));
        assert!(is_one(
            0,
            "[default] worker group successfully finished. Waiting 300 seconds for other agents to finish."
        ));
        assert!(!is_one(3, "Root Cause (first observed failure):"));
    }
}
