//! Where a tensor's elements lie: its layout in a storage with guard bands, and the storage in its rank's payload.
//!
//! In: a number of elements and a [`Layout`]. Out: byte positions for element numbers, and the protocol's view.

use std::ops::Range;

use allranks_model::axes::Layout;
use allranks_model::dtype::DType;
use allranks_protocol::Tensor;

/// Bytes of guard on either side of a tensor: whole elements of every dtype, and a multiple of the alignment that
/// allocators give, so that a contiguous tensor is as aligned as its storage.
pub(super) const GUARD: usize = 64;

/// The shape in which a tensor's elements are presented, always in row-major order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// No dimension.
    Scalar,
    /// One dimension.
    Flat,
    /// Two columns.
    Columns,
    /// Rows of eight.
    Rows,
    /// Four dimensions: images of two channels, two by two.
    Images,
}

impl Form {
    /// Elements of a row: what one step along the first dimension takes.
    pub(super) fn width(self) -> usize {
        match self {
            Self::Scalar | Self::Flat => 1,
            Self::Columns => 2,
            Self::Rows | Self::Images => 8,
        }
    }

    /// Returns the dimensions after the first.
    fn rest(self) -> &'static [u64] {
        match self {
            Self::Scalar | Self::Flat => &[],
            Self::Columns => &[2],
            Self::Rows => &[8],
            Self::Images => &[2, 2, 2],
        }
    }
}

/// Elements `0..` of a tensor as positions in a rank's payload. Element `i` is element `i % width` of row `i / width`.
#[derive(Clone, Copy, Debug)]
pub(super) struct TensorGeometry {
    /// First byte of the storage in the payload.
    pub storage: usize,
    /// The size of an element in bytes.
    pub size: usize,
    /// Element of the storage at which element 0 lies.
    pub offset: usize,
    /// Elements of storage from one row to the next; 0 if all rows are one.
    pub step: usize,
    /// Elements of a row; 1 if rows follow each other without gaps.
    pub width: usize,
    /// Elements of storage from one element of a row to the next.
    pub near: usize,
    /// After how many elements of a row that count starts again, one element of storage further on.
    pub fold: usize,
}

impl TensorGeometry {
    /// Returns the place of `len` elements of a new storage, and the storage's length in bytes. `turn` chooses among the
    /// alignments of [`Layout::Unaligned`].
    pub(super) fn new(
        storage: usize,
        size: usize,
        len: usize,
        form: Form,
        layout: Layout,
        turn: usize,
    ) -> (Self, usize) {
        let guard = GUARD / size;
        let dense = Self::of_dense(size, guard);
        let (place, span) = match layout {
            Layout::Contiguous => (dense, len),
            Layout::Strided => (Self { step: 2, ..dense }, 2 * len),
            Layout::Offset => (dense.shifted(1), len),
            Layout::Unaligned => (dense.shifted(1 + turn % alignments(size)), len),
            Layout::Transposed => {
                let place = Self {
                    width: form.width(),
                    near: len / form.width(),
                    fold: form.width(),
                    ..dense
                };
                (place, len)
            }
            // As much storage as a dense tensor would have: what takes it for one stays inside.
            Layout::Expanded => {
                let width = form.width();
                let place = Self {
                    step: 0,
                    width,
                    fold: width,
                    ..dense
                };
                (place, len)
            }
            Layout::ChannelsLast => {
                let width = form.width();
                let place = Self {
                    step: width,
                    width,
                    near: 2,
                    fold: width / 2,
                    ..dense
                };
                (place, len)
            }
        };
        let place = Self { storage, ..place };
        (place, (place.offset + span + guard) * size)
    }

    fn shifted(self, by: usize) -> Self {
        Self {
            offset: self.offset + by,
            ..self
        }
    }

    /// The same place as dense elements: what a backend sees that ignores strides.
    pub(super) fn ignoring_strides(self) -> Self {
        Self {
            storage: self.storage,
            ..Self::of_dense(self.size, self.offset)
        }
    }

    /// Returns the place of elements that are a payload of their own, from the `start`-th on.
    pub(super) fn of_dense(size: usize, start: usize) -> Self {
        Self {
            storage: 0,
            size,
            offset: start,
            step: 1,
            width: 1,
            near: 1,
            fold: 1,
        }
    }

    /// Returns the place of the elements from `start`, the beginning of a row, on.
    pub(super) fn from(self, start: usize) -> Self {
        Self {
            offset: self.element(start),
            ..self
        }
    }

    /// Returns the element of the storage at which an element of the tensor lies.
    #[inline]
    pub(super) fn element(&self, index: usize) -> usize {
        if self.width == 1 {
            return self.offset + index * self.step;
        }
        let (row, at) = (index / self.width, index % self.width);
        self.offset + row * self.step + at % self.fold * self.near + at / self.fold
    }

    /// Returns the bytes of an element in the payload.
    #[inline]
    pub(super) fn range(&self, index: usize) -> Range<usize> {
        let at = self.storage + self.element(index) * self.size;
        at..at + self.size
    }

    /// Returns true if elements follow each other without gaps, in order.
    pub(super) fn is_dense(&self) -> bool {
        self.width == 1 && self.step == 1
    }

    /// Returns the bytes of the first `len` elements, if they follow each other.
    pub(super) fn dense_range(&self, len: usize) -> Option<Range<usize>> {
        let at = self.storage + self.offset * self.size;
        self.is_dense().then(|| at..at + len * self.size)
    }

    /// The same, borrowed from a payload.
    pub(super) fn dense_mut<'a>(&self, payload: &'a mut [u8], len: usize) -> Option<&'a mut [u8]> {
        self.dense_range(len).map(|range| &mut payload[range])
    }

    /// Returns true if several elements lie at one place.
    pub(super) fn overlaps(&self) -> bool {
        self.step == 0
    }

    /// Returns the view of `len` elements as the protocol puts it; of `stacked` contributions, if there is such a dimension.
    pub(super) fn tensor(
        &self,
        storage: usize,
        dtype: DType,
        len: usize,
        form: Form,
        stacked: Option<u64>,
    ) -> Tensor {
        let rows = (len / form.width()) as u64 / stacked.unwrap_or(1).max(1);
        let mut shape = match form {
            Form::Scalar => vec![],
            _ => vec![rows],
        };
        shape.extend(form.rest());
        let mut strides = vec![0; shape.len()];
        if self.width == 1 {
            let mut stride = self.step as u64;
            for (stride_of, size) in strides.iter_mut().zip(&shape).rev() {
                *stride_of = stride;
                stride *= size;
            }
        } else {
            let (near, step) = (self.near as u64, self.step as u64);
            match form {
                Form::Scalar | Form::Flat => {}
                Form::Columns | Form::Rows => strides = vec![step, near.max(1)],
                Form::Images => strides = vec![step, 1, 2 * near, near],
            }
        }
        if let Some(ranks) = stacked {
            let stride = strides.first().copied().unwrap_or(self.step as u64);
            shape.insert(0, ranks);
            strides.insert(0, stride * rows);
        }
        Tensor {
            storage,
            dtype,
            shape,
            strides,
            offset: self.offset as u64,
            host: false,
        }
    }
}

/// Returns how many places between two addresses divisible by 16 a dtype may begin at.
fn alignments(size: usize) -> usize {
    (16 / size).saturating_sub(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUTS: [(Form, Layout); 10] = [
        (Form::Scalar, Layout::Contiguous),
        (Form::Flat, Layout::Contiguous),
        (Form::Columns, Layout::Contiguous),
        (Form::Images, Layout::Contiguous),
        (Form::Flat, Layout::Strided),
        (Form::Flat, Layout::Offset),
        (Form::Flat, Layout::Unaligned),
        (Form::Columns, Layout::Transposed),
        (Form::Images, Layout::ChannelsLast),
        (Form::Rows, Layout::Expanded),
    ];

    #[test]
    fn every_layout_leaves_a_guard_on_both_sides_and_overlaps_nothing() {
        for (form, layout) in LAYOUTS {
            for size in [1, 2, 4, 8, 16] {
                let len = if form == Form::Scalar { 1 } else { 24 };
                let (place, bytes) = TensorGeometry::new(7, size, len, form, layout, 3);
                let mut starts: Vec<usize> = (0..len).map(|i| place.range(i).start).collect();
                assert!(
                    starts
                        .iter()
                        .all(|at| *at >= 7 + GUARD && at + size + GUARD <= 7 + bytes)
                );
                starts.sort_unstable();
                starts.dedup();
                let distinct = if place.overlaps() { 8 } else { len };
                assert_eq!(starts.len(), distinct, "{layout:?}");
            }
        }
    }

    /// The protocol's view and the place name the same elements, in the same order.
    #[test]
    fn the_view_is_the_place() {
        for (form, layout) in LAYOUTS {
            let len = if form == Form::Scalar { 1 } else { 24 };
            let (place, _) = TensorGeometry::new(0, 4, len, form, layout, 3);
            for stacked in [None, Some(3)] {
                let stacked = stacked.filter(|_| len == 24);
                let view = place.tensor(0, DType::Float32, len, form, stacked);
                assert_eq!(view.shape.iter().product::<u64>(), len as u64);
                for index in 0..len {
                    let (mut rest, mut at) = (index as u64, view.offset);
                    for (size, stride) in view.shape.iter().zip(&view.strides).rev() {
                        at += rest % size * stride;
                        rest /= size;
                    }
                    assert_eq!(at as usize, place.element(index), "{layout:?} {view:?}");
                }
            }
        }
    }

    #[test]
    fn unaligned_tensors_begin_everywhere_between_two_multiples_of_16() {
        for size in [1, 2, 4, 8] {
            let starts: std::collections::BTreeSet<usize> = (0..16)
                .map(|turn| {
                    let (place, _) =
                        TensorGeometry::new(0, size, 9, Form::Flat, Layout::Unaligned, turn);
                    place.range(0).start % 16
                })
                .collect();
            let all: Vec<usize> = (1..16 / size).map(|element| element * size).collect();
            assert_eq!(starts.into_iter().collect::<Vec<_>>(), all);
        }
    }

    #[test]
    fn a_part_of_a_tensor_lies_inside_it() {
        for (form, layout) in [
            (Form::Flat, Layout::Strided),
            (Form::Columns, Layout::Transposed),
            (Form::Images, Layout::ChannelsLast),
        ] {
            let (whole, _) = TensorGeometry::new(0, 4, 24, form, layout, 0);
            let part = whole.from(8);
            for index in 0..16 {
                assert_eq!(part.range(index), whole.range(index + 8), "{layout:?}");
            }
            let view = part.tensor(0, DType::Float32, 16, form, None);
            let last: u64 = view
                .shape
                .iter()
                .zip(&view.strides)
                .map(|(size, stride)| (size - 1) * stride)
                .sum();
            assert_eq!((view.offset + last) as usize, whole.element(23));
        }
    }
}
