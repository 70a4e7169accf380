//! A matrix of 7 rows and 5 columns, divided by rows or by columns as `torch.chunk` divides.

use allranks_model::stack::TensorPlacement;

/// Rows and columns: neither divides by any number of ranks, and the columns are fewer than some worlds have ranks.
pub(super) const ROWS: usize = 7;
pub(super) const COLUMNS: usize = 5;

/// Returns which of so many elements are in a part; the last parts may be short, or empty.
pub(super) fn range(parts: u32, part: u32, len: usize) -> std::ops::Range<usize> {
    let each = len.div_ceil(parts as usize);
    let start = (part as usize * each).min(len);
    start..(start + each).min(len)
}

/// Rows and columns of the matrix that a rank has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Region {
    rows: std::ops::Range<usize>,
    columns: std::ops::Range<usize>,
}

impl Region {
    /// Returns the whole matrix.
    pub(super) fn whole() -> Self {
        Self {
            rows: 0..ROWS,
            columns: 0..COLUMNS,
        }
    }

    /// Returns the part of this region in a placement on so many ranks.
    pub(super) fn part(self, placement: TensorPlacement, parts: u32, part: u32) -> Self {
        let within = |whole: &std::ops::Range<usize>| {
            let part = range(parts, part, whole.len());
            whole.start + part.start..whole.start + part.end
        };
        match placement {
            TensorPlacement::Rows => Self {
                rows: within(&self.rows),
                ..self
            },
            TensorPlacement::Columns => Self {
                columns: within(&self.columns),
                ..self
            },
            TensorPlacement::Replicate | TensorPlacement::Partial => self,
        }
    }

    /// Returns the region's elements of a matrix, row after row.
    pub(super) fn of(&self, whole: &[f64]) -> Vec<f64> {
        let rows = whole.chunks_exact(COLUMNS).take(self.rows.end);
        let rows = rows.skip(self.rows.start);
        rows.flat_map(|row| row[self.columns.clone()].to_vec())
            .collect()
    }

    /// Returns the numbers of its rows and columns.
    pub(super) fn shape(&self) -> [u64; 2] {
        [self.rows.len() as u64, self.columns.len() as u64]
    }

    /// Returns true if an element of the matrix is in it, by its index.
    pub(super) fn contains(&self, index: usize) -> bool {
        self.rows.contains(&(index / COLUMNS)) && self.columns.contains(&(index % COLUMNS))
    }

    /// Returns true if it has no elements.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty() || self.columns.is_empty()
    }
}

/// Returns a part of the matrix in this placement.
pub(super) fn part(placement: TensorPlacement, whole: &[f64], parts: u32, part: u32) -> Vec<f64> {
    Region::whole().part(placement, parts, part).of(whole)
}

/// Returns the sizes of a part of the matrix in this placement.
pub(super) fn shape(placement: TensorPlacement, parts: u32, part: u32) -> [u64; 2] {
    Region::whole().part(placement, parts, part).shape()
}
