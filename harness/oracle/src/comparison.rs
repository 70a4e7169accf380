//! A check and its answers side by side, element by element: what was there, what must be there, what is there.

use super::combine::{Reduction, combine_one};
use super::format::{parts, precision};
use super::rank_plan::{Buffer, Origin, Role, Segment};
use super::{CompareMode, Prepared, Purpose, RankReply};
use allranks_model::axes::Values;
use allranks_model::dtype::{DTypeKind, ReduceOp};

/// An element of a rank's buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct ElementRef<'a> {
    /// The global rank that holds it.
    pub rank: u32,
    /// The buffer that it lies in.
    pub buffer: &'a Buffer,
    /// The piece of it.
    pub piece: &'a Segment,
    /// The element's index in the piece.
    pub index: usize,
}

/// A predicted element: its bits, and how far off each of its numbers may be and still be the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Value {
    /// Little-endian bits.
    pub bits: u128,
    /// Absolute tolerance; 0 asks for the same bits.
    pub slack: f64,
}

impl From<u128> for Value {
    fn from(bits: u128) -> Self {
        Self { bits, slack: 0.0 }
    }
}

/// A rank's contribution to an element of a result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Contribution {
    /// Little-endian bits.
    pub bits: u128,
    /// What `premul_sum` multiplies it by.
    pub factor: f64,
}

/// A check, side by side with the ranks' answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comparison<'a> {
    /// The check.
    pub prepared: &'a Prepared,
    /// What the ranks sent back.
    pub replies: &'a [RankReply],
}

impl<'a> Comparison<'a> {
    /// Iterates over the elements of a rank's buffers.
    pub(super) fn elements(self, rank: u32) -> impl Iterator<Item = ElementRef<'a>> {
        self.pieces(rank).flat_map(move |(buffer, piece)| {
            (0..piece.len).map(move |index| ElementRef {
                rank,
                buffer,
                piece,
                index,
            })
        })
    }

    /// Iterates over the pieces of a rank's buffers.
    pub(super) fn pieces(self, rank: u32) -> impl Iterator<Item = (&'a Buffer, &'a Segment)> {
        let buffers = &self.prepared.works[rank as usize].buffers;
        buffers
            .iter()
            .flat_map(|buffer| buffer.pieces.iter().map(move |piece| (buffer, piece)))
    }

    fn bytes<'b>(self, payload: &'b [u8], element: &ElementRef<'_>) -> &'b [u8] {
        &payload[element
            .buffer
            .place
            .range(element.piece.start + element.index)]
    }

    /// Returns the bits of an element before the calls.
    pub(super) fn before(self, element: &ElementRef<'_>) -> u128 {
        word(self.bytes(&self.prepared.steps[element.rank as usize].payload, element))
    }

    /// Returns the bits that an element must have after the calls.
    pub(super) fn expected(self, element: &ElementRef<'_>) -> u128 {
        let (bytes, place) = self
            .prepared
            .source(element.rank, element.buffer, element.piece);
        word(&bytes[place.range(element.index)])
    }

    /// Returns the bits that an element has after the calls.
    pub(super) fn got(self, element: &ElementRef<'_>) -> u128 {
        word(self.bytes(&self.replies[element.rank as usize].payload, element))
    }

    /// Returns an element of a rank's block, if there is such a block and it is long enough.
    pub(super) fn block(self, rank: u32, slot: u32, index: usize) -> Option<u128> {
        let block_index = self.prepared.block_index.get(rank as usize)?;
        let held = (*block_index.get(slot as usize)?)?;
        let payload = &self.prepared.steps[rank as usize].payload;
        (index < held.len).then(|| word(&payload[held.place().range(index)]))
    }

    /// Returns the members' contributions to a slot at an index, in group order.
    pub(super) fn contributions(self, slot: u32, index: usize) -> Option<Vec<Contribution>> {
        let members = self.prepared.facts.members.iter().zip(0..);
        members
            .map(|(rank, position)| self.contribution(*rank, position, slot, index))
            .collect()
    }

    /// Returns the contribution of a rank, as if it stood at a position of the group.
    pub(super) fn contribution(
        self,
        rank: u32,
        position: usize,
        slot: u32,
        index: usize,
    ) -> Option<Contribution> {
        Some(Contribution {
            bits: self.block(rank, slot, index)?,
            factor: self.prepared.facts.purpose.factor.of(position),
        })
    }

    /// Returns the combination of elements with any operator: exact where the data were made for it, otherwise with the slack
    /// that rounding in any order needs.
    pub(super) fn combined(
        self,
        op: ReduceOp,
        divisor: u64,
        elements: &[Contribution],
        exact: bool,
    ) -> Option<Value> {
        let Purpose { dtype, values, .. } = self.prepared.facts.purpose;
        if elements.is_empty() || !op.is_defined_for(dtype) {
            return None;
        }
        let bytes = self.list(elements);
        let factors: Vec<f64> = elements.iter().map(|element| element.factor).collect();
        let reduction = Reduction {
            dtype,
            op,
            divisor,
            factors: &factors,
            wide: values == Values::Random,
        };
        let bits = combine_one(reduction, &bytes);
        let rounds = matches!(
            op,
            ReduceOp::Sum | ReduceOp::Avg | ReduceOp::Product | ReduceOp::PremulSum
        );
        let slack = match precision(dtype) {
            Some(_) if exact || !rounds => 0.0,
            // Where one rounding is a few percent, the bound would take in everything.
            Some(bits_held) if bits_held <= 8 && values != Values::Random => {
                let unit = f64::powi(2.0, -(bits_held as i32));
                2.0 * unit * magnitude(self.numbers(bits))
            }
            Some(_) => self.rounding(op, divisor, elements, bits),
            None => 0.0,
        };
        Some(Value { bits, slack })
    }

    /// Returns how far a result of rounding arithmetic in any order may be from the exact one: with n roundings of unit u,
    /// `nu / (1 - nu)` times the sum of the magnitudes (Higham, Accuracy and Stability, section 4.2), and one rounding
    /// more for the result itself, and one for the expected result. Terms that are 0, and factors that are 1, round nothing.
    pub(super) fn rounding(
        self,
        op: ReduceOp,
        divisor: u64,
        elements: &[Contribution],
        bits: u128,
    ) -> f64 {
        let dtype = self.prepared.facts.purpose.dtype;
        let Some(precision) = precision(dtype) else {
            return 0.0;
        };
        let unit = f64::powi(2.0, -(precision as i32));
        let (mut total, mut count) = (0.0, 0);
        for element in elements {
            let weight = match op {
                ReduceOp::PremulSum => element.factor.abs(),
                _ => 1.0,
            };
            let magnitude = magnitude(self.numbers(element.bits));
            let neutral = if op == ReduceOp::Product { 1.0 } else { 0.0 };
            total += weight * magnitude;
            count += i32::from(magnitude != neutral);
        }
        let count = match op {
            // The sum is multiplied by a reciprocal that is rounded, or its terms are.
            ReduceOp::Avg => count + 1,
            // Each term is multiplied first.
            ReduceOp::PremulSum => count,
            _ => (count - 1).max(0),
        };
        let roundings = unit * f64::from(count);
        let gamma = roundings / (1.0 - roundings);
        let result = magnitude(self.numbers(bits));
        let of = match op {
            ReduceOp::Avg => total / divisor as f64,
            ReduceOp::Sum | ReduceOp::PremulSum => total,
            ReduceOp::Product => result,
            ReduceOp::Min | ReduceOp::Max | ReduceOp::Band | ReduceOp::Bor | ReduceOp::Bxor => {
                return 0.0;
            }
        };
        gamma * of + 2.0 * unit * result
    }

    pub(super) fn list(self, elements: &[Contribution]) -> Vec<u8> {
        let size = self.prepared.facts.purpose.dtype.size();
        elements
            .iter()
            .flat_map(|element| element.bits.to_le_bytes().into_iter().take(size))
            .collect()
    }

    /// Returns the numbers in an element.
    pub(super) fn numbers(self, bits: u128) -> (f64, Option<f64>) {
        parts(
            self.prepared.facts.purpose.dtype,
            &bits.to_le_bytes()[..self.size()],
        )
    }

    /// Returns the integer in an element.
    pub(super) fn whole(self, bits: u128) -> i128 {
        let unused = 128 - 8 * self.size() as u32;
        match self.prepared.facts.purpose.dtype.kind() {
            DTypeKind::Signed => (bits << unused) as i128 >> unused,
            DTypeKind::Unsigned | DTypeKind::Bool | DTypeKind::Float | DTypeKind::Complex => {
                bits as i128
            }
        }
    }

    /// Returns the size of an element in bytes.
    pub(super) fn size(self) -> usize {
        self.prepared.facts.purpose.dtype.size()
    }

    /// Returns true if an element is what was predicted.
    pub(super) fn is(self, got: u128, value: Value) -> bool {
        let special = self.prepared.facts.purpose.mode == CompareMode::Special;
        if got == value.bits || special && self.is_nan(got) && self.is_nan(value.bits) {
            return true;
        }
        if value.slack == 0.0 || !value.slack.is_finite() {
            return false;
        }
        let near = |a: f64, b: f64| (a - b).abs() <= value.slack;
        match (self.numbers(got), self.numbers(value.bits)) {
            ((a, None), (b, None)) => near(a, b),
            ((a, Some(c)), (b, Some(d))) => near(a, b) && near(c, d),
            _ => false,
        }
    }

    /// Returns true if an element is right: the expected bits or, in the bounded mode, as near as rounding in any order allows.
    pub(super) fn is_right(self, element: &ElementRef<'_>, got: u128) -> bool {
        let expected = self.expected(element);
        if got == expected || element.buffer.role == Role::Unspecified {
            return true;
        }
        let facts = &self.prepared.facts;
        let (Origin::Reduce { slot }, Some(op)) = (element.piece.after, facts.purpose.reduce)
        else {
            return false;
        };
        let Some(elements) = self.contributions(slot, element.index) else {
            return false;
        };
        match facts.purpose.mode {
            CompareMode::Exact | CompareMode::Payload => return false,
            CompareMode::Special => match self.is_open(op, &elements, expected, got) {
                Some(right) => return right,
                None if op != ReduceOp::Avg => return false,
                // Ordinary values among the special ones are averaged with roundings.
                None => {}
            },
            // Exact, except for the signs of zeros.
            CompareMode::Bounded if op == ReduceOp::Product && self.numbers(got).1.is_some() => {
                return self.numbers(got) == self.numbers(expected);
            }
            CompareMode::Bounded => {}
        }
        let slack = self.rounding(op, facts.members.len() as u64, &elements, expected);
        self.is(
            got,
            Value {
                bits: expected,
                slack,
            },
        )
    }
}

/// What IEEE 754 leaves open.
impl Comparison<'_> {
    /// Returns true if `got` is one of the values allowed in place of the expected one; `None` if no other is allowed.
    fn is_open(
        self,
        op: ReduceOp,
        elements: &[Contribution],
        expected: u128,
        got: u128,
    ) -> Option<bool> {
        let compares = matches!(op, ReduceOp::Min | ReduceOp::Max);
        if !self.is_nan(expected) {
            // -0.0 and 0.0 are equal: minNum and maxNum may give either.
            let zeros = |bits: u128| self.numbers(bits).0 == 0.0;
            let either = |element: &Contribution| zeros(element.bits) && element.bits != expected;
            let open = compares && zeros(expected) && elements.iter().any(either);
            return open.then(|| zeros(got));
        }
        if self.is_nan(got) {
            return Some(true);
        }
        // The numbers without the NaN, if there are any.
        let numbers: Vec<Contribution> = elements
            .iter()
            .filter(|element| !self.is_nan(element.bits))
            .copied()
            .collect();
        Some(
            compares
                && self
                    .combined(op, 1, &numbers, true)
                    .is_some_and(|value| value.bits == got),
        )
    }

    /// Returns true if an element is, or has, a NaN.
    pub(super) fn is_nan(self, bits: u128) -> bool {
        let (re, im) = self.numbers(bits);
        re.is_nan() || im.is_some_and(f64::is_nan)
    }
}

fn magnitude((re, im): (f64, Option<f64>)) -> f64 {
    re.abs().max(im.map_or(0.0, f64::abs))
}

/// Returns an element's bytes as bits.
pub(super) fn word(bytes: &[u8]) -> u128 {
    let mut word = [0; 16];
    word[..bytes.len()].copy_from_slice(bytes);
    u128::from_le_bytes(word)
}
