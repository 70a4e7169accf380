//! Searches for the origin of wrong data: the expected data in another form, data from elsewhere in the same call or from another
//! call, or data next to the right address in memory.
//!
//! In: the wrong elements of results. Out: the class that explains **every** one of them; none if there is no such class.

use std::collections::{HashMap, HashSet};

use super::Class;
use super::combine::{Reduction, combine_one};
use super::comparison::{Comparison, ElementRef, word};
use super::format::parts;
use super::rank_plan::Origin;
use allranks_model::dtype::{DType, DTypeKind, ReduceOp};

/// Largest distance in bytes from the right address that is searched.
const BESIDE: i64 = 512;
/// Elements of fewer bytes are equal by chance too often to be searched for among all others.
const TELLING: usize = 4;

/// Returns the class that explains all these elements, and what to add to its sentence; none if the search finds none.
pub(super) fn found(
    comparison: Comparison<'_>,
    elements: &[ElementRef<'_>],
) -> Option<(Class, String)> {
    transformed(comparison, elements)
        .or_else(|| as_other_type(comparison, elements))
        .or_else(|| address_shifted(comparison, elements))
        .map(|class| (class, String::new()))
        .or_else(|| elsewhere(comparison, elements))
}

/// Returns the class if every element is the expected one, changed in the same way.
fn transformed(comparison: Comparison<'_>, elements: &[ElementRef<'_>]) -> Option<Class> {
    let facts = &comparison.prepared.facts;
    let dtype = facts.purpose.dtype;
    let each = |made: &dyn Fn(u128, u128) -> bool| {
        elements.iter().all(|element| {
            element.piece.after != Origin::Keep
                && made(comparison.expected(element), comparison.got(element))
        })
    };
    let bits = 8 * comparison.size() as u32;
    let swapped = |bits_of: u128| {
        let mut bytes = bits_of.to_le_bytes();
        bytes[..comparison.size()].reverse();
        u128::from_le_bytes(bytes)
    };
    if comparison.size() > 1 && each(&|expected, got| got == swapped(expected)) {
        return Some(Class::BytesSwapped);
    }
    let is_moved = !facts.op.reduces();
    let cut = |lost: u32| {
        is_moved && each(&|expected, got| got == expected >> lost << lost && got != expected)
    };
    if dtype.kind() != DTypeKind::Bool && (1..=bits / 2).any(cut) {
        return Some(Class::LowBitsLost);
    }
    if began_elsewhere(comparison, elements) {
        return Some(Class::WrongIdentity);
    }
    match dtype.kind() {
        DTypeKind::Bool => each(&|_, got| got > 1).then_some(Class::BoolOutOfRange),
        DTypeKind::Complex => {
            let half = bits / 2;
            let parts = |bits: u128| (bits & ((1 << half) - 1), bits >> half);
            let sign = 1_u128 << (half - 1);
            let lost = elements.iter().all(|element| {
                let (expected, got) = (
                    parts(comparison.expected(element)),
                    parts(comparison.got(element)),
                );
                let kept = parts(comparison.before(element)).1;
                expected.0 == got.0 && (got.1 == 0 || got.1 == kept)
            });
            let conjugated = |expected, got| {
                parts(got).0 == parts(expected).0 && parts(got).1 == parts(expected).1 ^ sign
            };
            let swapped = |expected, got| {
                let (re, im) = parts(expected);
                parts(got) == (im, re)
            };
            if lost {
                Some(Class::ImaginaryPartLost)
            } else if each(&swapped) {
                Some(Class::PartsSwapped)
            } else {
                each(&conjugated).then_some(Class::Conjugated)
            }
        }
        DTypeKind::Signed | DTypeKind::Unsigned => whole_numbers(comparison, elements),
        DTypeKind::Float => None,
    }
}

/// Returns true if MIN or MAX began with a wrong identity: it gave the same number for all, at least two, results beyond that
/// number.
fn began_elsewhere(comparison: Comparison<'_>, elements: &[ElementRef<'_>]) -> bool {
    let facts = &comparison.prepared.facts;
    let is_min = match facts.purpose.reduce {
        Some(ReduceOp::Min) => true,
        Some(ReduceOp::Max) => false,
        _ => return false,
    };
    let Some(began) = elements.first().map(|element| comparison.got(element)) else {
        return false;
    };
    if facts.purpose.dtype.kind() == DTypeKind::Bool {
        return false;
    }
    let number = |bits: u128| comparison.numbers(bits).0;
    let right: HashSet<u128> = elements
        .iter()
        .map(|element| comparison.expected(element))
        .collect();
    let is_beyond = |bits: &u128| match is_min {
        true => number(*bits) > number(began),
        false => number(*bits) < number(began),
    };
    right.len() > 1
        && right.iter().all(is_beyond)
        && elements
            .iter()
            .all(|element| element.piece.after != Origin::Keep && comparison.got(element) == began)
}

/// Returns the class if every integer is the expected one, changed in the same way.
fn whole_numbers(comparison: Comparison<'_>, elements: &[ElementRef<'_>]) -> Option<Class> {
    let facts = &comparison.prepared.facts;
    let bits = 8 * comparison.size() as u32;
    let each = |made: &dyn Fn(&ElementRef<'_>, i128) -> bool| {
        elements.iter().all(|element| {
            element.piece.after != Origin::Keep
                && made(element, comparison.whole(comparison.got(element)))
        })
    };
    let expected = |element: &ElementRef<'_>| comparison.whole(comparison.expected(element));
    for held in [8, 16, 32].into_iter().filter(|held| *held < bits) {
        let unused = 128 - held;
        let narrow = |element: &ElementRef<'_>, got| {
            let low = comparison.expected(element) << unused;
            got == (low as i128 >> unused) || got == (low >> unused) as i128
        };
        if each(&narrow) {
            return Some(Class::Narrowed(held));
        }
    }
    let rounded = |element: &ElementRef<'_>, got: i128| {
        let value = expected(element);
        // 2^63, to which the largest are rounded, is no int64, and becomes its smallest number.
        let is_smallest = value as f64 as i128 > i128::from(i64::MAX) && got == i64::MIN.into();
        got == value as f64 as i128 || got == value as f32 as i128 || is_smallest
    };
    if bits == 64 && each(&rounded) {
        return Some(Class::ThroughFloat);
    }
    let contributions = |element: &ElementRef<'_>| match element.piece.after {
        Origin::Reduce { slot } => comparison
            .contributions(slot, element.index)
            .unwrap_or_default(),
        Origin::Keep | Origin::Copy { .. } => Vec::new(),
    };
    match facts.purpose.reduce? {
        op @ (ReduceOp::Min | ReduceOp::Max) => {
            // Ordered as if the sign bit were turned.
            let turned = 1_u128 << (bits - 1);
            let is_signed = facts.purpose.dtype.kind() == DTypeKind::Signed;
            let key = |bits: u128| if is_signed { bits } else { bits ^ turned };
            let other = |element: &ElementRef<'_>, _| {
                let all = contributions(element);
                let values = all.iter().map(|element| element.bits);
                let extreme = match op {
                    ReduceOp::Min => values.min_by_key(|bits| key(*bits)),
                    _ => values.max_by_key(|bits| key(*bits)),
                };
                extreme == Some(comparison.got(element))
            };
            each(&other).then_some(Class::ComparedWithOtherSign)
        }
        op @ (ReduceOp::Band | ReduceOp::Bor | ReduceOp::Bxor) => {
            let logical = |element: &ElementRef<'_>, got| {
                let truths = contributions(element);
                let count = truths.iter().filter(|element| element.bits != 0).count();
                let truth = match op {
                    ReduceOp::Band => count == truths.len(),
                    ReduceOp::Bor => count > 0,
                    _ => count % 2 == 1,
                };
                got == i128::from(truth)
            };
            let low = (1_u128 << (bits / 2)) - 1;
            let high = |element: &ElementRef<'_>, _| {
                (comparison.got(element) ^ comparison.expected(element)) & low == 0
            };
            if each(&logical) {
                Some(Class::LogicalInsteadOfBitwise)
            } else {
                (bits > 8 && each(&high)).then_some(Class::HighBitsWrong)
            }
        }
        op @ (ReduceOp::Sum | ReduceOp::Product) => {
            // What is too large for the integer becomes its largest or its smallest one.
            let in_float = |element: &ElementRef<'_>, got: i128| {
                let all = contributions(element);
                let all = all
                    .iter()
                    .map(|element| comparison.whole(element.bits) as f64);
                let result: f64 = match op {
                    ReduceOp::Sum => all.sum(),
                    _ => all.product(),
                };
                got == i128::from(result as i64) || got == i128::from(i64::MIN)
            };
            let is_signed = facts.purpose.dtype.kind() == DTypeKind::Signed;
            (bits == 64 && is_signed && each(&in_float)).then_some(Class::ThroughFloat)
        }
        ReduceOp::Avg | ReduceOp::PremulSum => None,
    }
}

/// Returns the class if every element is the result of its contributions when their bits are read as numbers of another type,
/// or of a type of half the size.
fn as_other_type(comparison: Comparison<'_>, elements: &[ElementRef<'_>]) -> Option<Class> {
    let facts = &comparison.prepared.facts;
    let op = facts.purpose.reduce?;
    let whole = comparison.size();
    let made = |dtype: DType, element: &ElementRef<'_>| {
        let Origin::Reduce { slot } = element.piece.after else {
            return false;
        };
        let Some(elements) = comparison.contributions(slot, element.index) else {
            return false;
        };
        let size = dtype.size();
        let got = comparison.got(element).to_le_bytes();
        (0..whole / size).all(|part| {
            let at = part * size..(part + 1) * size;
            let bytes: Vec<u8> = elements
                .iter()
                .flat_map(|element| element.bits.to_le_bytes()[at.clone()].to_vec())
                .collect();
            let reduction = Reduction {
                dtype,
                op,
                divisor: elements.len() as u64,
                factors: &[],
                wide: false,
            };
            let combined = combine_one(reduction, &bytes).to_le_bytes();
            let is_nan = |bytes: &[u8]| parts(dtype, bytes).0.is_nan();
            combined[..size] == got[at.clone()] || is_nan(&combined[..size]) && is_nan(&got[at])
        })
    };
    let own = facts.purpose.dtype;
    let is_other = |dtype: &DType| {
        let fits = [whole, whole / 2].contains(&dtype.size());
        let has_numbers = !matches!(dtype.kind(), DTypeKind::Bool | DTypeKind::Complex);
        *dtype != own && fits && has_numbers && op.is_defined_for(*dtype)
    };
    // Few elements, or elements of one byte, may match by chance.
    if op == ReduceOp::PremulSum || own == DType::Bool || elements.len() * whole < 16 {
        return None;
    }
    let mut others = DType::ALL.iter().copied().filter(is_other);
    let found = others.find(|dtype| elements.iter().all(|element| made(*dtype, element)))?;
    Some(Class::CombinedAs(found))
}

/// Returns the class if every element was read at the same distance, in bytes, from the right address.
fn address_shifted(comparison: Comparison<'_>, elements: &[ElementRef<'_>]) -> Option<Class> {
    let prepared = comparison.prepared;
    let source = |element: &ElementRef<'_>, by: i64| {
        let Origin::Copy { rank, slot } = element.piece.after else {
            return None;
        };
        let held = (*prepared
            .block_index
            .get(rank as usize)?
            .get(slot as usize)?)?;
        let at = held.place().range(element.index).start as i64 + by;
        let payload = &prepared.steps[rank as usize].payload;
        let at = usize::try_from(at).ok()?;
        payload.get(at..at + comparison.size()).map(word)
    };
    let shifted = |own: &[ElementRef<'_>]| {
        let explains = |by: &i64| {
            own.iter()
                .all(|element| source(element, *by) == Some(comparison.got(element)))
        };
        // Few elements, or elements of one byte, may match by chance.
        let are_enough = own.len() * comparison.size() >= 16;
        let mut places = (1..=BESIDE).flat_map(|by| [-by, by]);
        are_enough.then(|| places.find(explains)).flatten()
    };
    let ranks = elements.chunk_by(|a, b| a.rank == b.rank);
    let shifts: Option<Vec<i64>> = ranks.map(shifted).collect();
    shifts?.first().copied().map(Class::AddressShifted)
}

/// Returns the class if every element belongs to another place of the same call.
fn elsewhere(comparison: Comparison<'_>, elements: &[ElementRef<'_>]) -> Option<(Class, String)> {
    if comparison.size() < TELLING || comparison.prepared.facts.purpose.dtype == DType::Bool {
        return None;
    }
    let ranks = 0..comparison.prepared.steps.len() as u32;
    let mut belongs: HashMap<u128, (Origin, usize)> = HashMap::new();
    for element in ranks.flat_map(|rank| comparison.elements(rank)) {
        if element.piece.after != Origin::Keep {
            belongs
                .entry(comparison.expected(&element))
                .or_insert((element.piece.after, element.index));
        }
    }
    let mut moved = Vec::new();
    for element in elements {
        let (origin, index) = belongs.get(&comparison.got(element))?;
        moved.push((element, *origin, *index));
    }
    let inside = moved
        .iter()
        .all(|(element, origin, _)| *origin == element.piece.after);
    let (element, origin, index) = moved.first()?;
    let owner = match origin {
        Origin::Copy { rank, .. } => format!("rank {rank}, "),
        Origin::Reduce { slot } => format!("block {slot}, "),
        Origin::Keep => String::new(),
    };
    let note = format!(
        ": element {} of {} on rank {} holds what belongs to {owner}index {index}",
        element.piece.start + element.index,
        element.buffer.label(),
        element.rank
    );
    Some(match inside {
        true => (Class::ElementsPermuted, note),
        false => (Class::BlocksMixed, note),
    })
}

/// Returns true if every wrong element combines the contributions of some ranks to this call with those of the others to `other`.
pub(super) fn crosses(
    comparison: Comparison<'_>,
    elements: &[ElementRef<'_>],
    other: Comparison<'_>,
) -> bool {
    const RANKS: usize = 8;
    let facts = &comparison.prepared.facts;
    let same = facts.purpose.dtype == other.prepared.facts.purpose.dtype;
    let members = &facts.members;
    let Some(op) = facts
        .purpose
        .reduce
        .filter(|_| same && members.len() <= RANKS)
    else {
        return false;
    };
    let predicted = |element: &ElementRef<'_>, mask: u32| {
        let Origin::Reduce { slot } = element.piece.after else {
            return None;
        };
        let mut elements = comparison.contributions(slot, element.index)?;
        for (position, (contribution, rank)) in (0..).zip(elements.iter_mut().zip(members)) {
            if mask & (1 << position) != 0 {
                contribution.bits = other.block(*rank, slot, element.index)?;
            }
        }
        comparison.combined(op, members.len() as u64, &elements, false)
    };
    let explains = |rank: u32, mask: u32| {
        let mut own = elements.iter().filter(|element| element.rank == rank);
        own.all(|element| {
            predicted(element, mask)
                .is_some_and(|value| comparison.is(comparison.got(element), value))
        })
    };
    // Few elements, or elements of one byte, may match by chance.
    elements.len() * comparison.size() >= 16
        && members
            .iter()
            .all(|rank| (1..1 << members.len()).any(|mask| explains(*rank, mask)))
}

/// Returns true if every wrong element belongs to the call of `other`: it is one of that call's results or contributions.
pub(super) fn holds_data_of(
    comparison: Comparison<'_>,
    elements: &[ElementRef<'_>],
    other: Comparison<'_>,
) -> bool {
    let same = comparison.prepared.facts.purpose.dtype == other.prepared.facts.purpose.dtype;
    if !same || comparison.size() < TELLING || elements.is_empty() {
        return false;
    }
    let mut theirs: HashSet<u128> = HashSet::new();
    for rank in 0..other.prepared.steps.len() as u32 {
        for element in other.elements(rank) {
            if element.piece.after != Origin::Keep {
                theirs.insert(other.expected(&element));
            }
        }
        let slots = other
            .prepared
            .block_index
            .get(rank as usize)
            .map_or(0, Vec::len);
        for slot in 0..slots as u32 {
            theirs.extend((0..).map_while(|index| other.block(rank, slot, index)));
        }
    }
    elements
        .iter()
        .all(|element| theirs.contains(&comparison.got(element)))
}
