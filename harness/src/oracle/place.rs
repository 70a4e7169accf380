//! Where a tensor's elements lie: its layout in a storage with guard bands, and the storage in its rank's payload.
//!
//! In: a number of elements and a [`Layout`]. Out: byte positions for element numbers, and the protocol's view.

use std::ops::Range;

use crate::dtype::DType;
use crate::plan::Layout;
use crate::protocol::Tensor;

/// Bytes of guard on either side of a tensor: whole elements of every dtype, and a multiple of the alignment that
/// allocators give, so that a contiguous tensor is as aligned as its storage.
pub(super) const GUARD: usize = 64;

/// The shape in which a tensor's elements are presented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// No dimension.
    Scalar,
    /// One dimension.
    Flat,
    /// Two columns, column after column in memory.
    Columns,
}

/// Elements `0..` of a tensor as positions in a rank's payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// First byte of the storage in the payload.
    pub storage: usize,
    /// Bytes per element.
    pub size: usize,
    /// Element of the storage at which element 0 lies.
    pub offset: usize,
    /// Elements of storage from one element to the next, along a row's or the flat order.
    pub step: usize,
    /// For [`Form::Columns`]: elements of storage from a column to the next; otherwise 0.
    pub column: usize,
}

impl Place {
    /// The place of `len` elements of a new storage, and the storage's length in bytes.
    pub(super) fn new(
        storage: usize,
        size: usize,
        len: usize,
        form: Form,
        layout: Layout,
    ) -> (Self, usize) {
        let guard = GUARD / size;
        let (offset, step, column, span) = match (form, layout) {
            (Form::Columns, _) => (guard, 1, len / 2, len),
            (_, Layout::Strided) => (guard, 2, 0, 2 * len),
            (_, Layout::Offset) => (guard + 1, 1, 0, len),
            (_, Layout::Contiguous | Layout::Transposed) => (guard, 1, 0, len),
        };
        let place = Self {
            storage,
            size,
            offset,
            step,
            column,
        };
        (place, (offset + span + guard) * size)
    }

    /// The place of elements that are a payload of their own, from the `start`-th on.
    pub(super) fn of_dense(size: usize, start: usize) -> Self {
        Self {
            storage: 0,
            size,
            offset: start,
            step: 1,
            column: 0,
        }
    }

    /// The place of the elements from `start` on. With columns, `start` is even.
    pub(super) fn from(self, start: usize) -> Self {
        Self {
            offset: self.element(start),
            ..self
        }
    }

    /// The element of the storage at which an element of the tensor lies.
    #[inline]
    pub(super) fn element(&self, index: usize) -> usize {
        if self.column == 0 {
            self.offset + index * self.step
        } else {
            self.offset + index / 2 + index % 2 * self.column
        }
    }

    /// The bytes of an element in the payload.
    #[inline]
    pub(super) fn range(&self, index: usize) -> Range<usize> {
        let at = self.storage + self.element(index) * self.size;
        at..at + self.size
    }

    /// Whether elements follow each other without gaps, in order.
    pub(super) fn is_dense(&self) -> bool {
        self.column == 0 && self.step == 1
    }

    /// The bytes of the first `len` elements, if they follow each other.
    pub(super) fn dense_range(&self, len: usize) -> Option<Range<usize>> {
        let at = self.storage + self.offset * self.size;
        self.is_dense().then(|| at..at + len * self.size)
    }

    /// The same, borrowed from a payload.
    pub(super) fn dense_mut<'a>(&self, payload: &'a mut [u8], len: usize) -> Option<&'a mut [u8]> {
        self.dense_range(len).map(|range| &mut payload[range])
    }

    /// The view of `len` elements as the protocol puts it.
    pub(super) fn tensor(&self, storage: usize, dtype: DType, len: usize, form: Form) -> Tensor {
        let len = len as u64;
        let (shape, strides) = match form {
            Form::Scalar => (vec![], vec![]),
            Form::Flat => (vec![len], vec![self.step as u64]),
            Form::Columns => (vec![len / 2, 2], vec![1, (self.column as u64).max(1)]),
        };
        Tensor {
            storage,
            dtype,
            shape,
            strides,
            offset: self.offset as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_leaves_a_guard_on_both_sides_and_overlaps_nothing() {
        for (form, layout) in [
            (Form::Scalar, Layout::Contiguous),
            (Form::Flat, Layout::Contiguous),
            (Form::Flat, Layout::Strided),
            (Form::Flat, Layout::Offset),
            (Form::Columns, Layout::Transposed),
        ] {
            for size in [1, 2, 4, 8, 16] {
                let len = if form == Form::Scalar { 1 } else { 10 };
                let (place, bytes) = Place::new(7, size, len, form, layout);
                let mut starts: Vec<usize> = (0..len).map(|i| place.range(i).start).collect();
                assert!(
                    starts
                        .iter()
                        .all(|at| *at >= 7 + GUARD && at + size + GUARD <= 7 + bytes)
                );
                starts.sort_unstable();
                starts.dedup();
                assert_eq!(starts.len(), len);
            }
        }
    }

    #[test]
    fn a_part_of_a_tensor_lies_inside_it() {
        for (form, layout) in [
            (Form::Flat, Layout::Strided),
            (Form::Columns, Layout::Transposed),
        ] {
            let (whole, _) = Place::new(0, 4, 24, form, layout);
            let part = whole.from(8);
            for index in 0..16 {
                assert_eq!(part.range(index), whole.range(index + 8), "{layout:?}");
            }
            let view = part.tensor(0, DType::Float32, 16, form);
            let last = match form {
                Form::Columns => 7 * view.strides[0] + view.strides[1],
                _ => 15 * view.strides[0],
            };
            assert_eq!((view.offset + last) as usize, whole.element(23));
        }
    }
}
