//! A check described tensor by tensor, for `explain` and `repro`: what each rank holds before its calls, what
//! it must hold and be answered after them.
//!
//! In: a [`Prepared`]. Out: [`ExpectedTensor`]s, in the order of the step's storages. Nothing is decided here; the bytes and
//! bounds are those that [`Prepared::verify`] compares with.

use super::comparison::{Comparison, ElementRef};
use super::geometry::Form;
use super::rank_plan::{Buffer, Fill, Origin, Role, Segment};
use super::{CompareMode, Prepared};
use allranks_model::axes::Values;
use allranks_model::dtype::{DTypeKind, ReduceOp};
use allranks_model::names::Rank;
use allranks_protocol::Tensor;

pub use super::rank_plan::Answer;

/// One storage of a rank and the tensor in it.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpectedTensor {
    /// `input`, `output[2]`, `tensor`, `bystander`; each once on a rank.
    pub label: String,
    /// All of the tensor.
    pub view: Tensor,
    /// Elements of the storage: those of the tensor, its gaps, and the guard around it.
    pub elements: u64,
    /// The tensor's elements before the calls, little-endian, in the view's own order; none if they are no input. Parts
    /// that are no input hold zeros.
    pub before: Option<Vec<u8>>,
    /// What must be there after them. Everything around the tensor must be as it was.
    pub after: After,
}

/// What a tensor must hold after the calls.
#[derive(Clone, Debug, PartialEq)]
pub enum After {
    /// What it held before.
    Same,
    /// Unspecified.
    Anything,
    /// These elements.
    Elements {
        /// Little-endian, in the view's own order.
        bytes: Vec<u8>,
        /// How far each number may be off, absolutely, where any NaN stands for any other and signs of zeros say nothing;
        /// infinite where any number will do; `None` if bits are compared.
        tolerance: Option<Vec<f64>>,
    },
}

impl Prepared {
    /// Returns the tensors of a rank.
    #[must_use]
    pub fn expected_tensors(&self, rank: Rank) -> Vec<ExpectedTensor> {
        let buffers = self.works[rank.index()].buffers.iter().enumerate();
        buffers
            .map(|(storage, buffer)| self.expected_tensor(rank, storage, buffer))
            .collect()
    }

    /// Iterates over what a rank's calls must answer, each with the call's index in the step.
    pub fn answers(&self, rank: Rank) -> impl Iterator<Item = (usize, &Answer)> {
        let answers = self.works[rank.index()].answers.iter();
        answers.map(|(call, answer)| (*call, answer))
    }

    fn expected_tensor(&self, rank: Rank, storage: usize, buffer: &Buffer) -> ExpectedTensor {
        let dtype = self.facts.purpose.dtype;
        let views = &self.steps[rank.index()].step.tensors;
        let whole = |view: &&Tensor| view.shape.iter().product::<u64>() == buffer.len as u64;
        // A view that a call takes tells the form; where calls take parts only, the buffer's own place does.
        let view = views
            .iter()
            .filter(|view| view.storage == storage)
            .find(whole)
            .cloned()
            .unwrap_or_else(|| {
                let form = match (buffer.place.width, buffer.place.fold) {
                    (1, _) => Form::Flat,
                    (2, _) => Form::Columns,
                    (width, fold) if fold < width => Form::Images,
                    _ => Form::Rows,
                };
                buffer.place.tensor(storage, dtype, buffer.len, form, None)
            });
        ExpectedTensor {
            label: buffer.label(),
            view,
            elements: (buffer.storage.1 / dtype.size()) as u64,
            before: self.before(rank, buffer),
            after: self.after(rank, buffer),
        }
    }

    fn before(&self, rank: Rank, buffer: &Buffer) -> Option<Vec<u8>> {
        let is_input = |piece: &Segment| matches!(piece.before, Fill::Own(_));
        if !buffer.pieces.iter().any(is_input) {
            return None;
        }
        let payload = &self.steps[rank.index()].payload;
        let mut bytes = vec![0; buffer.len * buffer.place.size];
        for piece in buffer.pieces.iter().filter(|piece| is_input(piece)) {
            for index in piece.start..piece.start + piece.len {
                let at = index * buffer.place.size;
                bytes[at..at + buffer.place.size]
                    .copy_from_slice(&payload[buffer.place.range(index)]);
            }
        }
        Some(bytes)
    }

    fn after(&self, rank: Rank, buffer: &Buffer) -> After {
        if buffer.role == Role::Unspecified {
            return After::Anything;
        }
        if buffer
            .pieces
            .iter()
            .all(|piece| piece.after == Origin::Keep)
        {
            return After::Same;
        }
        let size = buffer.place.size;
        let mut bytes = Vec::with_capacity(buffer.len * size);
        for piece in &buffer.pieces {
            let (from, place) = self.source(rank.0, buffer, piece);
            for index in 0..piece.len {
                bytes.extend_from_slice(&from[place.range(index)]);
            }
        }
        After::Elements {
            bytes,
            tolerance: self.tolerance(rank, buffer),
        }
    }

    /// Returns the bound of each of a buffer's elements; `None` where bits are compared.
    fn tolerance(&self, rank: Rank, buffer: &Buffer) -> Option<Vec<f64>> {
        let purpose = self.facts.purpose;
        let op = purpose.reduce?;
        match purpose.mode {
            CompareMode::Exact | CompareMode::Payload => return None,
            // Exact, except for the signs of zeros.
            CompareMode::Bounded
                if op == ReduceOp::Product && purpose.dtype.kind() == DTypeKind::Complex =>
            {
                return Some(vec![0.0; buffer.len]);
            }
            // Of two ranks each result is rounded once, so its bits are known.
            CompareMode::Bounded
                if purpose.values == Values::Random
                    && self.facts.members.len() == 2
                    && op != ReduceOp::PremulSum =>
            {
                return None;
            }
            // Exact, except for what IEEE 754 leaves open; ordinary values are averaged with roundings.
            CompareMode::Special if op != ReduceOp::Avg => {
                return Some(vec![0.0; buffer.len]);
            }
            CompareMode::Bounded | CompareMode::Special => {}
        }
        let comparison = Comparison {
            prepared: self,
            replies: &[],
        };
        let divisor = self.facts.members.len() as u64;
        let bound = |piece: &Segment, slot: u32, index: usize| {
            let elements = comparison.contributions(slot, index);
            let element = ElementRef {
                rank: rank.0,
                buffer,
                piece,
                index,
            };
            comparison.rounding(
                op,
                divisor,
                &elements.unwrap_or_default(),
                comparison.expected(&element),
            )
        };
        let bounds = buffer.pieces.iter().flat_map(|piece| match piece.after {
            Origin::Reduce { slot } => (0..piece.len)
                .map(|index| bound(piece, slot, index))
                .collect(),
            Origin::Keep | Origin::Copy { .. } => vec![0.0; piece.len],
        });
        Some(bounds.collect())
    }
}
