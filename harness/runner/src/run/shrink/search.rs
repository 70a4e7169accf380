//! Delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002) over the units of
//! a sequence, as a state machine: it proposes subsets, and is given for each whether it fails.
//!
//! First it tries the whole sequence. Then it finds the shortest beginning that fails, by halving, because units after a
//! failure cannot have caused it. Then it leaves out smaller and smaller pieces as long as the rest fails. The best subset so
//! far has always been seen to fail. The search is over when no single unit can be left out.

/// The state of the search.
#[derive(Clone, Debug)]
pub(super) struct Search {
    best: Vec<usize>,
    stage: ShrinkStage,
}

#[derive(Clone, Copy, Debug)]
enum ShrinkStage {
    /// Tries the whole sequence again.
    Whole,
    /// Halves: the beginning of length `passes` passes, the best subset so far fails.
    Beginning { passes: usize },
    /// Leaves out pieces of this length; the next one begins at `at`.
    Pieces {
        length: usize,
        at: usize,
        /// True if a piece of this length could be left out.
        has_removed: bool,
    },
    /// Nothing is left to try.
    Finished,
}

impl Search {
    /// Starts a search over a sequence of `units` units.
    pub(super) fn new(units: usize) -> Self {
        Self {
            best: (0..units).collect(),
            stage: ShrinkStage::Whole,
        }
    }

    /// Returns the shortest subset that is known to fail, as indices of units.
    pub(super) fn best(&self) -> &[usize] {
        &self.best
    }

    /// Returns the subset to try next; none if the search is over.
    pub(super) fn next(&self) -> Option<Vec<usize>> {
        match self.stage {
            ShrinkStage::Whole => Some(self.best.clone()),
            ShrinkStage::Beginning { passes } => {
                Some(self.best[..middle(passes, &self.best)].to_vec())
            }
            ShrinkStage::Pieces { length, at, .. } => Some(self.without(at, length)),
            ShrinkStage::Finished => None,
        }
    }

    /// Records whether the subset that [`Self::next`] returned fails.
    pub(super) fn record(&mut self, fails: bool) {
        let tried = self.next();
        self.stage = match (self.stage, fails) {
            (ShrinkStage::Whole, true) => ShrinkStage::Beginning { passes: 0 },
            (ShrinkStage::Whole, false) | (ShrinkStage::Finished, _) => ShrinkStage::Finished,
            (ShrinkStage::Beginning { passes }, true) => ShrinkStage::Beginning { passes },
            (ShrinkStage::Beginning { passes }, false) => ShrinkStage::Beginning {
                passes: middle(passes, &self.best),
            },
            // The piece that follows has moved to this index.
            (ShrinkStage::Pieces { length, at, .. }, true) => ShrinkStage::Pieces {
                length,
                at,
                has_removed: true,
            },
            (
                ShrinkStage::Pieces {
                    length,
                    at,
                    has_removed,
                },
                false,
            ) => ShrinkStage::Pieces {
                length,
                at: at + length,
                has_removed,
            },
        };
        if let Some(tried) = tried.filter(|_| fails) {
            self.best = tried;
        }
        self.skip_finished_stages();
    }

    /// Goes on to the next stage that has something left to try.
    fn skip_finished_stages(&mut self) {
        let units = self.best.len();
        if let ShrinkStage::Beginning { passes } = self.stage
            && passes + 1 >= units
        {
            self.stage = ShrinkStage::Pieces {
                length: (units / 2).max(1),
                at: 0,
                has_removed: false,
            };
        }
        while let ShrinkStage::Pieces {
            length,
            at,
            has_removed,
        } = self.stage
            && (at >= units || length >= units)
        {
            self.stage = match length {
                1 if !has_removed || units < 2 => ShrinkStage::Finished,
                _ => ShrinkStage::Pieces {
                    length: (length / 2).max(1),
                    at: 0,
                    has_removed: false,
                },
            };
        }
    }

    /// Returns the best subset without the `length` units from `at` on.
    fn without(&self, at: usize, length: usize) -> Vec<usize> {
        let end = (at + length).min(self.best.len());
        [&self.best[..at], &self.best[end..]].concat()
    }
}

/// Returns the length halfway between a beginning that passes and one that fails.
fn middle(passes: usize, fails: &[usize]) -> usize {
    passes + (fails.len() - passes) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a search to its end. Returns what is left and the number of tries.
    fn search(units: usize, fails: impl Fn(&[usize]) -> bool) -> (Vec<usize>, usize) {
        let mut search = Search::new(units);
        let mut tries = 0;
        while let Some(next) = search.next() {
            tries += 1;
            assert!(tries < 10_000, "it does not end");
            let failed = fails(&next);
            search.record(failed);
            assert!(!failed || search.best() == next, "what fails is kept");
        }
        (search.best, tries)
    }

    #[test]
    fn it_finds_just_what_it_takes() {
        for needed in [
            vec![0],
            vec![119],
            vec![3, 77],
            vec![0, 50, 119],
            (40..44).collect(),
        ] {
            let (left, tries) = search(120, |units| needed.iter().all(|one| units.contains(one)));
            assert_eq!(left, needed);
            assert!(tries < 60, "{needed:?} took {tries} tries");
        }
    }

    #[test]
    fn a_bug_of_the_seventeenth_takes_seventeen() {
        let even = |units: &[usize]| units.iter().filter(|unit| **unit % 2 == 0).count() >= 17;
        let (left, tries) = search(120, even);
        assert_eq!(left.len(), 17);
        assert!(tries < 150, "{tries} tries");
    }

    #[test]
    fn what_passes_the_second_time_is_left_whole_at_once() {
        let (left, tries) = search(30, |_| false);
        assert_eq!((left.len(), tries), (30, 1));
    }

    #[test]
    fn no_unit_of_what_is_left_can_be_spared_whatever_the_bug() {
        // That one sequence fails says nothing of longer or shorter ones.
        let odd = |units: &[usize]| units.len() % 2 == 1 && units.contains(&20);
        let (left, _) = search(41, odd);
        assert!(odd(&left));
        for at in 0..left.len() {
            let mut less = left.clone();
            less.remove(at);
            assert!(less.is_empty() || !odd(&less));
        }
    }

    #[test]
    fn one_unit_is_not_taken_away() {
        assert_eq!(search(1, |_| true).0, [0]);
        assert_eq!(search(2, |units| !units.is_empty()).0.len(), 1);
    }
}
