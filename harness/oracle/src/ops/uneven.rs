//! All-to-all, in which every ordered pair of ranks has a slice of its own, of its own size.

use crate::rank_plan::{Fill, Origin, PlanBuilder, Role};
use allranks_model::axes::Splits;
use allranks_protocol::Call;

impl PlanBuilder<'_> {
    /// Elements that one position sends to another.
    fn slice(&self, from: u32, to: u32) -> usize {
        let numel = self.check.extent.numel();
        let (i, j, ranks) = (u64::from(from), u64::from(to), u64::from(self.ranks()));
        let uneven = numel + i * ranks + j;
        self.fit(match &self.check.splits {
            Splits::Even => numel,
            Splits::Uneven => uneven,
            Splits::WithZero if (i + 2 * j) % 3 == 2 || (ranks > 2 && i == 1) => 0,
            Splits::WithZero => uneven,
            Splits::AllZero => 0,
            Splits::Explicit(sizes) => sizes[from as usize][to as usize],
        })
    }
}

pub(super) fn all_to_all(builder: &mut PlanBuilder<'_>) {
    let form = if builder.check.splits == Splits::Even {
        builder.form(0)
    } else {
        builder.joined()
    };
    let me = builder.position;
    let mut inputs = Vec::new();
    let mut outputs = Vec::new();
    for to in 0..builder.ranks() {
        let piece = (builder.slice(me, to), Fill::Own(to), Origin::Keep);
        let buffer = builder.buffer(Role::Input, Some(to), form, [piece]);
        inputs.push(builder.whole(buffer, form));
    }
    for from in 0..builder.ranks() {
        let after = Origin::Copy {
            rank: builder.member(from),
            slot: me,
        };
        let piece = (builder.slice(from, me), Fill::Sentinel, after);
        let buffer = builder.buffer(Role::Output, Some(from), form, [piece]);
        outputs.push(builder.whole(buffer, form));
    }
    let (group, async_op) = (builder.group(), builder.is_async());
    builder.call(Call::AllToAll {
        group,
        outputs,
        inputs,
        async_op,
    });
}

pub(super) fn all_to_all_single(builder: &mut PlanBuilder<'_>) {
    let (me, ranks, form) = (builder.position, builder.ranks(), builder.joined());
    let sent: Vec<_> = (0..ranks)
        .map(|to| (builder.slice(me, to), Fill::Own(to), Origin::Keep))
        .collect();
    let received: Vec<_> = (0..ranks)
        .map(|from| {
            let rank = builder.member(from);
            let after = Origin::Copy { rank, slot: me };
            (builder.slice(from, me), Fill::Sentinel, after)
        })
        .collect();
    let sizes = |pieces: &[(usize, Fill, Origin)]| {
        (builder.check.splits != Splits::Even)
            .then(|| pieces.iter().map(|(len, ..)| builder.rows(*len)).collect())
    };
    let (input_splits, output_splits) = (sizes(&sent), sizes(&received));
    let input = builder.buffer(Role::Input, None, form, sent);
    let input = builder.whole(input, form);
    let output = builder.buffer(Role::Output, None, form, received);
    let output = builder.whole(output, form);
    let (group, async_op) = (builder.group(), builder.is_async());
    builder.call(Call::AllToAllSingle {
        group,
        output,
        input,
        output_splits,
        input_splits,
        async_op,
    });
}
