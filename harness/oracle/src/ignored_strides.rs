//! Recognises answers of a backend that reads or writes strided tensors as if they were dense.

use std::collections::BTreeMap;

use super::Class;
use super::comparison::{Comparison, Contribution, Value, word};
use super::rank_plan::{Origin, Role};

/// Returns the class of an answer that ignoring strides explains on every one of these ranks.
pub(super) fn ignored_strides(comparison: Comparison<'_>, ranks: &[u32]) -> Option<Class> {
    if comparison.prepared.facts.dense || ranks.is_empty() {
        return None;
    }
    [
        (true, false, Class::NonContiguousReadAsDense),
        (true, true, Class::NonContiguousReadAsDense),
        (false, true, Class::OnlyDensePartWritten),
    ]
    .into_iter()
    .find(|(reads, writes, _)| {
        let explains = |rank: &u32| explains(comparison, *rank, *reads, *writes).unwrap_or(false);
        ranks.iter().all(explains)
    })
    .map(|(_, _, class)| class)
    .or_else(|| {
        let explains = |in_input: bool| {
            let explains =
                |rank: &u32| others_in_memory_order(comparison, *rank, in_input).unwrap_or(false);
            ranks.iter().all(explains)
        };
        (explains(false) || explains(true)).then_some(Class::NonContiguousReadAsDense)
    })
    .or_else(|| {
        let added = ranks
            .iter()
            .all(|rank| added_in_memory_order(comparison, *rank));
        added.then_some(Class::OnlyDensePartWritten)
    })
    .or_else(|| {
        let spilled = ranks.iter().all(|rank| spilled(comparison, *rank));
        spilled.then_some(Class::OnlyDensePartWritten)
    })
}

/// Returns true if what ranks hold is the result of writing every element of an output that overlaps itself, with strides or
/// without.
pub(super) fn is_written_in_some_order(comparison: Comparison<'_>) -> bool {
    let ranks = 0..comparison.prepared.steps.len() as u32;
    ranks.clone().all(|rank| {
        let ways = [(false, false), (false, true), (true, false), (true, true)];
        ways.into_iter()
            .any(|(reads, writes)| explains(comparison, rank, reads, writes).unwrap_or(false))
            || added_in_memory_order(comparison, rank)
            || is_leftover(comparison, rank)
    })
}

/// Returns true if a rank has no result, and nothing was written beyond where its tensors, if they were dense, would lie.
fn is_leftover(comparison: Comparison<'_>, rank: u32) -> bool {
    let sent = &comparison.prepared.steps[rank as usize].payload;
    let reply = &comparison.replies[rank as usize].payload;
    let buffers = &comparison.prepared.works[rank as usize].buffers;
    buffers.iter().all(|buffer| {
        let (start, len) = buffer.storage;
        let dense = buffer.place.ignoring_strides();
        let inside = dense.range(0).start..dense.range(buffer.len).start;
        matches!(buffer.role, Role::NonRoot | Role::Unspecified)
            && (start..start + len).all(|at| inside.contains(&at) || sent[at] == reply[at])
    })
}

/// Returns true if everything written lies where a dense tensor would, gaps included: whatever the values, a write without
/// strides.
fn spilled(comparison: Comparison<'_>, rank: u32) -> bool {
    let sent = &comparison.prepared.steps[rank as usize].payload;
    let reply = &comparison.replies[rank as usize].payload;
    let buffers = &comparison.prepared.works[rank as usize].buffers;
    let mut gaps = false;
    let inside = buffers
        .iter()
        .filter(|buffer| buffer.place.width == 1 && buffer.place.step > 1)
        .all(|buffer| {
            let (start, len) = buffer.storage;
            let place = buffer.place;
            (0..len)
                .filter(|at| sent[start + at] != reply[start + at])
                .all(|at| {
                    let element = at / place.size;
                    let dense = (place.offset..place.offset + buffer.len).contains(&element);
                    gaps |= dense && (element - place.offset) % place.step != 0;
                    dense
                })
        });
    inside && gaps
}

/// Returns true if a rank's results are its own contributions combined with the others' in the order in which those lie in
/// memory: what becomes of a copy that minds strides and a reduction that does not. They meet where its own elements lie
/// in its input, or in the output they were copied to.
fn others_in_memory_order(comparison: Comparison<'_>, rank: u32, in_input: bool) -> Option<bool> {
    let facts = &comparison.prepared.facts;
    let mut any = false;
    for element in comparison.elements(rank) {
        let Origin::Reduce { slot } = element.piece.after else {
            if comparison.got(&element) != comparison.expected(&element) {
                return Some(false);
            }
            continue;
        };
        any = true;
        let own = (*comparison
            .prepared
            .block_index
            .get(rank as usize)?
            .get(slot as usize)?)?;
        let at = if in_input {
            own.buffer.element(own.start + element.index) - own.buffer.offset
        } else {
            let place = element.buffer.place.from(element.piece.start);
            own.start + place.element(element.index) - place.offset
        };
        let mut elements = Vec::new();
        for (member, position) in facts.members.iter().zip(0..) {
            let bits = if *member == rank {
                comparison.block(rank, slot, element.index)?
            } else {
                in_memory_order(comparison, *member, slot, at)?
            };
            elements.push(Contribution {
                bits,
                factor: facts.purpose.factor.of(position),
            });
        }
        let divisor = facts.members.len() as u64;
        let value = comparison.combined(facts.purpose.reduce?, divisor, &elements, false)?;
        if !comparison.is(comparison.got(&element), value) {
            return Some(false);
        }
    }
    Some(any)
}

/// Returns true if a rank's payload is its own contribution, copied to the output with strides, and then the others' combined
/// with what lies where a dense output would, gaps included; the others may have been read with strides or without.
fn added_in_memory_order(comparison: Comparison<'_>, rank: u32) -> bool {
    [true, false]
        .into_iter()
        .any(|reads| others_added(comparison, rank, reads).unwrap_or(false))
}

/// The same for one way of reading the others' contributions, without strides if `reads`; none if there is no such output.
fn others_added(comparison: Comparison<'_>, rank: u32, reads: bool) -> Option<bool> {
    let prepared = comparison.prepared;
    let facts = &prepared.facts;
    let op = facts.purpose.reduce?;
    let mut base = prepared.steps[rank as usize].payload.clone();
    let outputs = || {
        comparison
            .pieces(rank)
            .filter_map(|(buffer, piece)| match piece.after {
                Origin::Reduce { slot } => Some((buffer.place.from(piece.start), piece.len, slot)),
                Origin::Keep | Origin::Copy { .. } => None,
            })
    };
    for (place, len, slot) in outputs() {
        for index in 0..len {
            let own = comparison.block(rank, slot, index)?.to_le_bytes();
            base.get_mut(place.range(index))?
                .copy_from_slice(&own[..comparison.size()]);
        }
    }
    let reply = &comparison.replies[rank as usize].payload;
    let mut any = false;
    for (place, len, slot) in outputs() {
        let dense = place.ignoring_strides();
        for index in 0..len {
            let range = dense.range(index);
            let mut elements = Vec::new();
            for (member, position) in facts.members.iter().zip(0..) {
                let bits = if *member == rank {
                    word(base.get(range.clone())?)
                } else if reads {
                    let held = (*prepared
                        .block_index
                        .get(*member as usize)?
                        .get(slot as usize)?)?;
                    in_memory_order(comparison, *member, slot, held.start + index)?
                } else {
                    comparison.block(*member, slot, index)?
                };
                elements.push(Contribution {
                    bits,
                    factor: facts.purpose.factor.of(position),
                });
            }
            let value = comparison.combined(op, facts.members.len() as u64, &elements, false)?;
            let got = reply.get(range.clone())?;
            let both_nan = comparison.is_nan(word(got)) && comparison.is_nan(value.bits);
            if !comparison.is(word(got), value) && !both_nan {
                return Some(false);
            }
            base[range].copy_from_slice(got);
            any = true;
        }
    }
    Some(any && base == *reply)
}

/// Returns the element at an index of the tensor a block lies in, read without strides; none if that is outside of the payload.
fn in_memory_order(comparison: Comparison<'_>, rank: u32, slot: u32, index: usize) -> Option<u128> {
    let prepared = comparison.prepared;
    let held = (*prepared
        .block_index
        .get(rank as usize)?
        .get(slot as usize)?)?;
    let place = held.buffer.ignoring_strides();
    let payload = &prepared.steps[rank as usize].payload;
    payload.get(place.range(index)).map(word)
}

/// Returns true if a rank's payload is the result of calls that ignore strides in reading, or in writing; none if they would
/// leave the storage.
fn explains(comparison: Comparison<'_>, rank: u32, reads: bool, writes: bool) -> Option<bool> {
    let prepared = comparison.prepared;
    let facts = &prepared.facts;
    let reply = &comparison.replies[rank as usize].payload;
    let read = |rank: u32, slot: u32, index: usize| {
        if reads {
            let held = (*prepared
                .block_index
                .get(rank as usize)?
                .get(slot as usize)?)?;
            in_memory_order(comparison, rank, slot, held.start + index)
        } else {
            comparison.block(rank, slot, index)
        }
    };
    // A write may fall on an earlier one.
    let mut written: BTreeMap<usize, Value> = BTreeMap::new();
    for (buffer, piece) in comparison.pieces(rank) {
        let mut place = buffer.place;
        if writes {
            place = place.ignoring_strides();
        }
        for index in 0..piece.len {
            let value = match piece.after {
                Origin::Keep => continue,
                Origin::Copy { rank, slot } => read(rank, slot, index)?.into(),
                Origin::Reduce { slot } => {
                    let members = facts.members.iter().zip(0..);
                    let elements: Option<Vec<Contribution>> = members
                        .map(|(rank, position)| {
                            Some(Contribution {
                                bits: read(*rank, slot, index)?,
                                factor: facts.purpose.factor.of(position),
                            })
                        })
                        .collect();
                    // Gaps hold any bits, so their sums round.
                    let divisor = facts.members.len() as u64;
                    comparison.combined(facts.purpose.reduce?, divisor, &elements?, !reads)?
                }
            };
            written.insert(place.range(piece.start + index).start, value);
        }
    }
    let mut unwritten = prepared.steps[rank as usize].payload.clone();
    for (start, value) in written {
        let range = start..start + comparison.size();
        let got = reply.get(range.clone())?;
        let both_nan = || comparison.is_nan(word(got)) && comparison.is_nan(value.bits);
        if !comparison.is(word(got), value) && !both_nan() {
            return Some(false);
        }
        unwritten[range].copy_from_slice(got);
    }
    Some(unwritten == *reply)
}
