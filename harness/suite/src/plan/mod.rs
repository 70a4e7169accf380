//! The plan: scenarios × checks, worked out from cases, platforms and the command line before anything runs.

mod axes;
mod build;
mod check;
mod context;
mod expand;
mod filter;
mod groups;
mod op_point;
mod program;
mod random;
mod script;
mod sequence;
mod shard;
mod sweep;

pub use build::{Excluded, Plan, Selection, Target, plan};
pub use expand::replay;
pub use filter::{Filter, FilterError};
pub use groups::groups;
pub use program::{ProgramCheck, hang};
pub use script::{Act, Hang, MessageAct, Move, Script};
pub use sequence::{Does, Sequence, Turn, Unit, UnitKind};
pub use shard::{Shard, ShardError};

#[cfg(test)]
pub(crate) use check::example_check;
pub use check::{Check, CheckKind};

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::case::{Case, Fail};
use crate::platform::Platform;
use allranks_model::group::Group;
use allranks_model::launcher::Launcher;
use allranks_model::names::{CheckId, ScenarioId, WorldSize};
use allranks_model::recipe::{CpuBackend, DeviceId, SetDevice};
use allranks_model::store::StoreMethod;

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
    /// Devices the platform has; none: host, worlds of any size fit.
    pub devices: Option<u32>,
    /// Ranks started together.
    pub world_size: WorldSize,
    /// How the ranks initialise.
    pub init: Init,
    /// What starts them.
    pub launcher: Launcher,
    /// Groups, `world` first, then in the case's order (the order in which every rank creates them).
    pub groups: Vec<Arc<Group>>,
    /// Its checks, in order.
    pub checks: Vec<Check>,
    /// What must fail in it.
    pub refused: Option<Fail>,
}

impl Scenario {
    /// Ids of the two checks every scenario has besides those of its steps: `init` (every rank initialised and
    /// agrees on who it is) and `end` (every rank tore down, gave its token and exited with code 0).
    #[must_use]
    pub fn frame_checks(&self) -> [CheckId; 2] {
        ["init", "end"].map(|name| CheckId(format!("{}#{name}", self.id)))
    }

    /// What `init_process_group` gets as its backend.
    #[must_use]
    pub fn init_backend(&self) -> String {
        let declared = self.platform.backends[&self.backend].init.as_ref();
        let backend = declared.unwrap_or(&self.backend);
        match self.init.cpu_backend {
            CpuBackend::Absent => backend.clone(),
            CpuBackend::Gloo => format!("cpu:gloo,{}:{backend}", self.platform.device_type),
        }
    }

    /// Whether making this group must fail.
    #[must_use]
    pub fn refuses(&self, group: &Group) -> bool {
        self.refused.as_ref().is_some_and(|fail| fail.is_at(group))
    }

    /// Number of checks, the frame checks included.
    #[must_use]
    pub fn check_count(&self) -> usize {
        self.checks.len() + 2
    }
}

/// One init recipe: a point of the case's `world.init` matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Init {
    /// How ranks find each other.
    pub method: StoreMethod,
    /// What init is told of the device.
    pub device_id: DeviceId,
    /// When the device is made the current one.
    pub set_device: SetDevice,
    /// What the world has for the host's tensors.
    pub cpu_backend: CpuBackend,
    /// The axes of `world.init` that the case sweeps, for ids and columns: `("method", "tcp")`.
    pub swept: BTreeMap<String, String>,
}
