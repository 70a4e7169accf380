//! Models of known bugs: for each, the element that it would leave at each place.
//!
//! A hypothesis changes one part of the check's description (which blocks are combined, with which operator, where a block comes
//! from, where an element goes) and predicts elements from it. It explains an answer if the prediction is what came back on
//! every wrong rank.

use super::comparison::{Comparison, Contribution, ElementRef, Value};
use super::format::Narrow;
use super::rank_plan::{Fill, Origin};
use super::{Class, CompareMode, Facts};
use allranks_model::dtype::ReduceOp;
use allranks_model::op::Op;

/// The one deviation from the right behaviour that a hypothesis assumes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum BugModel {
    /// Nothing happens.
    Before,
    /// Every contribution is this rank's own.
    OwnForAll,
    /// Another operator, another divisor.
    Operator(ReduceOp, u64),
    /// A member, by position, contributes nothing.
    Without(u32),
    /// A member, by position, contributes twice.
    Twice(u32),
    /// Every rank leaves out its own contribution.
    WithoutOwn,
    /// The rank's own contribution, as it is.
    OwnOnly,
    /// The first member's factor counts for all.
    FirstFactor,
    /// Each factor is applied this many times.
    FactorTimes(u32),
    /// Blocks come from the member this many group ranks further on.
    SourceShift(u32),
    /// Blocks are those sent to the member this many group ranks further on.
    DestinationShift(u32),
    /// Blocks are those sent to the neighbour in a pair.
    DestinationPair,
    /// Blocks are those sent to the first member.
    DestinationFirst,
    /// Another rank, global, is the root.
    Root(u32),
    /// All ranks of the world take part.
    World,
    /// Elements of a piece, or of a whole buffer, are rotated to the right.
    Rotated {
        /// By so many.
        by: i64,
        /// Over the whole buffer.
        whole: bool,
    },
    /// Elements of a piece, or of a whole buffer, are in reverse order.
    Reversed {
        /// Over the whole buffer.
        whole: bool,
    },
    /// Contributions are rounded to a narrower type: those of other ranks, and also the rank's own.
    Compressed {
        /// That type.
        to: Narrow,
        /// Also the rank's own.
        own: bool,
    },
    /// Everything is zero.
    Zero,
}

/// How far rotations of elements are searched for.
const SHIFTS: i64 = 8;

/// Returns every hypothesis worth testing on an op, most telling first.
pub(super) fn hypotheses(facts: &Facts, world: u32) -> Vec<(Class, BugModel)> {
    let ranks = facts.members.len() as u32;
    let mut list = Vec::new();
    // Before identity: a root that got nothing looks like one that did nothing.
    if let Some(root) = facts.root {
        let others = (0..ranks).filter(|position| *position != root);
        list.extend(others.map(|position| {
            let rank = facts.members[position as usize];
            let class = match position {
                0 => Class::RootIgnored,
                _ => Class::WrongRoot(rank),
            };
            (class, BugModel::Root(rank))
        }));
    }
    list.push((Class::NoOp, BugModel::Before));
    match facts.purpose.reduce {
        Some(ReduceOp::Avg) => list.extend([
            (Class::AvgDidSum, BugModel::Operator(ReduceOp::Sum, 1)),
            (
                Class::AvgDividedTwice,
                BugModel::Operator(ReduceOp::Avg, u64::from(ranks).pow(2)),
            ),
            (
                Class::AvgDividedByWorld,
                BugModel::Operator(ReduceOp::Avg, u64::from(world)),
            ),
        ]),
        Some(ReduceOp::Sum) => {
            list.push((
                Class::SumDidAvg,
                BugModel::Operator(ReduceOp::Avg, ranks.into()),
            ));
        }
        _ => {}
    }
    list.push((Class::OwnTimesWorld, BugModel::OwnForAll));
    let name = |position: u32| facts.members[position as usize];
    list.extend((0..ranks).map(|rank| (Class::RankDropped(name(rank)), BugModel::Without(rank))));
    list.extend((0..ranks).map(|rank| (Class::RankDoubled(name(rank)), BugModel::Twice(rank))));
    if ranks > 1 {
        list.push((Class::OwnDropped, BugModel::WithoutOwn));
        list.push((Class::OwnOnly, BugModel::OwnOnly));
    }
    if facts.purpose.reduce == Some(ReduceOp::PremulSum) {
        list.push((Class::FactorOfAnotherRank, BugModel::FirstFactor));
        let hops = (2..ranks.max(3))
            .map(|times| (Class::FactorRepeated(times), BugModel::FactorTimes(times)));
        list.extend(hops);
    }
    if facts.purpose.reduce == Some(ReduceOp::Avg) {
        let others = (2..=2 * u64::from(ranks)).filter(|divisor| *divisor != u64::from(ranks));
        list.extend(others.map(|divisor| {
            let bug = BugModel::Operator(ReduceOp::Avg, divisor);
            (Class::AvgDividedBy(divisor), bug)
        }));
    }
    list.push((Class::AllPeersGotSlice0, BugModel::DestinationFirst));
    list.extend((1..ranks).map(|by| (Class::ChunkShifted(by), BugModel::SourceShift(by))));
    list.extend((1..ranks).map(|by| (Class::ChunkShifted(by), BugModel::DestinationShift(by))));
    list.push((Class::DestinationSwapped, BugModel::DestinationPair));
    if ranks < world {
        list.push((Class::GotWorldInsteadOfGroup, BugModel::World));
        let outsiders = (0..world).filter(|rank| !facts.members.contains(rank));
        list.extend(outsiders.map(|rank| (Class::WrongRoot(rank), BugModel::Root(rank))));
    }
    for whole in [false, true] {
        list.push((Class::OrderReversed, BugModel::Reversed { whole }));
    }
    for by in (1..=SHIFTS).flat_map(|by| [by, -by]) {
        for whole in [false, true] {
            list.push((Class::ElementsShifted(by), BugModel::Rotated { by, whole }));
        }
    }
    if let Some(right) = facts.purpose.reduce {
        list.extend(
            ReduceOp::ALL
                .iter()
                .copied()
                .filter(|op| *op != right && op.is_defined_for(facts.purpose.dtype))
                .map(|op| (Class::DidOp(op), BugModel::Operator(op, ranks.into()))),
        );
    }
    for to in Narrow::ALL.iter().copied() {
        for own in [true, false] {
            let class = Class::CompressedInputs(to.name());
            list.push((class, BugModel::Compressed { to, own }));
        }
    }
    list.push((Class::ZeroOutput, BugModel::Zero));
    list
}

impl Facts {
    /// Returns true if a slot identifies the destination of a block: `slot = item * ranks + destination`.
    pub(super) fn slots_are_destinations(&self) -> bool {
        matches!(
            self.op,
            Op::Scatter
                | Op::ReduceScatter
                | Op::ReduceScatterTensor
                | Op::CoalescedReduceScatterTensor
                | Op::AllToAll
                | Op::AllToAllSingle
                | Op::SendRecv
                | Op::IsendIrecv
                | Op::BatchIsendIrecv
        )
    }

    /// Returns the slot of the same item for another destination.
    fn redirect(&self, slot: u32, to: impl Fn(u32) -> u32) -> Option<u32> {
        let ranks = self.members.len() as u32;
        let to = to(slot % ranks);
        (self.slots_are_destinations() && to < ranks).then(|| slot / ranks * ranks + to)
    }

    fn position(&self, rank: u32) -> Option<u32> {
        let found = self.members.iter().position(|member| *member == rank);
        found.map(|position| position as u32)
    }

    /// Returns true if blocks of several ranks arrive side by side.
    pub(super) fn gathers(&self) -> bool {
        matches!(
            self.op,
            Op::AllGather
                | Op::AllGatherCoalesced
                | Op::AllGatherIntoTensor
                | Op::CoalescedAllGatherIntoTensor
                | Op::Gather
                | Op::AllToAll
                | Op::AllToAllSingle
        )
    }
}

impl<'a> Comparison<'a> {
    fn facts(self) -> &'a Facts {
        &self.prepared.facts
    }

    /// Predicts an element under a bug; `None` where the bug has no meaning for this op and element.
    pub(super) fn predict(self, bug: BugModel, element: &ElementRef<'_>) -> Option<Value> {
        match bug {
            BugModel::Before => return Some(self.before(element).into()),
            BugModel::Zero => return (element.piece.after != Origin::Keep).then(|| 0.into()),
            BugModel::Root(root) => return self.rooted(root, element),
            BugModel::Rotated { by, whole } => {
                return self.moved(element, whole, |index, len| {
                    (index as i64 - by).rem_euclid(len as i64) as usize
                });
            }
            BugModel::Reversed { whole } => {
                return self.moved(element, whole, |index, len| len - 1 - index);
            }
            BugModel::OwnForAll
            | BugModel::Operator(..)
            | BugModel::Without(_)
            | BugModel::Twice(_)
            | BugModel::WithoutOwn
            | BugModel::OwnOnly
            | BugModel::FirstFactor
            | BugModel::FactorTimes(_)
            | BugModel::SourceShift(_)
            | BugModel::DestinationShift(_)
            | BugModel::DestinationPair
            | BugModel::DestinationFirst
            | BugModel::World
            | BugModel::Compressed { .. } => {}
        }
        match element.piece.after {
            Origin::Keep => Some(self.before(element).into()),
            Origin::Copy { rank, slot } => self.predict_copy(bug, rank, slot, element),
            Origin::Reduce { slot } => self.predict_reduction(bug, slot, element),
        }
    }

    fn predict_copy(
        self,
        bug: BugModel,
        rank: u32,
        slot: u32,
        element: &ElementRef<'_>,
    ) -> Option<Value> {
        let facts = self.facts();
        let ranks = facts.members.len() as u32;
        let from = facts.position(rank)?;
        let bits = match bug {
            BugModel::OwnForAll if facts.gathers() => {
                let slot = facts.redirect(slot, |_| from).unwrap_or(slot);
                self.block(element.rank, slot, element.index)
            }
            BugModel::Without(dropped) if facts.gathers() && from == dropped => {
                Some(self.before(element))
            }
            BugModel::Without(_) if facts.gathers() => Some(self.expected(element)),
            BugModel::SourceShift(by) if facts.gathers() => {
                let rank = facts.members[((from + by) % ranks) as usize];
                self.block(rank, slot, element.index)
            }
            BugModel::DestinationShift(by) => {
                let slot = facts.redirect(slot, |to| (to + by) % ranks)?;
                self.block(rank, slot, element.index)
            }
            BugModel::DestinationPair => {
                self.block(rank, facts.redirect(slot, |to| to ^ 1)?, element.index)
            }
            BugModel::DestinationFirst => {
                self.block(rank, facts.redirect(slot, |_| 0)?, element.index)
            }
            BugModel::World if facts.gathers() => self.block(from, slot, element.index),
            _ => None,
        };
        bits.map(Value::from)
    }

    fn predict_reduction(
        self,
        bug: BugModel,
        slot: u32,
        element: &ElementRef<'_>,
    ) -> Option<Value> {
        let facts = self.facts();
        let op = facts.purpose.reduce?;
        let ranks = facts.members.len() as u32;
        let exact = matches!(
            facts.purpose.mode,
            CompareMode::Exact | CompareMode::Special
        );
        let all = |slot: u32| self.contributions(slot, element.index);
        let own = || {
            let position = facts.position(element.rank)? as usize;
            self.contribution(element.rank, position, slot, element.index)
        };
        let usual = |elements: &[Contribution], exact: bool| {
            self.combined(op, ranks.into(), elements, exact)
        };
        match bug {
            BugModel::OwnForAll => usual(&vec![own()?; ranks as usize], exact),
            BugModel::OwnOnly => Some(own()?.bits.into()),
            BugModel::Operator(op, divisor) => {
                let exact = exact && facts.purpose.reduce != Some(ReduceOp::Product);
                let designed = matches!(
                    (facts.purpose.reduce, op),
                    (Some(ReduceOp::Avg), ReduceOp::Sum | ReduceOp::Avg)
                ) && divisor.is_power_of_two();
                self.combined(op, divisor, &all(slot)?, exact && designed)
            }
            BugModel::Compressed { to, own } => {
                let me = facts.position(element.rank)? as usize;
                let mut elements = all(slot)?;
                for (position, element) in elements.iter_mut().enumerate() {
                    if own || position != me {
                        element.bits = to.rounded(facts.purpose.dtype, element.bits)?;
                    }
                }
                usual(&elements, false)
            }
            BugModel::Without(dropped) => {
                let mut elements = all(slot)?;
                elements.remove(dropped as usize);
                usual(&elements, exact)
            }
            BugModel::WithoutOwn => {
                let mut elements = all(slot)?;
                elements.remove(facts.position(element.rank)? as usize);
                usual(&elements, exact)
            }
            BugModel::FactorTimes(times) => {
                let mut elements = all(slot)?;
                elements
                    .iter_mut()
                    .for_each(|element| element.factor = element.factor.powi(times as i32));
                usual(&elements, false)
            }
            BugModel::FirstFactor => {
                let mut elements = all(slot)?;
                let factor = elements.first()?.factor;
                elements
                    .iter_mut()
                    .for_each(|element| element.factor = factor);
                usual(&elements, false)
            }
            BugModel::Twice(doubled) => {
                let mut elements = all(slot)?;
                elements.push(elements[doubled as usize]);
                usual(&elements, false)
            }
            BugModel::DestinationShift(by) => {
                usual(&all(facts.redirect(slot, |to| (to + by) % ranks)?)?, exact)
            }
            BugModel::DestinationPair => usual(&all(facts.redirect(slot, |to| to ^ 1)?)?, exact),
            BugModel::DestinationFirst => usual(&all(facts.redirect(slot, |_| 0)?)?, exact),
            BugModel::World => {
                let world = 0..self.prepared.steps.len() as u32;
                let mut elements = all(slot)?;
                for rank in world.filter(|rank| !facts.members.contains(rank)) {
                    let position = elements.len();
                    elements.push(self.contribution(rank, position, slot, element.index)?);
                }
                self.combined(op, elements.len() as u64, &elements, false)
            }
            _ => None,
        }
    }

    /// Predicts an element for another rank as the root; `None` for ops without a root.
    fn rooted(self, root: u32, element: &ElementRef<'_>) -> Option<Value> {
        let facts = self.facts();
        match (facts.op, element.piece.before) {
            (Op::Broadcast, Fill::Own(slot)) => {
                self.block(root, slot, element.index).map(Value::from)
            }
            (Op::Reduce, Fill::Own(slot)) if element.rank == root => {
                let elements = self.contributions(slot, element.index)?;
                let exact = matches!(
                    facts.purpose.mode,
                    CompareMode::Exact | CompareMode::Special
                );
                let divisor = facts.members.len() as u64;
                self.combined(facts.purpose.reduce?, divisor, &elements, exact)
            }
            (Op::Reduce, _) => Some(self.before(element).into()),
            _ => None,
        }
    }

    /// Predicts an element if the right elements were written to other indices.
    fn moved(
        self,
        element: &ElementRef<'_>,
        whole: bool,
        from: impl Fn(usize, usize) -> usize,
    ) -> Option<Value> {
        if element.piece.after == Origin::Keep {
            return Some(self.before(element).into());
        }
        if !whole {
            let index = from(element.index, element.piece.len);
            return Some(self.expected(&ElementRef { index, ..*element }).into());
        }
        let at = from(element.piece.start + element.index, element.buffer.len);
        let piece = element
            .buffer
            .pieces
            .iter()
            .find(|piece| (piece.start..piece.start + piece.len).contains(&at))?;
        let index = at - piece.start;
        let moved = ElementRef {
            piece,
            index,
            ..*element
        };
        Some(self.expected(&moved).into())
    }
}
