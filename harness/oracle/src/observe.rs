//! Observes the backend's arithmetic: in which precision floats of 16 bits and fewer were accumulated, and whether the same sum
//! gave the same bits again. In: a check of random values and the ranks' answers. Out: names and values for the report, and the
//! promise of the platform file that the answers break, if any.

use std::collections::BTreeMap;

use super::combine::{Reduction, combine_one};
use super::comparison::{Comparison, Contribution, ElementRef};
use super::format::precision;
use super::ops::SAME;
use super::rank_plan::Origin;
use super::rounding::Rounding;
use super::{Class, CompareMode, Prepared, RankReply};
use allranks_model::axes::Values;
use allranks_model::capability::Accumulation;
use allranks_model::dtype::{DTypeKind, ReduceOp};

/// What was seen of a backend: a name and a value each.
pub type Observations = BTreeMap<String, String>;

/// Largest number of elements by which accumulation is judged.
const ENOUGH: usize = 2048;
/// Smallest number of such elements. With fewer, some order of adding may round all of them correctly by chance.
const FEW: usize = 96;

/// The names of observations.
const ACCUMULATES: &str = "accumulates";
const DETERMINISTIC: &str = "deterministic";
const ROUNDS: &str = "rounds";
const STABLE: &str = "stable-across-sizes";

impl Prepared {
    /// Returns what the answers show of the backend's arithmetic; empty if the check shows nothing. The answers need not be
    /// right, but must have the form of the step.
    #[must_use]
    pub fn observe(&self, replies: &[RankReply]) -> Observations {
        let mut seen = Observations::new();
        if self.facts.purpose.mode != CompareMode::Bounded || self.is_well_formed(replies).is_err()
        {
            return seen;
        }
        let comparison = Comparison {
            prepared: self,
            replies,
        };
        let rounding = comparison.rounding_of_results();
        if let Some(Rounding::Stochastic) = rounding {
            seen.insert(ROUNDS.to_owned(), "stochastically".to_owned());
        }
        let one_sided = matches!(rounding, Some(Rounding::OneSided(_)));
        if let Some(how) = comparison.accumulation().filter(|_| !one_sided) {
            seen.insert(ACCUMULATES.to_owned(), how.name().to_owned());
        }
        if let Some((again, longer)) = comparison.repetition() {
            seen.insert(DETERMINISTIC.to_owned(), yes_or_no(again));
            seen.insert(STABLE.to_owned(), yes_or_no(longer));
        }
        seen
    }

    /// Returns the promise that the answers break, if they break one.
    pub(super) fn broken_promise(&self, replies: &[RankReply]) -> Option<Class> {
        let promises = self.facts.promises;
        if promises.accumulates.is_none() && promises.deterministic.is_none() {
            return None;
        }
        let seen = self.observe(replies);
        let differs =
            |name: &str, promised: &str| seen.get(name).is_some_and(|value| value != promised);
        if promises
            .deterministic
            .is_some_and(|promised| differs(DETERMINISTIC, &yes_or_no(promised)))
        {
            return Some(Class::NotDeterministic);
        }
        let other = match promises.accumulates? {
            Accumulation::Float32 => Accumulation::Dtype,
            Accumulation::Dtype => Accumulation::Float32,
        };
        let promised = promises.accumulates?.name();
        differs(ACCUMULATES, promised).then_some(Class::AccumulatedIn(other))
    }
}

fn yes_or_no(yes: bool) -> String {
    if yes { "yes" } else { "no" }.to_owned()
}

impl<'a> Comparison<'a> {
    /// Returns the precision in which sums of narrow floats were accumulated; `None` if the data do not show it. It is float32
    /// if the sums are as near to the exact ones as float32 with one rounding makes them, and no usual order of adding in the
    /// dtype does.
    fn accumulation(self) -> Option<Accumulation> {
        let purpose = self.prepared.facts.purpose;
        let narrow = precision(purpose.dtype).is_some_and(|bits| bits <= 11);
        let real = purpose.dtype.kind() == DTypeKind::Float;
        let sums = (purpose.reduce, purpose.values) == (Some(ReduceOp::Sum), Values::Random);
        if !(narrow && real && sums) || purpose.ranks < 3 {
            return None;
        }
        let rank = *self.prepared.facts.members.first()?;
        let elements: Vec<(ElementRef<'a>, Vec<Contribution>)> = self
            .prepared
            .facts
            .members
            .iter()
            .flat_map(|rank| self.elements(*rank))
            .filter_map(|element| match element.piece.after {
                // What several ranks hold, or one rank several times, is looked at once.
                Origin::Reduce { slot }
                    if !purpose.repeated || (slot, element.rank) == (SAME, rank) =>
                {
                    Some((element, self.contributions(slot, element.index)?))
                }
                _ => None,
            })
            .take(ENOUGH)
            .collect();
        if elements.len() < FEW {
            return None;
        }
        let near = |element: &ElementRef<'a>, elements: &[Contribution], got: u128| {
            let exact = self.numbers(self.expected(element)).0;
            let total: f64 = elements
                .iter()
                .map(|element| self.numbers(element.bits).0.abs())
                .sum();
            let unit = f64::powi(2.0, -(precision(purpose.dtype).unwrap_or(0) as i32));
            let bound =
                2.0 * unit * exact.abs() + f64::powi(2.0, -24) * purpose.ranks as f64 * total;
            (self.numbers(got).0 - exact).abs() <= bound
        };
        let all = |of: &dyn Fn(&ElementRef<'a>, &[Contribution]) -> u128| {
            elements
                .iter()
                .all(|(element, elements)| near(element, elements, of(element, elements)))
        };
        let in_dtype = |turn: usize, backwards: bool| {
            all(&|_, elements| {
                let mut elements = elements.to_vec();
                elements.rotate_left(turn);
                if backwards {
                    elements.reverse();
                }
                self.added_in_dtype(&elements)
            })
        };
        let telling =
            (0..purpose.ranks as usize).all(|turn| !in_dtype(turn, false) && !in_dtype(turn, true));
        if !telling {
            return None;
        }
        Some(match all(&|element, _| self.got(element)) {
            true => Accumulation::Float32,
            false => Accumulation::Dtype,
        })
    }

    /// Returns the sum of elements that are added one after another in the dtype, rounded at each addition.
    fn added_in_dtype(self, elements: &[Contribution]) -> u128 {
        let reduction = Reduction {
            dtype: self.prepared.facts.purpose.dtype,
            op: ReduceOp::Sum,
            divisor: 1,
            factors: &[],
            wide: false,
        };
        combine_one(reduction, &self.list(elements))
    }

    /// Returns whether repeated calls gave the same bits on every rank, and whether a call on longer data gave the same bits
    /// for their common beginning; none if nothing was repeated.
    fn repetition(self) -> Option<(bool, bool)> {
        if !self.prepared.facts.purpose.repeated {
            return None;
        }
        let (mut again, mut longer) = (true, true);
        for rank in &self.prepared.facts.members {
            let pieces: Vec<_> = self
                .pieces(*rank)
                .filter(|(_, piece)| matches!(piece.after, Origin::Reduce { .. }))
                .collect();
            let (first, others) = pieces.split_first()?;
            for ((buffer, piece), number) in others.iter().zip(1..) {
                let same = (0..first.1.len).all(|index| {
                    let element = |(buffer, piece)| ElementRef {
                        rank: *rank,
                        buffer,
                        piece,
                        index,
                    };
                    self.got(&element(*first)) == self.got(&element((*buffer, *piece)))
                });
                match number < SAME {
                    true => again &= same,
                    false => longer &= same,
                }
            }
        }
        Some((again, longer))
    }
}
