//! The verdict by a cluster's word that it has ended a pod.

use std::collections::BTreeSet;

use super::Rules;
use crate::logs::logged::Logged;
use allranks_model::diagnosis::rank_set::named;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

impl Rules<'_> {
    /// Finds the ranks of the only pod of the job that the cluster has ended, if none of them gave up and others did. A pod whose log
    /// is gone had the ranks of which there are no logs, if each other pod has its own.
    pub(super) fn evicted(&self) -> Option<Diagnosis> {
        let pods = &self.job.lines.pods;
        let is_of_job = |name: &&String| pods.keys().any(|pod| stem(pod) == stem(name));
        let mut ended = self
            .job
            .lines
            .pod_ends
            .pods
            .iter()
            .filter(|(name, _)| is_of_job(name));
        let (Some((name, line)), None) = (ended.next(), ended.next()) else {
            return None;
        };
        let ranks: Vec<u32> = match pods.get(name) {
            Some(ranks) => ranks.iter().copied().collect(),
            None if pods.values().all(BTreeSet::is_empty) => return None,
            None => self.job.absent().iter().map(|rank| rank.0).collect(),
        };
        let gave_up = |(_, logged): &(&u32, &Logged)| logged.gave_up();
        let all = self.job.ranks.iter().filter(gave_up);
        let victims: Vec<Rank> = all.map(|(rank, _)| Rank(*rank)).collect();
        let is_cause = !ranks.iter().any(|rank| victims.contains(&Rank(*rank)));
        if ranks.is_empty() || victims.is_empty() || !is_cause || ranks.len() > victims.len() {
            return None;
        }
        let culprits: Vec<Rank> = ranks.into_iter().map(Rank).collect();
        let summary = format!("pod {name} was ended, in which {} ran", named(&culprits));
        let facts = vec![line.clone()];
        let (kind, confidence) = (HangKind::PeerDead, Confidence::Likely);
        let found = self.diagnosis(kind, confidence, culprits, summary, facts);
        Some(Diagnosis { victims, ..found })
    }
}

/// Returns what the names of all pods of a job begin with.
fn stem(name: &str) -> &str {
    let end = name.find(|character: char| character.is_ascii_digit());
    &name[..end.unwrap_or(name.len())]
}

#[cfg(test)]
mod tests {
    use super::HangKind;
    use crate::logs::source::Source;
    use crate::logs::verdict::said_of;

    #[test]
    fn the_ranks_of_an_ended_pod_are_those_without_logs() {
        let pod = |number: u32, rank: u32| {
            format!(
                "[pod/t-{number}-x/m] [default0]:[rank{rank}]: world_size=3\n[pod/t-{number}-x/m] [default0]:RuntimeError: Connection closed by peer\n"
            )
        };
        let logs = format!("{}{}", pod(0, 0), pod(2, 2));
        let said = |events: &str| {
            said_of(&[
                Source::of_text("logs.txt", &logs),
                Source::of_text("events.txt", events),
            ])
        };
        assert_eq!(
            said("1m Warning Evicted pod/t-1-y low on disk\n"),
            (HangKind::PeerDead, vec![1])
        );
        assert_eq!(
            said("1m Warning Evicted pod/web-1-y low on disk\n"),
            (HangKind::Unknown, vec![])
        );
        let two = "1m Warning Evicted pod/t-1-y low\n1m Warning Evicted pod/t-0-x low\n";
        assert_eq!(said(two), (HangKind::Unknown, vec![]));
    }
}
