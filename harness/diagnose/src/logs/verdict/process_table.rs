//! The verdict by the states of processes that `ps` shows.

use super::Rules;
use crate::evidence::verb;
use allranks_model::diagnosis::rank_set::named;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

impl Rules<'_> {
    /// Finds the ranks whose processes a table of `ps` shows to be stopped.
    pub(super) fn stopped_processes(&self) -> Option<Diagnosis> {
        let stopped = &self.job.lines.process_table.lines.ranks;
        let (rank, line) = stopped.first_key_value()?;
        if stopped.len() * 2 >= self.job.least_size() as usize {
            return None;
        }
        let culprits: Vec<Rank> = stopped.keys().copied().map(Rank).collect();
        let summary = format!(
            "{} {} stopped: its process does not run",
            named(&culprits),
            verb(&culprits, "is", "are")
        );
        let facts = vec![format!("ps shows of rank {rank}: {line}")];
        let (kind, confidence) = (HangKind::PeerStopped, Confidence::Likely);
        Some(self.diagnosis(kind, confidence, culprits, summary, facts))
    }
}

#[cfg(test)]
mod tests {
    use super::HangKind;
    use crate::logs::verdict::said;

    #[test]
    fn a_table_of_processes_shows_a_stopped_rank() {
        let gave_up = |rank: u32| {
            format!("[rank{rank}]: RuntimeError: Connection closed by peer [127.0.0.1]:27549\n")
        };
        let pids = "[rank1]: rank 1 pid 91\n[rank2]: rank 2 pid 92\n";
        let table = "  PID  PPID STAT COMMAND\n 91 1 Ssl python\n 92 1 Tsl python\n";
        let lines = format!("{}{}{pids}{table}", gave_up(0), gave_up(1));
        assert_eq!(said(&lines), (HangKind::PeerStopped, vec![2]));
    }
}
