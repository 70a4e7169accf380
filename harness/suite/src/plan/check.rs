//! A check: one assertion inside a scenario, at one point of its step's sweep. Plain data, complete in itself: the
//! oracle and the judge need nothing else from the case.

use std::sync::Arc;

use super::{ProgramCheck, Script};
use allranks_model::axes::Extent;
use allranks_model::axes::Factor;
use allranks_model::axes::Joined;
use allranks_model::axes::Layout;
use allranks_model::axes::LayoutOf;
use allranks_model::axes::Mode;
use allranks_model::axes::NonRoot;
use allranks_model::axes::ObjectKind;
use allranks_model::axes::Pairs;
use allranks_model::axes::Placement;
use allranks_model::axes::Root;
use allranks_model::axes::RootBy;
use allranks_model::axes::Splits;
use allranks_model::axes::Values;
use allranks_model::capability::Declared;
use allranks_model::group::Group;
use allranks_model::op::Op;
use serde::{Deserialize, Serialize};

use allranks_model::axes::TensorKind;
use allranks_model::capability::Promises;
use allranks_model::dtype::{DType, ReduceOp};
use allranks_model::names::{CheckId, RequirementId};

impl Check {
    /// From how many elements of one contribution on tensors are too large to travel: ranks make them themselves, and
    /// windows are compared.
    pub const LARGE: u64 = 1 << 26;

    /// Whether it is a point of an op's sweep.
    #[must_use]
    pub fn is_of_sweep(&self) -> bool {
        self.script.is_none() && self.demand.is_none()
    }

    /// Whether its tensors are too large to travel.
    #[must_use]
    pub fn is_large(&self) -> bool {
        self.op.has_tensors() && self.extent.numel() >= Self::LARGE
    }

    /// Bytes of memory its ranks need together on one host: their tensors, as much again for the backend's own buffers.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let contribution = self.extent.numel().saturating_mul(self.dtype.size() as u64);
        let ranks = self.group.size() as u64;
        let tensors = match self.op {
            Op::AllGatherIntoTensor => 1 + ranks,
            Op::SendRecv => 2,
            _ => 1,
        };
        contribution
            .saturating_mul(ranks)
            .saturating_mul(tensors)
            .saturating_mul(2)
    }
}

/// One assertion, at one point of a step's sweep.
///
/// Fields that an op has no use for hold their neutral value (`None`, `Layout::Contiguous`, `Mode::Sync`, ...).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Unique in the run.
    pub id: CheckId,
    /// Position in the scenario, from 0; also the oracle's `call` number, so that no two checks share data.
    pub index: u32,
    /// What it exercises.
    pub op: Op,
    /// The group, with members.
    pub group: Arc<Group>,
    /// Element type (object collectives and barriers: uint8, unused).
    pub dtype: DType,
    /// Reduce operator, for ops that reduce.
    pub reduce: Option<ReduceOp>,
    /// Size of one rank's contribution.
    pub extent: Extent,
    /// Root, for ops that have one.
    pub root: Option<Root>,
    /// How tensors lie in their storages.
    pub layout: Layout,
    /// Which tensors do.
    pub layout_of: LayoutOf,
    /// What kind of tensors they are to torch.
    pub tensor: TensorKind,
    /// For ops with one tensor for all ranks' contributions.
    pub joined: Joined,
    /// Sync or async.
    pub mode: Mode,
    /// Shared memory between input and output.
    pub placement: Placement,
    /// For `reduce`.
    pub non_root: NonRoot,
    /// For all_to_all, and ops on lists.
    pub splits: Splits,
    /// For point-to-point ops.
    pub pairs: Pairs,
    /// How peers are named in point-to-point ops.
    pub peer_by: RootBy,
    /// Number of tensors (coalesced ops) or of messages for each pair (point-to-point).
    pub count: u32,
    /// Message tag (point-to-point).
    pub tag: u32,
    /// For object collectives.
    pub object: ObjectKind,
    /// Which group rank is late, for barriers.
    pub late: Option<u32>,
    /// The requirements it covers.
    pub covers: Arc<[RequirementId]>,
    /// What values its tensors hold.
    pub values: Values,
    /// For `premul_sum`.
    pub factor: Factor,
    /// What the platform file says of it.
    pub declared: Declared,
    /// What the platform file promises of the backend's arithmetic.
    pub promises: Promises,
    /// The sweep's axes and their values as written in the report, in order: `("dtype", "float32")`.
    pub params: Vec<(String, String)>,
    /// Where its step is written, `collectives/all_reduce/dtypes.yaml:12`.
    pub at: Arc<str>,
    /// What the ranks do, if it is a script.
    #[serde(skip)]
    pub script: Option<Arc<Script>>,
    /// What is asked, if the ranks run a program.
    #[serde(skip)]
    pub demand: Option<ProgramCheck>,
}
