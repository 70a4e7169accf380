//! The verdict on ranks at the prompt of a debugger.

use super::Rules;
use crate::evidence::verb;
use allranks_model::diagnosis::rank_set::named;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

impl Rules<'_> {
    /// Finds the few ranks in which a debugger waits for commands. None is named where that is so of half of the ranks or more: all may be
    /// at the same line.
    pub(super) fn at_debugger(&self) -> Option<Diagnosis> {
        let all = self.job.ranks.iter();
        let stopped =
            all.filter_map(|(rank, logged)| Some((Rank(*rank), logged.log.debugger.clone()?)));
        let (culprits, lines): (Vec<Rank>, Vec<String>) = stopped.unzip();
        let is_pair = culprits.len() == 1 && self.job.ranks.len() == 2;
        if culprits.is_empty() || (culprits.len() * 2 >= self.job.ranks.len() && !is_pair) {
            return None;
        }
        let summary = format!(
            "{} {} stopped in a debugger, which waits for commands",
            named(&culprits),
            verb(&culprits, "is", "are")
        );
        let (kind, confidence) = (HangKind::PeerStopped, Confidence::Likely);
        Some(self.diagnosis(kind, confidence, culprits, summary, lines))
    }
}

#[cfg(test)]
mod tests {
    use super::HangKind;
    use crate::logs::verdict::said;

    #[test]
    fn the_rank_whose_debugger_waits_is_named() {
        let steps = "[rank 0] step 1\n[rank 1] step 1\n";
        let prompt = "> /home/u/train.py(96)step()\n-> dist.all_reduce(x)\n(Pdb) \n";
        let waits = "[rank 0] before all_reduce\n";
        let of_1 = format!("{steps}[rank 1] nan, dropping into the debugger\n{prompt}{waits}");
        assert_eq!(said(&of_1), (HangKind::PeerStopped, vec![1]));
        // It went on.
        let over = format!("{of_1}[rank 1] step 2\n");
        assert_ne!(said(&over).0, HangKind::PeerStopped);
    }
}
