//! Keeps the orphans whose rank is not known, each with the ranks that may have left it.

use std::collections::{HashMap, HashSet};

use rustix::process::Pid;

/// The orphans that several ranks may have left, each with those of the ranks that have not ended.
///
/// Such an orphan is left running as long as one of them runs, for it may be that rank's, and is counted for none.
#[derive(Debug, Default)]
pub struct Candidates(HashMap<Pid, HashSet<Pid>>);

impl Candidates {
    /// Strikes out a rank that has ended.
    pub fn end(&mut self, rank: Pid) {
        for ranks in self.0.values_mut() {
            ranks.remove(&rank);
        }
    }

    /// Returns whether several ranks may have left an orphan.
    #[must_use]
    pub fn has(&self, orphan: Pid) -> bool {
        self.0.contains_key(&orphan)
    }

    /// Strikes out orphans that are no longer children of this process: their pids may be reused.
    pub fn retain(&mut self, children: &[Pid]) {
        self.0.retain(|orphan, _| children.contains(orphan));
    }

    /// Returns whether no rank but `ended` can have left an orphan. Notes the ranks that can.
    ///
    /// `session` is the orphan's, None if that is not known; `ranks` are those that have not been reaped.
    pub fn may_kill(
        &mut self,
        orphan: Pid,
        session: Option<Pid>,
        ended: Pid,
        ranks: &HashSet<Pid>,
    ) -> bool {
        if let Some(left) = self.0.get(&orphan) {
            return left.is_empty();
        }
        if let Some(owner) = session.filter(|session| ranks.contains(session)) {
            return owner == ended;
        }
        let others: HashSet<Pid> = ranks
            .iter()
            .copied()
            .filter(|rank| *rank != ended)
            .collect();
        let is_known = others.is_empty();
        if !is_known {
            self.0.insert(orphan, others);
        }
        is_known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(number: i32) -> Pid {
        Pid::from_raw(number).unwrap()
    }

    fn ranks(numbers: &[i32]) -> HashSet<Pid> {
        numbers.iter().map(|number| pid(*number)).collect()
    }

    #[test]
    fn the_session_tells_the_rank() {
        let mut candidates = Candidates::default();
        let of = |candidates: &mut Candidates, ended| {
            candidates.may_kill(pid(9), Some(pid(2)), pid(ended), &ranks(&[1, 2]))
        };
        assert!(!of(&mut candidates, 1));
        assert!(of(&mut candidates, 2));
        assert!(!candidates.has(pid(9)));
    }

    #[test]
    fn the_only_rank_has_left_it() {
        let mut candidates = Candidates::default();
        assert!(candidates.may_kill(pid(9), None, pid(1), &ranks(&[1])));
        assert!(!candidates.has(pid(9)));
    }

    #[test]
    fn it_outlives_all_that_may_have_left_it() {
        let mut candidates = Candidates::default();
        assert!(!candidates.may_kill(pid(9), None, pid(1), &ranks(&[1, 2])));
        // Rank 3 started later.
        candidates.end(pid(3));
        assert!(!candidates.may_kill(pid(9), None, pid(3), &ranks(&[2, 3])));
        candidates.end(pid(2));
        assert!(candidates.may_kill(pid(9), None, pid(2), &ranks(&[2])));
        assert!(candidates.has(pid(9)));
        candidates.retain(&[]);
        assert!(!candidates.has(pid(9)));
    }
}
