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

/// Returns a part of the matrix in this placement.
pub(super) fn part(placement: TensorPlacement, whole: &[f64], parts: u32, part: u32) -> Vec<f64> {
    match placement {
        TensorPlacement::Rows => {
            let rows = range(parts, part, ROWS);
            whole[rows.start * COLUMNS..rows.end * COLUMNS].to_vec()
        }
        TensorPlacement::Columns => {
            let columns = range(parts, part, COLUMNS);
            let rows = whole.chunks_exact(COLUMNS);
            rows.flat_map(|row| row[columns.clone()].to_vec()).collect()
        }
        TensorPlacement::Replicate | TensorPlacement::Partial => whole.to_vec(),
    }
}

/// Returns the sizes of a part of the matrix in this placement.
pub(super) fn shape(placement: TensorPlacement, parts: u32, part: u32) -> [u64; 2] {
    let (rows, columns) = match placement {
        TensorPlacement::Rows => (range(parts, part, ROWS).len(), COLUMNS),
        TensorPlacement::Columns => (ROWS, range(parts, part, COLUMNS).len()),
        TensorPlacement::Replicate | TensorPlacement::Partial => (ROWS, COLUMNS),
    };
    [rows as u64, columns as u64]
}
