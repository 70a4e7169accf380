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

    /// Returns the number that decides a tensor's size: of several tensors in one call, each its own; of repeated calls, the
    /// last.
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

pub(super) fn all_reduce(builder: &mut PlanBuilder<'_>) {
    let tensors: Vec<usize> = (0..builder.items())
        .map(|slot| {
            let number = builder.numbered(slot);
            let item = builder.extended(slot);
            builder.tensor(
                Role::Both,
                number,
                item,
                Fill::Own(slot),
                Origin::Reduce { slot },
            )
        })
        .collect();
    let (op, async_op) = (builder.op(), builder.is_async());
    if builder.check.op == Op::AllReduceCoalesced {
        let group = builder.group();
        return builder.call(Call::AllReduceCoalesced {
            group,
            tensors,
            op,
            async_op,
        });
    }
    let calls = tensors
        .into_iter()
        .map(|tensor| Call::AllReduce {
            group: builder.group(),
            tensor,
            op,
            async_op,
        })
        .collect();
    builder.issue(calls);
}

pub(super) fn broadcast(builder: &mut PlanBuilder<'_>) {
    let (rank, slot) = (builder.member(builder.root()), 0);
    let tensor = builder.tensor(
        Role::Both,
        None,
        0,
        Fill::Own(0),
        Origin::Copy { rank, slot },
    );
    let (group, root, async_op) = (builder.group(), builder.root_ref(), builder.is_async());
    builder.call(Call::Broadcast {
        group,
        tensor,
        root,
        async_op,
    });
}

pub(super) fn reduce(builder: &mut PlanBuilder<'_>) {
    let (role, after) = if builder.is_root() {
        (Role::Both, Origin::Reduce { slot: 0 })
    } else {
        // "Only the process with rank dst is going to receive the final result", says the documentation, and nothing
        // of what the others hold.
        let role = match builder.check.non_root {
            NonRoot::Unspecified => Role::Unspecified,
            NonRoot::Untouched => Role::NonRoot,
        };
        (role, Origin::Keep)
    };
    let tensor = builder.tensor(role, None, 0, Fill::Own(0), after);
    let (group, op, root, async_op) = (
        builder.group(),
        builder.op(),
        builder.root_ref(),
        builder.is_async(),
    );
    builder.call(Call::Reduce {
        group,
        tensor,
        op,
        root,
        async_op,
    });
}

/// Returns an input, and an output for each rank; in place, the input is this rank's output.
fn gathered(builder: &mut PlanBuilder<'_>, item: u32) -> (usize, Vec<usize>) {
    let form = builder.form(item);
    let mut input = None;
    if !builder.in_place() {
        let number = builder.numbered(item);
        let own = (
            builder.share(item, builder.position),
            Fill::Own(item),
            Origin::Keep,
        );
        input = Some(builder.sized(Role::Input, number, item, own));
    }
    let outputs = (0..builder.ranks())
        .map(|from| {
            let mine = builder.in_place() && from == builder.position;
            let before = if mine {
                Fill::Own(item)
            } else {
                Fill::Sentinel
            };
            let rank = builder.member(from);
            let number = item * builder.ranks() + from;
            let after = Origin::Copy { rank, slot: item };
            let piece = (builder.share(item, from), before, after);
            let output = builder.sized(Role::Output, Some(number), item, piece);
            if mine {
                let buffer = builder.work.tensors[output].storage;
                input = Some(builder.whole(buffer, form));
            }
            output
        })
        .collect();
    (input.expect("one of the outputs is this rank's"), outputs)
}

pub(super) fn all_gather(builder: &mut PlanBuilder<'_>) {
    let (input, outputs) = gathered(builder, 0);
    let (group, async_op) = (builder.group(), builder.is_async());
    builder.call(Call::AllGather {
        group,
        outputs,
        input,
        async_op,
    });
}

pub(super) fn all_gather_coalesced(builder: &mut PlanBuilder<'_>) {
    let mut inputs = Vec::new();
    let mut outputs = vec![Vec::new(); builder.ranks() as usize];
    for item in 0..builder.items() {
        let (input, from) = gathered(builder, item);
        inputs.push(input);
        for (list, output) in outputs.iter_mut().zip(from) {
            list.push(output);
        }
    }
    let (group, async_op) = (builder.group(), builder.is_async());
    builder.call(Call::AllGatherCoalesced {
        group,
        outputs,
        inputs,
        async_op,
    });
}

pub(super) fn all_gather_into_tensor(builder: &mut PlanBuilder<'_>) {
    let mut calls = Vec::new();
    for slot in 0..builder.items() {
        let (number, form, joined) = (builder.numbered(slot), builder.form(slot), builder.joined());
        let len = builder.len(slot);
        let separate = (!builder.in_place())
            .then(|| builder.tensor(Role::Input, number, slot, Fill::Own(slot), Origin::Keep));
        let pieces: Vec<_> = (0..builder.ranks())
            .map(|from| {
                let mine = separate.is_none() && from == builder.position;
                let before = if mine {
                    Fill::Own(slot)
                } else {
                    Fill::Sentinel
                };
                let rank = builder.member(from);
                (len, before, Origin::Copy { rank, slot })
            })
            .collect();
        let buffer = builder.buffer(Role::Output, number, joined, pieces);
        let output = builder.joint_view(buffer);
        let input = separate.unwrap_or_else(|| builder.part(buffer, builder.position, form));
        calls.push(Call::AllGatherIntoTensor {
            group: builder.group(),
            output,
            input,
            async_op: builder.is_async(),
        });
    }
    builder.issue(calls);
}

pub(super) fn gather(builder: &mut PlanBuilder<'_>) {
    let (input, outputs) = if builder.is_root() {
        let (input, outputs) = gathered(builder, 0);
        (input, Some(outputs))
    } else {
        let own = (
            builder.share(0, builder.position),
            Fill::Own(0),
            Origin::Keep,
        );
        (builder.sized(Role::Input, None, 0, own), None)
    };
    let (group, root, async_op) = (builder.group(), builder.root_ref(), builder.is_async());
    builder.call(Call::Gather {
        group,
        input,
        outputs,
        root,
        async_op,
    });
}

/// Returns an input for each rank; in place, a view of this rank's own one is the output, and `after` is what it must hold.
fn shares(builder: &mut PlanBuilder<'_>, after: Origin) -> (Vec<usize>, Option<usize>) {
    let mut output = None;
    let mut inputs = Vec::new();
    for to in 0..builder.ranks() {
        let mine = builder.in_place() && to == builder.position;
        let (role, after) = if mine {
            (Role::Both, after)
        } else {
            (Role::Input, Origin::Keep)
        };
        let piece = (builder.share(0, to), Fill::Own(to), after);
        let input = builder.sized(role, Some(to), 0, piece);
        if mine {
            let (buffer, form) = (builder.work.tensors[input].storage, builder.form(0));
            output = Some(builder.whole(buffer, form));
        }
        inputs.push(input);
    }
    (inputs, output)
}

/// Returns the tensor that receives this rank's share.
fn received(builder: &mut PlanBuilder<'_>, after: Origin) -> usize {
    let piece = (builder.share(0, builder.position), Fill::Sentinel, after);
    builder.sized(Role::Output, None, 0, piece)
}

pub(super) fn scatter(builder: &mut PlanBuilder<'_>) {
    let (rank, slot) = (builder.member(builder.root()), builder.position);
    let after = Origin::Copy { rank, slot };
    let mut output = None;
    let mut inputs = None;
    if builder.is_root() {
        let (list, own) = shares(builder, after);
        inputs = Some(list);
        output = own;
    }
    let output = output.unwrap_or_else(|| received(builder, after));
    let (group, root, async_op) = (builder.group(), builder.root_ref(), builder.is_async());
    builder.call(Call::Scatter {
        group,
        output,
        inputs,
        root,
        async_op,
    });
}

pub(super) fn reduce_scatter(builder: &mut PlanBuilder<'_>) {
    let after = Origin::Reduce {
        slot: builder.position,
    };
    let (inputs, output) = shares(builder, after);
    let output = output.unwrap_or_else(|| received(builder, after));
    let (group, op, async_op) = (builder.group(), builder.op(), builder.is_async());
    builder.call(Call::ReduceScatter {
        group,
        output,
        inputs,
        op,
        async_op,
    });
}

pub(super) fn reduce_scatter_tensor(builder: &mut PlanBuilder<'_>) {
    let mut calls = Vec::new();
    for item in 0..builder.items() {
        let (number, form, joined) = (builder.numbered(item), builder.form(item), builder.joined());
        let len = builder.len(item);
        let (ranks, position, in_place) = (builder.ranks(), builder.position, builder.in_place());
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
        let buffer = builder.buffer(role, number, joined, pieces);
        let input = builder.joint_view(buffer);
        let output = if in_place {
            builder.part(buffer, position, form)
        } else {
            builder.tensor(Role::Output, number, item, Fill::Sentinel, after)
        };
        calls.push(Call::ReduceScatterTensor {
            group: builder.group(),
            output,
            input,
            op: builder.op(),
            async_op: builder.is_async(),
        });
    }
    builder.issue(calls);
}
