//! Compares lists that must be alike on several ranks: where they diverge, and which ranks differ from the others.

use super::evidence::{EventKind, RankState};
use allranks_model::diagnosis::Confidence;
use allranks_model::names::Rank;

/// One rank's list, as far as it is known.
#[derive(Clone, Debug)]
pub struct List<T> {
    /// The rank whose list it is.
    pub rank: Rank,
    /// The entries that are known, from the first on.
    pub entries: Vec<T>,
    /// Whether the list is complete: nothing will be added.
    pub is_closed: bool,
}

/// The first place at which lists differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence<T> {
    /// The index, from 0, at which two lists are first known to differ.
    pub place: usize,
    /// The entry that most lists have there; `None` if no entry has a majority, or if most lists have ended before.
    pub common: Option<T>,
    /// The ranks that differ from `common`, each with its entry there (`None`: its list has ended) and how it differs.
    /// All ranks that are known there if nothing has a majority.
    pub others: Vec<(Rank, Option<T>, Change)>,
    /// How many lists agree on what most have there; 0 if nothing has a majority.
    pub agreeing: usize,
}

/// Whether a divergence shows which of the ranks are wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// More than half of all ranks agree, or the entry of every rank is known: nothing else can change which ranks
    /// differ.
    Settled,
    /// Every rank is seen, and some have not come to that place: they may still change the majority.
    Open,
    /// Some ranks are not seen: they may agree with any of those that are.
    Unseen,
}

impl<T> Divergence<T> {
    /// Returns true if no entry has a majority among more than two ranks: then none of them can be named as wrong.
    #[must_use]
    pub fn is_tie(&self) -> bool {
        self.agreeing == 0 && self.others.len() > 2
    }

    /// Says whether the ranks that differ can be named as wrong, in a group of `size` ranks of which `seen` are seen.
    #[must_use]
    pub fn certainty(&self, size: usize, seen: usize) -> Certainty {
        let known = self.agreeing + self.others.len();
        if self.agreeing * 2 > size || known >= size {
            Certainty::Settled
        } else if seen >= size {
            Certainty::Open
        } else {
            Certainty::Unseen
        }
    }
}

impl Certainty {
    /// Returns the confidence of a verdict on the ranks that differ.
    #[must_use]
    pub fn confidence(self) -> Confidence {
        match self {
            Self::Settled => Confidence::Proved,
            Self::Open | Self::Unseen => Confidence::Likely,
        }
    }

    /// Returns those of the ranks that differ which a verdict may name: none while the ranks that are not seen could
    /// decide.
    #[must_use]
    pub fn culprits(self, others: Vec<Rank>) -> Vec<Rank> {
        match self {
            Self::Settled | Self::Open => others,
            Self::Unseen => Vec::new(),
        }
    }
}

/// How a list differs from the common one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It leaves the common entry out.
    Skips,
    /// It has the common entry at another place.
    Reorders,
    /// It has another entry in its place.
    Replaces,
}

impl<T: Clone + PartialEq> List<T> {
    /// Collects the entries that `pick` takes from the events that a rank has entered and is known to enter. Events
    /// that a rank that is gone or stopped has not entered do not count.
    pub fn of(state: &RankState, pick: impl Fn(&EventKind) -> Option<&T>) -> Self {
        let coming = state.coming().filter(|_| state.is_there());
        let events = state.entered().chain(coming.unwrap_or_default());
        Self {
            rank: state.rank,
            entries: events
                .filter_map(|event| pick(&event.what))
                .cloned()
                .collect(),
            is_closed: coming.is_some(),
        }
    }

    /// Returns the entry at an index: `Some(None)` if the list is known to end before it, `None` if it is unknown.
    fn at(&self, place: usize) -> Option<Option<&T>> {
        match self.entries.get(place) {
            Some(entry) => Some(Some(entry)),
            None => self.is_closed.then_some(None),
        }
    }

    fn rest(&self, place: usize) -> &[T] {
        self.entries.get(place..).unwrap_or_default()
    }
}

/// Returns the value of more than half of the votes; `None` if there is none.
#[must_use]
pub fn majority<T: PartialEq>(votes: impl Iterator<Item = T> + Clone) -> Option<T> {
    let count = votes.clone().count();
    let same = |one: &T| votes.clone().filter(|other| other == one).count();
    votes.clone().find(|one| same(one) * 2 > count)
}

/// Finds the first place at which lists differ; `None` if all that is known agrees.
#[must_use]
pub fn divergence<T: Clone + PartialEq>(lists: &[List<T>]) -> Option<Divergence<T>> {
    let longest = lists.iter().map(|list| list.entries.len()).max()?;
    let place = (0..longest).find(|place| {
        let mut known = lists.iter().filter_map(|list| list.at(*place));
        known
            .next()
            .is_some_and(|first| known.any(|entry| entry != first))
    })?;
    let known: Vec<(&List<T>, Option<&T>)> = lists
        .iter()
        .filter_map(|list| Some((list, list.at(place)?)))
        .collect();
    let common = majority(known.iter().map(|(_, entry)| *entry));
    let model = known.iter().find(|(_, entry)| Some(*entry) == common);
    let Some((model, common)) = model else {
        return Some(without_majority(place, &known));
    };
    let others: Vec<_> = known
        .iter()
        .filter(|(_, entry)| entry != common)
        .map(|(list, entry)| {
            (
                list.rank,
                entry.cloned(),
                change(model, list, place, *common),
            )
        })
        .collect();
    Some(Divergence {
        place,
        common: common.cloned(),
        agreeing: known.len() - others.len(),
        others,
    })
}

/// Builds the divergence at a place where no entry has a majority. A rank whose list has ended, and goes on as a longer
/// one does without that entry, leaves the entry out. Otherwise which ranks are right is not known, and all of them are
/// named.
fn without_majority<T: Clone + PartialEq>(
    place: usize,
    known: &[(&List<T>, Option<&T>)],
) -> Divergence<T> {
    let longest = known.iter().map(|(list, _)| list.entries.len()).max();
    let model = known
        .iter()
        .find(|(list, _)| Some(list.entries.len()) == longest);
    let shorter: Vec<_> = known
        .iter()
        .filter(|(list, _)| list.is_closed && Some(list.entries.len()) < longest)
        .collect();
    if let (false, Some((model, common @ Some(_)))) = (shorter.is_empty(), model)
        && shorter.iter().all(|(list, entry)| {
            entry != common && change(model, list, place, *common) == Change::Skips
        })
    {
        return Divergence {
            place,
            common: common.cloned(),
            agreeing: known.len() - shorter.len(),
            others: shorter
                .iter()
                .map(|(list, entry)| (list.rank, entry.cloned(), Change::Skips))
                .collect(),
        };
    }
    let others = known
        .iter()
        .map(|(list, entry)| {
            let differs = known.iter().find(|(_, other)| other != entry);
            let how = differs.map_or(Change::Replaces, |(other, theirs)| {
                change(other, list, place, *theirs)
            });
            (list.rank, entry.cloned(), how)
        })
        .collect();
    Divergence {
        place,
        common: None,
        others,
        agreeing: 0,
    }
}

/// Says how a list differs from `model` from index `place` on, where the model has `common`.
fn change<T: Clone + PartialEq>(
    model: &List<T>,
    list: &List<T>,
    place: usize,
    common: Option<&T>,
) -> Change {
    let (theirs, own) = (model.rest(place), list.rest(place));
    let Some(common) = common else {
        // The model has ended there: this list has an entry more, so it cannot have left one out.
        return Change::Replaces;
    };
    let continues = !theirs.is_empty()
        && own
            .iter()
            .zip(&theirs[1..])
            .all(|(own, other)| own == other)
        && (list.is_closed || !own.is_empty())
        && own.len() < theirs.len();
    if own.contains(common) && own.len() == theirs.len() {
        Change::Reorders
    } else if continues {
        Change::Skips
    } else if own.contains(common) {
        Change::Reorders
    } else if own.is_empty() {
        Change::Skips
    } else {
        Change::Replaces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(all: &[&str]) -> Vec<List<char>> {
        (0..)
            .zip(all)
            .map(|(rank, text)| List {
                rank: Rank(rank),
                entries: text.chars().filter(|c| *c != '…').collect(),
                is_closed: !text.ends_with('…'),
            })
            .collect()
    }

    fn divergent(all: &[&str]) -> Option<(usize, Vec<(u32, Change)>)> {
        let divergence = divergence(&lists(all))?;
        let others = divergence.others.iter();
        Some((
            divergence.place,
            others.map(|(rank, _, how)| (rank.0, *how)).collect(),
        ))
    }

    #[test]
    fn the_rank_that_differs_from_the_others_is_named() {
        use Change::{Reorders, Replaces, Skips};
        assert_eq!(divergent(&["abc", "abc", "abc"]), None);
        assert_eq!(
            divergent(&["abc", "ac", "abc"]),
            Some((1, vec![(1, Skips)]))
        );
        assert_eq!(
            divergent(&["abc", "bac", "abc"]),
            Some((0, vec![(1, Reorders)]))
        );
        assert_eq!(
            divergent(&["abc", "axc", "abc"]),
            Some((1, vec![(1, Replaces)]))
        );
        assert_eq!(
            divergent(&["abc", "ab", "abc"]),
            Some((2, vec![(1, Skips)]))
        );
        assert_eq!(divergent(&["abc", "ac"]), Some((1, vec![(1, Skips)])));
        assert_eq!(
            divergent(&["ab", "ba"]),
            Some((0, vec![(0, Reorders), (1, Reorders)]))
        );
        assert_eq!(
            divergent(&["ab", "xb"]),
            Some((0, vec![(0, Replaces), (1, Replaces)]))
        );
    }

    #[test]
    fn what_is_not_known_is_no_difference() {
        assert_eq!(divergent(&["abc…", "ab…", "a…"]), None);
        assert_eq!(
            divergent(&["ab…", "a…", "x…", "ab…"]),
            Some((0, vec![(2, Change::Replaces)]))
        );
        // Rank 1 may yet be on its way; rank 2 has ended its list.
        assert_eq!(
            divergent(&["ab", "a…", "a", "ab", "ab"]),
            Some((1, vec![(2, Change::Skips)]))
        );
    }
}
