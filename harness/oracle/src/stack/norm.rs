//! Gradients whose norm is known: one element of each shard of a parameter is not zero, and the norm of each parameter is the
//! same integer. So the norm over four parameters is twice that, and clipping to the half of it is exact.
//!
//! The norm over a rank's own shards is no integer. It is worked out in float32, one rounding at a time.

use crate::hash::below;

/// For each number of shards, the element of each shard that is not zero, and the norm of them all.
const TUPLES: &[(&[f64], f64)] = &[
    (&[48.0, 64.0], 80.0),
    (&[16.0, 32.0, 32.0], 48.0),
    (&[24.0, 24.0, 24.0, 24.0], 48.0),
];
/// What torch adds to a norm before it divides by it.
const EPSILON: f32 = 1e-6;

/// Gradients of four parameters on so many shards, 2 to 4.
#[derive(Clone, Copy)]
pub(super) struct KnownNorm {
    shards: &'static [f64],
    /// The norm of each parameter.
    of_one: f64,
}

impl KnownNorm {
    /// Returns the gradients for so many shards; `None` if there are none.
    pub(super) fn of(shards: u32) -> Option<Self> {
        let tuple = TUPLES
            .iter()
            .find(|(elements, _)| elements.len() == shards as usize);
        tuple.map(|(shards, of_one)| Self {
            shards,
            of_one: *of_one,
        })
    }

    /// Returns the norm of all four parameters.
    pub(super) fn total(self) -> f64 {
        2.0 * self.of_one
    }

    /// Returns the norm to clip to: every gradient is halved.
    pub(super) fn limit(self) -> f64 {
        self.of_one
    }

    /// Returns the gradient of a parameter whose shards are these, not all of them empty. `word` says where in its shard each
    /// element is, and which sign it has.
    pub(super) fn gradient(self, ranges: &[std::ops::Range<usize>], word: u64) -> Vec<f64> {
        let mut gradient = vec![0.0; ranges.last().map_or(0, |range| range.end)];
        let filled: Vec<_> = ranges.iter().filter(|range| !range.is_empty()).collect();
        for (range, element) in filled.iter().zip(self.shards) {
            let place = range.start + below(word, range.len() as u64) as usize;
            let element = match filled.len() == self.shards.len() {
                true => *element,
                // The only shard there is.
                false => self.of_one,
            };
            gradient[place] = if word & 1 == 0 { element } else { -element };
        }
        gradient
    }

    /// Returns what elements become that are clipped by a norm, the root of a sum of squares, in float32.
    pub(super) fn clipped(self, elements: &[f64], squares: f64) -> Vec<f64> {
        let norm = squares.sqrt() as f32 + EPSILON;
        // torch divides a number by a tensor by way of the reciprocal.
        let factor = (self.limit() as f32 * (1.0 / norm)).min(1.0);
        elements
            .iter()
            .map(|element| f64::from(*element as f32 * factor) + 0.0)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_norm_of_every_number_of_shards_is_the_one_it_is_said_to_be() {
        for shards in 2..=4 {
            let norm = KnownNorm::of(shards).unwrap();
            let each = 3;
            let ranges: Vec<_> = (0..shards as usize)
                .map(|at| at * each..(at + 1) * each)
                .collect();
            let gradient = norm.gradient(&ranges, 0x1234_5678_9abc_def0);
            let squares: f64 = gradient.iter().map(|element| element * element).sum();
            assert_eq!(squares.sqrt() * 2.0, norm.total());
            assert_eq!(squares.sqrt(), norm.limit());
        }
        assert!(KnownNorm::of(5).is_none());
    }

    #[test]
    fn a_parameter_with_one_shard_has_the_same_norm() {
        let norm = KnownNorm::of(3).unwrap();
        let gradient = norm.gradient(&[0..1, 1..1, 1..1], 2);
        assert_eq!(gradient, [48.0]);
    }

    #[test]
    fn the_norm_of_the_whole_halves_and_a_smaller_one_does_nothing() {
        let norm = KnownNorm::of(2).unwrap();
        assert_eq!(norm.clipped(&[48.0, 0.0], 160.0 * 160.0), [24.0, 0.0]);
        assert_eq!(norm.clipped(&[48.0], 1600.0), [48.0]);
    }
}
