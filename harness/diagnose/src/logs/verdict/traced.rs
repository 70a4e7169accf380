//! The verdict by the collectives that NCCL has written down.

use std::collections::BTreeMap;

use super::{Rules, line, odd};
use crate::evidence::verb;
use allranks_model::diagnosis::rank_set;
use allranks_model::diagnosis::rank_set::named;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};

impl Rules<'_> {
    /// Finds the ranks that have called another collective than the rest, by the first number with which ranks have called
    /// different ones. All ranks must have written down their calls in one communicator.
    pub(super) fn traced(&self) -> Option<Diagnosis> {
        let traces = self.job.ranks.iter();
        let traces: BTreeMap<u32, _> = traces
            .map(|(rank, logged)| (*rank, &logged.log.collective_trace))
            .filter(|(_, trace)| !trace.calls.is_empty())
            .collect();
        let size = traces.values().map(|trace| trace.size()).max()?;
        if traces.len() < 2 || traces.values().any(|trace| trace.size() != size) {
            return None;
        }
        let mut calls: BTreeMap<u64, Vec<(u32, &str)>> = BTreeMap::new();
        for (rank, trace) in &traces {
            for (number, call) in &trace.calls {
                calls.entry(*number).or_default().push((*rank, call));
            }
        }
        calls.into_iter().find_map(|(number, calls)| {
            let culprits = odd(calls.iter().copied(), size as usize)?;
            let lines = calls.iter().map(|(rank, call)| line(*rank, call));
            let facts = rank_set::places(&lines.collect::<Vec<_>>());
            let summary = match culprits.is_empty() {
                true => format!("ranks have called different collectives with opCount {number:x}"),
                false => format!(
                    "{} {} called another collective than the rest with opCount {number:x}",
                    named(&culprits),
                    verb(&culprits, "has", "have")
                ),
            };
            let (kind, confidence) = (HangKind::CollectiveMismatch, Confidence::Likely);
            Some(self.diagnosis(kind, confidence, culprits, summary, facts))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::HangKind;
    use crate::logs::source::Source;
    use crate::logs::verdict::said_of;

    #[test]
    fn processes_of_several_files_are_compared() {
        let file = |pid: u32, name: &str| {
            let text = format!(
                "h:{pid}:9 [0] NCCL INFO comm 0x{pid} rank {} nranks 3 cudaDev 0 - Init COMPLETE\nh:{pid}:9 [0] NCCL INFO {name}: opCount 1a sendbuff 7 recvbuff 7 count 5 datatype 7 op 0 root 0 comm 0x{pid} [nranks=3] stream 0x1\n",
                pid - 70
            );
            Source::of_text(&format!("nccl.h.{pid}.log"), &text)
        };
        let all = [
            file(70, "AllReduce"),
            file(71, "Broadcast"),
            file(72, "AllReduce"),
        ];
        assert_eq!(said_of(&all), (HangKind::CollectiveMismatch, vec![1]));
    }
}
