//! Determines how inexact results were rounded: to nearest, stochastically, or always to one side.
//!
//! In: answers to a check of random values, each of which may be within its bound. Out: whether they are what rounding to
//! nearest, ties to even, gives. A result of at most two contributions is rounded once, so it must have the expected bits. Of
//! results that are rounded several times only the signs of their errors are judged: no order of adding makes them lie to
//! one side.
//!
//! Averages over a number of ranks that is no power of two are not judged: a backend may multiply by the rounded reciprocal.

use std::collections::HashSet;

use strum::VariantArray;

use super::CompareMode;
use super::comparison::{Comparison, ElementRef};
use super::double_double::DoubleDouble;
use super::format::precision;
use super::ops::SAME;
use super::rank_plan::{Origin, Role};
use super::special_values::smallest_normal;
use allranks_model::axes::Values;
use allranks_model::dtype::{DTypeKind, ReduceOp};

/// Smallest number of inexact results with one rounding each from which a conclusion is drawn.
const ENOUGH_ROUNDED_ONCE: usize = 24;
/// Smallest number of inexact results with several roundings each from which a conclusion is drawn.
const ENOUGH: usize = 256;
/// Largest number of results that are examined.
const MOST: usize = 1 << 16;
/// The share of the errors of repeated rounding that must lie on one side. Rounding to nearest gives a half.
const ONE_SIDED: f64 = 0.75;
/// The share of the wrong results of one rounding that must lie on one side.
const NEARLY_ALL: f64 = 0.95;
/// A count within this many standard deviations of its mean is taken for chance.
const SIGMAS: f64 = 5.0;

/// The side of the exact result on which errors lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::VariantArray)]
pub enum Side {
    /// The magnitude is too small, as of truncated significands.
    TowardZero,
    /// The magnitude is too large.
    AwayFromZero,
    /// The result is too small.
    Down,
    /// The result is too large.
    Up,
}

impl Side {
    /// Returns the side in words.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::TowardZero => "toward zero",
            Self::AwayFromZero => "away from zero",
            Self::Down => "down",
            Self::Up => "up",
        }
    }
}

/// How results were rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rounding {
    /// To nearest, ties to even, as far as the data show.
    Nearest,
    /// To either neighbour, with a probability that depends on how near it is.
    Stochastic,
    /// Always to this side of the exact result.
    OneSided(Side),
    /// In none of these ways.
    Other,
}

/// One number of a result, with its error.
#[derive(Clone, Copy)]
struct Rounded {
    /// What is there, less the exact result.
    error: f64,
    /// The nearest number, less the exact result.
    least: f64,
    /// The exact result is negative.
    negative: bool,
    /// The distance between numbers near the exact result.
    ulp: f64,
    /// At most one operation rounds.
    once: bool,
    /// Seen for the first time: results that several ranks hold count once.
    first: bool,
}

impl Rounded {
    fn is_wrong(&self) -> bool {
        self.error != self.least
    }

    /// Returns true if the error lies on a side.
    fn is_on(&self, side: Side) -> bool {
        match side {
            Side::TowardZero => (self.error > 0.0) == self.negative,
            Side::AwayFromZero => (self.error > 0.0) != self.negative,
            Side::Down => self.error < 0.0,
            Side::Up => self.error > 0.0,
        }
    }

    /// Returns true if it is the neighbour of the exact result that is not the nearest one.
    fn is_other_neighbour(&self) -> bool {
        self.least != 0.0 && self.error.abs() < self.ulp && (self.error > 0.0) != (self.least > 0.0)
    }

    /// Returns the probability with which stochastic rounding does not give the nearest number.
    fn chance(&self) -> f64 {
        self.least.abs() / self.ulp
    }
}

impl Comparison<'_> {
    /// Returns true if an element is a result that does not have the bits of the exact result rounded once to nearest.
    pub(super) fn is_rounded_otherwise(self, element: &ElementRef<'_>) -> bool {
        matches!(element.piece.after, Origin::Reduce { .. })
            && element.buffer.role != Role::Unspecified
            && self.got(element) != self.expected(element)
    }

    /// Returns how the results of this check were rounded; none if the check does not show it.
    pub(super) fn rounding_of_results(self) -> Option<Rounding> {
        let facts = &self.prepared.facts;
        let purpose = facts.purpose;
        let op = purpose.reduce?;
        let complex = purpose.dtype.kind() == DTypeKind::Complex;
        let divides = facts.members.len() as f64;
        let judged = match op {
            ReduceOp::Sum => true,
            ReduceOp::Avg => facts.members.len().is_power_of_two(),
            ReduceOp::Product => !complex,
            ReduceOp::PremulSum
            | ReduceOp::Min
            | ReduceOp::Max
            | ReduceOp::Band
            | ReduceOp::Bor
            | ReduceOp::Bxor => false,
        };
        let random = purpose.values == Values::Random && purpose.mode == CompareMode::Bounded;
        if !(judged && random) {
            return None;
        }
        let precision = precision(purpose.dtype)? as i32;
        let mut seen = HashSet::new();
        let mut all = Vec::new();
        let elements = facts.members.iter().flat_map(|rank| self.elements(*rank));
        for element in elements.filter(|element| element.buffer.role != Role::Unspecified) {
            let Origin::Reduce { slot } = element.piece.after else {
                continue;
            };
            // Repeated calls have the same data in each of their slots, and the last one has all of them.
            let first = (!purpose.repeated || slot == SAME) && seen.insert((slot, element.index));
            if !first && self.got(&element) == self.expected(&element) || all.len() > MOST {
                continue;
            }
            let Some(elements) = self.contributions(slot, element.index) else {
                continue;
            };
            for part in 0..1 + usize::from(complex) {
                let number = |bits: u128| match (part, self.numbers(bits)) {
                    (0, (re, _)) => re,
                    (_, (_, im)) => im.unwrap_or(0.0),
                };
                let terms = elements.iter().map(|element| number(element.bits));
                let (neutral, exact) = match op {
                    ReduceOp::Product => (
                        1.0,
                        terms
                            .clone()
                            .fold(DoubleDouble::from(1.0), DoubleDouble::times),
                    ),
                    _ => (
                        0.0,
                        terms
                            .clone()
                            .fold(DoubleDouble::from(0.0), DoubleDouble::plus),
                    ),
                };
                let exact = match op {
                    ReduceOp::Avg => exact.over(divides),
                    _ => exact,
                };
                let magnitude = exact.to_f64().abs();
                if magnitude < smallest_normal(purpose.dtype) || !magnitude.is_finite() {
                    continue;
                }
                all.push(Rounded {
                    error: exact.error_of(number(self.got(&element))),
                    least: exact.error_of(number(self.expected(&element))),
                    negative: exact.to_f64() < 0.0,
                    ulp: f64::powi(2.0, exponent(magnitude) + 1 - precision),
                    once: terms.filter(|term| term.abs() != neutral).count() <= 2,
                    first,
                });
            }
        }
        let (once, often): (Vec<_>, Vec<_>) = all.into_iter().partition(|number| number.once);
        rounded_once(&once)
            .or_else(|| rounded_often(&often))
            .or_else(|| is_enough(&once).then_some(Rounding::Nearest))
    }
}

/// Returns the distinct results that cannot be exact.
fn inexact(numbers: &[Rounded]) -> impl Iterator<Item = &Rounded> {
    let is_meant = |number: &&Rounded| number.first && number.least != 0.0;
    numbers.iter().filter(is_meant)
}

/// Returns true if enough results of one rounding each show how they were rounded.
fn is_enough(numbers: &[Rounded]) -> bool {
    inexact(numbers).count() >= ENOUGH_ROUNDED_ONCE
}

/// Returns how results of one rounding each were rounded; none if that is to nearest, or if they are too few.
fn rounded_once(numbers: &[Rounded]) -> Option<Rounding> {
    let distinct: Vec<&Rounded> = inexact(numbers).collect();
    let wrong: Vec<&Rounded> = numbers.iter().filter(|number| number.is_wrong()).collect();
    if wrong.is_empty() || !is_enough(numbers) {
        return None;
    }
    if wrong.iter().all(|number| number.is_other_neighbour()) && is_stochastic(&distinct) {
        return Some(Rounding::Stochastic);
    }
    // Of few, all may lie to one side by chance.
    let side = (wrong.len() >= 8)
        .then(|| side(wrong, NEARLY_ALL))
        .flatten();
    Some(match side {
        Some(side) => Rounding::OneSided(side),
        None => Rounding::Other,
    })
}

/// Returns true if as many results are not the nearest numbers, and on either side, as stochastic rounding explains; among
/// ties, and among the others.
fn is_stochastic(numbers: &[&Rounded]) -> bool {
    let (ties, others): (Vec<&Rounded>, Vec<_>) =
        numbers.iter().partition(|number| number.chance() == 0.5);
    let as_expected = |numbers: &[&Rounded]| {
        let wrong: Vec<_> = numbers.iter().filter(|number| number.is_wrong()).collect();
        let expected: f64 = numbers.iter().map(|number| number.chance()).sum();
        let variance: f64 = numbers
            .iter()
            .map(|number| number.chance() * (1.0 - number.chance()))
            .sum();
        let half = wrong.len() as f64 / 2.0;
        let balanced = [Side::TowardZero, Side::Up].iter().all(|side| {
            let on = wrong.iter().filter(|number| number.is_on(*side)).count() as f64;
            (on - half).abs() <= SIGMAS * (half / 2.0).sqrt()
        });
        balanced && (wrong.len() as f64 - expected).abs() <= SIGMAS * variance.sqrt()
    };
    as_expected(&ties) && as_expected(&others)
}

/// Returns how results of several roundings were rounded; none if there are too few.
fn rounded_often(numbers: &[Rounded]) -> Option<Rounding> {
    let inexact: Vec<&Rounded> = numbers
        .iter()
        .filter(|number| number.first && number.error != 0.0)
        .collect();
    if inexact.len() < ENOUGH {
        return None;
    }
    let side = side(inexact, ONE_SIDED).filter(|_| numbers.iter().any(Rounded::is_wrong));
    Some(side.map_or(Rounding::Nearest, Rounding::OneSided))
}

/// Returns the side on which such a part of the errors lies.
fn side(numbers: Vec<&Rounded>, part: f64) -> Option<Side> {
    let is_most = |side: &Side| {
        let on = numbers.iter().filter(|number| number.is_on(*side)).count();
        on as f64 >= part * numbers.len() as f64
    };
    Side::VARIANTS.iter().copied().find(is_most)
}

/// Returns the exponent of the power of two at or below a normal number.
fn exponent(magnitude: f64) -> i32 {
    (magnitude.to_bits() >> 52 & 0x7ff) as i32 - 1023
}
