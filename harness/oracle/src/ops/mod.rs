//! What each rank does in a check: one function for each op, from the check to buffers, views and calls.
//!
//! In: a check and a rank. Out: its [`RankPlan`]. The meaning of every op is written here, and only here, as the origins of
//! the pieces of its buffers; it is that of the `torch.distributed` documentation.

mod collective;
mod large;
mod objects;
mod pairs;
mod sparse;
mod uneven;

use super::geometry::Form;
use super::rank_plan::{Fill, Origin, PlanBuilder, RankPlan, Role};
use allranks_model::axes::TensorKind;
use allranks_model::axes::{Factor, RootBy, Values};
use allranks_model::names::Rank;
use allranks_model::op::Op;
use allranks_model::op_check::OpCheck;
use allranks_protocol::{Call, RankRef, Tensor};

/// How long the late rank of a barrier sleeps, milliseconds.
const LATE_MS: u64 = 20;

/// Slots `0..SAME` of a repeated check are tensors of one size; the one after them has the size of this item.
pub(super) const SAME: u32 = 3;
const LONGER: u32 = 15;

/// Returns true if a check makes its call several times on the same data, and once more on data that go on.
pub(super) fn repeats(check: &OpCheck) -> bool {
    check.op == Op::AllReduce && check.values == Values::Random
}

/// Lays out a rank's work.
pub(super) fn work(check: &OpCheck, seed: u64, rank: Rank) -> RankPlan {
    let Some(position) = check.group.group_rank(rank) else {
        return bystander(check, seed);
    };
    let builder = &mut PlanBuilder::new(check, seed, position);
    if check.tensor != TensorKind::Plain {
        let kind = check.tensor;
        let tensors = Vec::new();
        builder.work.calls.push(Call::TensorsAs { kind, tensors });
    }
    set_factor(builder);
    if check.is_large() {
        match check.op {
            Op::SendRecv => large::exchange(builder),
            _ => large::collective(builder),
        }
        return std::mem::take(&mut builder.work);
    }
    match check.op {
        Op::AllReduce | Op::AllReduceCoalesced | Op::CoalescedAllReduce => {
            collective::all_reduce(builder);
        }
        Op::AllReduceSparse => sparse::all_reduce(builder),
        Op::Broadcast => collective::broadcast(builder),
        Op::Reduce => collective::reduce(builder),
        Op::AllGather => collective::all_gather(builder),
        Op::AllGatherCoalesced => collective::all_gather_coalesced(builder),
        Op::AllGatherIntoTensor | Op::CoalescedAllGatherIntoTensor => {
            collective::all_gather_into_tensor(builder);
        }
        Op::Gather => collective::gather(builder),
        Op::Scatter => collective::scatter(builder),
        Op::ReduceScatter => collective::reduce_scatter(builder),
        Op::ReduceScatterTensor | Op::CoalescedReduceScatterTensor => {
            collective::reduce_scatter_tensor(builder);
        }
        Op::AllToAll => uneven::all_to_all(builder),
        Op::AllToAllSingle => uneven::all_to_all_single(builder),
        Op::SendRecv | Op::IsendIrecv | Op::BatchIsendIrecv => pairs::exchange(builder),
        Op::Barrier | Op::MonitoredBarrier => barrier(builder),
        Op::AllGatherObject => objects::all_gather(builder),
        Op::GatherObject => objects::gather(builder),
        Op::BroadcastObjectList => objects::broadcast(builder),
        Op::ScatterObjectList => objects::scatter(builder),
        // Refused before: the ops it issues are checks of their own.
    }
    choose_tensors(&mut builder.work);
    std::mem::take(&mut builder.work)
}

/// Chooses the tensors that a call of `tensors_as` is about: of leaves that require gradients, those that are read.
fn choose_tensors(work: &mut RankPlan) {
    let Some(Call::TensorsAs { kind, tensors }) = work.calls.first_mut() else {
        return;
    };
    let buffers = &work.buffers;
    let is_meant = |tensor: &Tensor| match (*kind, buffers[tensor.storage].role) {
        (TensorKind::RequiresGrad, Role::Output) => false,
        (TensorKind::RequiresGrad, _) => true,
        (TensorKind::Plain | TensorKind::Inference | TensorKind::Pinned, _) => true,
    };
    let indices = 0..work.tensors.len();
    *tensors = indices
        .filter(|index| is_meant(&work.tensors[*index]))
        .collect();
}

/// A rank outside the group makes no call and holds a buffer that must not be written to.
fn bystander(check: &OpCheck, seed: u64) -> RankPlan {
    let builder = &mut PlanBuilder::new(check, seed, 0);
    let len = if check.op.has_tensors() && !check.is_large() {
        builder.len(0)
    } else {
        16
    };
    let form = builder.form(0);
    let buffer = builder.buffer(
        Role::Bystander,
        None,
        form,
        [(len, Fill::Own(0), Origin::Keep)],
    );
    builder.whole(buffer, form);
    std::mem::take(&mut builder.work)
}

/// Tells the rank what `premul_sum` multiplies by, where that is not what the protocol says.
fn set_factor(builder: &mut PlanBuilder<'_>) {
    let (factor, tensor) = match builder.check.factor {
        Factor::Scalar => return,
        Factor::PerRank => (Some(Factor::PerRank.of(builder.position as usize)), None),
        Factor::Tensor => {
            let piece = (1, Fill::Factor, Origin::Keep);
            let buffer = builder.buffer(Role::Input, None, Form::Flat, [piece]);
            (None, Some(builder.whole(buffer, Form::Flat)))
        }
    };
    builder
        .work
        .calls
        .push(Call::PremulFactor { factor, tensor });
}

fn barrier(builder: &mut PlanBuilder<'_>) {
    if builder.check.late == Some(builder.position) {
        builder.work.calls.push(Call::Sleep { ms: LATE_MS });
    }
    let group = builder.group();
    if builder.check.op == Op::MonitoredBarrier {
        // It has no `async_op`.
        builder.work.calls.push(Call::MonitoredBarrier { group });
    } else {
        let async_op = builder.is_async();
        builder.call(Call::Barrier { group, async_op });
    }
}

impl PlanBuilder<'_> {
    /// Returns the group's name, for calls.
    fn group(&self) -> String {
        self.check.group.name.clone()
    }

    /// Returns the root's position in the group.
    fn root(&self) -> u32 {
        self.check.root.map_or(0, |root| root.group_rank)
    }

    fn is_root(&self) -> bool {
        self.position == self.root()
    }

    /// Returns the root as the check names it.
    fn root_ref(&self) -> RankRef {
        let by = self.check.root.map_or(RootBy::Global, |root| root.by);
        self.rank_ref(self.root(), by)
    }

    /// Returns a member, named either way.
    fn rank_ref(&self, position: u32, by: RootBy) -> RankRef {
        match by {
            RootBy::Global => RankRef::Global(Rank(self.member(position))),
            RootBy::Group => RankRef::Group(position),
        }
    }
}
