//! The verdict by errors in which ranks compare what they have.

use super::{Rules, line, odd};
use crate::evidence::verb;
use allranks_model::diagnosis::rank_set;
use allranks_model::diagnosis::rank_set::named;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};

impl Rules<'_> {
    /// Finds the ranks that have something else than the rest by what an error compares. Each rank raises it, whichever differs.
    pub(super) fn compared(&self) -> Option<Diagnosis> {
        let values = &self.job.lines.compared_values.values;
        let votes = values.iter().map(|(rank, value)| (*rank, value.as_str()));
        let culprits = odd(votes, self.job.least_size() as usize)?;
        let lines = values.iter().map(|(rank, value)| line(*rank, value));
        let facts = rank_set::places(&lines.collect::<Vec<_>>());
        let summary = match culprits.is_empty() {
            true => "ranks do not all have the same, as an error says".to_owned(),
            false => format!(
                "{} {} another model than the rest",
                named(&culprits),
                verb(&culprits, "has", "have")
            ),
        };
        let (kind, confidence) = (HangKind::CollectiveMismatch, Confidence::Proved);
        Some(self.diagnosis(kind, confidence, culprits, summary, facts))
    }
}

#[cfg(test)]
mod tests {
    use super::HangKind;
    use crate::logs::verdict::said;

    fn raised(rank: u32, own: u32, other: u32, its: u32) -> String {
        format!(
            "[rank{rank}]: RuntimeError: DDP expects same model across all ranks, but Rank {rank} has {own} params, while rank {other} has inconsistent {its} params.\n"
        )
    }

    #[test]
    fn the_rank_that_all_others_differ_from_is_named() {
        let most = format!("{}{}", raised(1, 12, 2, 14), raised(0, 12, 2, 14));
        let all = format!("{most}{}", raised(2, 14, 0, 12));
        assert_eq!(said(&all), (HangKind::CollectiveMismatch, vec![2]));
        let pair = format!("{}{}", raised(0, 12, 1, 14), raised(1, 14, 0, 12));
        assert_eq!(said(&pair), (HangKind::CollectiveMismatch, vec![]));
    }

    #[test]
    fn an_error_of_all_ranks_that_names_others_accuses_nobody() {
        let error = |rank: u32, other: u32| {
            format!("[rank{rank}]: ValueError: table differs from that of rank {other}\n")
        };
        let all = format!("{}{}{}", error(0, 2), error(1, 2), error(2, 0));
        assert_eq!(said(&all), (HangKind::Unknown, vec![]));
    }
}
