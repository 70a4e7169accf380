//! How a step's lists become points: one at a time, pairwise, or the full product.
//!
//! In: how many values each axis has. Out: for each point, which value of each axis. Nothing here knows what an
//! axis means.

use std::collections::BTreeSet;

use crate::case::Sweep;

/// The points of a sweep over axes with `lengths` values each, without repetition, the all-first point first.
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

/// A greedy covering array: each new point starts from an uncovered pair and gives every other axis the value
/// that covers most pairs still uncovered. Deterministic; not minimal, but close.
fn pairwise(lengths: &[usize]) -> Vec<Vec<usize>> {
    let axes = lengths.len();
    if axes < 2 {
        return product(lengths);
    }
    let mut open: BTreeSet<[usize; 4]> = BTreeSet::new();
    for a in 0..axes {
        for b in a + 1..axes {
            for x in 0..lengths[a] {
                open.extend((0..lengths[b]).map(|y| [a, x, b, y]));
            }
        }
    }
    let mut points = Vec::new();
    let mut point = vec![0; axes];
    loop {
        for a in 0..axes {
            for b in a + 1..axes {
                open.remove(&[a, point[a], b, point[b]]);
            }
        }
        points.push(point);
        let Some([a, x, b, y]) = open.first().copied() else {
            return points;
        };
        let mut next: Vec<Option<usize>> = vec![None; axes];
        next[a] = Some(x);
        next[b] = Some(y);
        for axis in 0..axes {
            if next[axis].is_some() {
                continue;
            }
            let covers = |value: usize| {
                next.iter()
                    .enumerate()
                    .filter_map(|(other, known)| known.map(|known| (other, known)))
                    .filter(|(other, known)| {
                        open.contains(&if *other < axis {
                            [*other, *known, axis, value]
                        } else {
                            [axis, value, *other, *known]
                        })
                    })
                    .count()
            };
            // The last of equals: the first value is over-represented already.
            next[axis] = (0..lengths[axis]).max_by_key(|value| covers(*value));
        }
        point = next.into_iter().flatten().collect();
    }
}

#[cfg(test)]
mod tests {
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
