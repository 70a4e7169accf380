//! The plan: scenarios × checks, worked out from cases, platforms and the command line before anything runs.

mod check;

pub use check::{
    Check, Declared, Extent, Group, Layout, Mode, ObjectKind, Op, Pairs, Placement, Root, RootBy,
    Splits,
};

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::case::Case;
use crate::names::{ScenarioId, WorldSize};
use crate::platform::Platform;
use crate::protocol::StoreMethod;

/// A case at one point of its world matrix. One world; one libtest trial.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Unique in the run.
    pub id: ScenarioId,
    /// The case it comes from.
    pub case: Arc<Case>,
    /// The platform its ranks run on.
    pub platform: Arc<Platform>,
    /// Backend name, a key of [`Platform::backends`].
    pub backend: String,
    /// Ranks started together.
    pub world_size: WorldSize,
    /// How the ranks initialise.
    pub init: Init,
    /// Groups, `world` first, then in the case's order (the order in which every rank creates them).
    pub groups: Vec<Arc<Group>>,
    /// Its checks, in order.
    pub checks: Vec<Check>,
}

/// One init recipe: a point of the case's `world.init` matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Init {
    /// How ranks find each other.
    pub method: StoreMethod,
    /// The axes of `world.init` that the case sweeps, for ids and columns: `("method", "tcp")`.
    pub swept: BTreeMap<String, String>,
}
