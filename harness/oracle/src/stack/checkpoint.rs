//! Distributed checkpoints: a matrix that all ranks save in one placement, and that all or fewer load in another.
//!
//! Tensors: `saved`, the rank's part when it is saved; `loaded`, its part when it is loaded; `plain`, a tensor that is no
//! DTensor and the same on all ranks, and `loaded_plain`. With `save: later` also `after`, what the rank's part is overwritten
//! with as soon as `async_save` has returned, and `addend` and `sum`, an all_reduce that is made before the save is waited for.
//! With a fault `refused`, which is 1 if `load` raised, and nothing else.

use serde_json::json;

use super::class::StackClass as Class;
use super::data::{RankData, World, sum};
use super::matrix::{self, COLUMNS, ROWS};
use allranks_model::stack::{Checkpoint, Fault, Save, TensorPlacement};

/// Elements of what is summed meanwhile.
const ADDENDS: usize = 33;
/// Elements of what is no DTensor: so that no rank is without data, whatever its part of the matrix.
const PLAIN: usize = 5;
/// Slots: the matrix, what it is overwritten with, what is summed meanwhile, what is no DTensor.
const MATRIX: u32 = 0;
const AFTER: u32 = 1;
const ADDEND: u32 = 2;
const PLAIN_SLOT: u32 = 3;
/// How long the late rank sleeps before it saves and before it loads, milliseconds.
const LATE_MS: u64 = 100;

/// Returns what every rank is given and must give back.
pub(super) fn ranks(point: Checkpoint, world: World) -> Vec<RankData> {
    world
        .ranks()
        .map(|rank| of_rank(point, world, rank))
        .collect()
}

fn of_rank(point: Checkpoint, world: World, rank: u32) -> RankData {
    let Checkpoint {
        dtype,
        from,
        to,
        fewer,
        save,
        fault,
        late,
    } = point;
    let size = world.size;
    let is_late = late && rank + 1 == size;
    let loaders = if fewer { size - 1 } else { size };
    let mut data = RankData {
        options: json!({
            "from": from,
            "to": to,
            "shape": [ROWS, COLUMNS],
            "loaders": loaders,
            "later": save == Save::Later,
            "fault": fault,
            "sleep_ms": if is_late { LATE_MS } else { 0 },
        }),
        ..RankData::default()
    };
    let whole = |slot| world.inputs(dtype, 1, 0, slot, ROWS * COLUMNS);
    let (matrix, after) = (whole(MATRIX), whole(AFTER));
    let shape = matrix::shape(from, size, rank);
    data.reads(
        "saved".to_owned(),
        &shape,
        matrix::part(from, &matrix, size, rank),
    );
    let plain = world.inputs(dtype, 1, 0, PLAIN_SLOT, PLAIN);
    data.reads("plain".to_owned(), &[PLAIN as u64], plain.clone());
    if save == Save::Later {
        let numbers = matrix::part(from, &after, size, rank);
        data.reads("after".to_owned(), &shape, numbers);
        let addends: Vec<_> = world
            .ranks()
            .map(|rank| world.inputs(dtype, 1, rank, ADDEND, ADDENDS))
            .collect();
        let own = &addends[rank as usize];
        let len = [ADDENDS as u64];
        data.reads("addend".to_owned(), &len, own.clone());
        let guesses = vec![(Class::NotReduced, own.clone())];
        data.gives("sum".to_owned(), &len, sum(&addends), guesses);
    }
    if fault != Fault::None {
        let guesses = vec![(Class::NotRefused, vec![0.0])];
        data.gives("refused".to_owned(), &[1], vec![1.0], guesses);
        return data;
    }
    if rank < loaders {
        let part = |whole: &[f64]| matrix::part(to, whole, loaders, rank);
        let reversed: Vec<f64> = matrix.iter().rev().copied().collect();
        let mut guesses = vec![(Class::Reversed, part(&reversed))];
        if to != TensorPlacement::Replicate && loaders > 1 {
            // The beginning of the first rank's part, as much of it as this rank's is long.
            let mut first = matrix::part(to, &matrix, loaders, 0);
            let shape = matrix::shape(to, loaders, rank);
            if to == TensorPlacement::Columns {
                let columns = matrix::range(loaders, 0, COLUMNS).len();
                let rows = first.chunks_exact(columns);
                let own = shape[1] as usize;
                first = rows.flat_map(|row| row[..own].to_vec()).collect();
            }
            first.truncate((shape[0] * shape[1]) as usize);
            guesses.push((Class::KthIsFirst, first));
        }
        if save == Save::Later {
            guesses.push((Class::SavedLate, part(&after)));
        }
        let shape = matrix::shape(to, loaders, rank);
        data.gives("loaded".to_owned(), &shape, part(&matrix), guesses);
        let reversed = plain.iter().rev().copied().collect();
        let guesses = vec![(Class::Reversed, reversed)];
        data.gives("loaded_plain".to_owned(), &[PLAIN as u64], plain, guesses);
    }
    data
}
