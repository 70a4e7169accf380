//! Finds a rank that has ended while another one looks again and again for something that has not come.

use super::evidence::{EventKind, HangEvidence, Process, RankState, named, verb};
use crate::conclude;
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// Returns the verdict on ranks that have ended without leaving the world, if each of these late ranks only sleeps between two looks at
/// something outside of torch.distributed: what they look for comes from another process, and the ones that have ended bring nothing any
/// more. Likely at most. `None` if these are not the facts.
#[must_use]
pub fn ended_meanwhile(evidence: &HangEvidence, late: &[Rank]) -> Option<Diagnosis> {
    let polls = |rank: &Rank| {
        let now = evidence.rank(*rank).and_then(RankState::now);
        matches!(now, Some(EventKind::Own(text)) if text.contains("sleep("))
    };
    let has_ended = |state: &&RankState| matches!(state.process, Process::Ended(_));
    let ended: Vec<&RankState> = (evidence.ranks.iter())
        .filter(has_ended)
        .filter(|state| !has_left(state))
        .collect();
    let Process::Ended(how) = &ended.first()?.process else {
        return None;
    };
    if late.is_empty() || !late.iter().all(polls) {
        return None;
    }
    let culprits: Vec<Rank> = ended.iter().map(|state| state.rank).collect();
    let summary = format!(
        "{} {} gone before leaving the world: {how}; {} {} again and again for something that has not come",
        named(&culprits),
        verb(&culprits, "is", "are"),
        named(late),
        verb(late, "looks", "look"),
    );
    let states = late.iter().filter_map(|rank| evidence.rank(*rank));
    let facts = states.map(|state| format!("rank {} {}", state.rank, state.place()));
    let facts = facts.collect();
    let verdict = conclude(
        evidence,
        HangKind::PeerDead,
        Confidence::Likely,
        culprits,
        summary,
    );
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

    fn evidence(line: &str, last: Option<EventKind>) -> HangEvidence {
        let keys = EventKind::AwaitKeys(vec!["index".into()]);
        let ended = RankState {
            process: Process::Ended("came to the end of its program".into()),
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

    #[test]
    fn who_has_ended_is_named_and_not_who_looks_for_its_part() {
        let verdict = ended_meanwhile(&evidence("time.sleep(0.5)", None), &[Rank(0)]).unwrap();
        assert_eq!(
            (verdict.kind, verdict.culprits, verdict.confidence),
            (HangKind::PeerDead, vec![Rank(2)], Confidence::Likely)
        );
        // It does something else, or the other one has left the world.
        assert!(ended_meanwhile(&evidence("index.merge(parts)", None), &[Rank(0)]).is_none());
        let left = Some(EventKind::Destroy("world".into()));
        assert!(ended_meanwhile(&evidence("time.sleep(0.5)", left), &[Rank(0)]).is_none());
    }
}
