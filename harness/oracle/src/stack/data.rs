//! What a layer is given and must give back, as numbers.
//!
//! All numbers are integers times the number of ranks, so small that every sum in any order, its division by the number of
//! ranks before or after, and a step of an optimiser with rate 1/2 are exact in the element type: tolerance is 0 but where an
//! entry says how far its numbers may be off ([`Entry::within`]). A gradient of `Σ w·x` is `x` itself: expected gradients are
//! drawn numbers and no outcome of any kernel.

use serde_json::Value;

use super::class::StackClass;
use crate::format::precision;
use crate::hash::{Key, Stream, below};
use allranks_model::dtype::DType;

/// The largest drawn number, before it is multiplied by the number of ranks.
const LARGEST: u64 = 1000;

/// The ranks that use a layer, and their data.
#[derive(Clone, Copy, Debug)]
pub(super) struct World {
    /// The key of the check's data.
    pub key: Key,
    /// The number of ranks.
    pub size: u32,
}

impl World {
    /// Iterates over the ranks, from 0.
    pub(super) fn ranks(self) -> std::ops::Range<u32> {
        0..self.size
    }

    /// Draws numbers of a rank. `slot` tells its tensors apart; `terms` is how many of its numbers are added up besides those of
    /// the other ranks.
    pub(super) fn inputs(
        self,
        dtype: DType,
        terms: u32,
        rank: u32,
        slot: u32,
        len: usize,
    ) -> Vec<f64> {
        let size = u64::from(self.size);
        let room = 1_u64 << precision(dtype).unwrap_or(8).min(40);
        let largest = (room / (size * size * u64::from(terms))).clamp(1, LARGEST);
        let words = self.key.stream(Stream::Block, rank, slot);
        (0..len as u64)
            .map(|index| {
                // None is zero: a zero adds nothing that could be missed.
                let number = below(words.word(index), 2 * largest) as i64 - largest as i64;
                let number = if number >= 0 { number + 1 } else { number };
                (number * size as i64) as f64
            })
            .collect()
    }
}

/// A tensor of a rank.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// What the layer calls it.
    pub name: String,
    /// The sizes of its dimensions.
    pub shape: Vec<u64>,
    /// What it holds before; `None`: bytes that are no result.
    pub before: Option<Vec<f64>>,
    /// What it must hold after; `None`: what it held before, whatever that was.
    pub after: Option<Vec<f64>>,
    /// What it holds after a known bug.
    pub guesses: Vec<(StackClass, Vec<f64>)>,
    /// The largest difference from `after` and from a guess that is none: 0 unless a layer divides or takes
    /// roots, or a backend averages over a number of ranks that is no power of two.
    pub within: f64,
    /// Which random numbers it holds after; `None`: none. Tensors of one name hold the same where this is the same, and others
    /// where it differs; `after` is `None`.
    pub drawn: Option<u32>,
}

impl Entry {
    /// Returns the number of elements.
    pub(super) fn len(&self) -> usize {
        self.shape.iter().product::<u64>() as usize
    }
}

/// How near results must be that are not exact.
#[derive(Clone, Copy, Debug)]
pub(super) struct About {
    /// Element type of the results.
    pub dtype: DType,
    /// The largest difference, as a share of 1 and the largest number of the tensor.
    pub share: f64,
}

impl About {
    /// Returns the numbers nearest to these that the element type has.
    fn rounded(self, numbers: &[f64]) -> Vec<f64> {
        let rounded = |number: &f64| match self.dtype {
            DType::Float32 => f64::from(*number as f32),
            _ => *number,
        };
        numbers.iter().map(rounded).collect()
    }
}

/// What one rank is given and must give back.
#[derive(Clone, Debug, Default)]
pub(super) struct RankData {
    /// The tensors of the rank.
    pub entries: Vec<Entry>,
    /// What the layer is asked for on this rank.
    pub options: Value,
}

impl RankData {
    /// A tensor that is only read.
    pub(super) fn reads(&mut self, name: String, shape: &[u64], numbers: Vec<f64>) {
        self.entries.push(Entry {
            name,
            shape: shape.to_vec(),
            before: Some(numbers),
            after: None,
            guesses: Vec::new(),
            within: 0.0,
            drawn: None,
        });
    }

    /// A tensor that is read and written to.
    pub(super) fn changes(
        &mut self,
        name: String,
        shape: &[u64],
        before: Vec<f64>,
        after: Vec<f64>,
        guesses: Vec<(StackClass, Vec<f64>)>,
    ) {
        self.entries.push(Entry {
            name,
            shape: shape.to_vec(),
            before: Some(before),
            after: Some(after),
            guesses,
            within: 0.0,
            drawn: None,
        });
    }

    /// A tensor that is only written to.
    pub(super) fn gives(
        &mut self,
        name: String,
        shape: &[u64],
        after: Vec<f64>,
        guesses: Vec<(StackClass, Vec<f64>)>,
    ) {
        self.entries.push(Entry {
            name,
            shape: shape.to_vec(),
            before: None,
            after: Some(after),
            guesses,
            within: 0.0,
            drawn: None,
        });
    }

    /// A tensor that is only written to, with numbers that are not exact in the element type.
    pub(super) fn gives_about(
        &mut self,
        name: String,
        shape: &[u64],
        about: &About,
        after: &[f64],
        guesses: Vec<(StackClass, Vec<f64>)>,
    ) {
        let largest = after.iter().fold(0.0, |most: f64, one| most.max(one.abs()));
        let guesses = guesses
            .into_iter()
            .map(|(class, numbers)| (class, about.rounded(&numbers)))
            .collect();
        self.gives(name, shape, about.rounded(after), guesses);
        if let Some(entry) = self.entries.last_mut() {
            entry.within = about.share * (1.0 + largest);
        }
    }

    /// Lets the last tensor differ by so much.
    pub(super) fn may_be_off_by(&mut self, within: f64) {
        if let Some(entry) = self.entries.last_mut() {
            entry.within = within;
        }
    }

    /// A tensor that is only written to, with random numbers.
    pub(super) fn draws(&mut self, name: String, shape: &[u64], drawn: u32) {
        self.leaves(name, shape, Vec::new());
        if let Some(entry) = self.entries.last_mut() {
            entry.drawn = Some(drawn);
        }
    }

    /// A tensor that must not be written to although a result could be: there is none.
    pub(super) fn leaves(
        &mut self,
        name: String,
        shape: &[u64],
        guesses: Vec<(StackClass, Vec<f64>)>,
    ) {
        self.entries.push(Entry {
            name,
            shape: shape.to_vec(),
            before: None,
            after: None,
            guesses,
            within: 0.0,
            drawn: None,
        });
    }
}

/// Returns the sum of blocks, element by element.
pub(super) fn sum<'a>(blocks: impl IntoIterator<Item = &'a Vec<f64>>) -> Vec<f64> {
    let mut blocks = blocks.into_iter();
    let mut total = blocks.next().cloned().unwrap_or_default();
    for block in blocks {
        for (total, number) in total.iter_mut().zip(block) {
            *total += number;
        }
    }
    total
}

/// Returns every number times a factor. Zero keeps no sign.
pub(super) fn times(block: &[f64], factor: f64) -> Vec<f64> {
    block.iter().map(|number| number * factor + 0.0).collect()
}
