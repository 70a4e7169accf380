//! Newtypes for ranks, world sizes, and the ids of cases, scenarios, checks and requirements.
//!
//! They carry no behaviour beyond parsing and printing; they exist so that a rank is never mistaken for a count.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A rank in the world (a *global* rank), as `torch.distributed` numbers it: `0..world_size`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct Rank(pub u32);

impl Rank {
    /// Returns the rank as an index into a vector with one item for each rank.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of ranks started together; at least 1.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct WorldSize(#[schemars(range(min = 1, max = WorldSize::MAX))] pub u32);

impl WorldSize {
    /// The largest number of ranks that a case or the command line may ask for.
    pub const MAX: u32 = 8192;

    /// Returns every rank of the world, in ascending order.
    pub fn ranks(self) -> impl Iterator<Item = Rank> {
        (0..self.0).map(Rank)
    }

    /// Returns the size as a `usize`, for the length of a vector with one item for each rank.
    #[must_use]
    pub fn count(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for WorldSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

macro_rules! string_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
        )]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl $name {
            /// Returns the id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }
    };
}

string_id! {
    /// A case's id, `collectives/all_reduce/dtypes`: the path of its file under `cases/`, without `.yaml`.
    CaseId
}
string_id! {
    /// A requirement's id in `cases/requirements.yaml`, `COLL-014`.
    RequirementId
}
string_id! {
    /// A scenario's id: `CASE@PLATFORM.BACKEND.wsN`, then `.NAME-VALUE` for each init axis the case sweeps.
    /// Safe in a shell without quoting.
    ScenarioId
}
string_id! {
    /// A check's id: `SCENARIO#STEP.OP.VALUE.VALUE…`. Safe in a shell, inside double quotes.
    CheckId
}
