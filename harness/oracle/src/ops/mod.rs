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
    let desk = &mut PlanBuilder::new(check, seed, position);
    if check.tensor != TensorKind::Plain {
        let kind = check.tensor;
        let tensors = Vec::new();
        desk.work.calls.push(Call::TensorsAs { kind, tensors });
    }
    set_factor(desk);
    if check.is_large() {
        match check.op {
            Op::SendRecv => large::exchange(desk),
            _ => large::collective(desk),
        }
        return std::mem::take(&mut desk.work);
    }
    match check.op {
        Op::AllReduce | Op::AllReduceCoalesced | Op::CoalescedAllReduce => {
            collective::all_reduce(desk);
        }
        Op::AllReduceSparse => sparse::all_reduce(desk),
        Op::Broadcast => collective::broadcast(desk),
        Op::Reduce => collective::reduce(desk),
        Op::AllGather => collective::all_gather(desk),
        Op::AllGatherCoalesced => collective::all_gather_coalesced(desk),
        Op::AllGatherIntoTensor | Op::CoalescedAllGatherIntoTensor => {
            collective::all_gather_into_tensor(desk);
        }
        Op::Gather => collective::gather(desk),
        Op::Scatter => collective::scatter(desk),
        Op::ReduceScatter => collective::reduce_scatter(desk),
        Op::ReduceScatterTensor | Op::CoalescedReduceScatterTensor => {
            collective::reduce_scatter_tensor(desk);
        }
        Op::AllToAll => uneven::all_to_all(desk),
        Op::AllToAllSingle => uneven::all_to_all_single(desk),
        Op::SendRecv | Op::IsendIrecv | Op::BatchIsendIrecv => pairs::exchange(desk),
        Op::Barrier | Op::MonitoredBarrier => barrier(desk),
        Op::AllGatherObject => objects::all_gather(desk),
        Op::GatherObject => objects::gather(desk),
        Op::BroadcastObjectList => objects::broadcast(desk),
        Op::ScatterObjectList => objects::scatter(desk),
        // Refused before: the ops it issues are checks of their own.
    }
    choose_tensors(&mut desk.work);
    std::mem::take(&mut desk.work)
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
    let desk = &mut PlanBuilder::new(check, seed, 0);
    let len = if check.op.has_tensors() && !check.is_large() {
        desk.len(0)
    } else {
        16
    };
    let form = desk.form(0);
    let buffer = desk.buffer(
        Role::Bystander,
        None,
        form,
        [(len, Fill::Own(0), Origin::Keep)],
    );
    desk.whole(buffer, form);
    std::mem::take(&mut desk.work)
}

/// Tells the rank what `premul_sum` multiplies by, where that is not what the protocol says.
fn set_factor(desk: &mut PlanBuilder<'_>) {
    let (factor, tensor) = match desk.check.factor {
        Factor::Scalar => return,
        Factor::PerRank => (Some(Factor::PerRank.of(desk.position as usize)), None),
        Factor::Tensor => {
            let piece = (1, Fill::Factor, Origin::Keep);
            let buffer = desk.buffer(Role::Input, None, Form::Flat, [piece]);
            (None, Some(desk.whole(buffer, Form::Flat)))
        }
    };
    desk.work.calls.push(Call::PremulFactor { factor, tensor });
}

fn barrier(desk: &mut PlanBuilder<'_>) {
    if desk.check.late == Some(desk.position) {
        desk.work.calls.push(Call::Sleep { ms: LATE_MS });
    }
    let group = desk.group();
    if desk.check.op == Op::MonitoredBarrier {
        // It has no `async_op`.
        desk.work.calls.push(Call::MonitoredBarrier { group });
    } else {
        let async_op = desk.is_async();
        desk.call(Call::Barrier { group, async_op });
    }
}

impl PlanBuilder<'_> {
    /// The group's name, for calls.
    fn group(&self) -> String {
        self.check.group.name.clone()
    }

    /// The root's position in the group.
    fn root(&self) -> u32 {
        self.check.root.map_or(0, |root| root.group_rank)
    }

    fn is_root(&self) -> bool {
        self.position == self.root()
    }

    /// The root as the check names it.
    fn root_ref(&self) -> RankRef {
        let by = self.check.root.map_or(RootBy::Global, |root| root.by);
        self.rank_ref(self.root(), by)
    }

    /// A member, named either way.
    fn rank_ref(&self, position: u32, by: RootBy) -> RankRef {
        match by {
            RootBy::Global => RankRef::Global(Rank(self.member(position))),
            RootBy::Group => RankRef::Group(position),
        }
    }
}
