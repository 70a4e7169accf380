//! Combines the lists of a step into points: one at a time, pairwise, or the full product.
//!
//! In: the number of values of each axis. Out: for each point, the place of a value on each axis. The meaning of the
//! axes plays no part.

use crate::case::Sweep;

/// Returns the points of a sweep over axes with `lengths` values each, without repetition. The first point has the
/// first value of every axis. Empty if an axis has no values.
#[must_use]
pub fn points(sweep: Sweep, lengths: &[usize]) -> Vec<Vec<usize>> {
    if lengths.contains(&0) {
        return Vec::new();
    }
    match sweep {
        Sweep::OneAtATime => one_at_a_time(lengths),
        Sweep::Pairwise => pairwise(lengths),
        Sweep::Full => product(lengths),
    }
}

fn one_at_a_time(lengths: &[usize]) -> Vec<Vec<usize>> {
    let base = vec![0; lengths.len()];
    let mut points = vec![base.clone()];
    for (axis, length) in lengths.iter().enumerate() {
        points.extend((1..*length).map(|value| {
            let mut point = base.clone();
            point[axis] = value;
            point
        }));
    }
    points
}

fn product(lengths: &[usize]) -> Vec<Vec<usize>> {
    // The last axis is the fastest.
    let mut points = vec![vec![0; lengths.len()]];
    for (axis, length) in lengths
        .iter()
        .enumerate()
        .filter(|(_, length)| **length > 1)
    {
        points = points
            .into_iter()
            .flat_map(|point| {
                (0..*length).map(move |value| {
                    let mut point = point.clone();
                    point[axis] = value;
                    point
                })
            })
            .collect();
    }
    points
}

/// Returns a covering array, made greedily: each new point starts from an uncovered pair, and gives every other axis
/// the value that covers most pairs that are still uncovered. Deterministic; not minimal, but close.
fn pairwise(lengths: &[usize]) -> Vec<Vec<usize>> {
    let axes = lengths.len();
    if axes < 2 {
        return product(lengths);
    }
    let mut open = OpenPairs::new(lengths);
    let mut points = Vec::new();
    let mut point = vec![0; axes];
    loop {
        for a in 0..axes {
            for b in a + 1..axes {
                open.close([a, point[a], b, point[b]]);
            }
        }
        points.push(point);
        let Some([a, x, b, y]) = open.first() else {
            return points;
        };
        let mut next: Vec<Option<usize>> = vec![None; axes];
        next[a] = Some(x);
        next[b] = Some(y);
        for axis in 0..axes {
            if next[axis].is_none() {
                next[axis] = Some(open.best_value(&next, axis));
            }
        }
        point = next.into_iter().flatten().collect();
    }
}

/// The pairs of values of two axes that no point has yet: value `x` of axis `a` with value `y` of a later axis `b`,
/// numbered in the order of `[a, x, b, y]`.
struct OpenPairs<'a> {
    lengths: &'a [usize],
    /// The number of the first pair of each axis.
    starts: Vec<usize>,
    /// For each axis, the number of values of all axes before it together.
    offsets: Vec<usize>,
    is_open: Vec<bool>,
    /// The number of a pair before which none is open.
    cursor: usize,
}

impl<'a> OpenPairs<'a> {
    fn new(lengths: &'a [usize]) -> Self {
        let (mut starts, mut offsets) = (Vec::new(), Vec::new());
        let (mut pairs, mut before) = (0, 0);
        let values: usize = lengths.iter().sum();
        for length in lengths {
            starts.push(pairs);
            offsets.push(before);
            before += length;
            pairs += length * (values - before);
        }
        Self {
            lengths,
            starts,
            offsets,
            is_open: vec![true; pairs],
            cursor: 0,
        }
    }

    /// Returns the number of values of all axes after this one together.
    fn later_values(&self, axis: usize) -> usize {
        self.lengths[axis + 1..].iter().sum()
    }

    fn number(&self, [a, x, b, y]: [usize; 4]) -> usize {
        let first_later = self.offsets[a] + self.lengths[a];
        self.starts[a] + x * self.later_values(a) + self.offsets[b] - first_later + y
    }

    fn close(&mut self, pair: [usize; 4]) {
        let number = self.number(pair);
        self.is_open[number] = false;
    }

    /// Returns the first pair that is open; `None` if every pair is closed.
    fn first(&mut self) -> Option<[usize; 4]> {
        let ahead = self.is_open[self.cursor..].iter().position(|open| *open)?;
        self.cursor += ahead;
        let a = self.starts.partition_point(|start| *start <= self.cursor) - 1;
        let within = self.cursor - self.starts[a];
        let (x, rest) = (within / self.later_values(a), within % self.later_values(a));
        let value = rest + self.offsets[a] + self.lengths[a];
        let b = self.offsets.partition_point(|offset| *offset <= value) - 1;
        Some([a, x, b, value - self.offsets[b]])
    }

    /// Returns the value of an axis that makes most open pairs with the values chosen so far. Of equals it is the
    /// last, because the first value is over-represented already.
    fn best_value(&self, chosen: &[Option<usize>], axis: usize) -> usize {
        let mut covered = vec![0_usize; self.lengths[axis]];
        for (other, known) in chosen.iter().enumerate() {
            let Some(known) = *known else { continue };
            let (first, step) = match other < axis {
                true => (self.number([other, known, axis, 0]), 1),
                false => (
                    self.number([axis, 0, other, known]),
                    self.later_values(axis),
                ),
            };
            let open = self.is_open[first..].iter().step_by(step);
            for (count, is_open) in covered.iter_mut().zip(open) {
                *count += usize::from(*is_open);
            }
        }
        let best = (0..covered.len()).max_by_key(|value| covered[*value]);
        best.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn one_at_a_time_varies_each_axis_alone() {
        let points = points(Sweep::OneAtATime, &[3, 2]);
        assert_eq!(points, [vec![0, 0], vec![1, 0], vec![2, 0], vec![0, 1]]);
    }

    #[test]
    fn full_is_the_product() {
        assert_eq!(points(Sweep::Full, &[3, 2, 4]).len(), 24);
        assert_eq!(points(Sweep::Full, &[]), [Vec::<usize>::new()]);
    }

    #[test]
    fn pairwise_covers_every_pair_with_far_fewer_points() {
        let lengths = [17, 5, 12, 4, 2];
        let points = points(Sweep::Pairwise, &lengths);
        for a in 0..lengths.len() {
            for b in a + 1..lengths.len() {
                for x in 0..lengths[a] {
                    for y in 0..lengths[b] {
                        assert!(
                            points.iter().any(|point| point[a] == x && point[b] == y),
                            "axis {a}={x} with axis {b}={y} is missing"
                        );
                    }
                }
            }
        }
        let distinct: BTreeSet<_> = points.iter().collect();
        assert_eq!(distinct.len(), points.len());
        assert!(points.len() < 17 * 12 * 2, "{} points", points.len());
    }

    #[test]
    fn an_empty_axis_selects_nothing() {
        assert!(points(Sweep::Full, &[3, 0]).is_empty());
    }
}
