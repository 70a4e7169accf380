//! Delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002) over the units of
//! a sequence, as a state machine that proposes subsets and is told which of them fail.
//!
//! First the whole is tried; then the shortest beginning that fails is found by halving, since what comes after a
//! failure has no part in it; then smaller and smaller pieces are left out as long as the rest fails. The best subset
//! so far has always been seen to fail. The search is over when no single unit can be left out.

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
    OpeningSteps {
        passes: usize,
    },
    /// Leaves out pieces of this length; the next one begins at `at`.
    Pieces {
        length: usize,
        at: usize,
        /// True if a piece of this length has been left out.
        fruitful: bool,
    },
    ProgramEnd,
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
            ShrinkStage::OpeningSteps { passes } => {
                Some(self.best[..middle(passes, &self.best)].to_vec())
            }
            ShrinkStage::Pieces { length, at, .. } => Some(self.without(at, length)),
            ShrinkStage::ProgramEnd => None,
        }
    }

    /// Takes the result of the subset that [`Self::next`] returned: true if it fails.
    pub(super) fn tell(&mut self, fails: bool) {
        let tried = self.next();
        self.stage = match (self.stage, fails) {
            (ShrinkStage::Whole, true) => ShrinkStage::OpeningSteps { passes: 0 },
            (ShrinkStage::Whole, false) | (ShrinkStage::ProgramEnd, _) => ShrinkStage::ProgramEnd,
            (ShrinkStage::OpeningSteps { passes }, true) => ShrinkStage::OpeningSteps { passes },
            (ShrinkStage::OpeningSteps { passes }, false) => ShrinkStage::OpeningSteps {
                passes: middle(passes, &self.best),
            },
            // The piece that follows has moved to this index.
            (ShrinkStage::Pieces { length, at, .. }, true) => ShrinkStage::Pieces {
                length,
                at,
                fruitful: true,
            },
            (
                ShrinkStage::Pieces {
                    length,
                    at,
                    fruitful,
                },
                false,
            ) => ShrinkStage::Pieces {
                length,
                at: at + length,
                fruitful,
            },
        };
        if let Some(tried) = tried.filter(|_| fails) {
            self.best = tried;
        }
        self.settle();
    }

    /// Goes on to the next stage when the current one has nothing left to try.
    fn settle(&mut self) {
        let units = self.best.len();
        if let ShrinkStage::OpeningSteps { passes } = self.stage
            && passes + 1 >= units
        {
            self.stage = ShrinkStage::Pieces {
                length: (units / 2).max(1),
                at: 0,
                fruitful: false,
            };
        }
        while let ShrinkStage::Pieces {
            length,
            at,
            fruitful,
        } = self.stage
            && (at >= units || length >= units)
        {
            self.stage = match length {
                1 if !fruitful || units < 2 => ShrinkStage::ProgramEnd,
                _ => ShrinkStage::Pieces {
                    length: (length / 2).max(1),
                    at: 0,
                    fruitful: false,
                },
            };
        }
    }

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
            search.tell(failed);
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
