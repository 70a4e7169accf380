//! Process groups of a scenario.

use serde::{Deserialize, Serialize};

use crate::names::Rank;

/// How a process group is created, apart from its members and its backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Creation {
    /// Members in the order in which they are passed to `new_group`; empty: in group order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given: Vec<Rank>,
    /// The group's timeout in seconds; `None`: the world's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<f64>,
    /// Whether `new_group` is called with `use_local_synchronization`.
    #[serde(default)]
    pub local_sync: bool,
    /// Whether the group is created by `split_group`, and not by `new_group`.
    #[serde(default)]
    pub split: bool,
    /// The name in the case that all copies of a group share; `None` if there is one copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
}

/// A process group of a scenario, with its members at the scenario's world size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// `world`, or the name in the case.
    pub name: String,
    /// Members as global ranks in group order: a member's position is its group rank.
    pub ranks: Vec<Rank>,
    /// The group's backend; `None`: the world's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Whether the group's tensors are in host memory although the platform has a device, because its backend does not serve the
    /// device.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_host: bool,
    /// How the group is created.
    #[serde(default)]
    pub how: Creation,
}

impl Group {
    /// Returns true if `name` in a step means this group: its own name, or the name shared by all its copies.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.how.family.as_deref() == Some(name)
    }

    /// Returns the rank's position in the group, or `None` if it is no member.
    #[must_use]
    pub fn group_rank(&self, rank: Rank) -> Option<u32> {
        self.ranks
            .iter()
            .position(|member| *member == rank)
            .map(|position| position as u32)
    }

    /// Returns the number of members.
    #[must_use]
    pub fn size(&self) -> usize {
        self.ranks.len()
    }
}
