//! `DTensor`: a matrix of one placement made one of another, and what comes back from that.
//!
//! Tensors: `whole`, each rank's own, of which `distribute_tensor` must hand out the first rank's, as `distributed` (where the
//! first placement is not partial); `local`, the rank's part before; `result`, its part after, and `full`, the whole after;
//! `cotangent`, what `result` is multiplied with before it is summed, and `gradient`, what `local` gets from that.

use serde_json::json;

use super::class::StackClass as Class;
use super::data::{RankData, World, sum, times};
use super::matrix::{self, COLUMNS, ROWS};
use allranks_model::stack::{Dtensor, TensorPlacement};

/// How long the late rank sleeps, milliseconds.
const LATE_MS: u64 = 100;
/// Slots: the matrix, what is distributed, the cotangent.
const MATRIX: u32 = 0;
const WHOLE: u32 = 1;
const COTANGENT: u32 = 2;

/// Returns the data that every rank is given, and those that it must give back.
pub(super) fn ranks(point: Dtensor, world: World) -> Vec<RankData> {
    let tensor = Redistribution { point, world };
    world.ranks().map(|rank| tensor.of_rank(rank)).collect()
}

#[derive(Clone, Copy)]
struct Redistribution {
    point: Dtensor,
    world: World,
}

impl Redistribution {
    fn inputs(self, rank: u32, slot: u32) -> Vec<f64> {
        self.world
            .inputs(self.point.dtype, 2, rank, slot, ROWS * COLUMNS)
    }

    /// The part of so many elements that a rank has.
    fn range(self, rank: u32, len: usize) -> std::ops::Range<usize> {
        matrix::range(self.world.size, rank, len)
    }

    /// A rank's part of a matrix.
    fn part(self, placement: TensorPlacement, whole: &[f64], rank: u32) -> Vec<f64> {
        matrix::part(placement, whole, self.world.size, rank)
    }

    fn shape(self, placement: TensorPlacement, rank: u32) -> [u64; 2] {
        matrix::shape(placement, self.world.size, rank)
    }

    /// Returns what a rank's part of the matrix is made from: its own summand, or the matrix.
    fn summand(self, rank: u32) -> Vec<f64> {
        match self.point.from {
            TensorPlacement::Partial => self.inputs(rank, MATRIX),
            TensorPlacement::Rows | TensorPlacement::Columns | TensorPlacement::Replicate => {
                self.inputs(0, MATRIX)
            }
        }
    }

    fn matrix(self) -> Vec<f64> {
        match self.point.from {
            TensorPlacement::Partial => sum(&self
                .world
                .ranks()
                .map(|rank| self.summand(rank))
                .collect::<Vec<_>>()),
            TensorPlacement::Rows | TensorPlacement::Columns | TensorPlacement::Replicate => {
                self.inputs(0, MATRIX)
            }
        }
    }

    /// The matrices that known bugs leave in the place of the right one, as a rank has them.
    fn wrong(self, rank: u32) -> Vec<(Class, Vec<f64>)> {
        let matrix = self.matrix();
        match self.point.from {
            TensorPlacement::Partial => {
                let without = |which: u32| {
                    let others = self.world.ranks().filter(|other| *other != which);
                    sum(&others.map(|other| self.summand(other)).collect::<Vec<_>>())
                };
                vec![
                    (Class::NotReduced, self.summand(rank)),
                    (Class::ReducedTwice, times(&matrix, 2.0)),
                    (Class::FirstRankDropped, without(0)),
                    (Class::LastRankDropped, without(self.world.size - 1)),
                ]
            }
            TensorPlacement::Rows => {
                let last = self.last(ROWS);
                let mut lost = matrix;
                lost[last.start * COLUMNS..last.end * COLUMNS].fill(0.0);
                vec![(Class::TailZero, lost)]
            }
            TensorPlacement::Columns => {
                let last = self.last(COLUMNS);
                let mut lost = matrix;
                for row in lost.chunks_exact_mut(COLUMNS) {
                    row[last.clone()].fill(0.0);
                }
                vec![(Class::TailZero, lost)]
            }
            TensorPlacement::Replicate => {
                let elements = matrix.iter().rev().copied();
                vec![(Class::Reversed, elements.collect())]
            }
        }
    }

    /// The last part that is not empty.
    fn last(self, len: usize) -> std::ops::Range<usize> {
        let mut parts = self.world.ranks().map(|rank| self.range(rank, len));
        parts.rfind(|part| !part.is_empty()).unwrap_or(0..0)
    }

    fn of_rank(self, rank: u32) -> RankData {
        let Dtensor { from, to, .. } = self.point;
        let mut data = RankData {
            options: self.options(rank),
            ..RankData::default()
        };
        let whole = [ROWS as u64, COLUMNS as u64];
        let (before, after) = (self.shape(from, rank), self.shape(to, rank));
        if from != TensorPlacement::Partial {
            let own = self.inputs(rank, WHOLE);
            let kept = self.part(from, &own, rank);
            let first = self.part(from, &self.inputs(0, WHOLE), rank);
            data.reads("whole".to_owned(), &whole, own);
            data.gives(
                "distributed".to_owned(),
                &before,
                first,
                vec![(Class::OwnKept, kept)],
            );
        }
        let local = self.part(from, &self.summand(rank), rank);
        data.reads("local".to_owned(), &before, local);
        let wrong = self.wrong(rank);
        let parts = wrong
            .iter()
            .map(|(class, matrix)| (*class, self.part(to, matrix, rank)));
        let result = self.part(to, &self.matrix(), rank);
        data.gives("result".to_owned(), &after, result, parts.collect());
        let full = match (from, to) {
            // Each rank's part is its own; all ranks gather the same parts.
            (TensorPlacement::Partial, TensorPlacement::Rows | TensorPlacement::Columns) => wrong
                .into_iter()
                .filter(|(class, _)| *class != Class::NotReduced)
                .chain([(Class::NotReduced, self.gathered_summands())])
                .collect(),
            _ => wrong,
        };
        data.gives("full".to_owned(), &whole, self.matrix(), full);
        let cotangent = self.inputs(0, COTANGENT);
        data.reads(
            "cotangent".to_owned(),
            &after,
            self.part(to, &cotangent, rank),
        );
        let gradient = self.part(from, &cotangent, rank);
        let mut lost = cotangent.clone();
        match to {
            TensorPlacement::Rows => {
                let last = self.last(ROWS);
                lost[last.start * COLUMNS..last.end * COLUMNS].fill(0.0);
            }
            TensorPlacement::Columns => {
                let last = self.last(COLUMNS);
                for row in lost.chunks_exact_mut(COLUMNS) {
                    row[last.clone()].fill(0.0);
                }
            }
            TensorPlacement::Replicate | TensorPlacement::Partial => {}
        }
        let mut guesses = Vec::new();
        if matches!(to, TensorPlacement::Rows | TensorPlacement::Columns) {
            guesses.push((Class::TailZero, self.part(from, &lost, rank)));
        }
        let size = f64::from(self.world.size);
        guesses.push((Class::ReducedTwice, times(&gradient, size)));
        data.gives("gradient".to_owned(), &before, gradient, guesses);
        data
    }

    /// The matrix in which each rank's part is that of its own summand.
    fn gathered_summands(self) -> Vec<f64> {
        let mut matrix = vec![0.0; ROWS * COLUMNS];
        for (index, number) in matrix.iter_mut().enumerate() {
            let (row, column) = (index / COLUMNS, index % COLUMNS);
            let has = |rank: &u32| match self.point.to {
                TensorPlacement::Columns => self.range(*rank, COLUMNS).contains(&column),
                _ => self.range(*rank, ROWS).contains(&row),
            };
            if let Some(rank) = self.world.ranks().find(has) {
                *number = self.summand(rank)[index];
            }
        }
        matrix
    }

    fn options(self, rank: u32) -> serde_json::Value {
        let Dtensor {
            dtype: _,
            from,
            to,
            late,
        } = self.point;
        let is_late = late && rank + 1 == self.world.size;
        json!({
            "from": from,
            "to": to,
            "shape": [ROWS, COLUMNS],
            "sleep_ms": if is_late { LATE_MS } else { 0 },
        })
    }
}
