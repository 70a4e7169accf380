//! Finds a call that differs from all earlier calls that the rank made from the same place of its program. The trace shows that
//! the call differs, not that it is wrong, so it proves nothing.

use super::evidence::{EventKind, HangEvidence, RankState, TraceEvent};

/// The fewest earlier calls from a place, all alike, that make a habit.
const CALLS: usize = 3;

/// What all earlier calls of a rank from a place had in common.
pub(crate) struct Habit<K> {
    /// What it was.
    pub(crate) common: K,
    /// How many calls they were.
    pub(crate) calls: usize,
}

/// Returns the habit that an event of a rank breaks: `trait_of` is the same for all events from its place before it, and another one for
/// it. `None` if there is no habit, or if another rank varies at that place too, as all may have to.
pub(crate) fn broken<'a, K: PartialEq>(
    evidence: &'a HangEvidence,
    state: &'a RankState,
    event: &'a TraceEvent,
    trait_of: impl Fn(&'a EventKind) -> Option<K>,
) -> Option<Habit<K>> {
    let now = trait_of(&event.what)?;
    if event.at.is_empty() {
        return None;
    }
    let from_there = |state: &'a RankState| {
        let events = state.entered().filter(|one| one.at == event.at);
        events.filter_map(|one| Some((one, trait_of(&one.what)?)))
    };
    let before = from_there(state).take_while(|(one, _)| !std::ptr::eq(*one, event));
    let mut before = before.map(|(_, common)| common);
    let common = before.next()?;
    let mut calls = 1;
    for one in before {
        if one != common {
            return None;
        }
        calls += 1;
    }
    let varies = |other: &'a RankState| {
        let mut all = from_there(other).map(|(_, one)| one);
        let first = all.next();
        all.any(|one| Some(one) != first)
    };
    let mut others = evidence.ranks.iter();
    let is_common = others.any(|other| other.rank != state.rank && varies(other));
    (common != now && calls >= CALLS && !is_common).then_some(Habit { common, calls })
}
