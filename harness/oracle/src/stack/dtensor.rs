//! `DTensor`: a matrix of one placement made one of another, and what comes back from that.
//!
//! Tensors: `whole`, each rank's own, of which `distribute_tensor` must hand out the first rank's, as `distributed` (where no
//! placement before is partial); `local`, the rank's part before; `result`, its part after, and `full`, the whole after;
//! `cotangent`, what `result` is multiplied with before it is summed, and `gradient`, what `local` gets from that (where nothing
//! is reduced but by a sum: what comes back from others is not documented).

use serde_json::json;

use super::class::StackClass as Class;
use super::data::{RankData, World, sum, times};
use super::matrix::{COLUMNS, ROWS, Region};
use crate::format::precision;
use allranks_model::dtype::ReduceOp;
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

/// A dimension of the mesh.
#[derive(Clone, Copy)]
struct Dimension {
    size: u32,
    /// How far apart ranks are that are neighbours along it.
    stride: u32,
    from: TensorPlacement,
    to: TensorPlacement,
}

impl Dimension {
    fn coordinate(self, rank: u32) -> u32 {
        rank / self.stride % self.size
    }

    fn is_partial(self) -> bool {
        self.from == TensorPlacement::Partial
    }
}

impl Redistribution {
    fn inputs(self, rank: u32, slot: u32) -> Vec<f64> {
        self.world
            .inputs(self.point.dtype, 2, rank, slot, ROWS * COLUMNS)
    }

    /// Returns the dimensions of the mesh, the first first.
    fn mesh(self) -> Vec<Dimension> {
        let Dtensor {
            from, to, outer, ..
        } = self.point;
        let size = self.world.size;
        if outer < 2 {
            return vec![Dimension {
                size,
                stride: 1,
                from,
                to,
            }];
        }
        let inner = Dimension {
            size: size / outer,
            stride: 1,
            from: self.point.inner_from,
            to: self.point.inner_to,
        };
        let outer = Dimension {
            size: outer,
            stride: inner.size,
            from,
            to,
        };
        vec![outer, inner]
    }

    /// Returns a rank's part of the matrix, by the placements that are before or after.
    fn region(self, rank: u32, placement: fn(Dimension) -> TensorPlacement) -> Region {
        self.mesh().into_iter().fold(Region::whole(), |region, of| {
            region.part(placement(of), of.size, of.coordinate(rank))
        })
    }

    fn before(self, rank: u32) -> Region {
        self.region(rank, |of| of.from)
    }

    fn after(self, rank: u32) -> Region {
        self.region(rank, |of| of.to)
    }

    /// Returns the ranks whose coordinates are those of this rank along dimensions that are so, and any along the others.
    fn peers(self, rank: u32, is_fixed: impl Fn(Dimension) -> bool) -> Vec<u32> {
        let mesh = self.mesh();
        let is_peer = |other: &u32| {
            let mut fixed = mesh.iter().filter(|of| is_fixed(**of));
            fixed.all(|of| of.coordinate(*other) == of.coordinate(rank))
        };
        self.world.ranks().filter(is_peer).collect()
    }

    /// Returns the matrix that a rank has, of which it is given its part: along dimensions that are not partial all have one.
    fn summand(self, rank: u32) -> Vec<f64> {
        let partial = self.mesh().into_iter().filter(|of| of.is_partial());
        let first = partial.map(|of| of.coordinate(rank) * of.stride).sum();
        self.inputs(first, MATRIX)
    }

    fn summands(self, terms: &[u32]) -> Vec<Vec<f64>> {
        terms.iter().map(|rank| self.summand(*rank)).collect()
    }

    /// Reduces the matrices of ranks by the operator of the partial placement, `count` is what an average divides by.
    fn reduced(self, terms: &[u32], count: usize) -> Vec<f64> {
        self.reduced_by(self.point.op, terms, count)
    }

    fn reduced_by(self, op: ReduceOp, terms: &[u32], count: usize) -> Vec<f64> {
        let matrices = self.summands(terms);
        let by = |better: fn(f64, f64) -> f64| {
            let all = matrices.iter().skip(1);
            all.fold(matrices[0].clone(), |best, one| {
                best.into_iter()
                    .zip(one)
                    .map(|(a, b)| better(a, *b))
                    .collect()
            })
        };
        match op {
            ReduceOp::Min => by(f64::min),
            ReduceOp::Max => by(f64::max),
            ReduceOp::Avg => {
                let total = sum(&matrices).into_iter();
                total.map(|number| number / count as f64).collect()
            }
            _ => sum(&matrices),
        }
    }

    /// Returns the ranks that have all summands, each once.
    fn terms(self) -> Vec<u32> {
        self.peers(0, |of| !of.is_partial())
    }

    /// Returns the value of the tensor.
    fn matrix(self) -> Vec<f64> {
        let terms = self.terms();
        self.reduced(&terms, terms.len())
    }

    /// By how much a reduced element may be off: a backend may round an average over a count of ranks that is no power of two.
    fn rounding(self) -> f64 {
        let terms = self.terms();
        if self.point.op != ReduceOp::Avg || terms.len().is_power_of_two() {
            return 0.0;
        }
        let summands = self.summands(&terms).into_iter().flatten();
        let largest = summands.map(f64::abs).fold(0.0, f64::max);
        let unit = 0.5_f64.powi(precision(self.point.dtype).unwrap_or(8) as i32);
        (terms.len() + 1) as f64 * unit * largest
    }

    /// Returns a matrix without the last parts along a dimension of the mesh that are not empty, for each dimension that
    /// divides it.
    fn without_last(
        self,
        matrix: &[f64],
        placement: fn(Dimension) -> TensorPlacement,
    ) -> Vec<(Class, Vec<f64>)> {
        let part = |rank| self.region(rank, placement);
        let is_sharded = |of: &Dimension| {
            let placement = placement(*of);
            matches!(placement, TensorPlacement::Rows | TensorPlacement::Columns)
        };
        let has_some = |rank: &u32| !part(*rank).is_empty();
        let without = |along: Dimension| {
            let coordinates = self.world.ranks().filter(has_some);
            let last = coordinates.map(|rank| along.coordinate(rank)).max();
            let owners = self.world.ranks();
            let lost = owners.filter(|rank| Some(along.coordinate(*rank)) == last);
            let lost: Vec<Region> = lost.map(part).collect();
            let elements = (0..matrix.len()).zip(matrix);
            let kept = elements.map(|(index, number)| {
                let is_lost = lost.iter().any(|part| part.contains(index));
                if is_lost { 0.0 } else { *number }
            });
            (Class::TailZero, kept.collect())
        };
        self.mesh()
            .into_iter()
            .filter(is_sharded)
            .map(without)
            .collect()
    }

    /// Returns the matrices that known bugs leave in the place of the right one, as a rank has them.
    fn wrong(self, rank: u32) -> Vec<(Class, Vec<f64>)> {
        let matrix = self.matrix();
        if self.point.is_partial() {
            return self.wrongly_reduced(rank);
        }
        let lost = self.without_last(&matrix, |of| of.from);
        match lost.is_empty() {
            true => vec![(Class::Reversed, matrix.into_iter().rev().collect())],
            false => lost,
        }
    }

    fn wrongly_reduced(self, rank: u32) -> Vec<(Class, Vec<f64>)> {
        let terms = self.terms();
        let own = self.summand(rank);
        let mut wrong = vec![
            (Class::NotReduced, own.clone()),
            (
                Class::FirstRankDropped,
                self.reduced(&terms[1..], terms.len()),
            ),
            (
                Class::LastRankDropped,
                self.reduced(&terms[..terms.len() - 1], terms.len()),
            ),
        ];
        let mesh = self.mesh();
        let is_sum = self.point.op == ReduceOp::Sum;
        wrong.push(match self.point.op {
            ReduceOp::Min | ReduceOp::Max => (Class::OpDidSum, sum(&self.summands(&terms))),
            ReduceOp::Avg => (Class::AvgDidSum, sum(&self.summands(&terms))),
            _ => (Class::ReducedTwice, times(&self.matrix(), 2.0)),
        });
        let other = match self.point.op {
            ReduceOp::Min => Some((Class::DidMax, ReduceOp::Max)),
            ReduceOp::Max => Some((Class::DidMin, ReduceOp::Min)),
            _ => None,
        };
        let other = other.map(|(class, op)| (class, self.reduced_by(op, &terms, terms.len())));
        wrong.extend(other);
        match mesh[..] {
            // Reduced along one of its two dimensions only.
            [outer, inner] if outer.is_partial() && inner.is_partial() => {
                for left_out in mesh {
                    let along = self.peers(rank, |of| of.stride == left_out.stride);
                    wrong.push((Class::WrongGroup, self.reduced(&along, along.len())));
                }
            }
            // Reduced along the other dimension, where all have the same.
            [outer, inner] if is_sum => {
                let other = if outer.is_partial() { inner } else { outer };
                wrong.push((Class::WrongGroup, times(&own, f64::from(other.size))));
            }
            _ => {}
        }
        wrong
    }

    /// Returns the matrix that is gathered on a rank if each rank's part is that of its own summand.
    fn gathered_summands(self, rank: u32) -> Vec<f64> {
        let is_sharded = |of: Dimension| of.to != TensorPlacement::Replicate;
        let owners = self.peers(rank, |of| !is_sharded(of));
        let owner = |index: usize| {
            let mut owners = owners.iter();
            owners.find(|owner| self.after(**owner).contains(index))
        };
        (0..ROWS * COLUMNS)
            .map(|index| owner(index).map_or(0.0, |owner| self.summand(*owner)[index]))
            .collect()
    }

    fn of_rank(self, rank: u32) -> RankData {
        let (before, after) = (self.before(rank), self.after(rank));
        let mut data = RankData {
            options: self.options(rank),
            ..RankData::default()
        };
        if !self.point.is_partial() {
            let own = self.inputs(rank, WHOLE);
            let (kept, first) = (before.of(&own), before.of(&self.inputs(0, WHOLE)));
            data.reads("whole".to_owned(), &[ROWS as u64, COLUMNS as u64], own);
            data.gives(
                "distributed".to_owned(),
                &before.shape(),
                first,
                vec![(Class::OwnKept, kept)],
            );
        }
        let local = before.of(&self.summand(rank));
        data.reads("local".to_owned(), &before.shape(), local);
        self.moved(rank, &after, &mut data);
        if !self.point.is_partial() || self.point.op == ReduceOp::Sum {
            self.sent_back(&before, &after, &mut data);
        }
        data
    }

    /// What a rank has after the redistribution.
    fn moved(self, rank: u32, after: &Region, data: &mut RankData) {
        let wrong = self.wrong(rank);
        let parts = wrong
            .iter()
            .map(|(class, matrix)| (*class, after.of(matrix)));
        let result = after.of(&self.matrix());
        data.gives("result".to_owned(), &after.shape(), result, parts.collect());
        data.may_be_off_by(self.rounding());
        // Each rank's part is its own; all ranks gather the same parts.
        let full = wrong.into_iter().map(|(class, matrix)| match class {
            Class::NotReduced => (class, self.gathered_summands(rank)),
            _ => (class, matrix),
        });
        let whole = [ROWS as u64, COLUMNS as u64];
        data.gives("full".to_owned(), &whole, self.matrix(), full.collect());
        data.may_be_off_by(self.rounding());
    }

    /// What comes back to a rank's part before.
    fn sent_back(self, before: &Region, after: &Region, data: &mut RankData) {
        let cotangent = self.inputs(0, COTANGENT);
        data.reads("cotangent".to_owned(), &after.shape(), after.of(&cotangent));
        let gradient = before.of(&cotangent);
        let lost = self.without_last(&cotangent, |of| of.to).into_iter();
        let mut guesses: Vec<_> = lost
            .map(|(class, numbers)| (class, before.of(&numbers)))
            .collect();
        let size = f64::from(self.world.size);
        guesses.push((Class::ReducedTwice, times(&gradient, size)));
        data.gives("gradient".to_owned(), &before.shape(), gradient, guesses);
    }

    fn options(self, rank: u32) -> serde_json::Value {
        let mesh = self.mesh();
        let is_late = self.point.late && rank + 1 == self.world.size;
        json!({
            "mesh": mesh.iter().map(|of| of.size).collect::<Vec<_>>(),
            "from": mesh.iter().map(|of| of.from).collect::<Vec<_>>(),
            "to": mesh.iter().map(|of| of.to).collect::<Vec<_>>(),
            "op": self.point.op.name(),
            "shape": [ROWS, COLUMNS],
            "sleep_ms": if is_late { LATE_MS } else { 0 },
        })
    }
}
