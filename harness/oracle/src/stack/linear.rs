//! Products of small matrices of integers.

/// A matrix, row by row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Matrix {
    pub columns: usize,
    pub numbers: Vec<f64>,
}

impl Matrix {
    /// Returns the number of rows and of columns.
    pub(super) fn shape(&self) -> [u64; 2] {
        let rows = self.numbers.len() / self.columns;
        [rows as u64, self.columns as u64]
    }

    /// Returns `count` of its rows, from `start` on.
    pub(super) fn rows(&self, start: usize, count: usize) -> Self {
        let numbers = &self.numbers[start * self.columns..(start + count) * self.columns];
        Self {
            columns: self.columns,
            numbers: numbers.to_vec(),
        }
    }

    /// Returns `count` of its columns, from `start` on.
    pub(super) fn columns(&self, start: usize, count: usize) -> Self {
        let rows = self.numbers.chunks_exact(self.columns);
        Self {
            columns: count,
            numbers: rows
                .flat_map(|row| row[start..start + count].to_vec())
                .collect(),
        }
    }

    fn transposed(&self) -> Self {
        let columns = self.numbers.len() / self.columns;
        let element = |at: usize| self.numbers[at % columns * self.columns + at / columns];
        Self {
            columns,
            numbers: (0..self.numbers.len()).map(element).collect(),
        }
    }

    /// Returns its product with the other matrix.
    pub(super) fn times(&self, other: &Self) -> Self {
        self.times_transposed(&other.transposed())
    }

    /// Returns its product with the other matrix, transposed.
    pub(super) fn times_transposed(&self, other: &Self) -> Self {
        let product = |row: &[f64], column: &[f64]| -> f64 {
            row.iter().zip(column).map(|(a, b)| a * b).sum::<f64>() + 0.0
        };
        let rows = self.numbers.chunks_exact(self.columns);
        let numbers = rows
            .flat_map(|row| {
                let columns = other.numbers.chunks_exact(other.columns);
                columns.map(move |column| product(row, column))
            })
            .collect();
        Self {
            columns: other.numbers.len() / other.columns,
            numbers,
        }
    }

    /// Returns the product of itself, transposed, with the other matrix.
    pub(super) fn transposed_times(&self, other: &Self) -> Self {
        self.transposed().times(other)
    }
}

/// Returns the matrix with a row added to each of its rows.
pub(super) fn plus_row(matrix: &Matrix, row: &[f64]) -> Matrix {
    let numbers = matrix.numbers.iter().zip(row.iter().cycle());
    Matrix {
        columns: matrix.columns,
        numbers: numbers.map(|(a, b)| a + b + 0.0).collect(),
    }
}

/// Returns the sum of each column.
pub(super) fn column_sums(matrix: &Matrix) -> Vec<f64> {
    let mut sums = vec![0.0; matrix.columns];
    for (index, number) in matrix.numbers.iter().enumerate() {
        sums[index % matrix.columns] += number;
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(columns: usize, numbers: &[f64]) -> Matrix {
        Matrix {
            columns,
            numbers: numbers.to_vec(),
        }
    }

    #[test]
    fn products_are_those_worked_out_by_hand() {
        let a = matrix(3, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let b = matrix(3, &[1.0, 0.0, -1.0, 2.0, 1.0, 0.0]);
        let of_rows = matrix(2, &[-2.0, 4.0, -2.0, 13.0]);
        assert_eq!(a.times_transposed(&b), of_rows);
        assert_eq!(a.times(&b.transposed()), of_rows);
        let of_columns = matrix(3, &[9.0, 4.0, -1.0, 12.0, 5.0, -2.0, 15.0, 6.0, -3.0]);
        assert_eq!(a.transposed_times(&b), of_columns);
    }

    #[test]
    fn parts_and_sums_are_those_of_rows_and_columns() {
        let a = matrix(3, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(a.columns(1, 2), matrix(2, &[2.0, 3.0, 5.0, 6.0]));
        assert_eq!(a.rows(1, 1), matrix(3, &[4.0, 5.0, 6.0]));
        assert_eq!(column_sums(&a), [5.0, 7.0, 9.0]);
        assert_eq!(
            plus_row(&a, &[1.0, 0.0, -1.0]).numbers,
            [2.0, 2.0, 2.0, 5.0, 5.0, 5.0]
        );
    }
}
