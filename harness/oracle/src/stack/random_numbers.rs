//! Random numbers of a `DTensor`: nothing is known of them but which ranks must have the same.
//!
//! Tensors: `drawn.D`, the rank's part of what draw D drew.

use serde_json::json;

use super::data::{RankData, World};
use allranks_model::stack::{RandomNumbers, RandomPlacement};

/// Rows of a shard: two that are drawn independently are never the same.
const ROWS: u32 = 40;
/// How many tensors are drawn, one after the other.
const DRAWS: u32 = 2;
/// How long the late rank sleeps, milliseconds.
const LATE_MS: u64 = 100;

/// Returns what every rank is given, and which of them must draw the same.
pub(super) fn ranks(point: RandomNumbers, world: World) -> Vec<RankData> {
    let of_rank = |rank| of_rank(point, world.size, rank);
    world.ranks().map(of_rank).collect()
}

fn of_rank(point: RandomNumbers, size: u32, rank: u32) -> RankData {
    let RandomNumbers {
        op,
        placement,
        late,
    } = point;
    let (mesh, shards) = match placement {
        RandomPlacement::Rows => (vec![size], size),
        RandomPlacement::Replicate => (vec![size], 1),
        RandomPlacement::Hybrid => (vec![2, size / 2], size / 2),
    };
    let along = match placement {
        RandomPlacement::Replicate => "replicate",
        RandomPlacement::Rows | RandomPlacement::Hybrid => "rows",
    };
    let is_late = late && rank + 1 == size;
    let mut data = RankData {
        options: json!({
            "op": op,
            "mesh": mesh,
            "placement": along,
            "rows": ROWS * shards,
            "draws": DRAWS,
            "seed": 1 + rank,
            "sleep_ms": if is_late { LATE_MS } else { 0 },
        }),
        ..RankData::default()
    };
    for draw in 0..DRAWS {
        data.draws(
            format!("drawn.{draw}"),
            &[u64::from(ROWS)],
            draw * size + rank % shards,
        );
    }
    data
}
