//! The comparison of every rank's answer with the expected result of the check.

use super::bug_model::BugModel;
use super::classify::classify;
use super::combine::Source;
use super::comparison::{Comparison, ElementRef};
use super::format::format_element;
use super::geometry::TensorGeometry;
use super::ignored_strides::is_written_in_some_order;
use super::partial::combines_some;
use super::payload::source;
use super::rank_plan::{Buffer, Origin, RankPlan, Role, Segment};
use super::rounding::Rounding;
use super::search::{crosses, holds_data_of};
use super::wrong::{Damage, Wrong};
use super::{Class, CompareMode, Mismatch, Prepared, RankReply};
use allranks_model::dtype::ReduceOp;
use allranks_model::names::Rank;
use allranks_model::record::Difference;

impl Prepared {
    /// Compares every rank's answer, all of whose calls returned, with the expected bytes.
    /// Gives the number of elements checked on each rank; for objects and barriers, of objects and of ranks.
    ///
    /// # Errors
    /// The mismatch, classified.
    #[expect(
        clippy::result_large_err,
        reason = "callers take the mismatch apart at once"
    )]
    pub fn verify(&self, replies: &[RankReply]) -> Result<Vec<u64>, Mismatch> {
        self.compare_all(replies).map_err(|mismatch| *mismatch)?;
        Ok(self.checked())
    }

    /// Compares what every rank holds after a call that raised with what it was sent: a call that is refused writes nothing.
    /// Gives the first difference; none if there is none, or if an answer has not the form of the step.
    #[must_use]
    pub fn written(&self, replies: &[RankReply]) -> Option<Mismatch> {
        self.is_well_formed(replies).ok()?;
        let comparison = Comparison {
            prepared: self,
            replies,
        };
        let written: Vec<Wrong<'_>> = (0..self.steps.len() as u32)
            .map(|rank| written_on(comparison, rank))
            .collect();
        if written.iter().all(Wrong::is_empty) {
            return None;
        }
        let class = Class::RefusedAndWritten;
        let note = self.what_was_written(comparison, &written);
        Some(*self.mismatch(comparison, &written, class, note.to_owned()))
    }

    /// Classifies a mismatch that is unclassified so far, if its data are those of another call. `others` are the candidates,
    /// each with its name in the sentence.
    #[must_use]
    pub fn named_by_others<'o>(
        &self,
        mismatch: Mismatch,
        replies: &[RankReply],
        others: impl IntoIterator<Item = (String, &'o Self)>,
    ) -> Mismatch {
        if mismatch.class != Class::Unclassified.name() || self.is_well_formed(replies).is_err() {
            return mismatch;
        }
        let comparison = Comparison {
            prepared: self,
            replies,
        };
        let elements: Vec<ElementRef<'_>> = (0..self.steps.len() as u32)
            .flat_map(|rank| wrong_on(comparison, rank).elements)
            .collect();
        let class_of = |other: &Self| {
            let other = Comparison {
                prepared: other,
                replies: &[],
            };
            if holds_data_of(comparison, &elements, other) {
                Some(Class::DataOfAnotherCall)
            } else {
                crosses(comparison, &elements, other).then_some(Class::CallsCrossed)
            }
        };
        let mut named = others
            .into_iter()
            .filter_map(|(which, other)| Some((class_of(other)?, which)));
        match named.next() {
            None => mismatch,
            Some((class, which)) => Mismatch {
                class: class.name().to_owned(),
                sentence: format!("{}: {which}", class.sentence()),
                ..mismatch
            },
        }
    }

    /// Returns a clause on what the results hold after a refusal, if all elements that were written hold the same kind of data.
    /// Ranks without a result are left out.
    fn what_was_written(&self, comparison: Comparison<'_>, written: &[Wrong<'_>]) -> &'static str {
        let results = || {
            let elements = written.iter().flat_map(|wrong| &wrong.elements);
            elements.filter(|element| matches!(element.piece.after, Origin::Reduce { .. }))
        };
        let is_damaged = written.iter().any(|wrong| wrong.damage.first.is_some());
        let others = written
            .iter()
            .flat_map(|wrong| &wrong.elements)
            .any(|element| {
                !matches!(element.piece.after, Origin::Reduce { .. })
                    && !matches!(element.buffer.role, Role::NonRoot | Role::Unspecified)
            });
        if is_damaged || others || results().next().is_none() {
            return "";
        }
        let own = |element: &ElementRef<'_>| match element.piece.after {
            Origin::Reduce { slot } => {
                comparison.block(element.rank, slot, element.index) == Some(comparison.got(element))
            }
            Origin::Keep | Origin::Copy { .. } => false,
        };
        let sum = BugModel::Operator(ReduceOp::Sum, 1);
        let summed = |element: &ElementRef<'_>| {
            comparison
                .predict(sum, element)
                .is_some_and(|value| comparison.is(comparison.got(element), value))
        };
        let partial = |element: &ElementRef<'_>| match element.piece.after {
            Origin::Reduce { slot } => combines_some(comparison, element, slot, ReduceOp::Sum),
            Origin::Keep | Origin::Copy { .. } => false,
        };
        if results().all(own) {
            "; outputs hold the rank's own contribution"
        } else if results().all(summed) {
            "; outputs hold the sum"
        } else if results().all(partial) {
            "; outputs hold partial sums"
        } else {
            ""
        }
    }

    fn compare_all(&self, replies: &[RankReply]) -> Result<(), Box<Mismatch>> {
        self.is_well_formed(replies)?;
        let comparison = Comparison {
            prepared: self,
            replies,
        };
        if self.facts.overlaps {
            let class = match is_written_in_some_order(comparison) {
                true => Class::OverlappingOutputAccepted,
                false => Class::OverlappingOutputGarbled,
            };
            return Err(Box::new(Mismatch {
                class: class.name().to_owned(),
                sentence: class.sentence(),
                difference: None,
            }));
        }
        if !(0..)
            .zip(replies)
            .all(|(rank, reply)| self.agrees(rank, &reply.payload))
        {
            self.compare(comparison)?;
            self.compare_rounding(comparison)?;
        }
        self.compare_answers(replies)?;
        self.compare_times(replies)?;
        match self.broken_promise(replies) {
            Some(class) => Err(Box::new(Mismatch {
                class: class.name().to_owned(),
                sentence: class.sentence(),
                difference: None,
            })),
            None => Ok(()),
        }
    }

    /// Looks at how results within their bounds were rounded.
    fn compare_rounding(&self, comparison: Comparison<'_>) -> Result<(), Box<Mismatch>> {
        let (class, note) = match comparison.rounding_of_results() {
            None | Some(Rounding::Nearest | Rounding::Stochastic) => return Ok(()),
            Some(Rounding::OneSided(side)) => (Class::OneSidedRounding(side), ""),
            Some(Rounding::Other) => {
                let note = ", where a single rounding gives the nearest number";
                (Class::OffByOneUlp, note)
            }
        };
        let otherwise = |rank| Wrong {
            elements: comparison
                .elements(rank)
                .filter(|element| comparison.is_rounded_otherwise(element))
                .collect(),
            damage: Damage::default(),
        };
        let wrong: Vec<Wrong<'_>> = (0..self.steps.len() as u32).map(otherwise).collect();
        Err(self.mismatch(comparison, &wrong, class, note.to_owned()))
    }

    /// Returns where the bytes are that a piece must hold in the end.
    pub(super) fn source(&self, rank: u32, buffer: &Buffer, piece: &Segment) -> Source<'_> {
        let payload = |rank: u32| self.steps[rank as usize].payload.as_slice();
        source(
            payload,
            &self.block_index,
            &self.results,
            rank,
            buffer,
            piece,
        )
    }

    /// Returns true if all bytes of an answer are the expected ones.
    fn agrees(&self, rank: u32, reply: &[u8]) -> bool {
        let sent = &self.steps[rank as usize].payload;
        self.works[rank as usize].buffers.iter().all(|buffer| {
            let (start, len) = buffer.storage;
            let Some(tensor) = buffer.place.dense_range(buffer.len) else {
                return self.storage(rank, buffer) == reply[start..start + len];
            };
            reply[start..tensor.start] == sent[start..tensor.start]
                && reply[tensor.end..start + len] == sent[tensor.end..start + len]
                && (buffer.role == Role::Unspecified
                    || buffer.pieces.iter().all(|piece| {
                        let (bytes, from) = self.source(rank, buffer, piece);
                        let place = buffer.place.from(piece.start);
                        match (from.dense_range(piece.len), place.dense_range(piece.len)) {
                            (Some(from), Some(place)) => reply[place] == bytes[from],
                            _ => (0..piece.len)
                                .all(|index| reply[place.range(index)] == bytes[from.range(index)]),
                        }
                    }))
        })
    }

    /// Returns what a whole storage must hold in the end.
    fn storage(&self, rank: u32, buffer: &Buffer) -> Vec<u8> {
        let (start, len) = buffer.storage;
        let mut storage = self.steps[rank as usize].payload[start..start + len].to_vec();
        for piece in &buffer.pieces {
            let (bytes, from) = self.source(rank, buffer, piece);
            let place = TensorGeometry {
                storage: 0,
                ..buffer.place.from(piece.start)
            };
            for index in 0..piece.len {
                storage[place.range(index)].copy_from_slice(&bytes[from.range(index)]);
            }
        }
        storage
    }

    /// Elements checked on each rank by [`Self::verify`].
    #[must_use]
    pub fn checked(&self) -> Vec<u64> {
        let count = |(rank, work): (usize, &RankPlan)| match work.elements() {
            0 if self.facts.op.is_barrier() => self.facts.members.len() as u64,
            0 => self.works[rank]
                .answers
                .iter()
                .map(|(_, answer)| answer.count())
                .sum(),
            elements => elements,
        };
        self.works.iter().enumerate().map(count).collect()
    }

    pub(super) fn is_well_formed(&self, replies: &[RankReply]) -> Result<(), Box<Mismatch>> {
        let malformed = |sentence: String| {
            Box::new(Mismatch {
                class: Class::MalformedReply.name().to_owned(),
                sentence,
                difference: None,
            })
        };
        if replies.len() != self.steps.len() {
            let (got, of) = (replies.len(), self.steps.len());
            return Err(malformed(format!("{got} ranks of {of} answered")));
        }
        for (rank, (reply, step)) in replies.iter().zip(&self.steps).enumerate() {
            if reply.payload.len() != step.payload.len() {
                let (got, of) = (reply.payload.len(), step.payload.len());
                return Err(malformed(format!(
                    "rank {rank} sent back {got} bytes of {of}"
                )));
            }
            if reply.result.calls.len() != step.step.calls.len() {
                let (got, of) = (reply.result.calls.len(), step.step.calls.len());
                return Err(malformed(format!(
                    "rank {rank} answered for {got} calls of {of}"
                )));
            }
        }
        Ok(())
    }

    fn compare(&self, comparison: Comparison<'_>) -> Result<(), Box<Mismatch>> {
        let wrong: Vec<Wrong<'_>> = (0..self.steps.len() as u32)
            .map(|rank| wrong_on(comparison, rank))
            .collect();
        if wrong.iter().all(Wrong::is_empty) {
            let one = disagreement(comparison).map(|element| (element, Class::RanksDisagree));
            let one = one.or_else(|| Some((flaky(comparison)?, Class::NanDependsOnRank)));
            return one.map_or(Ok(()), |(element, class)| {
                let mut wrong = wrong;
                wrong[element.rank as usize].elements.push(element);
                Err(self.mismatch(comparison, &wrong, class, String::new()))
            });
        }
        let (class, note) = classify(comparison, &wrong);
        // Whichever of the numbers came out, it came out for every rank.
        if class == Class::NanDependsOnRank
            && let Some(element) = disagreement(comparison)
        {
            let mut wrong = vec![Wrong::default(); wrong.len()];
            wrong[element.rank as usize].elements.push(element);
            return Err(self.mismatch(comparison, &wrong, Class::RanksDisagree, String::new()));
        }
        Err(self.mismatch(comparison, &wrong, class, note))
    }

    fn mismatch(
        &self,
        comparison: Comparison<'_>,
        wrong: &[Wrong<'_>],
        class: Class,
        note: String,
    ) -> Box<Mismatch> {
        let ranks: Vec<Rank> = (0_u32..)
            .zip(wrong)
            .filter(|(_, wrong)| !wrong.is_empty())
            .map(|(rank, _)| Rank(rank))
            .collect();
        let mut sentence = class.sentence() + &note;
        let voters = self.facts.members.len();
        if let [only] = *ranks
            && voters > 1
        {
            sentence += &format!(" (on rank {only} only)");
        }
        let difference = ranks.first().map(|rank| {
            let first = &wrong[rank.index()];
            let (buffer, index, expected, actual) =
                match (first.elements.first(), first.damage.first) {
                    (Some(element), _) => (
                        element.buffer.label(),
                        (element.piece.start + element.index) as u64,
                        self.formatted(self.reference(comparison, element, class)),
                        self.formatted(comparison.got(element)),
                    ),
                    (None, Some((at, expected, actual))) => (
                        "guard".to_owned(),
                        at as u64,
                        format!("{expected:#04x}"),
                        format!("{actual:#04x}"),
                    ),
                    (None, None) => unreachable!("a wrong rank has something wrong"),
                };
            let count = |wrong: &Wrong<'_>| {
                let Damage {
                    before,
                    after,
                    between,
                    ..
                } = wrong.damage;
                let bytes = (before + after + between) as u64;
                (wrong.elements.len() as u64) + bytes.div_ceil(comparison.size() as u64)
            };
            Difference {
                buffer,
                rank: *rank,
                index,
                expected,
                actual,
                wrong: wrong.iter().map(count).sum(),
                of: self.checked().iter().sum(),
                ranks: ranks.clone(),
            }
        });
        Box::new(Mismatch {
            class: class.name().to_owned(),
            sentence,
            difference,
        })
    }

    /// Returns what an element is compared with: where ranks disagree, the first rank's; after a refusal, what it was.
    fn reference(
        &self,
        comparison: Comparison<'_>,
        element: &ElementRef<'_>,
        class: Class,
    ) -> u128 {
        let first = self.facts.members[0];
        match class {
            Class::RanksDisagree => comparison
                .elements(first)
                .find(|other| {
                    other.piece.after == element.piece.after && other.index == element.index
                })
                .map_or_else(
                    || comparison.expected(element),
                    |other| comparison.got(&other),
                ),
            Class::RefusedAndWritten => comparison.before(element),
            _ => comparison.expected(element),
        }
    }

    fn formatted(&self, bits: u128) -> String {
        let dtype = self.facts.purpose.dtype;
        format_element(dtype, &bits.to_le_bytes()[..dtype.size()])
    }
}

/// Returns every wrong element of a rank, and the damage around its tensors.
fn wrong_on<'a>(comparison: Comparison<'a>, rank: u32) -> Wrong<'a> {
    let reply = &comparison.replies[rank as usize].payload;
    if comparison.prepared.agrees(rank, reply) {
        return Wrong::default();
    }
    let elements = comparison
        .elements(rank)
        .filter(|element| !comparison.is_right(element, comparison.got(element)))
        .collect();
    Wrong {
        elements,
        damage: damage_on(comparison, rank),
    }
}

/// Returns every element of a rank that is not as it was sent, and the damage around its tensors.
fn written_on(comparison: Comparison<'_>, rank: u32) -> Wrong<'_> {
    let reply = &comparison.replies[rank as usize].payload;
    if *reply == comparison.prepared.steps[rank as usize].payload {
        return Wrong::default();
    }
    Wrong {
        elements: comparison
            .elements(rank)
            .filter(|element| comparison.got(element) != comparison.before(element))
            .collect(),
        damage: damage_on(comparison, rank),
    }
}

/// Returns the bytes of a rank outside its tensors that are not as they were.
fn damage_on(comparison: Comparison<'_>, rank: u32) -> Damage {
    let reply = &comparison.replies[rank as usize].payload;
    let sent = &comparison.prepared.steps[rank as usize].payload;
    let mut damage = Damage::default();
    for buffer in &comparison.prepared.works[rank as usize].buffers {
        let (start, len) = buffer.storage;
        let size = buffer.place.size;
        let mut covered = vec![false; len / size];
        for index in 0..buffer.len {
            covered[buffer.place.element(index)] = true;
        }
        let first = covered.iter().position(|covered| *covered);
        let last = covered.iter().rposition(|covered| *covered);
        // A tensor without elements has all its guard behind it.
        let (first, last) = (first.unwrap_or(0), last.unwrap_or(0));
        for at in 0..len {
            let element = at / size;
            if covered[element] || reply[start + at] == sent[start + at] {
                continue;
            }
            match element {
                _ if element < first => damage.before += 1,
                _ if element > last || buffer.len == 0 => damage.after += 1,
                _ => damage.between += 1,
            }
            let bytes = (at, sent[start + at], reply[start + at]);
            damage.first = damage.first.or(Some(bytes));
        }
    }
    damage
}

/// Finds, for the modes `Bounded` and `Special`, the first element that is right everywhere and yet not the same everywhere.
fn disagreement(comparison: Comparison<'_>) -> Option<ElementRef<'_>> {
    let facts = &comparison.prepared.facts;
    let shared = |element: &ElementRef<'_>| {
        element.buffer.role == Role::Both && matches!(element.piece.after, Origin::Reduce { .. })
    };
    let (first, rest) = facts.members.split_first()?;
    // Only an all_reduce gives one result to several ranks; elsewhere the slots differ.
    match facts.purpose.mode {
        CompareMode::Exact | CompareMode::Payload => return None,
        CompareMode::Bounded | CompareMode::Special => {}
    }
    let differ = |a: &ElementRef<'_>, b: &ElementRef<'_>| {
        let (a, b) = (comparison.got(a), comparison.got(b));
        // IEEE 754 says nothing of a NaN's bits.
        let both_nan = facts.purpose.mode == CompareMode::Special
            && comparison.is_nan(a)
            && comparison.is_nan(b);
        a != b && !both_nan
    };
    rest.iter().find_map(|rank| {
        let theirs = comparison.elements(*first).filter(shared);
        theirs
            .zip(comparison.elements(*rank).filter(shared))
            .find(|(a, b)| a.piece.after == b.piece.after && differ(a, b))
            .map(|(_, element)| element)
    })
}

/// Returns the first element at which MIN or MAX treats NaN differently than at an earlier one: the result of a NaN and numbers
/// may be a NaN or a number, but must be the same everywhere.
fn flaky(comparison: Comparison<'_>) -> Option<ElementRef<'_>> {
    let facts = &comparison.prepared.facts;
    let compares = matches!(facts.purpose.reduce, Some(ReduceOp::Min | ReduceOp::Max));
    if facts.purpose.mode != CompareMode::Special || !compares {
        return None;
    }
    let mixed = |element: &ElementRef<'_>| {
        let Origin::Reduce { slot } = element.piece.after else {
            return false;
        };
        let elements = comparison
            .contributions(slot, element.index)
            .unwrap_or_default();
        let nans = elements
            .iter()
            .filter(|element| comparison.is_nan(element.bits));
        (1..elements.len()).contains(&nans.count())
    };
    let members = facts.members.iter();
    let mut elements = members
        .flat_map(|rank| comparison.elements(*rank))
        .filter(|element| element.buffer.role != Role::Unspecified && mixed(element));
    let first = elements.next()?;
    let seen = comparison.is_nan(comparison.got(&first));
    elements.find(|element| comparison.is_nan(comparison.got(element)) != seen)
}
