//! Recognises special values that were lost in arithmetic or in moving: a NaN, an infinity, a denormal, the sign of a zero, the
//! byte of a bool, a sum that wraps around.
//!
//! In: the wrong elements of a check. Out: the class that explains every one of them.

use super::Class;
use super::comparison::{Comparison, ElementRef};
use super::rank_plan::Origin;
use allranks_model::dtype::{DType, DTypeKind, ReduceOp};

/// Returns the class of wrong elements in each of which a special value was lost; `None` if there is none.
pub(super) fn lost(comparison: Comparison<'_>, elements: &[ElementRef<'_>]) -> Option<Class> {
    let facts = &comparison.prepared.facts;
    let moves = !facts.op.reduces();
    let each = |made: &dyn Fn(u128, u128) -> bool| {
        elements.iter().all(|element| {
            element.piece.after != Origin::Keep
                && made(comparison.expected(element), comparison.got(element))
        })
    };
    let number = |bits: u128| comparison.numbers(bits).0;
    let other_nan = |expected, got| moves && comparison.is_nan(expected) && comparison.is_nan(got);
    match facts.purpose.dtype.kind() {
        DTypeKind::Bool => {
            each(&|expected, got| expected > 1 && got == 1).then_some(Class::BoolNormalised)
        }
        DTypeKind::Complex => each(&other_nan).then_some(Class::NanBitsChanged),
        DTypeKind::Signed | DTypeKind::Unsigned => {
            saturated(comparison, elements).then_some(Class::Saturated)
        }
        DTypeKind::Float if each(&other_nan) => Some(Class::NanBitsChanged),
        DTypeKind::Float
            if each(&|expected, got| {
                !moves && comparison.is_nan(expected) && !comparison.is_nan(got)
            }) =>
        {
            let compares = matches!(facts.purpose.reduce, Some(ReduceOp::Min | ReduceOp::Max));
            // Neither a NaN nor the least of the numbers: some of them were forgotten with the NaN.
            Some(
                match compares
                    && elements
                        .iter()
                        .all(|element| is_a_number_of(comparison, element))
                {
                    true => Class::NanDependsOnRank,
                    false => Class::NanDropped,
                },
            )
        }
        DTypeKind::Float
            if each(&|expected, got| number(expected).is_infinite() && number(got).is_finite()) =>
        {
            Some(Class::InfFlushed)
        }
        DTypeKind::Float
            if each(&|expected, got| number(expected) == 0.0 && expected != 0 && got == 0) =>
        {
            Some(Class::NegativeZeroLost)
        }
        // What flushes denormals may well lose the signs of zeros, too; and where values are moved by adding them to
        // zeros, a NaN becomes the NaN of the adder.
        DTypeKind::Float => each(&|expected, got| {
            let is_tiny = number(expected).abs() < smallest_normal(facts.purpose.dtype);
            is_tiny && number(got) == 0.0 || other_nan(expected, got)
        })
        .then_some(Class::DenormalFlushed),
    }
}

/// Returns true if what came out is one of the numbers that ranks contributed.
fn is_a_number_of(comparison: Comparison<'_>, element: &ElementRef<'_>) -> bool {
    let Origin::Reduce { slot } = element.piece.after else {
        return false;
    };
    let (got, _) = comparison.numbers(comparison.got(element));
    let contributed = comparison
        .contributions(slot, element.index)
        .unwrap_or_default();
    contributed
        .iter()
        .any(|element| comparison.numbers(element.bits).0 == got)
}

/// Returns the smallest normal number of a floating-point dtype, and of the parts of a complex one.
pub(super) fn smallest_normal(dtype: DType) -> f64 {
    match dtype {
        DType::Float16 | DType::Float8E5m2 => f64::powi(2.0, -14),
        DType::Float8E4m3fn => f64::powi(2.0, -6),
        DType::Float64 | DType::Complex128 => f64::MIN_POSITIVE,
        _ => f64::from(f32::MIN_POSITIVE),
    }
}

/// Returns true if sums of integers stop at the ends of their range: at the end, or at every step.
fn saturated(comparison: Comparison<'_>, elements: &[ElementRef<'_>]) -> bool {
    let facts = &comparison.prepared.facts;
    let bits = 8 * facts.purpose.dtype.size() as u32;
    let (lowest, largest): (i128, i128) = match facts.purpose.dtype.kind() {
        DTypeKind::Signed => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
        DTypeKind::Unsigned | DTypeKind::Bool | DTypeKind::Float | DTypeKind::Complex => {
            (0, (1 << bits) - 1)
        }
    };
    let stops = |element: &ElementRef<'_>| {
        let Origin::Reduce { slot } = element.piece.after else {
            return false;
        };
        let elements = comparison
            .contributions(slot, element.index)
            .unwrap_or_default();
        let values = || {
            elements
                .iter()
                .map(|element| comparison.whole(element.bits))
        };
        let at_the_end = values().sum::<i128>().clamp(lowest, largest);
        let at_every_step =
            values().fold(0, |sum: i128, value| (sum + value).clamp(lowest, largest));
        [at_the_end, at_every_step].contains(&comparison.whole(comparison.got(element)))
    };
    facts.purpose.reduce == Some(ReduceOp::Sum) && elements.iter().all(stops)
}
