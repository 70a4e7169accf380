//! Process groups of a scenario.

use serde::{Deserialize, Serialize};

use crate::names::Rank;

/// How a process group is made, apart from its members and its backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Creation {
    /// Members in the order in which the library is given them; empty: in group order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given: Vec<Rank>,
    /// The library's own timeout, seconds, if not the world's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<f64>,
    /// With `use_local_synchronization`.
    #[serde(default)]
    pub local_sync: bool,
    /// By `split_group`.
    #[serde(default)]
    pub split: bool,
    /// The name that all copies of a group have in common, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
}

/// A process group of a scenario, with its members worked out for the scenario's world size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// `world`, or the name in the case.
    pub name: String,
    /// Members as global ranks, in group order: the group rank is the position here.
    pub ranks: Vec<Rank>,
    /// Its backend, if not the world's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Whether its tensors are the host's although the platform has a device: its backend is not one for the device.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_host: bool,
    /// How it is made.
    #[serde(default)]
    pub how: Creation,
}

impl Group {
    /// Whether a step that names `name` means it.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.how.family.as_deref() == Some(name)
    }

    /// The rank's position in the group, if it is a member.
    #[must_use]
    pub fn group_rank(&self, rank: Rank) -> Option<u32> {
        self.ranks
            .iter()
            .position(|member| *member == rank)
            .map(|position| position as u32)
    }

    /// The number of members.
    #[must_use]
    pub fn size(&self) -> usize {
        self.ranks.len()
    }
}
