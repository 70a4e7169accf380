//! The verdict on the last rank in its teardown.

use super::Rules;
use crate::logs::logged::Logged;
use crate::logs::phase::{Mark, Nature};
use allranks_model::diagnosis::rank_set::named;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// Seconds that the logs must go on after the last line of a rank in its teardown.
const LONG: f64 = 300.0;

impl Rules<'_> {
    /// Finds the only rank that has not come out of its teardown, if a stack that was printed shows it there, or if other lines go on
    /// for minutes: else the log may only end a moment too early.
    pub(super) fn teardown(&self) -> Option<Diagnosis> {
        let in_teardown = |(_, logged): &(&u32, &Logged)| {
            logged
                .step()
                .is_some_and(|step| step.nature == Nature::Destroy)
        };
        let is_out = |logged: &Logged| {
            let last = logged.begun.last();
            let has_torn_down = last.is_some_and(|step| step.nature == Nature::Destroy);
            logged.open.is_empty() && (has_torn_down || logged.log.is_finished)
        };
        let (inside, rest): (Vec<_>, Vec<_>) = self.job.ranks.iter().partition(in_teardown);
        let [(rank, logged)] = inside[..] else {
            return None;
        };
        let is_destroy = |(mark, _): &(Mark, _)| mark.nature == Nature::Destroy;
        let stray = &self.job.stray;
        let is_seen = logged.log.has_call_stack
            || (stray.has_call_stack && stray.marks.last().is_some_and(is_destroy));
        let since = logged.log.last.zip(self.job.end);
        let since = since.and_then(|(last, end)| end.since(last));
        let is_long = since.is_some_and(|seconds| seconds >= LONG);
        if rest.is_empty()
            || !(is_seen || is_long)
            || !rest.iter().all(|(_, logged)| is_out(logged))
        {
            return None;
        }
        let others: Vec<Rank> = rest.iter().map(|(rank, _)| Rank(**rank)).collect();
        let summary = format!("rank {rank} does not come out of its teardown, and all others have");
        let place = logged.step().map_or("", |step| step.name.as_str());
        let seen = match since {
            Some(seconds) if !is_seen => {
                format!("rank {rank} has written nothing for {seconds:.0} s in {place}")
            }
            _ => format!("a stack shows rank {rank} in {place}"),
        };
        let facts = vec![format!("{} said that this is over", named(&others)), seen];
        let (kind, confidence) = (HangKind::TeardownStuck, Confidence::Likely);
        Some(self.diagnosis(kind, confidence, vec![Rank(*rank)], summary, facts))
    }
}

#[cfg(test)]
mod tests {
    use super::HangKind;
    use crate::logs::verdict::said;

    #[test]
    fn only_a_stack_shows_that_a_teardown_does_not_end() {
        let lines = "rank: 0, destroying process group...\nrank: 1, destroying process group...\nrank: 1, destroy process group finished\n";
        let stack = "Process 40: python\nThread 40 (idle): \"MainThread\"\n    destroy_process_group (torch/distributed/distributed_c10d.py:2079)\n";
        assert_eq!(said(lines), (HangKind::Unknown, vec![]));
        assert_eq!(
            said(&format!("{lines}{stack}")),
            (HangKind::TeardownStuck, vec![0])
        );
    }

    #[test]
    fn a_teardown_may_end_after_the_log() {
        let said_at = |end: &str| {
            let lines: String = [0, 1, 2]
                .map(|rank| {
                    format!("2025-04-02 20:21:00 [rank {rank}] destroy_process_group() enter\n")
                })
                .concat();
            let left: String = [0, 2]
                .map(|rank| {
                    format!("2025-04-02 20:21:01 [rank {rank}] destroy_process_group() left\n")
                })
                .concat();
            said(&format!(
                "{lines}{left}2025-04-02 {end} agent: 1 of 3 workers alive\n"
            ))
        };
        assert_eq!(said_at("20:21:30"), (HangKind::Unknown, vec![]));
        assert_eq!(said_at("20:58:00"), (HangKind::TeardownStuck, vec![1]));
    }

    #[test]
    fn a_thread_may_keep_a_process_from_its_end() {
        let finished = |rank: u32| format!("[rank{rank}]: training finished\n");
        let stack = "[rank1]: Thread 0x00007f (most recent call first):\n[rank1]:   File \"/p/threading.py\", line 1590 in _shutdown\n";
        let lines = format!("{}{}{stack}", finished(0), finished(1));
        assert_eq!(said(&lines), (HangKind::TeardownStuck, vec![1]));
    }
}
