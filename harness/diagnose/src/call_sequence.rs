//! Lists that must be alike on several ranks: where they diverge, and which ranks differ from the others.

use super::evidence::{EventKind, RankState};
use allranks_model::diagnosis::Confidence;
use allranks_model::names::Rank;

/// One rank's list, as far as it is known.
#[derive(Clone, Debug)]
pub struct List<T> {
    /// Whose.
    pub rank: Rank,
    /// What is known of it.
    pub entries: Vec<T>,
    /// Whether nothing will be added.
    pub is_closed: bool,
}

/// The first place at which lists differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence<T> {
    /// The first place at which two of them are known to differ.
    pub place: usize,
    /// What most of them have there; none if no entry has a majority.
    pub common: Option<T>,
    /// Who has something else there: what, and how. Without a majority, everybody.
    pub others: Vec<(Rank, Option<T>, Change)>,
    /// How many have the common entry.
    pub agreeing: usize,
}

/// Whether a divergence shows which of the ranks are wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// More than half of all ranks agree, or each is seen and no more than half agree: what is not known changes nothing.
    Settled,
    /// Every rank is seen, and some have not come to that place: they may yet turn a majority.
    Open,
    /// Too few ranks are seen: those that are not may agree with any of them.
    Unseen,
}

impl<T> Divergence<T> {
    /// Which ranks are in agreement, how many of the `size` ranks are seen (`seen`), and so whether those that differ can be
    /// named as wrong.
    #[must_use]
    pub fn standing(&self, size: usize, seen: usize) -> Standing {
        let known = self.agreeing + self.others.len();
        if self.agreeing * 2 > size || known >= size {
            Standing::Settled
        } else if seen >= size {
            Standing::Open
        } else {
            Standing::Unseen
        }
    }
}

impl Standing {
    /// How sure a verdict on the ranks that differ is.
    #[must_use]
    pub fn confidence(self) -> Confidence {
        match self {
            Self::Settled => Confidence::Proved,
            Self::Open | Self::Unseen => Confidence::Likely,
        }
    }

    /// Of the ranks that differ, those that a verdict may name: none while some ranks are not seen.
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
    /// What a rank has done and is known to do, as far as it belongs on this list. What a rank that is gone or stopped
    /// meant to do does not count.
    pub fn of(sight: &RankState, pick: impl Fn(&EventKind) -> Option<&T>) -> Self {
        let coming = sight.coming().filter(|_| sight.is_there());
        let deeds = sight.entered().chain(coming.unwrap_or_default());
        Self {
            rank: sight.rank,
            entries: deeds.filter_map(|deed| pick(&deed.what)).cloned().collect(),
            is_closed: coming.is_some(),
        }
    }

    /// The entry at a place: known, known to be missing (`Some(None)`), or unknown.
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

/// What more than half of them are; none if there is no such thing.
#[must_use]
pub fn majority<T: PartialEq>(votes: impl Iterator<Item = T> + Clone) -> Option<T> {
    let count = votes.clone().count();
    let same = |one: &T| votes.clone().filter(|other| other == one).count();
    votes.clone().find(|one| same(one) * 2 > count)
}

/// The first place at which lists differ; none if all that is known agrees.
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

/// No entry has more than half of the ranks. Between one who has an entry and one whose list has come to its end, the
/// latter leaves something out; otherwise nobody can say who is right.
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

/// How a list differs from a model from that place on.
fn change<T: Clone + PartialEq>(
    model: &List<T>,
    list: &List<T>,
    place: usize,
    common: Option<&T>,
) -> Change {
    let (theirs, own) = (model.rest(place), list.rest(place));
    let Some(common) = common else {
        // It has something where the others have nothing: more than they, so it is they who would have skipped it.
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

    fn told(all: &[&str]) -> Option<(usize, Vec<(u32, Change)>)> {
        let divergence = divergence(&lists(all))?;
        let others = divergence.others.iter();
        Some((
            divergence.place,
            others.map(|(rank, _, how)| (rank.0, *how)).collect(),
        ))
    }

    #[test]
    fn who_parts_from_the_others() {
        use Change::{Reorders, Replaces, Skips};
        assert_eq!(told(&["abc", "abc", "abc"]), None);
        assert_eq!(told(&["abc", "ac", "abc"]), Some((1, vec![(1, Skips)])));
        assert_eq!(told(&["abc", "bac", "abc"]), Some((0, vec![(1, Reorders)])));
        assert_eq!(told(&["abc", "axc", "abc"]), Some((1, vec![(1, Replaces)])));
        assert_eq!(told(&["abc", "ab", "abc"]), Some((2, vec![(1, Skips)])));
        assert_eq!(told(&["abc", "ac"]), Some((1, vec![(1, Skips)])));
        assert_eq!(
            told(&["ab", "ba"]),
            Some((0, vec![(0, Reorders), (1, Reorders)]))
        );
        assert_eq!(
            told(&["ab", "xb"]),
            Some((0, vec![(0, Replaces), (1, Replaces)]))
        );
    }

    #[test]
    fn what_is_not_known_is_no_difference() {
        assert_eq!(told(&["abc…", "ab…", "a…"]), None);
        assert_eq!(
            told(&["ab…", "a…", "x…", "ab…"]),
            Some((0, vec![(2, Change::Replaces)]))
        );
        // Rank 1 may yet be on its way; rank 2 has ended its list.
        assert_eq!(
            told(&["ab", "a…", "a", "ab", "ab"]),
            Some((1, vec![(2, Change::Skips)]))
        );
    }
}
