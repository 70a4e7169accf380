//! The plan: scenarios × checks, computed from cases, platforms and the command line before anything runs.

mod axes;
mod build;
mod check;
mod context;
mod coverage;
mod expand;
mod filter;
mod groups;
mod op_point;
mod program;
mod random;
mod script;
mod selection;
mod sequence;
mod shard;
mod spread;
mod sweep;

pub use build::{Excluded, Plan, plan};
pub use coverage::coverage;
pub use expand::replay;
pub use filter::{Filter, FilterError};
pub use groups::groups;
pub use program::{ProgramCheck, hang};
pub use script::{Act, DataCheck, Hang, HangSymptom, MessageAct, Move, Script};
pub use selection::{Selection, Target};
pub use sequence::{Sequence, SequenceAct, SequenceMove, Unit, UnitKind};
pub use shard::{Shard, ShardError, Share};

#[cfg(test)]
pub(crate) use check::example_check;
pub use check::{Check, CheckKind};

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::case::{Case, Fail, Starts};
use crate::platform::Platform;
use allranks_model::group::Group;
use allranks_model::launcher::Launcher;
use allranks_model::names::{CheckId, RequirementId, ScenarioId, WorldSize};
use allranks_model::placement::Placement;
use allranks_model::recipe::{CpuBackend, DeviceId, SetDevice};
use allranks_model::store::StoreMethod;

/// Requirements that the checks `init` and `teardown` of a program cover.
const PROGRAM_COVERS: &[&str] = &["PROG-001"];
/// Requirements that the check `init` of every other scenario covers.
const OPENING_COVERS: &[&str] = &["INIT-001", "INIT-002"];
/// Requirement that `init` covers as well if a group has a timeout of its own: every rank reports the timeouts.
const GROUP_TIMEOUT_COVERS: &str = "GRP-013";
/// Requirement that the check `teardown` of every other scenario covers.
const CLOSING_COVERS: &[&str] = &["DOWN-001"];

/// A case at one point of its world matrix: one world, and one libtest trial.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its id, unique in the run: `collectives/all_reduce/dtypes@cpu.gloo.ws4`.
    pub id: ScenarioId,
    /// The case it comes from.
    pub case: Arc<Case>,
    /// The platform its ranks run on.
    pub platform: Arc<Platform>,
    /// The name of the backend, a key of [`Platform::backends`].
    pub backend: String,
    /// Number of devices that were found for the platform. `None`: a host, on which worlds of any size fit.
    pub devices: Option<u32>,
    /// Number of ranks that are started together.
    pub world_size: WorldSize,
    /// How many of its ranks run on each node.
    pub placement: Placement,
    /// The init recipe: how the ranks initialise.
    pub init: Init,
    /// What starts the ranks.
    pub launcher: Launcher,
    /// Groups, `world` first, then in the case's order (the order in which every rank creates them).
    pub groups: Vec<Arc<Group>>,
    /// Its checks, in the order of the case's steps.
    pub checks: Vec<Check>,
    /// The failure that the case expects in it. `None`: everything must work.
    pub refused: Option<Fail>,
}

impl Scenario {
    /// Returns the ids of the two checks that every scenario has besides those of its steps: `init` (every rank
    /// initialised, and the answers of all agree on ranks and sizes) and `end` (every rank tore down, gave its token
    /// and exited with code 0).
    #[must_use]
    pub fn frame_checks(&self) -> [CheckId; 2] {
        ["init", "end"].map(|name| CheckId(format!("{}#{name}", self.id)))
    }

    /// Returns the requirements that the two frame checks cover, in their order.
    #[must_use]
    pub fn frame_covers(&self) -> [Vec<RequirementId>; 2] {
        let (opening, closing): (&[&str], &[&str]) = match self.case.world.starts {
            _ if self.case.program.is_some() => (PROGRAM_COVERS, PROGRAM_COVERS),
            Starts::Initialised => (OPENING_COVERS, CLOSING_COVERS),
            // Its scripts initialise and destroy, and say themselves what that covers.
            Starts::Bare => (&[], &[]),
        };
        let ids = |names: &[&str]| names.iter().map(|id| RequirementId::from(*id)).collect();
        let [mut opening, closing]: [Vec<RequirementId>; 2] = [opening, closing].map(ids);
        if self
            .groups
            .iter()
            .any(|group| group.how.timeout_s.is_some())
        {
            opening.push(RequirementId::from(GROUP_TIMEOUT_COVERS));
        }
        if self.refused.is_some() {
            // What must fail in it fails there.
            opening.extend(self.case.covers.iter().cloned());
        }
        [opening, closing]
    }

    /// Returns the argument `backend=` of `init_process_group`.
    #[must_use]
    pub fn init_backend(&self) -> String {
        let declared = self.platform.backends[&self.backend].init.as_ref();
        let backend = declared.unwrap_or(&self.backend);
        match self.init.cpu_backend {
            CpuBackend::Absent => backend.clone(),
            CpuBackend::Gloo => format!("cpu:gloo,{}:{backend}", self.platform.device_type),
        }
    }

    /// Returns whether creating this group must fail.
    #[must_use]
    pub fn refuses(&self, group: &Group) -> bool {
        self.refused.as_ref().is_some_and(|fail| fail.is_at(group))
    }

    /// Returns the number of checks, with the two frame checks.
    #[must_use]
    pub fn check_count(&self) -> usize {
        self.checks.len() + 2
    }
}

/// An init recipe: one point of the case's `world.init` matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Init {
    /// How ranks find each other.
    pub method: StoreMethod,
    /// The argument `device_id` of `init_process_group`.
    pub device_id: DeviceId,
    /// When the device is made the current one.
    pub set_device: SetDevice,
    /// The backend that the world has for tensors of the host.
    pub cpu_backend: CpuBackend,
    /// The axes of `world.init` of which the case has several values, each with its value here, as ids and columns
    /// show them: `method` → `tcp`.
    pub swept: BTreeMap<String, String>,
}
