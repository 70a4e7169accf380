//! Collectives in which every rank's contribution has the same size.

use super::{LONGER, SAME, repeats};
use crate::rank_plan::{Fill, Origin, PlanBuilder, Role};
use allranks_model::axes::{NonRoot, Placement};
use allranks_model::dtype::ReduceOp;
use allranks_model::op::Op;
use allranks_protocol::Call;

impl PlanBuilder<'_> {
    fn in_place(&self) -> bool {
        self.check.placement == Placement::InPlace
    }

    pub(super) fn op(&self) -> ReduceOp {
        self.check.reduce.unwrap_or(ReduceOp::Sum)
    }

    /// Returns how many tensors the call, or the group of calls, takes.
    fn items(&self) -> u32 {
        match self.check.op.is_coalesced() {
            true => self.check.count,
            false if repeats(self.check) => SAME + 1,
            false => 1,
        }
    }

    /// Returns the number that decides a tensor's size: of several tensors in one call, each its own; of repeated calls, the last.
    fn extended(&self, item: u32) -> u32 {
        match self.check.op.is_coalesced() {
            true => item,
            false if item == SAME => LONGER,
            false => 0,
        }
    }

    /// Returns the number of a tensor that is one of several; `None` for a single one.
    fn numbered(&self, item: u32) -> Option<u32> {
        (self.check.op.is_coalesced() || repeats(self.check)).then_some(item)
    }

    /// Makes the calls, one after another or inside a coalescing manager.
    fn issue(&mut self, calls: Vec<Call>) {
        match self.check.op {
            Op::CoalescedAllReduce
            | Op::CoalescedAllGatherIntoTensor
            | Op::CoalescedReduceScatterTensor => {
                let (group, async_op) = (self.group(), self.is_async());
                self.call(Call::Coalesced {
                    group,
                    calls,
                    async_op,
                });
            }
            _ => calls.into_iter().for_each(|call| self.call(call)),
        }
    }
}

pub(super) fn all_reduce(desk: &mut PlanBuilder<'_>) {
    let tensors: Vec<usize> = (0..desk.items())
        .map(|slot| {
            let number = desk.numbered(slot);
            let item = desk.extended(slot);
            desk.tensor(
                Role::Both,
                number,
                item,
                Fill::Own(slot),
                Origin::Reduce { slot },
            )
        })
        .collect();
    let (op, async_op) = (desk.op(), desk.is_async());
    if desk.check.op == Op::AllReduceCoalesced {
        let group = desk.group();
        return desk.call(Call::AllReduceCoalesced {
            group,
            tensors,
            op,
            async_op,
        });
    }
    let calls = tensors
        .into_iter()
        .map(|tensor| Call::AllReduce {
            group: desk.group(),
            tensor,
            op,
            async_op,
        })
        .collect();
    desk.issue(calls);
}

pub(super) fn broadcast(desk: &mut PlanBuilder<'_>) {
    let (rank, slot) = (desk.member(desk.root()), 0);
    let tensor = desk.tensor(
        Role::Both,
        None,
        0,
        Fill::Own(0),
        Origin::Copy { rank, slot },
    );
    let (group, root, async_op) = (desk.group(), desk.root_ref(), desk.is_async());
    desk.call(Call::Broadcast {
        group,
        tensor,
        root,
        async_op,
    });
}

pub(super) fn reduce(desk: &mut PlanBuilder<'_>) {
    let (role, after) = if desk.is_root() {
        (Role::Both, Origin::Reduce { slot: 0 })
    } else {
        // "Only the process with rank dst is going to receive the final result", says the documentation, and nothing
        // of what the others hold.
        let role = match desk.check.non_root {
            NonRoot::Unspecified => Role::Unspecified,
            NonRoot::Untouched => Role::NonRoot,
        };
        (role, Origin::Keep)
    };
    let tensor = desk.tensor(role, None, 0, Fill::Own(0), after);
    let (group, op, root, async_op) = (desk.group(), desk.op(), desk.root_ref(), desk.is_async());
    desk.call(Call::Reduce {
        group,
        tensor,
        op,
        root,
        async_op,
    });
}

/// An input, and an output for each rank; in place, the input is this rank's output.
fn gathered(desk: &mut PlanBuilder<'_>, item: u32) -> (usize, Vec<usize>) {
    let form = desk.form(item);
    let mut input = None;
    if !desk.in_place() {
        let number = desk.numbered(item);
        let own = (
            desk.share(item, desk.position),
            Fill::Own(item),
            Origin::Keep,
        );
        input = Some(desk.sized(Role::Input, number, item, own));
    }
    let outputs = (0..desk.ranks())
        .map(|from| {
            let mine = desk.in_place() && from == desk.position;
            let before = if mine {
                Fill::Own(item)
            } else {
                Fill::Sentinel
            };
            let rank = desk.member(from);
            let number = item * desk.ranks() + from;
            let after = Origin::Copy { rank, slot: item };
            let piece = (desk.share(item, from), before, after);
            let output = desk.sized(Role::Output, Some(number), item, piece);
            if mine {
                let buffer = desk.work.tensors[output].storage;
                input = Some(desk.whole(buffer, form));
            }
            output
        })
        .collect();
    (input.expect("one of the outputs is this rank's"), outputs)
}

pub(super) fn all_gather(desk: &mut PlanBuilder<'_>) {
    let (input, outputs) = gathered(desk, 0);
    let (group, async_op) = (desk.group(), desk.is_async());
    desk.call(Call::AllGather {
        group,
        outputs,
        input,
        async_op,
    });
}

pub(super) fn all_gather_coalesced(desk: &mut PlanBuilder<'_>) {
    let mut inputs = Vec::new();
    let mut outputs = vec![Vec::new(); desk.ranks() as usize];
    for item in 0..desk.items() {
        let (input, from) = gathered(desk, item);
        inputs.push(input);
        for (list, output) in outputs.iter_mut().zip(from) {
            list.push(output);
        }
    }
    let (group, async_op) = (desk.group(), desk.is_async());
    desk.call(Call::AllGatherCoalesced {
        group,
        outputs,
        inputs,
        async_op,
    });
}

pub(super) fn all_gather_into_tensor(desk: &mut PlanBuilder<'_>) {
    let mut calls = Vec::new();
    for slot in 0..desk.items() {
        let (number, form, joined) = (desk.numbered(slot), desk.form(slot), desk.joined());
        let len = desk.len(slot);
        let separate = (!desk.in_place())
            .then(|| desk.tensor(Role::Input, number, slot, Fill::Own(slot), Origin::Keep));
        let pieces: Vec<_> = (0..desk.ranks())
            .map(|from| {
                let mine = separate.is_none() && from == desk.position;
                let before = if mine {
                    Fill::Own(slot)
                } else {
                    Fill::Sentinel
                };
                let rank = desk.member(from);
                (len, before, Origin::Copy { rank, slot })
            })
            .collect();
        let buffer = desk.buffer(Role::Output, number, joined, pieces);
        let output = desk.joint_view(buffer);
        let input = separate.unwrap_or_else(|| desk.part(buffer, desk.position, form));
        calls.push(Call::AllGatherIntoTensor {
            group: desk.group(),
            output,
            input,
            async_op: desk.is_async(),
        });
    }
    desk.issue(calls);
}

pub(super) fn gather(desk: &mut PlanBuilder<'_>) {
    let (input, outputs) = if desk.is_root() {
        let (input, outputs) = gathered(desk, 0);
        (input, Some(outputs))
    } else {
        let own = (desk.share(0, desk.position), Fill::Own(0), Origin::Keep);
        (desk.sized(Role::Input, None, 0, own), None)
    };
    let (group, root, async_op) = (desk.group(), desk.root_ref(), desk.is_async());
    desk.call(Call::Gather {
        group,
        input,
        outputs,
        root,
        async_op,
    });
}

/// An input for each rank; in place, a view of this rank's own one is the output, and `after` is what it must hold.
fn shares(desk: &mut PlanBuilder<'_>, after: Origin) -> (Vec<usize>, Option<usize>) {
    let mut output = None;
    let mut inputs = Vec::new();
    for to in 0..desk.ranks() {
        let mine = desk.in_place() && to == desk.position;
        let (role, after) = if mine {
            (Role::Both, after)
        } else {
            (Role::Input, Origin::Keep)
        };
        let piece = (desk.share(0, to), Fill::Own(to), after);
        let input = desk.sized(role, Some(to), 0, piece);
        if mine {
            let (buffer, form) = (desk.work.tensors[input].storage, desk.form(0));
            output = Some(desk.whole(buffer, form));
        }
        inputs.push(input);
    }
    (inputs, output)
}

/// The tensor that this rank's share comes to.
fn received(desk: &mut PlanBuilder<'_>, after: Origin) -> usize {
    let piece = (desk.share(0, desk.position), Fill::Sentinel, after);
    desk.sized(Role::Output, None, 0, piece)
}

pub(super) fn scatter(desk: &mut PlanBuilder<'_>) {
    let (rank, slot) = (desk.member(desk.root()), desk.position);
    let after = Origin::Copy { rank, slot };
    let mut output = None;
    let mut inputs = None;
    if desk.is_root() {
        let (list, own) = shares(desk, after);
        inputs = Some(list);
        output = own;
    }
    let output = output.unwrap_or_else(|| received(desk, after));
    let (group, root, async_op) = (desk.group(), desk.root_ref(), desk.is_async());
    desk.call(Call::Scatter {
        group,
        output,
        inputs,
        root,
        async_op,
    });
}

pub(super) fn reduce_scatter(desk: &mut PlanBuilder<'_>) {
    let after = Origin::Reduce {
        slot: desk.position,
    };
    let (inputs, output) = shares(desk, after);
    let output = output.unwrap_or_else(|| received(desk, after));
    let (group, op, async_op) = (desk.group(), desk.op(), desk.is_async());
    desk.call(Call::ReduceScatter {
        group,
        output,
        inputs,
        op,
        async_op,
    });
}

pub(super) fn reduce_scatter_tensor(desk: &mut PlanBuilder<'_>) {
    let mut calls = Vec::new();
    for item in 0..desk.items() {
        let (number, form, joined) = (desk.numbered(item), desk.form(item), desk.joined());
        let len = desk.len(item);
        let (ranks, position, in_place) = (desk.ranks(), desk.position, desk.in_place());
        let after = Origin::Reduce {
            slot: item * ranks + position,
        };
        let pieces = (0..ranks).map(|to| {
            let mine = in_place && to == position;
            let slot = item * ranks + to;
            (
                len,
                Fill::Own(slot),
                if mine { after } else { Origin::Keep },
            )
        });
        let role = if in_place { Role::Both } else { Role::Input };
        let buffer = desk.buffer(role, number, joined, pieces);
        let input = desk.joint_view(buffer);
        let output = if in_place {
            desk.part(buffer, position, form)
        } else {
            desk.tensor(Role::Output, number, item, Fill::Sentinel, after)
        };
        calls.push(Call::ReduceScatterTensor {
            group: desk.group(),
            output,
            input,
            op: desk.op(),
            async_op: desk.is_async(),
        });
    }
    desk.issue(calls);
}
