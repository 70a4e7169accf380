//! Verdicts by what processes claim of their rank and their world, where NCCL or the other processes contradict them.

use super::{Rules, line, odd};
use crate::evidence::verb;
use crate::logs::logged::Logged;
use crate::logs::rank_claims::ClaimedTwice;
use allranks_model::diagnosis::rank_set;
use allranks_model::diagnosis::rank_set::named;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

impl Rules<'_> {
    /// Finds a rank that two processes claim: NCCL has counted it twice, or as many processes as there are ranks say which they are. If
    /// `rule`, the verdict of the rules on hanging jobs, says so already, it knows which of the processes is wrong.
    pub(super) fn claimed_twice(&self, rule: &Diagnosis) -> Option<Diagnosis> {
        if rule.kind == HangKind::DuplicateRank {
            return None;
        }
        let counted = self.job.lines.bootstrap.twice.as_ref();
        let counted = counted.filter(|(_, of, _)| *of == self.job.least_size());
        let (ranks, fact) = match counted {
            Some((rank, _, line)) => (vec![Rank(*rank)], line.clone()),
            None => {
                let ClaimedTwice { ranks, missing } = self.job.lines.rank_claims.twice()?;
                let [ranks, missing] =
                    [ranks, missing].map(|all| all.into_iter().map(Rank).collect::<Vec<_>>());
                let fact = format!(
                    "{} {} claimed by two processes, and {} by none",
                    named(&ranks),
                    verb(&ranks, "is", "are"),
                    named(&missing)
                );
                (ranks, fact)
            }
        };
        let summary = match ranks.len() {
            1 => format!("two processes claim {}", named(&ranks)),
            _ => format!("two hosts claim the same ranks, {}", named(&ranks)),
        };
        let (kind, confidence) = (HangKind::DuplicateRank, Confidence::Likely);
        Some(self.diagnosis(kind, confidence, ranks, summary, vec![fact]))
    }

    /// Finds the ranks that say another number of ranks than most, where NCCL says that the numbers differ, or where the store has
    /// counted just those that say the number for which it waits.
    pub(super) fn claimed_sizes(&self) -> Option<Diagnosis> {
        let size_of = |logged: &Logged| logged.log.environment.world_size;
        let counted = self.job.lines.counts.joined.filter(|(came, of)| {
            let ranks = self.job.ranks.values();
            let those = ranks.filter(|logged| size_of(logged) == Some(*of)).count();
            came < of && those == *came as usize
        });
        let counted = counted.map(|(came, of)| {
            format!("the store has counted {came} of {of}, as many as expect {of}")
        });
        let complaint = self.job.lines.bootstrap.mismatch.clone().or(counted)?;
        let sizes = self.job.ranks.iter();
        let sizes = sizes.filter_map(|(rank, logged)| {
            let size = size_of(logged)?;
            Some((*rank, format!("expects {size} ranks")))
        });
        let sizes: Vec<(u32, String)> = sizes.collect();
        let values = sizes.iter().map(|(rank, text)| (*rank, text.as_str()));
        let culprits = odd(values.clone(), self.job.least_size() as usize)?;
        let lines: Vec<_> = values.map(|(rank, text)| line(rank, text)).collect();
        let mut facts = rank_set::places(&lines);
        facts.push(complaint);
        let summary = match culprits.is_empty() {
            true => "ranks expect different numbers of ranks".to_owned(),
            false => format!(
                "{} expected another number of ranks than the rest",
                named(&culprits)
            ),
        };
        let (kind, confidence) = (HangKind::WorldSizeDisagreement, Confidence::Likely);
        Some(self.diagnosis(kind, confidence, culprits, summary, facts))
    }
}

#[cfg(test)]
mod tests {
    use super::HangKind;
    use crate::logs::source::Source;
    use crate::logs::verdict::{said, said_of};

    #[test]
    fn the_rank_that_two_hosts_claim_is_named() {
        let files = |ranks: [u32; 4], end: &str| {
            let file = |(host, rank): (char, u32)| {
                let text =
                    format!("gpu-{host}:77 rank {rank} of 4, waiting\nRuntimeError: {end}\n");
                Source::of_text(&format!("gpu-{host}.log"), &text)
            };
            let files: Vec<Source> = ('a'..).zip(ranks).map(file).collect();
            said_of(&files)
        };
        let twice = files([0, 1, 1, 3], "Wait timeout");
        assert_eq!(twice, (HangKind::DuplicateRank, vec![1]));
        assert_eq!(files([0, 1, 2, 3], "Wait timeout").1, Vec::<u32>::new());
    }

    #[test]
    fn the_rank_that_expects_another_number_is_named_if_nccl_complains() {
        let joins = |rank: u32, size: u32| {
            format!("Initializing distributed: GLOBAL_RANK: {rank}, MEMBER: {size}/{size}\n")
        };
        let complaint = "n0:1:2 [0] bootstrap.cc:187 NCCL WARN Bootstrap Root : mismatch in rank count from procs 4 : 3\n";
        let ranks = [joins(0, 4), joins(1, 4), joins(2, 3), joins(3, 4)].concat();
        let all = format!("{ranks}{complaint}");
        assert_eq!(said(&all), (HangKind::WorldSizeDisagreement, vec![2]));
        let pair = format!("{}{}{complaint}", joins(0, 4), joins(1, 3));
        assert_eq!(said(&pair).1, Vec::<u32>::new());
    }
}
