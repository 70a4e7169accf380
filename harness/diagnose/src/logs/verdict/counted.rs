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
        let in_init = |logged: &Logged| {
            logged
                .step()
                .is_some_and(|step| step.nature == Nature::Init)
        };
        let joined = self.job.lines.counts.joined.and_then(|(came, of)| {
            let ranks = self.job.ranks.iter().filter(|(_, logged)| in_init(logged));
            let ranks: BTreeSet<u32> = ranks.map(|(rank, _)| *rank).collect();
            // Who has written of nothing but the rendezvous and gave up is in it, too.
            let all: BTreeSet<u32> = self.job.ranks.keys().copied().collect();
            let is_in = |logged: &Logged| {
                let mut begun = logged.begun.iter();
                logged.gave_up()
                    && logged.log.step.is_none()
                    && begun.all(|step| step.nature == Nature::Init)
            };
            let ranks = match self.job.ranks.values().all(is_in) {
                true => all,
                false => ranks,
            };
            (ranks.len() == came as usize && came < of).then_some((of, ranks, "init_process_group"))
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
            true if has_left_out => {
                facts.push(format!(
                    "{} timed out in a collective of the world: every rank must call new_group, its members or not",
                    named(&missing)
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

    /// Returns true if a rank has come out of the rendezvous.
    fn has_met(&self, rank: Rank) -> bool {
        let is_met = |mark: &Mark| mark.nature == Nature::Init && mark.edge == Edge::End;
        let logged = self.job.ranks.get(&rank.0);
        logged.is_some_and(|logged| logged.log.marks.iter().any(|(mark, _)| is_met(mark)))
    }

    /// Returns true if a rank timed out in a collective of the whole world, and so is past what it has not come to.
    fn has_gone_on(&self, rank: Rank) -> bool {
        let logged = self.job.ranks.get(&rank.0);
        logged.and_then(Logged::timed_out_work).is_some()
    }
}
