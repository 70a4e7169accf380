//! A layout: ranks as a grid whose axes are kinds of parallelism, and the groups along its axes.
//!
//! With order o1-o2-…-ok (the first varies fastest) and sizes s, the stride of axis i is the product of the sizes before
//! it; the groups along an axis fix all other axes and run over it. This is how Megatron-LM (`RankGenerator` in
//! `parallel_state.py`, order "tp-cp-ep-dp-pp") and SGLang number ranks. Ulysses and ring attention inside sequence
//! parallelism are two axes, next to each other in either order, and their sequence-parallel group runs along both.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The world as a grid whose axes are kinds of parallelism: `{order: tp-pp-dp, degrees: {tp: 2, pp: 2, dp: 2}}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LayoutSpec {
    /// The axes, joined by `-`, the one that varies fastest between neighbouring ranks first: `tp-pp-dp`.
    pub order: String,
    /// How many ranks each axis has: `{tp: 2, dp: 4}`. An axis that is not named has one.
    pub degrees: BTreeMap<String, u32>,
}

impl LayoutSpec {
    /// Returns the names of the axes, the one that varies fastest first.
    pub fn axes(&self) -> impl Iterator<Item = &str> {
        self.order.split('-')
    }

    /// Returns the number of ranks along an axis; 1 for an axis without a degree.
    #[must_use]
    pub fn degree(&self, axis: &str) -> u32 {
        self.degrees.get(axis).copied().unwrap_or(1)
    }

    /// Returns the number of ranks of the world: the product of all degrees.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.axes().map(|axis| self.degree(axis)).product()
    }

    /// Returns the groups along these axes: every rank is in exactly one of them, together with the ranks that differ
    /// from it along `along` only. Groups are in the order of their lowest ranks, and the ranks of each are ascending.
    #[must_use]
    pub fn groups(&self, along: &[String]) -> Vec<Vec<u32>> {
        let mut groups: BTreeMap<Vec<u32>, Vec<u32>> = BTreeMap::new();
        for rank in 0..self.size() {
            let mut rest = rank;
            let mut fixed = Vec::new();
            for axis in self.axes() {
                let degree = self.degree(axis);
                if !along.iter().any(|one| one == axis) {
                    fixed.push(rest % degree);
                }
                rest /= degree;
            }
            groups.entry(fixed).or_default().push(rank);
        }
        let mut groups: Vec<Vec<u32>> = groups.into_values().collect();
        groups.sort_unstable();
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(order: &str, degrees: &[(&str, u32)]) -> LayoutSpec {
        LayoutSpec {
            order: order.to_owned(),
            degrees: degrees
                .iter()
                .map(|(axis, degree)| ((*axis).to_owned(), *degree))
                .collect(),
        }
    }

    fn along(layout: &LayoutSpec, axes: &[&str]) -> Vec<Vec<u32>> {
        let axes: Vec<String> = axes.iter().map(|axis| (*axis).to_owned()).collect();
        layout.groups(&axes)
    }

    /// The example in the documentation of Megatron-LM's `initialize_model_parallel`: 16 GPUs, tensor parallel by 2,
    /// pipeline parallel by 4.
    #[test]
    fn the_example_of_megatron() {
        let grid = layout("tp-cp-ep-dp-pp", &[("tp", 2), ("dp", 2), ("pp", 4)]);
        assert_eq!(grid.size(), 16);
        let tensor: Vec<Vec<u32>> = (0..8).map(|group| vec![2 * group, 2 * group + 1]).collect();
        assert_eq!(along(&grid, &["tp"]), tensor);
        assert_eq!(
            along(&grid, &["pp"]),
            [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]
        );
        assert_eq!(
            along(&grid, &["dp"]),
            [
                [0, 2],
                [1, 3],
                [4, 6],
                [5, 7],
                [8, 10],
                [9, 11],
                [12, 14],
                [13, 15]
            ]
        );
        assert_eq!(
            along(&grid, &["tp", "pp"]),
            [[0, 1, 4, 5, 8, 9, 12, 13], [2, 3, 6, 7, 10, 11, 14, 15]]
        );
    }

    /// Ulysses by consecutive ranks and ring by strides, or the other way round.
    #[test]
    fn ulysses_and_ring_inside_sequence_parallelism() {
        let degrees = [("u", 2), ("r", 2), ("dp", 2)];
        let inner = layout("u-r-dp", &degrees);
        assert_eq!(along(&inner, &["u"]), [[0, 1], [2, 3], [4, 5], [6, 7]]);
        assert_eq!(along(&inner, &["r"]), [[0, 2], [1, 3], [4, 6], [5, 7]]);
        let outer = layout("r-u-dp", &degrees);
        assert_eq!(along(&outer, &["u"]), along(&inner, &["r"]));
        assert_eq!(along(&inner, &["u", "r"]), along(&outer, &["u", "r"]));
    }

    /// By strides, as the formula is written.
    #[test]
    fn a_second_way_to_the_same_groups() {
        let sizes = [1, 2, 3, 2];
        let axes = ["a", "b", "c", "d"];
        let grid = layout("a-b-c-d", &[("b", 2), ("c", 3), ("d", 2)]);
        for (axis, name) in axes.into_iter().enumerate() {
            let stride: u32 = sizes[..axis].iter().product();
            let mut expected = Vec::new();
            for rank in 0..grid.size() {
                if (rank / stride).is_multiple_of(sizes[axis]) {
                    let group: Vec<u32> = (0..sizes[axis]).map(|k| rank + k * stride).collect();
                    expected.push(group);
                }
            }
            expected.sort_unstable();
            assert_eq!(along(&grid, &[name]), expected, "along {name}");
        }
    }
}
