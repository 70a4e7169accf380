//! Decides whether a check could fail at all: its data must distinguish a correct backend from the most common incorrect ones.
//!
//! In: a prepared check. Out: the first alternative its data cannot tell from the right result. The alternatives are
//! identity (nothing happens), no communication (own × W), rotation of the ranks, another root, and elements reversed or
//! shifted. Exempt, because no data could distinguish them:
//!
//! - tensors without elements, barriers and objects (those are compared by other means);
//! - identity, own × W, rotation and other roots in a group of one;
//! - reversal and shifts within fewer than two elements;
//! - rotation of the destinations where an expanded tensor holds the same for each;
//! - alternatives without meaning for an op (rotation of the ranks in an `all_reduce` gives the same result).

use serde_json::Value;

use super::Prepared;
use super::bug_model::BugModel;
use super::comparison::{Comparison, ElementRef};
use super::rank_plan::{Fill, Origin, Role};
use allranks_model::axes::Extent;
use allranks_model::dtype::DTypeKind;
use allranks_model::names::WorldSize;
use allranks_model::op::Op;
use allranks_model::op_check::OpCheck;
use allranks_protocol::Call;

/// Number of elements of one contribution that are examined; data do not depend on how many follow.
const ENOUGH: u64 = 4096;

/// Attempts at data that distinguish every alternative.
const ATTEMPTS: u32 = 64;

/// Why a check proves nothing, if so: the first alternative that its data cannot distinguish from the right result.
///
/// Contributions of more than 4096 elements are judged by their first 4096: an element's value depends on its index and
/// not on how many follow, so whatever the beginning tells apart the whole does, too.
/// A check without an expected value proves nothing either.
#[must_use]
pub fn vacuous(check: &OpCheck, world_size: WorldSize, seed: u64) -> Option<String> {
    let prepared = match check.extent {
        Extent::Flat(numel) if numel > ENOUGH => {
            let beginning = OpCheck {
                extent: Extent::Flat(ENOUGH),
                ..check.clone()
            };
            Prepared::new(&beginning, world_size, seed)
        }
        _ => Prepared::new(check, world_size, seed),
    };
    match prepared {
        Ok(prepared) => prepared.collision(Breadth::SomeRank),
        Err(reason) => Some(reason.to_string()),
    }
}

/// Where an alternative must differ from the right result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Breadth {
    /// On some rank: otherwise the check is vacuous.
    SomeRank,
    /// Identity and own × W on every rank: then each rank's verdict is evidence by itself. Not always possible: with one
    /// element, some rank's own value **is** the minimum.
    EveryRank,
}

impl Prepared {
    /// Returns the first attempt whose data distinguish every alternative on every rank; failing that, on some rank; failing
    /// that, the first. Large tensors need no second attempt.
    pub(super) fn best(attempt: impl Fn(u32) -> Self) -> Self {
        let first = attempt(0);
        let chance = match first.facts.purpose.dtype.kind() {
            DTypeKind::Bool => 64,
            DTypeKind::Float | DTypeKind::Signed | DTypeKind::Unsigned | DTypeKind::Complex => 8,
        };
        let longest = first
            .works
            .iter()
            .flat_map(|work| &work.buffers)
            .flat_map(|buffer| &buffer.pieces)
            .map(|piece| piece.len)
            .max();
        if longest.is_none_or(|len| len == 0 || len > chance) {
            return first;
        }
        let mut second = None;
        for salt in 0..ATTEMPTS {
            let attempt = attempt(salt);
            if attempt.collision(Breadth::EveryRank).is_none() {
                return attempt;
            }
            if second.is_none() && attempt.collision(Breadth::SomeRank).is_none() {
                second = Some(attempt);
            }
        }
        second.unwrap_or(first)
    }

    /// Returns the first alternative that the data do not distinguish from the right result.
    pub(super) fn collision(&self, breadth: Breadth) -> Option<String> {
        let comparison = Comparison {
            prepared: self,
            replies: &[],
        };
        if self.facts.overlaps {
            // It must be refused, whatever the data.
            return None;
        }
        let members = &self.facts.members;
        let ranks = members.len() as u32;
        if let Some(reason) = self.equal_objects() {
            return Some(reason);
        }
        let every = breadth == Breadth::EveryRank;
        let mut alternatives = vec![(BugModel::Before, "no call at all".to_owned(), every)];
        if ranks > 1 {
            alternatives.push((
                BugModel::OwnForAll,
                "own times world size".to_owned(),
                every,
            ));
        }
        for by in 1..ranks {
            let name = format!("a rotation of the ranks by {by}");
            alternatives.push((BugModel::SourceShift(by), name.clone(), false));
            alternatives.push((BugModel::DestinationShift(by), name, false));
        }
        for rank in members {
            alternatives.push((BugModel::Root(*rank), format!("root {rank}"), false));
        }
        let whole = false;
        alternatives.push((BugModel::Reversed { whole }, "reversal".to_owned(), false));
        for by in [1, -1] {
            let name = format!("a shift by {by}");
            alternatives.push((BugModel::Rotated { by, whole }, name, false));
        }
        alternatives
            .into_iter()
            .find(|(bug, _, every)| self.cannot_tell(comparison, *bug, *every))
            .map(|(_, name, _)| format!("the data do not distinguish {name} from the right result"))
    }

    /// Returns true if an alternative that has a meaning here leaves the right result, on all ranks or on one.
    fn cannot_tell(&self, comparison: Comparison<'_>, bug: BugModel, every: bool) -> bool {
        let mut meant = false;
        for rank in &self.facts.members {
            let mut meant_here = false;
            // Whole pieces are left out at once: most alternatives have no meaning for most ops.
            let pieces = comparison.pieces(*rank).map(|(buffer, piece)| ElementRef {
                rank: *rank,
                buffer,
                piece,
                index: 0,
            });
            let able = pieces.filter(|first| self.can_differ(bug, first));
            let mut elements = able.flat_map(|first| {
                (0..first.piece.len).map(move |index| ElementRef { index, ..first })
            });
            let differs = elements.any(|element| {
                let predicted = comparison.predict(bug, &element);
                meant_here |= predicted.is_some();
                predicted.is_some_and(|value| !comparison.is_right(&element, value.bits))
            });
            match (differs, every) {
                (true, false) => return false,
                (false, true) if meant_here => return true,
                _ => meant |= meant_here,
            }
        }
        meant && !every
    }

    /// Returns true if any data could make a difference in an element's piece. Depends on nothing else of the element.
    fn can_differ(&self, bug: BugModel, element: &ElementRef<'_>) -> bool {
        let own = match element.piece.after {
            Origin::Keep => return false,
            Origin::Copy { rank, slot } => {
                rank == element.rank && element.piece.before == Fill::Own(slot)
            }
            Origin::Reduce { .. } => self.facts.members.len() == 1,
        };
        match bug {
            BugModel::Before => !own || element.piece.before == Fill::Sentinel,
            BugModel::OwnForAll => {
                !own && !matches!(element.piece.after, Origin::Copy { rank, .. } if rank == element.rank)
            }
            BugModel::Root(root) => {
                element.buffer.role == Role::Both
                    && matches!(element.piece.after, Origin::Copy { rank, .. } if rank != root)
            }
            BugModel::Reversed { .. } | BugModel::Rotated { .. } => element.piece.len > 1,
            BugModel::SourceShift(_) => {
                self.facts.gathers() && matches!(element.piece.after, Origin::Copy { .. })
            }
            BugModel::DestinationShift(_) => {
                self.facts.slots_are_destinations() && !self.is_one_for_all(element)
            }
            _ => true,
        }
    }

    /// Returns true if the block that an element comes from lies in a tensor whose rows for all destinations overlap in memory.
    fn is_one_for_all(&self, element: &ElementRef<'_>) -> bool {
        let (rank, slot) = match element.piece.after {
            Origin::Keep => return false,
            Origin::Copy { rank, slot } => (rank, slot),
            Origin::Reduce { slot } => (self.facts.members[0], slot),
        };
        let held = self.block_index[rank as usize][slot as usize];
        let joint = matches!(
            self.facts.op,
            Op::ReduceScatterTensor | Op::CoalescedReduceScatterTensor | Op::AllToAllSingle
        );
        joint && held.is_some_and(|held| held.buffer.overlaps())
    }

    /// Objects other than `None` must differ from rank to rank.
    fn equal_objects(&self) -> Option<String> {
        let mut objects: Vec<Value> = Vec::new();
        for call in self.steps.iter().flat_map(|step| &step.step.calls) {
            match call {
                Call::AllGatherObject { object, .. } | Call::GatherObject { object, .. } => {
                    objects.push(object.clone());
                }
                Call::BroadcastObjectList { objects: list, .. } => {
                    objects.push(Value::Array(list.clone()));
                }
                Call::ScatterObjectList {
                    objects: Some(list),
                    ..
                } => objects.extend(list.iter().cloned()),
                _ => {}
            }
        }
        let equal =
            |(at, object): (usize, &Value)| !object.is_null() && objects[..at].contains(object);
        let equal = objects.iter().enumerate().any(equal);
        equal.then(|| "two ranks have equal objects".to_owned())
    }
}
