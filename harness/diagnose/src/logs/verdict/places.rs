//! Verdicts by the places of ranks: which ranks have not come to where the others wait.

use super::Rules;
use crate::evidence::verb;
use crate::logs::behind::{alone, behind, still_busy};
use allranks_model::diagnosis::rank_set;
use allranks_model::diagnosis::rank_set::named;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

impl Rules<'_> {
    /// Finds ranks that made a world without the others.
    pub(super) fn alone(&self) -> Option<Diagnosis> {
        let (out, inside) = alone(self.job)?;
        let summary = format!(
            "{} {} made a world without the others",
            named(&out),
            verb(&out, "has", "have")
        );
        let facts = vec![format!(
            "{} came out of init_process_group, and {} did not",
            named(&out),
            named(&inside)
        )];
        Some(self.diagnosis(
            HangKind::SplitWorld,
            Confidence::Likely,
            out,
            summary,
            facts,
        ))
    }

    /// Finds the ranks that have not come to where the others wait.
    pub(super) fn behind(&self) -> Option<Diagnosis> {
        let behind = behind(self.job)?;
        let culprits = behind.late.clone();
        let causes: Vec<(Rank, &str)> = culprits
            .iter()
            .filter_map(|rank| Some((*rank, self.job.ranks.get(&rank.0)?.log.cause()?)))
            .collect();
        if let Some((rank, error)) = causes.first() {
            let ranks: Vec<Rank> = causes.iter().map(|(rank, _)| *rank).collect();
            let summary = format!("{} raised an error: {error}", named(&ranks));
            let facts = vec![format!(
                "{} {} in {}, and rank {rank} has raised before it came there",
                named(&behind.waiting),
                verb(&behind.waiting, "waits", "wait"),
                behind.place
            )];
            return Some(self.diagnosis(
                HangKind::PeerRaised,
                Confidence::Likely,
                ranks,
                summary,
                facts,
            ));
        }
        let places = self.job.places();
        let mut facts = vec![format!(
            "{} {} in {}",
            named(&behind.waiting),
            verb(&behind.waiting, "waits", "wait"),
            behind.place
        )];
        let late = places
            .into_iter()
            .filter(|line| culprits.contains(&line.rank));
        let late = rank_set::places(&late.collect::<Vec<_>>());
        facts.extend(
            late.iter()
                .map(|line| format!("the log ends there: {line}")),
        );
        let summary = format!(
            "{} {} not come to {}, where {} {}",
            named(&culprits),
            verb(&culprits, "has", "have"),
            behind.place,
            named(&behind.waiting),
            verb(&behind.waiting, "waits", "wait")
        );
        let (kind, confidence) = match (behind.on_the_way, behind.is_init) {
            (true, _) => (HangKind::Slow, Confidence::None),
            (false, true) => (HangKind::MissingRank, Confidence::Likely),
            (false, false) => (HangKind::Behind, Confidence::Likely),
        };
        // A rank that is on the way is no culprit.
        let culprits = match behind.on_the_way {
            true => Vec::new(),
            false => culprits,
        };
        Some(self.diagnosis(kind, confidence, culprits, summary, facts))
    }

    /// Ranks that are still busy where those that gave up in a collective have passed.
    pub(super) fn still_busy(&self) -> Option<Diagnosis> {
        let (late, waiting, step) = still_busy(self.job)?;
        let summary = format!(
            "{} {} in {step}, which {} {} passed before they gave up in a collective",
            named(&late),
            verb(&late, "is", "are"),
            named(&waiting),
            verb(&waiting, "has", "have")
        );
        let facts = vec![format!(
            "the watchdogs of {} ended their wait",
            named(&waiting)
        )];
        let found = self.diagnosis(HangKind::Behind, Confidence::Likely, late, summary, facts);
        Some(Diagnosis {
            victims: waiting,
            ..found
        })
    }
}
