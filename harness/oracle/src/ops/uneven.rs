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

pub(super) fn all_to_all(desk: &mut PlanBuilder<'_>) {
    let form = if desk.check.splits == Splits::Even {
        desk.form(0)
    } else {
        desk.joined()
    };
    let me = desk.position;
    let mut inputs = Vec::new();
    let mut outputs = Vec::new();
    for to in 0..desk.ranks() {
        let piece = (desk.slice(me, to), Fill::Own(to), Origin::Keep);
        let buffer = desk.buffer(Role::Input, Some(to), form, [piece]);
        inputs.push(desk.whole(buffer, form));
    }
    for from in 0..desk.ranks() {
        let after = Origin::Copy {
            rank: desk.member(from),
            slot: me,
        };
        let piece = (desk.slice(from, me), Fill::Sentinel, after);
        let buffer = desk.buffer(Role::Output, Some(from), form, [piece]);
        outputs.push(desk.whole(buffer, form));
    }
    let (group, async_op) = (desk.group(), desk.is_async());
    desk.call(Call::AllToAll {
        group,
        outputs,
        inputs,
        async_op,
    });
}

pub(super) fn all_to_all_single(desk: &mut PlanBuilder<'_>) {
    let (me, ranks, form) = (desk.position, desk.ranks(), desk.joined());
    let sent: Vec<_> = (0..ranks)
        .map(|to| (desk.slice(me, to), Fill::Own(to), Origin::Keep))
        .collect();
    let received: Vec<_> = (0..ranks)
        .map(|from| {
            let rank = desk.member(from);
            let after = Origin::Copy { rank, slot: me };
            (desk.slice(from, me), Fill::Sentinel, after)
        })
        .collect();
    let sizes = |pieces: &[(usize, Fill, Origin)]| {
        (desk.check.splits != Splits::Even)
            .then(|| pieces.iter().map(|(len, ..)| desk.rows(*len)).collect())
    };
    let (input_splits, output_splits) = (sizes(&sent), sizes(&received));
    let input = desk.buffer(Role::Input, None, form, sent);
    let input = desk.whole(input, form);
    let output = desk.buffer(Role::Output, None, form, received);
    let output = desk.whole(output, form);
    let (group, async_op) = (desk.group(), desk.is_async());
    desk.call(Call::AllToAllSingle {
        group,
        output,
        input,
        output_splits,
        input_splits,
        async_op,
    });
}
