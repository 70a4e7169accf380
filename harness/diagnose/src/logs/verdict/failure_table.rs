//! Verdicts by what torchrun's table of failures shows of a rank that did not fail by itself.

use super::Rules;
use allranks_model::diagnosis::rank_set::named;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

impl Rules<'_> {
    /// Finds the ranks that had ended with exit code 0 when the others gave up. The table lists all others of its host: those that
    /// failed, and those that the launcher stopped.
    pub(super) fn left(&self) -> Option<Diagnosis> {
        let exits = &self.job.lines.launcher.exits;
        let left = self.job.lines.launcher.not_listed();
        let has_written = |rank: &u32| self.job.ranks.get(rank).is_some_and(|it| !it.gave_up());
        // A rank that ends with 0 when it is stopped is not in the table either.
        let dies_of_signal = exits.values().any(|code| *code == -15);
        if left.is_empty()
            || left.len() >= exits.len()
            || !left.iter().all(has_written)
            || !dies_of_signal
            || !self.all_gave_up_because_of_others()
        {
            return None;
        }
        let culprits: Vec<Rank> = left.into_iter().map(Rank).collect();
        let summary = format!(
            "{} ended with exit code 0 while the others still communicated",
            named(&culprits)
        );
        let facts = vec![format!(
            "the launcher's table of failures lists all ranks up to {} but {}",
            exits.keys().max()?,
            named(&culprits)
        )];
        let (kind, confidence) = (HangKind::PeerDead, Confidence::Likely);
        Some(self.diagnosis(kind, confidence, culprits, summary, facts))
    }

    /// Finds the rank whose container ended first, with exit code 0, where all that gave up did so because of others.
    pub(super) fn ended_first(&self) -> Option<Diagnosis> {
        let launcher = &self.job.lines.launcher;
        let rank = launcher.ended_first?;
        let has_left = launcher.exits.get(&rank) == Some(&0);
        let is_silent = self.job.ranks.get(&rank).is_some_and(|it| !it.gave_up());
        let others = self.others(rank);
        let have_failed = others.iter().all(|other| launcher.exits[&other.0] != 0);
        if !has_left
            || !is_silent
            || others.is_empty()
            || !have_failed
            || !self.all_gave_up_because_of_others()
        {
            return None;
        }
        let summary =
            format!("rank {rank} ended with exit code 0 while the others still communicated");
        let facts = vec![format!(
            "its container ended first; {} ended later, with other codes",
            named(&others)
        )];
        let (kind, confidence) = (HangKind::PeerDead, Confidence::Likely);
        Some(self.diagnosis(kind, confidence, vec![Rank(rank)], summary, facts))
    }

    /// Finds the only rank that the launcher had to kill, long after another had failed, because it did not end when it was told
    /// to: it is stopped, or within a call of the system.
    pub(super) fn unresponsive(&self) -> Option<Diagnosis> {
        let launcher = &self.job.lines.launcher;
        let mut killed = launcher
            .exits
            .keys()
            .filter(|rank| launcher.was_killed_by_launcher(**rank));
        let (rank, None) = (*killed.next()?, killed.next()) else {
            return None;
        };
        let is_silent = self.job.ranks.get(&rank).is_some_and(|it| !it.gave_up());
        if launcher.exits.len() < 3 || !is_silent || !self.all_gave_up_because_of_others() {
            return None;
        }
        let culprits = vec![Rank(rank)];
        let summary = format!(
            "rank {rank} did not end when its launcher told it to, and had not given up where others had"
        );
        let facts = vec![format!(
            "the launcher killed rank {rank} by SIGKILL after its time for an orderly end; {} ended before",
            named(&self.others(rank))
        )];
        let (kind, confidence) = (HangKind::Behind, Confidence::Likely);
        Some(self.diagnosis(kind, confidence, culprits, summary, facts))
    }

    /// Returns true if a rank gave up, and each that did says that it was because of another.
    fn all_gave_up_because_of_others(&self) -> bool {
        let mut gave_up = self.job.ranks.values().filter(|it| it.gave_up()).peekable();
        gave_up.peek().is_some() && gave_up.all(|logged| logged.log.cause().is_none())
    }

    fn others(&self, rank: u32) -> Vec<Rank> {
        let others = self.job.lines.launcher.exits.keys();
        let others = others.filter(|other| **other != rank);
        others.copied().map(Rank).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::HangKind;
    use crate::logs::verdict::said;

    fn row(rank: u32, code: i32, clock: &str) -> String {
        format!(
            "  time      : 2025-12-09_{clock}\n  rank      : {rank} (local_rank: {rank})\n  exitcode  : {code} (pid: 7)\n"
        )
    }

    fn lines() -> String {
        let gave_up = "RuntimeError: Connection closed by peer [127.0.0.1]:27549";
        format!("[rank0]: {gave_up}\n[rank1]: step 3\n[rank2]: step 3\n[rank3]: {gave_up}\n")
    }

    #[test]
    fn a_rank_that_is_not_in_the_table_had_ended() {
        let root = "Root Cause (first observed failure):\n";
        let early = "14:43:49";
        let rest = format!("{}{root}{}", row(2, -15, early), row(3, 1, early));
        let all = format!("{}{}", row(0, -15, early), lines());
        assert_eq!(said(&format!("{all}{rest}")), (HangKind::PeerDead, vec![1]));
        // All of them may end with 0 when they are stopped.
        let handled = format!("{}{}{root}{}", lines(), row(0, 1, early), row(3, 1, early));
        assert_eq!(said(&handled), (HangKind::Unknown, vec![]));
    }

    #[test]
    fn the_container_that_ends_first_without_an_error_has_left() {
        let gave_up = |rank: u32| {
            format!("t-{rank}-1  | [rank{rank}]: RuntimeError: Connection closed by peer\n")
        };
        let lines = format!(
            "t-0-1  | epoch 3\n{}{}{}",
            gave_up(1),
            gave_up(2),
            gave_up(3)
        );
        let exit = |rank: u32, code: u32| format!("t-{rank}-1 exited with code {code}\n");
        let all = format!(
            "{}{}{}{}",
            lines.repeat(5),
            exit(0, 0),
            exit(1, 1),
            exit(2, 1)
        );
        assert_eq!(said(&all), (HangKind::PeerDead, vec![0]));
        let later = format!(
            "{}{}{}{}",
            lines.repeat(5),
            exit(1, 1),
            exit(0, 0),
            exit(2, 1)
        );
        assert_eq!(said(&later), (HangKind::Unknown, vec![]));
    }

    #[test]
    fn a_kill_by_the_launcher_is_no_death_of_its_own() {
        let table = |clock: &str| {
            format!(
                "{}{}{}{}Root Cause (first observed failure):\n{}",
                lines(),
                row(0, -15, clock),
                row(1, -15, clock),
                row(2, -9, clock),
                row(3, 1, "14:43:49")
            )
        };
        assert_eq!(said(&table("14:44:20")), (HangKind::Behind, vec![2]));
        assert_eq!(said(&table("14:43:49")), (HangKind::PeerDead, vec![2]));
    }
}
