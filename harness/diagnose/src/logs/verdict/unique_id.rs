//! The verdict by the errors of ranks that waited for the id of an NCCL communicator.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use super::Rules;
use crate::evidence::verb;
use allranks_model::diagnosis::rank_set::named;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

static AWAITED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"\[(\d+)\] is setting up NCCL communicator and retrieving ncclUniqueId from \[(\d+)\] via .* by key '.*timeout",
    )
    .ok()
});

/// Ranks that must have given up for one without lines to be told from them.
const LEAST: usize = 2;

impl Rules<'_> {
    /// Finds the rank whose id others waited for: it has not come to its first collective. The numbers are those of a group, and
    /// count only if each rank that waits has its own number there.
    pub(super) fn awaited_id(&self) -> Option<Diagnosis> {
        let mut waiting = Vec::new();
        let mut roots = BTreeSet::new();
        for (rank, logged) in &self.job.ranks {
            let found = logged.log.final_errors().find_map(awaited);
            let Some((own, root)) = found else {
                continue;
            };
            if own != *rank {
                return None;
            }
            waiting.push(Rank(*rank));
            roots.insert(root);
        }
        let root = roots.pop_first().filter(|_| roots.is_empty())?;
        // A rank that has given up waits elsewhere, and one of which nothing is known may do so.
        let is_alive = match self.job.ranks.get(&root) {
            Some(logged) => {
                logged.log.final_errors().next().is_none() && !logged.log.watchdog.timed_out()
            }
            None => self.outlives(root, &waiting),
        };
        if !is_alive {
            return None;
        }
        let culprits = vec![Rank(root)];
        let summary = format!(
            "rank {root} has not come to a collective, where {} {}",
            named(&waiting),
            verb(&waiting, "waits", "wait")
        );
        let facts = vec![format!(
            "{} waited for the id of NCCL's communicator, which rank {root} stores when it comes to the group's first collective",
            named(&waiting)
        )];
        let (kind, confidence) = (HangKind::Behind, Confidence::Likely);
        let found = self.diagnosis(kind, confidence, culprits, summary, facts);
        Some(Diagnosis {
            victims: waiting,
            ..found
        })
    }

    /// Returns true if a rank of which there are no lines had not failed when all others had given up: torchrun's table lists what
    /// failed of all ranks, and not this one.
    fn outlives(&self, rank: u32, others: &[Rank]) -> bool {
        let launcher = &self.job.lines.launcher;
        let all = 0..self.job.least_size();
        let gave_up = |other: u32| other == rank || others.contains(&Rank(other));
        others.len() >= LEAST
            && launcher.is_of_one_host()
            && !launcher.exits.contains_key(&rank)
            && all.into_iter().all(gave_up)
    }
}

/// Returns a rank and the one whose id it has waited for, as numbers of a group; `None` if an error is of something else.
fn awaited(error: &str) -> Option<(u32, u32)> {
    if !error.contains("ncclUniqueId") {
        return None;
    }
    let found = AWAITED.as_ref()?.captures(error)?;
    Some((found[1].parse().ok()?, found[2].parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::verdict::said;

    #[test]
    fn the_error_names_both_ranks() {
        let text = |why: &str| {
            format!(
                "torch.distributed.DistBackendError: [3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: {why}"
            )
        };
        assert_eq!(awaited(&text("wait timeout after 1800000ms")), Some((3, 0)));
        // The store has gone, and with it perhaps the rank: others are asked for that.
        assert_eq!(awaited(&text("Connection reset by peer")), None);
    }

    #[test]
    fn the_rank_that_stores_the_id_has_not_come() {
        let waits = |rank: u32, own: u32| {
            format!(
                "[rank{rank}]: DistBackendError: [{own}] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: wait timeout after 1800000ms\n"
            )
        };
        let root = "[rank0]: step 3\n";
        let both = format!("{root}{}{}", waits(1, 1), waits(2, 2));
        assert_eq!(said(&both), (HangKind::Behind, vec![0]));
        // The numbers are those of a smaller group.
        let group = format!("{root}{}{}", waits(2, 1), waits(3, 2));
        assert_eq!(said(&group), (HangKind::Unknown, vec![]));
        assert_eq!(said(&waits(1, 1)), (HangKind::Unknown, vec![]));
        // Of rank 0 there are no lines, and torchrun has seen no failure of it.
        let table = |rank: u32| {
            format!(
                "Root Cause (first observed failure):\n  rank      : {rank} (local_rank: {rank})\n  exitcode  : 1 (pid: 7)\n"
            )
        };
        let others = format!("{}{}", waits(1, 1), waits(2, 2));
        assert_eq!(said(&others), (HangKind::Unknown, vec![]));
        let outlived = format!("{others}{}", table(2));
        assert_eq!(said(&outlived), (HangKind::Behind, vec![0]));
        let failed = format!("{others}{}", table(0));
        assert_ne!(said(&failed).0, HangKind::Behind);
    }
}
