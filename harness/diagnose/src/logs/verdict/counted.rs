//! The verdict by the store's counts of arrivals.

use std::collections::BTreeSet;

use super::Rules;
use crate::evidence::verb;
use crate::logs::arrival::Counted;
use crate::logs::logged::Logged;
use crate::logs::phase::{Edge, Mark, Nature};
use allranks_model::diagnosis::rank_set::named;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

impl Rules<'_> {
    /// Ranks that the store has not counted, if it has counted all others that are seen to wait.
    pub(super) fn counted(&self) -> Option<Diagnosis> {
        let too_many = |(counted, _): &&(Counted, BTreeSet<u32>)| counted.came > counted.of;
        let barriers = &self.job.lines.counts.barriers;
        if let Some((counted, _)) = barriers.values().find(too_many) {
            let Counted { key, came, of, .. } = counted;
            let summary = format!(
                "the store counts {came} processes in the barrier of a world of {of}: two jobs meet there, or one has been started again with the same store"
            );
            let facts = vec![format!("the key is {key}")];
            let (kind, confidence) = (HangKind::Unknown, Confidence::None);
            return Some(self.diagnosis(kind, confidence, Vec::new(), summary, facts));
        }
        let in_barriers = barriers.values().filter_map(|(counted, ranks)| {
            let is_all = ranks.len() == counted.came as usize && counted.came < counted.of;
            is_all.then(|| (counted.of, ranks.clone(), counted.phase.as_str()))
        });
        let joined = self.job.lines.counts.joined.and_then(|(came, of)| {
            let ranks = self.counted_in_init(came as usize)?;
            (came < of).then_some((of, ranks, "init_process_group"))
        });
        let (of, came, phase) = in_barriers.chain(joined).next()?;
        let missing: Vec<Rank> = (0..of)
            .filter(|rank| !came.contains(rank))
            .map(Rank)
            .collect();
        if missing.is_empty() || missing.len() + came.len() != of as usize {
            return None;
        }
        let ranks: Vec<Rank> = came.iter().copied().map(Rank).collect();
        let summary = format!(
            "{} {} not come to {phase}",
            named(&missing),
            verb(&missing, "has", "have")
        );
        let mut facts = vec![format!(
            "the store counts {} of {of}, and these are {}",
            came.len(),
            named(&ranks)
        )];
        let has_left_out = missing.iter().all(|rank| self.has_gone_on(*rank));
        let kind = match phase.starts_with("new_group") {
            true if missing
                .iter()
                .all(|rank| self.has_created_fewer(*rank, &came)) =>
            {
                facts.push(format!(
                    "{} {} written of fewer groups that it creates than all others",
                    named(&missing),
                    verb(&missing, "has", "have")
                ));
                HangKind::GroupSkipped
            }
            true if has_left_out => {
                facts.push(format!(
                    "{} {} in a collective of the world: every rank must call new_group, its members or not",
                    named(&missing),
                    verb(&missing, "waits", "wait")
                ));
                HangKind::GroupSkipped
            }
            // It has come to the world.
            true if missing.iter().all(|rank| self.has_met(*rank)) => HangKind::Behind,
            _ => HangKind::MissingRank,
        };
        let confidence = Confidence::Likely;
        Some(self.diagnosis(kind, confidence, missing, summary, facts))
    }

    /// Returns the ranks that the store has counted, where so many are seen to be in the rendezvous, or to have given up after nothing
    /// else, the others having written of no phase and no error.
    fn counted_in_init(&self, came: usize) -> Option<BTreeSet<u32>> {
        let is_in = |logged: &Logged| {
            let step = logged.step();
            step.is_some_and(|step| step.nature == Nature::Init)
        };
        let gave_up = |logged: &Logged| {
            let mut begun = logged.begun.iter();
            logged.gave_up()
                && logged.log.step.is_none()
                && begun.all(|step| step.nature == Nature::Init)
        };
        let is_silent =
            |logged: &Logged| logged.begun.is_empty() && logged.log.final_errors().next().is_none();
        let all = || self.job.ranks.iter();
        let inside: BTreeSet<u32> = all()
            .filter(|(_, logged)| is_in(logged))
            .map(|(rank, _)| *rank)
            .collect();
        let (given_up, rest): (Vec<_>, Vec<_>) = all().partition(|(_, logged)| gave_up(logged));
        let given_up: BTreeSet<u32> = given_up.into_iter().map(|(rank, _)| *rank).collect();
        let is_given_up = rest.into_iter().all(|(_, logged)| is_silent(logged));
        [Some(inside), is_given_up.then_some(given_up)]
            .into_iter()
            .flatten()
            .find(|ranks| ranks.len() == came)
    }

    /// Returns true if a rank has come out of the rendezvous.
    fn has_met(&self, rank: Rank) -> bool {
        let is_met = |mark: &Mark| mark.nature == Nature::Init && mark.edge == Edge::End;
        let logged = self.job.ranks.get(&rank.0);
        logged.is_some_and(|logged| logged.log.marks.iter().any(|(mark, _)| is_met(mark)))
    }

    /// Returns true if a rank has written of fewer groups that it creates than each of the others.
    fn has_created_fewer(&self, rank: Rank, others: &BTreeSet<u32>) -> bool {
        let created = |rank: u32| {
            let logged = self.job.ranks.get(&rank);
            logged.map_or(0, |logged| logged.log.group_creations.members.len())
        };
        let own = created(rank.0);
        own > 0 && others.iter().all(|other| created(*other) > own)
    }

    /// Returns true if a rank timed out in a collective of the whole world, or is in one, and so is past what it has not come to.
    fn has_gone_on(&self, rank: Rank) -> bool {
        let logged = self.job.ranks.get(&rank.0);
        let is_in_collective = |logged: &Logged| {
            let step = logged.step();
            step.is_some_and(|step| matches!(step.nature, Nature::Collective(_)))
        };
        logged.is_some_and(|logged| logged.timed_out_work().is_some() || is_in_collective(logged))
    }
}

#[cfg(test)]
mod tests {
    use super::HangKind;
    use crate::logs::verdict::said;

    #[test]
    fn a_rank_that_waits_in_a_collective_has_left_out_the_new_group() {
        let counted = |rank: u32| {
            format!(
                "Waiting in store based barrier to initialize process group for rank: {rank}, key: store_based_barrier_key:2 (world_size=3, num_workers_joined=2, timeout=0:10:00)\n"
            )
        };
        let came = [counted(0), counted(1)].concat();
        let of = |line: &str| {
            said(&format!(
                "[rank2] init_process_group done\n{came}[rank2] {line}\n"
            ))
        };
        assert_eq!(
            of("ready, waiting for first batch broadcast from rank 0"),
            (HangKind::GroupSkipped, vec![2])
        );
        assert_eq!(of("loading weights").1, [2]);
        assert_ne!(of("loading weights").0, HangKind::GroupSkipped);
    }
}
