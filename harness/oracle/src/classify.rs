//! Finds the bug that explains a wrong answer.
//!
//! First it finds what is wrong: a bystander, a guard band, an input, a tensor that is not the root's, or a result. For results
//! it then looks for the first [hypothesis](super::bug_model) that predicts all elements on **every** wrong rank. If there is
//! none, a hypothesis need only predict the wrong elements, and the sentence says how many these are.

use super::Class;
use super::bug_model::{BugModel, hypotheses};
use super::comparison::{Comparison, ElementRef, Value};
use super::format::precision;
use super::ignored_strides::ignored_strides;
use super::partial::combines_some;
use super::rank_plan::{Fill, Origin, Role, Segment};
use super::rounding::Rounding;
use super::search::found;
use super::special_values::lost;
use super::wrong::Wrong;
use allranks_model::axes::Values;
use allranks_model::dtype::{DTypeKind, ReduceOp};
use allranks_model::op::Op;

/// An error up to this multiple of the bound still counts as one of arithmetic.
const REACH: f64 = 1024.0;
/// The same for rounding to one side, each of which may be off by twice as much as one to nearest.
const REACH_OF_ROUNDING: f64 = 4.0;

/// Returns the class of a wrong answer, and what to add to its sentence.
pub(super) fn classify<'a>(comparison: Comparison<'a>, wrong: &[Wrong<'a>]) -> (Class, String) {
    let members = &comparison.prepared.facts.members;
    let (ours, bystanders): (Vec<_>, Vec<_>) = (0_u32..)
        .zip(wrong)
        .filter(|(_, wrong)| !wrong.is_empty())
        .partition(|(rank, _)| members.contains(rank));
    if ours.is_empty() {
        return (Class::BystanderWritten, String::new());
    }
    // A rank without a result may hold leftovers of an op that ignores strides; those have no rule.
    let with_results = |rank: &u32| {
        comparison.pieces(*rank).any(|(buffer, piece)| {
            matches!(buffer.role, Role::Output | Role::Both) && piece.after != Origin::Keep
        })
    };
    let ranks: Vec<u32> = ours
        .iter()
        .map(|(rank, _)| *rank)
        .filter(with_results)
        .collect();
    if let Some(class) = ignored_strides(comparison, &ranks) {
        return (class, String::new());
    }
    let (targets, others): (Vec<ElementRef<'a>>, Vec<ElementRef<'a>>) = ours
        .iter()
        .flat_map(|(_, wrong)| wrong.elements.iter().copied())
        .partition(|element| is_target(element));
    let guard = guard(&ours);
    let (results, inputs) = (!targets.is_empty(), !others.is_empty());
    let wrong_elements = WrongElements {
        comparison,
        ranks: targets
            .iter()
            .map(|element| element.rank)
            .fold(Vec::new(), |mut ranks, rank| {
                if ranks.last() != Some(&rank) {
                    ranks.push(rank);
                }
                ranks
            }),
        elements: targets,
    };
    let (class, mut notes) = match guard {
        _ if results => match (wrong_elements.class(), guard) {
            ((Class::Unclassified, _), Some(guard)) => (guard, String::new()),
            (class, _) => class,
        },
        _ if inputs => (Class::InputModified, String::new()),
        Some(guard) => (guard, String::new()),
        None => (Class::Unclassified, String::new()),
    };
    if results && inputs {
        notes += "; an input was modified, too";
    }
    if guard.is_some_and(|guard| guard != class) {
        notes += "; memory outside the tensors was written to, too";
    }
    if !bystanders.is_empty() {
        notes += "; ranks outside the group were written to, too";
    }
    (class, notes)
}

/// Returns true if the op may write there, or might be thought to: everything but inputs and bystanders.
fn is_target(element: &ElementRef<'_>) -> bool {
    match element.buffer.role {
        Role::Output | Role::NonRoot => true,
        Role::Both => element.piece.after != Origin::Keep,
        Role::Input | Role::Unspecified | Role::Bystander => false,
    }
}

fn guard(ours: &[(u32, &Wrong<'_>)]) -> Option<Class> {
    let sum = |of: fn(&Wrong<'_>) -> usize| ours.iter().map(|(_, wrong)| of(wrong)).sum();
    let (before, after, between) = (
        sum(|wrong| wrong.damage.before),
        sum(|wrong| wrong.damage.after),
        sum(|wrong| wrong.damage.between),
    );
    (before + after + between > 0).then_some(Class::GuardOverwritten {
        before,
        after,
        between,
    })
}

/// The wrong elements of results, which one class must explain.
struct WrongElements<'a> {
    comparison: Comparison<'a>,
    /// On these ranks.
    ranks: Vec<u32>,
    /// At these places.
    elements: Vec<ElementRef<'a>>,
}

impl<'a> WrongElements<'a> {
    fn class(&self) -> (Class, String) {
        let comparison = self.comparison;
        let facts = &comparison.prepared.facts;
        if self
            .elements
            .iter()
            .all(|element| element.buffer.role == Role::NonRoot)
        {
            let class = match self.all(|element| self.is_partial(element)) {
                true => Class::NonRootWritten,
                false => Class::NonRootGarbled,
            };
            return (class, String::new());
        }
        let hypotheses = hypotheses(facts, self.comparison.prepared.steps.len() as u32);
        let explains = |bug: BugModel| self.on_wrong(bug) && self.on_all(bug);
        let strict = hypotheses.iter().find(|(_, bug)| explains(*bug));
        let class = strict
            .map(|(class, _)| self.refined(*class))
            .or_else(|| lost(comparison, &self.elements))
            .or_else(|| {
                self.all(|element| self.is_nan(element))
                    .then_some(Class::NanOutput)
            })
            .or_else(|| self.tail())
            .or_else(|| self.identified())
            .or_else(|| self.one_sided())
            .or_else(|| {
                self.all(|element| self.is_near(element))
                    .then_some(Class::OffByOneUlp)
            })
            .or_else(|| self.low_precision())
            .or_else(|| {
                self.all(|element| self.is_within(REACH, element))
                    .then_some(Class::ErrorBeyondBound)
            });
        if let Some(class) = class {
            return (class, String::new());
        }
        let of: usize = self
            .ranks
            .iter()
            .map(|rank| self.targets(*rank).count())
            .sum();
        let loose = hypotheses
            .iter()
            .find(|(_, bug)| self.on_wrong(*bug))
            .filter(|(_, bug)| self.is_most(*bug));
        if let Some((class, _)) = loose {
            let note = format!(" (on {} of {of} elements)", self.elements.len());
            return (self.refined(*class), note);
        }
        if self.all(is_last) {
            return (Class::LastElement, String::new());
        }
        found(comparison, &self.elements).unwrap_or_else(|| (Class::Unclassified, self.places(of)))
    }

    /// Returns true if a hypothesis that predicts all wrong elements also predicts most elements of their blocks. Otherwise it
    /// may fit a few wrong elements by chance.
    fn is_most(&self, bug: BugModel) -> bool {
        let (mut predicted, mut all) = (0_usize, 0_usize);
        let mut last: Option<ElementRef<'a>> = None;
        for first in &self.elements {
            let is_same = last.is_some_and(|last| {
                last.rank == first.rank && std::ptr::eq::<Segment>(last.piece, first.piece)
            });
            if is_same {
                continue;
            }
            last = Some(*first);
            all += first.piece.len;
            let block = (0..first.piece.len).map(|index| ElementRef { index, ..*first });
            predicted += block.filter(|element| self.predicts(bug, element)).count();
        }
        2 * predicted > all
    }

    /// Describes where the first wrong elements are, for the message of a failure.
    fn places(&self, of: usize) -> String {
        const SHOWN: usize = 8;
        let Some(first) = self.elements.first() else {
            return String::new();
        };
        let here = self.elements.iter().filter(|element| {
            element.rank == first.rank && std::ptr::eq(element.buffer, first.buffer)
        });
        let places: Vec<String> = here
            .take(SHOWN)
            .map(|element| (element.piece.start + element.index).to_string())
            .collect();
        format!(
            " ({} of {of} elements; on rank {} in {}: {})",
            self.elements.len(),
            first.rank,
            first.buffer.label(),
            places.join(", ")
        )
    }

    /// Returns true if an element of a rank that is not the root is a partial result.
    fn is_partial(&self, element: &ElementRef<'a>) -> bool {
        let op = self.comparison.prepared.facts.purpose.reduce;
        match (element.piece.before, op) {
            (Fill::Own(slot), Some(ReduceOp::Avg)) => {
                combines_some(self.comparison, element, slot, ReduceOp::Sum)
                    || combines_some(self.comparison, element, slot, ReduceOp::Avg)
            }
            (Fill::Own(slot), Some(op)) => combines_some(self.comparison, element, slot, op),
            _ => false,
        }
    }

    fn targets(&self, rank: u32) -> impl Iterator<Item = ElementRef<'a>> {
        self.comparison.elements(rank).filter(is_target)
    }

    fn all(&self, holds: impl Fn(&ElementRef<'a>) -> bool) -> bool {
        self.elements.iter().all(holds)
    }

    fn predicts(&self, bug: BugModel, element: &ElementRef<'_>) -> bool {
        self.comparison
            .predict(bug, element)
            .is_some_and(|value| self.comparison.is(self.comparison.got(element), value))
    }

    /// Returns true if a hypothesis predicts every wrong element.
    fn on_wrong(&self, bug: BugModel) -> bool {
        self.all(|element| self.predicts(bug, element))
    }

    /// Returns true if a hypothesis predicts every element of the wrong ranks, right ones included; and of the rank it takes for
    /// the root of a `reduce`, even where their contents are unspecified.
    fn on_all(&self, bug: BugModel) -> bool {
        let on = |rank: u32| {
            self.targets(rank)
                .all(|element| self.predicts(bug, &element))
        };
        let holds = match bug {
            BugModel::Root(root) if self.comparison.prepared.facts.op == Op::Reduce => self
                .comparison
                .elements(root)
                .all(|element| self.predicts(bug, &element)),
            _ => true,
        };
        holds && self.ranks.iter().all(|rank| on(*rank))
    }

    /// Returns a more exact class for a call that changed nothing, if its output was a separate tensor, or strided.
    fn refined(&self, class: Class) -> Class {
        match class {
            Class::NoOp if !self.comparison.prepared.facts.dense => Class::StridedOutputLost,
            Class::NoOp if self.all(|element| element.piece.before == Fill::Sentinel) => {
                Class::StaleSentinel
            }
            class => class,
        }
    }

    /// Recognises results in which, from some element on, every piece holds what it held before or what this rank contributed.
    /// The first of these elements may be what it must be in its first bytes alone.
    fn tail(&self) -> Option<Class> {
        let comparison = self.comparison;
        let unreduced = |element: &ElementRef<'a>| match element.piece.after {
            Origin::Reduce { slot } => comparison.block(element.rank, slot, element.index),
            Origin::Keep | Origin::Copy { .. } => None,
        };
        let mut from = None;
        let mut start = 0;
        while let Some(first) = self.elements.get(start) {
            let same = |element: &&ElementRef<'a>| {
                element.rank == first.rank && std::ptr::eq::<Segment>(element.piece, first.piece)
            };
            start += self.elements[start..].iter().take_while(same).count();
            let holds = (first.index..first.piece.len).all(|index| {
                let element = ElementRef { index, ..*first };
                let got = comparison.got(&element);
                got == comparison.before(&element)
                    || unreduced(&element) == Some(got)
                    || got == comparison.expected(&element)
                    || index == first.index && self.is_cut(&element)
            });
            if !holds {
                return None;
            }
            if first.index > 0 && from.is_none() {
                from = Some(*first);
            }
        }
        from.map(|element| {
            if unreduced(&element) == Some(comparison.got(&element)) {
                Class::TailNotReduced(element.index)
            } else {
                Class::PrefixOnly(element.index)
            }
        })
    }

    /// Returns true if an element's first bytes are what they must be, and the rest what was there before.
    fn is_cut(&self, element: &ElementRef<'_>) -> bool {
        let comparison = self.comparison;
        let (expected, before) = (comparison.expected(element), comparison.before(element));
        (1..comparison.size()).any(|bytes| {
            let written = (1_u128 << (8 * bytes)) - 1;
            comparison.got(element) == (expected & written) | (before & !written)
        })
    }

    /// Returns the class of wrong pieces each of which is a whole block of some other rank.
    fn identified(&self) -> Option<Class> {
        let comparison = self.comparison;
        let facts = &comparison.prepared.facts;
        let ranks = facts.members.len() as u32;
        let mut class = None;
        let mut start = 0;
        while let Some(first) = self.elements.get(start) {
            let same = |element: &&ElementRef<'a>| {
                element.rank == first.rank && std::ptr::eq::<Segment>(element.piece, first.piece)
            };
            start += self.elements[start..].iter().take_while(same).count();
            let Origin::Copy { rank, slot } = first.piece.after else {
                return None;
            };
            let (source, theirs) = self.source(first)?;
            let point_to_point = matches!(
                facts.op,
                Op::SendRecv | Op::IsendIrecv | Op::BatchIsendIrecv
            );
            let this = match point_to_point {
                true if source == rank && theirs % ranks == slot % ranks => {
                    Class::MessageOrderSwapped
                }
                true if theirs % ranks == slot % ranks => Class::WrongSender,
                _ if source == rank => Class::DestinationSwapped,
                _ => Class::BlocksPermuted,
            };
            class = Some(match class {
                Some(class) if class != this => Class::BlocksPermuted,
                _ => this,
            });
        }
        class
    }

    /// Returns the block that a piece holds in place of its own.
    fn source(&self, first: &ElementRef<'a>) -> Option<(u32, u32)> {
        let comparison = self.comparison;
        let block_index = comparison.prepared.block_index.iter().enumerate();
        let mut blocks = block_index
            .flat_map(|(rank, slots)| (0..slots.len()).map(move |slot| (rank as u32, slot as u32)));
        blocks.find(|(rank, slot)| {
            (0..first.piece.len).all(|index| {
                let got = comparison.got(&ElementRef { index, ..*first });
                comparison.block(*rank, *slot, index) == Some(got)
            })
        })
    }

    fn is_nan(&self, element: &ElementRef<'_>) -> bool {
        let (re, im) = self.comparison.numbers(self.comparison.got(element));
        element.piece.after != Origin::Keep
            && self.comparison.got(element) != self.comparison.before(element)
            && (re.is_nan() || im.is_some_and(f64::is_nan))
    }

    /// Returns true if an element is wrong by no more than this multiple of its bound.
    fn is_within(&self, times: f64, element: &ElementRef<'_>) -> bool {
        let comparison = self.comparison;
        let purpose = comparison.prepared.facts.purpose;
        let (Values::Random, Some(op), Origin::Reduce { slot }) =
            (purpose.values, purpose.reduce, element.piece.after)
        else {
            return false;
        };
        let Some(elements) = comparison.contributions(slot, element.index) else {
            return false;
        };
        let bits = comparison.expected(element);
        let slack = times * comparison.rounding(op, purpose.ranks.into(), &elements, bits);
        comparison.is(comparison.got(element), Value { bits, slack })
    }

    /// Returns the class of elements that are all rounded to one side, and some of which exceed their bound.
    fn one_sided(&self) -> Option<Class> {
        let near =
            self.all(|element| self.is_near(element) || self.is_within(REACH_OF_ROUNDING, element));
        match self.comparison.rounding_of_results()? {
            Rounding::OneSided(side) if near => Some(Class::OneSidedRounding(side)),
            Rounding::OneSided(_) | Rounding::Nearest | Rounding::Stochastic | Rounding::Other => {
                None
            }
        }
    }

    /// Returns true if an element is off by one unit in the last place.
    fn is_near(&self, element: &ElementRef<'_>) -> bool {
        let facts = &self.comparison.prepared.facts;
        let (got, expected) = (
            self.comparison.got(element),
            self.comparison.expected(element),
        );
        if !matches!(element.piece.after, Origin::Reduce { .. }) {
            return false;
        }
        match facts.purpose.dtype.kind() {
            // As sign and magnitude, neighbours in value are neighbours in bits.
            DTypeKind::Float => got.abs_diff(expected) == 1,
            DTypeKind::Complex => {
                let half = 4 * self.comparison.size() as u32;
                let parts = |bits: u128| (bits & ((1 << half) - 1), bits >> half);
                let ((a, b), (c, d)) = (parts(got), parts(expected));
                a.abs_diff(c) <= 1 && b.abs_diff(d) <= 1
            }
            DTypeKind::Signed | DTypeKind::Unsigned => {
                facts.purpose.reduce == Some(ReduceOp::Avg)
                    && (self.comparison.numbers(got).0 - self.comparison.numbers(expected).0).abs()
                        == 1.0
            }
            DTypeKind::Bool => false,
        }
    }

    /// Returns the class of elements that a narrower type would have rounded so, and that are representable in it.
    fn low_precision(&self) -> Option<Class> {
        let comparison = self.comparison;
        let facts = &comparison.prepared.facts;
        let wide = precision(facts.purpose.dtype)?;
        let sums = matches!(
            facts.purpose.reduce,
            Some(ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PremulSum)
        );
        if !sums {
            return None;
        }
        let narrower = [
            ("float32", 24_u32),
            ("tf32 or float16", 11),
            ("bfloat16", 8),
        ];
        narrower
            .into_iter()
            .filter(|(_, bits)| *bits < wide)
            .find(|(_, bits)| {
                let unit = f64::powi(2.0, -(*bits as i32));
                self.all(|element| {
                    let Origin::Reduce { slot } = element.piece.after else {
                        return false;
                    };
                    let total: f64 = facts
                        .members
                        .iter()
                        .filter_map(|rank| comparison.block(*rank, slot, element.index))
                        .map(|element| comparison.numbers(element).0.abs())
                        .sum();
                    let got = comparison.numbers(comparison.got(element)).0;
                    let expected = comparison.numbers(comparison.expected(element)).0;
                    let divisor = match facts.purpose.reduce {
                        Some(ReduceOp::Avg) => facts.members.len() as f64,
                        _ => 1.0,
                    };
                    let roundings = unit * (facts.members.len() + 1) as f64;
                    (got - expected).abs() <= 2.0 * roundings * total / divisor
                        && has_significand(got, *bits)
                })
            })
            .map(|(name, _)| Class::LowPrecisionAccumulation(name))
    }
}

/// Returns true if so many bits of significand hold a number.
fn has_significand(value: f64, bits: u32) -> bool {
    value == 0.0 || (value.is_finite() && value.to_bits().trailing_zeros() >= 53 - bits)
}

/// Returns true if an element is the last of its buffer, and the buffer has several.
fn is_last(element: &ElementRef<'_>) -> bool {
    element.buffer.len > 1 && element.piece.start + element.index + 1 == element.buffer.len
}
