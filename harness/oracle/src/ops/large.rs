//! Ops on tensors that are too large for the control connection. A rank makes each tensor by repeating a small one, and returns
//! only windows of it.
//!
//! The small one, the tile, is made of blocks of 61 elements, 17 of them: sizes that share no factor with a power of two,
//! so that an index that lost its upper bits, or a count that overflowed, meets other data. A window is one block long and
//! begins where a block does; what it must show is that block, and everything else is as for small tensors.

use super::super::hash::{Key, Stream, below};
use super::super::rank_plan::{Fill, Origin, PlanBuilder, Role};
use allranks_model::op::Op;
use allranks_protocol::Call;

/// Elements of a block, and of a window.
const BLOCK: usize = 61;
/// Blocks of a tile.
const BLOCKS: u32 = 17;
/// Windows at places that the seed chooses.
const SAMPLES: u64 = 24;

/// A collective on large tensors.
pub(super) fn collective(builder: &mut PlanBuilder<'_>) {
    let rows = rows(builder);
    let (group, async_op) = (builder.group(), builder.is_async());
    match builder.check.op {
        Op::AllReduce => {
            let tensor = grown(builder, Some(0), rows);
            let op = builder.op();
            builder.call(Call::AllReduce {
                group,
                tensor,
                op,
                async_op,
            });
            expect_block(builder, tensor, rows, 1, |_, slot| Origin::Reduce { slot });
        }
        Op::Broadcast => {
            let tensor = grown(builder, Some(0), rows);
            let root = builder.root_ref();
            let rank = builder.member(builder.root());
            builder.call(Call::Broadcast {
                group,
                tensor,
                root,
                async_op,
            });
            expect_block(builder, tensor, rows, 1, |_, slot| Origin::Copy {
                rank,
                slot,
            });
        }
        Op::AllGatherIntoTensor => {
            let input = grown(builder, Some(0), rows);
            let ranks = builder.ranks();
            let output = grown(builder, None, rows * u64::from(ranks));
            builder.call(Call::AllGatherIntoTensor {
                group,
                output,
                input,
                async_op,
            });
            let members: Vec<u32> = (0..ranks).map(|from| builder.member(from)).collect();
            expect_block(builder, output, rows, ranks, |from, slot| Origin::Copy {
                rank: members[from as usize],
                slot,
            });
        }
        _ => unreachable!("left out of the plan"),
    }
}

/// Blocking messages around the ring, the last rank's first.
pub(super) fn exchange(builder: &mut PlanBuilder<'_>) {
    let rows = rows(builder);
    let (me, ranks) = (builder.position, builder.ranks());
    let (next, previous) = ((me + 1) % ranks, (me + ranks - 1) % ranks);
    let (input, output) = (grown(builder, Some(0), rows), grown(builder, None, rows));
    let by = builder.check.peer_by;
    let tag = builder.check.tag;
    let send = Call::Send {
        group: builder.group(),
        tensor: input,
        peer: builder.rank_ref(next, by),
        tag,
    };
    let recv = Call::Recv {
        group: builder.group(),
        tensor: output,
        peer: Some(builder.rank_ref(previous, by)),
        tag,
    };
    let calls = if me == 0 { [recv, send] } else { [send, recv] };
    builder.work.calls.extend(calls);
    let rank = builder.member(previous);
    expect_block(builder, output, rows, 1, |_, slot| Origin::Copy {
        rank,
        slot,
    });
}

/// Tiles of one contribution: as many as hold the check's number of elements.
fn rows(builder: &PlanBuilder<'_>) -> u64 {
    builder
        .check
        .extent
        .numel()
        .div_ceil(BLOCK as u64 * u64::from(BLOCKS))
}

/// Returns a tensor of that many tiles, of the rank's own data or of what no result can be.
fn grown(builder: &mut PlanBuilder<'_>, own: Option<u32>, times: u64) -> usize {
    let form = builder.joined();
    let fill = |slot| own.map_or(Fill::Sentinel, |first| Fill::Own(first + slot));
    let tile = (0..BLOCKS).map(|slot| (BLOCK, fill(slot), Origin::Keep));
    let buffer = builder.buffer(Role::Input, None, form, tile);
    let tensor = builder.whole(buffer, form);
    builder.work.calls.push(Call::Grow { tensor, times });
    tensor
}

/// Windows of a tensor that holds `parts` contributions of `rows` tiles.
fn expect_block(
    builder: &mut PlanBuilder<'_>,
    tensor: usize,
    rows: u64,
    parts: u32,
    origin: impl Fn(u32, u32) -> Origin,
) {
    let blocks = rows * u64::from(BLOCKS);
    let all = blocks * u64::from(parts);
    let size = builder.check.dtype.size() as u64;
    let words =
        Key::of_check(builder.seed, builder.check.index, 0).stream(Stream::Shared, parts, BLOCKS);
    let mut windows: Vec<u64> = [1 << 31, (1 << 31) / size, 1 << 32, (1 << 32) / size]
        .into_iter()
        .map(|element: u64| element / BLOCK as u64)
        .flat_map(|block| [block.saturating_sub(1), block, block + 1])
        .chain([0, 1, blocks - 1, all - 1])
        .chain((0..parts).map(|part| blocks * u64::from(part)))
        .chain((0..SAMPLES).map(|sample| below(words.word(sample), all)))
        .filter(|block| *block < all)
        .collect();
    windows.sort_unstable();
    windows.dedup();
    let pieces: Vec<_> = windows
        .iter()
        .map(|block| {
            let part = (block / blocks) as u32;
            let slot = (block % blocks % u64::from(BLOCKS)) as u32;
            (BLOCK, Fill::Sentinel, origin(part, slot))
        })
        .collect();
    let form = builder.joined();
    let buffer = builder.buffer(Role::Output, None, form, pieces);
    let output = builder.whole(buffer, form);
    builder.work.calls.push(Call::Windows {
        tensor,
        starts: windows.iter().map(|block| block * BLOCK as u64).collect(),
        len: BLOCK as u64,
        output,
    });
}
