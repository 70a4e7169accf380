//! The placement of a world: how many of its ranks run on each node.

use serde::{Deserialize, Serialize};

use crate::names::{Rank, WorldSize};

/// The number of ranks on each node of a world. Ranks are placed in blocks: node 0 has the first ones, node 1 those after them.
/// There is at least one node, and each has at least one rank.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Placement(Vec<u32>);

impl Placement {
    /// Returns the placement of all ranks on one node.
    #[must_use]
    pub fn one_node(size: WorldSize) -> Self {
        Self(vec![size.0])
    }

    /// Returns the placement on `nodes` nodes whose numbers of ranks differ by 1 at most, larger ones first. `None` if a node would
    /// have no rank, or there is no node.
    #[must_use]
    pub fn even(size: WorldSize, nodes: u32) -> Option<Self> {
        if nodes == 0 || nodes > size.0 {
            return None;
        }
        let (each, more) = (size.0 / nodes, size.0 % nodes);
        Some(Self(
            (0..nodes)
                .map(|node| each + u32::from(node < more))
                .collect(),
        ))
    }

    /// Returns the placement with these numbers of ranks. `None` if there is no node, or a node without a rank.
    #[must_use]
    pub fn of(ranks: Vec<u32>) -> Option<Self> {
        (!ranks.is_empty() && !ranks.contains(&0)).then_some(Self(ranks))
    }

    /// Returns the number of ranks on each node, in the order of the nodes.
    #[must_use]
    pub fn ranks(&self) -> &[u32] {
        &self.0
    }

    /// Returns the number of nodes; at least 1.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of ranks on a node, counted from 0; 0 if there is no such node.
    #[must_use]
    pub fn ranks_on(&self, node: usize) -> u32 {
        self.0.get(node).copied().unwrap_or(0)
    }

    /// Returns the node of a rank, counted from 0, and the rank's place on it, its local rank. `None` if the world has no such
    /// rank.
    #[must_use]
    pub fn place_of(&self, rank: Rank) -> Option<(usize, u32)> {
        let mut first = 0;
        for (node, ranks) in self.0.iter().enumerate() {
            if rank.0 < first + ranks {
                return Some((node, rank.0 - first));
            }
            first += ranks;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_placed_in_blocks_and_no_node_is_empty() {
        let place = |size, nodes| Placement::even(WorldSize(size), nodes).map(|even| even.0);
        assert_eq!(place(4, 2), Some(vec![2, 2]));
        assert_eq!(place(5, 3), Some(vec![2, 2, 1]));
        assert_eq!(place(4, 1), Some(vec![4]));
        assert_eq!((place(1, 2), place(4, 0)), (None, None));
        assert_eq!(
            (Placement::of(vec![3, 0]), Placement::of(vec![])),
            (None, None)
        );
        let even = Placement::even(WorldSize(5), 3).unwrap();
        let places: Vec<_> = (0..6).map(|rank| even.place_of(Rank(rank))).collect();
        let expected = [
            Some((0, 0)),
            Some((0, 1)),
            Some((1, 0)),
            Some((1, 1)),
            Some((2, 0)),
            None,
        ];
        assert_eq!(places, expected);
        assert_eq!(
            (even.nodes(), even.ranks_on(2), even.ranks_on(3)),
            (3, 1, 0)
        );
    }
}
