//! `ZeroRedundancyOptimizer`: training steps of a model of four parameters under DDP, with SGD whose rate is 1/2.
//!
//! The loss of a step is the sum of all parameters times their inputs, so a gradient is the average of the ranks' inputs. Each
//! rank's optimiser changes some of the parameters only, and sends them to the others. Tensors: `parameter.P` (each rank begins
//! with its own, and DDP hands out the first rank's); for step S `input.S.P`, and `updated.S.P`, the parameter after it.

use serde_json::json;

use super::class::StackClass as Class;
use super::data::{RankData, World, sum, times};
use allranks_model::stack::Zero;

/// Elements of the parameters: no multiple of any number of ranks, and one that is smaller.
const SIZES: &[usize] = &[33, 1, 64, 7];
/// The rate of the optimiser: a power of two.
const RATE: f64 = 0.5;
/// Slots from here on are inputs.
const INPUT: u32 = 100;
/// How long the late rank sleeps before each forward, milliseconds.
const LATE_MS: u64 = 100;

/// Returns what every rank is given and must give back.
pub(super) fn ranks(point: Zero, world: World) -> Vec<RankData> {
    let training = Training { point, world };
    world.ranks().map(|rank| training.of_rank(rank)).collect()
}

#[derive(Clone, Copy)]
struct Training {
    point: Zero,
    world: World,
}

/// What a step changes a parameter by: right, or by a known bug.
#[derive(Clone, Copy)]
enum Change {
    Right,
    /// By a rank's own gradient.
    Local(u32),
    Sum,
    Without(u32),
}

impl Training {
    /// Numbers exact after all steps, halves included.
    fn inputs(self, rank: u32, slot: u32, len: usize) -> Vec<f64> {
        let terms = 2 * (self.point.steps + 1);
        self.world.inputs(self.point.dtype, terms, rank, slot, len)
    }

    fn parameter(self, rank: u32, parameter: usize) -> Vec<f64> {
        self.inputs(rank, parameter as u32, SIZES[parameter])
    }

    fn input(self, rank: u32, step: u32, parameter: usize) -> Vec<f64> {
        let slot = INPUT + step * SIZES.len() as u32 + parameter as u32;
        self.inputs(rank, slot, SIZES[parameter])
    }

    fn gradient(self, change: Change, step: u32, parameter: usize) -> Vec<f64> {
        let share = 1.0 / f64::from(self.world.size);
        let of = |left_out: Option<u32>| {
            let ranks = self.world.ranks().filter(|rank| Some(*rank) != left_out);
            let inputs: Vec<_> = ranks
                .map(|rank| self.input(rank, step, parameter))
                .collect();
            sum(&inputs)
        };
        match change {
            Change::Right => times(&of(None), share),
            Change::Local(rank) => times(&self.input(rank, step, parameter), share),
            Change::Sum => of(None),
            Change::Without(rank) => times(&of(Some(rank)), share),
        }
    }

    /// Returns the parameter after so many steps.
    fn updated(self, change: Change, steps: u32, parameter: usize) -> Vec<f64> {
        let mut numbers = self.parameter(0, parameter);
        for step in 0..steps {
            let gradient = self.gradient(change, step, parameter);
            numbers = sum([&numbers, &times(&gradient, -RATE)]);
        }
        numbers
    }

    fn of_rank(self, rank: u32) -> RankData {
        let Zero {
            dtype: _,
            steps,
            view,
            late,
        } = self.point;
        let is_late = late && rank + 1 == self.world.size;
        let mut data = RankData {
            options: json!({
                "parameters": SIZES.len(),
                "steps": steps,
                "rate": RATE,
                "view": view,
                "sleep_ms": if is_late { LATE_MS } else { 0 },
            }),
            ..RankData::default()
        };
        for (parameter, size) in SIZES.iter().copied().enumerate() {
            let shape = [size as u64];
            let own = self.parameter(rank, parameter);
            data.reads(format!("parameter.{parameter}"), &shape, own);
            for step in 0..steps {
                let input = self.input(rank, step, parameter);
                data.reads(format!("input.{step}.{parameter}"), &shape, input);
                let updated = |change| self.updated(change, step + 1, parameter);
                let last = self.world.size - 1;
                let guesses = vec![
                    (Class::NotReduced, updated(Change::Local(rank))),
                    (Class::AvgDidSum, updated(Change::Sum)),
                    (Class::FirstRankDropped, updated(Change::Without(0))),
                    (Class::LastRankDropped, updated(Change::Without(last))),
                    // What an owner changed never reached this rank.
                    (Class::Stale, self.updated(Change::Right, step, parameter)),
                    (Class::Stale, self.updated(Change::Right, 0, parameter)),
                ];
                let name = format!("updated.{step}.{parameter}");
                data.gives(name, &shape, updated(Change::Right), guesses);
            }
        }
        data
    }
}
