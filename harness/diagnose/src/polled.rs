//! Finds a rank that has ended while another one checks again and again for something that has not come.

use super::evidence::{END_OF_PROGRAM, EventKind, HangEvidence, Process, RankState, named, verb};
use crate::conclude;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// Returns the verdict on ranks that have ended without leaving the world, if each of the late ranks only sleeps between two checks of
/// something outside of torch.distributed: it comes from another process, which may be one that has ended. Likely at most. A rank whose
/// program returned may have had nothing left to do, so it is not named, and neither is a late rank. `None` if these are not the facts.
#[must_use]
pub fn ended_meanwhile(evidence: &HangEvidence, late: &[Rank]) -> Option<Diagnosis> {
    let polls = |rank: &Rank| {
        let now = evidence.rank(*rank).and_then(RankState::now);
        matches!(now, Some(EventKind::Own(text)) if text.contains("sleep("))
    };
    let ended: Vec<(Rank, &str)> = evidence
        .ranks
        .iter()
        .filter(|state| !has_left(state))
        .filter_map(|state| match &state.process {
            Process::Ended(how) => Some((state.rank, how.as_str())),
            _ => None,
        })
        .collect();
    if ended.is_empty() || late.is_empty() || !late.iter().all(polls) {
        return None;
    }
    let failed = ended.iter().filter(|(_, how)| *how != END_OF_PROGRAM);
    let culprits: Vec<Rank> = failed.map(|(rank, _)| *rank).collect();
    let kind = match culprits.is_empty() {
        true => HangKind::Behind,
        false => HangKind::PeerDead,
    };
    let all: Vec<Rank> = ended.iter().map(|(rank, _)| *rank).collect();
    let summary = format!(
        "{} {} ended without leaving the world, and {} {} again and again for something that has not come",
        named(&all),
        verb(&all, "has", "have"),
        named(late),
        verb(late, "checks", "check"),
    );
    let ends = ended
        .iter()
        .map(|(rank, how)| format!("rank {rank} has ended: it {how}"));
    let states = late.iter().filter_map(|rank| evidence.rank(*rank));
    let places = states.map(|state| format!("rank {} {}", state.rank, state.place()));
    let facts = ends.chain(places).collect();
    let verdict = conclude(evidence, kind, Confidence::Likely, culprits, summary);
    Some(verdict.because(facts))
}

/// Returns true if a rank has torn the world down, or is known to make no more calls in it.
fn has_left(state: &RankState) -> bool {
    let is_destroy = |event: &crate::TraceEvent| matches!(event.what, EventKind::Destroy(_));
    state.coming().is_some_and(<[_]>::is_empty) || state.entered().any(is_destroy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builders::rank;

    fn evidence(line: &str, end: &str, last: Option<EventKind>) -> HangEvidence {
        let keys = EventKind::AwaitKeys(vec!["index".into()]);
        let ended = RankState {
            process: Process::Ended(end.into()),
            ..rank(2, last.into_iter().collect())
        };
        HangEvidence {
            ranks: vec![
                rank(0, vec![EventKind::Own(format!("its own code, `{line}`"))]),
                rank(1, vec![keys]),
                ended,
            ],
            is_whole: true,
            ..HangEvidence::default()
        }
    }

    fn verdict(evidence: &HangEvidence) -> Option<(HangKind, Vec<Rank>, Confidence)> {
        let verdict = ended_meanwhile(evidence, &[Rank(0)])?;
        Some((verdict.kind, verdict.culprits, verdict.confidence))
    }

    #[test]
    fn a_rank_that_failed_is_named_and_not_one_that_checks_for_its_part() {
        let failed = evidence("time.sleep(0.5)", "raised OSError: disk full", None);
        assert_eq!(
            verdict(&failed),
            Some((HangKind::PeerDead, vec![Rank(2)], Confidence::Likely))
        );
        // It does something else, or the other one has left the world.
        let busy = evidence("index.merge(parts)", "raised OSError: disk full", None);
        assert_eq!(verdict(&busy), None);
        let left = Some(EventKind::Destroy("world".into()));
        assert_eq!(
            verdict(&evidence("time.sleep(0.5)", "raised OSError", left)),
            None
        );
    }

    #[test]
    fn no_rank_is_named_where_a_program_returned() {
        let returned = evidence("time.sleep(0.5)", END_OF_PROGRAM, None);
        assert_eq!(
            verdict(&returned),
            Some((HangKind::Behind, vec![], Confidence::Likely))
        );
    }
}
