//! `fully_shard`: training steps of a model of four sharded parameters, with an optimiser whose rate is 1/2.
//!
//! The loss of a step is the sum of all parameters times their inputs. Tensors: `parameter.P`, what a rank has in full before
//! sharding (each its own, so that a shard that comes from elsewhere is seen); for step S `input.S.P`; `gathered.S.P`, the
//! parameter as the forward has it; `returned.S.P`, the input's gradient, which is the parameter as the backward has it; `gradient.S.P` and `shard.S.P`, the rank's shard of the gradient and, after the optimiser's
//! step, of the parameter; `full.S.P`, all shards together after it.

use serde_json::json;

use super::class::StackClass as Class;
use super::data::{RankData, World, sum, times};
use allranks_model::stack::{Fsdp2, Sharding};

/// Elements of the parameters: no multiple of any number of ranks, and one that is smaller.
const SIZES: [usize; 4] = [33, 1, 64, 7];
/// The rate of the optimiser: a power of two.
const RATE: f64 = 0.5;
/// How long the late rank sleeps before each forward, milliseconds.
const LATE_MS: u64 = 100;

/// Returns the data that every rank is given, and those that it must give back.
pub(super) fn ranks(point: Fsdp2, world: World) -> Vec<RankData> {
    let training = Training { point, world };
    world.ranks().map(|rank| training.of_rank(rank)).collect()
}

#[derive(Clone, Copy)]
struct Training {
    point: Fsdp2,
    world: World,
}

/// What a gradient becomes: right, or by a known bug.
#[derive(Clone, Copy)]
enum Reduction {
    Right,
    /// Each half of the ranks has the sum of its own.
    Half,
    /// The same, divided as for the average of all.
    HalfShare,
    /// Each rank has its own.
    Local,
    /// The same, but divided as for the average.
    LocalShare,
    Sum,
    Without(u32),
    /// That of the step before.
    Earlier,
    /// That of the next shard, where it is as long.
    NextShard,
}

const BUGS: [(Class, Reduction); 5] = [
    (Class::NotReduced, Reduction::Local),
    (Class::NotReduced, Reduction::LocalShare),
    (Class::AvgDidSum, Reduction::Sum),
    (Class::Stale, Reduction::Earlier),
    (Class::BlocksShifted, Reduction::NextShard),
];

impl Training {
    /// Numbers exact after all steps, halves included.
    fn draw(self, rank: u32, slot: u32, len: usize) -> Vec<f64> {
        let terms = 2 * (self.point.steps + 1);
        self.world.draw(self.point.dtype, terms, rank, slot, len)
    }

    /// Returns the number of shards of a parameter.
    fn shards(self) -> u32 {
        match self.point.sharding {
            Sharding::Full => self.world.size,
            Sharding::Hybrid => self.world.size / 2,
        }
    }

    fn shard_of(self, rank: u32) -> u32 {
        rank % self.shards()
    }

    /// The elements of a shard, as `torch.chunk` has them: the last ones may be short, or empty.
    fn range(self, shard: u32, len: usize) -> std::ops::Range<usize> {
        let each = len.div_ceil(self.shards() as usize);
        let start = (shard as usize * each).min(len);
        start..(start + each).min(len)
    }

    /// A parameter in full before sharding; replicas have the same.
    fn parameter(self, rank: u32, parameter: usize) -> Vec<f64> {
        self.draw(self.shard_of(rank), parameter as u32, SIZES[parameter])
    }

    fn input(self, rank: u32, step: u32, parameter: usize) -> Vec<f64> {
        let slot = 100 + step * SIZES.len() as u32 + parameter as u32;
        self.draw(rank, slot, SIZES[parameter])
    }

    /// The gradient in full, as a rank has it.
    fn gradient(self, how: Reduction, rank: u32, step: u32, parameter: usize) -> Vec<f64> {
        let share = 1.0 / f64::from(self.world.size);
        let of = |step: u32, left_out: Option<u32>| {
            let ranks = self.world.ranks().filter(|rank| Some(*rank) != left_out);
            let inputs: Vec<_> = ranks
                .map(|rank| self.input(rank, step, parameter))
                .collect();
            sum(&inputs)
        };
        match how {
            Reduction::Right | Reduction::NextShard => times(&of(step, None), share),
            Reduction::Half | Reduction::HalfShare => {
                let first = rank - self.shard_of(rank);
                let half = first..first + self.shards();
                let inputs: Vec<_> = half.map(|rank| self.input(rank, step, parameter)).collect();
                let factor = match how {
                    Reduction::Half => 1.0 / f64::from(self.shards()),
                    _ => share,
                };
                times(&sum(&inputs), factor)
            }
            Reduction::Local => self.input(rank, step, parameter),
            Reduction::LocalShare => times(&self.input(rank, step, parameter), share),
            Reduction::Sum => of(step, None),
            Reduction::Without(left_out) => times(&of(step, Some(left_out)), share),
            Reduction::Earlier => times(&of(step.saturating_sub(1), None), share),
        }
    }

    /// A rank's shard of the gradient.
    fn gradient_shard(self, how: Reduction, rank: u32, step: u32, parameter: usize) -> Vec<f64> {
        let whole = self.gradient(how, rank, step, parameter);
        let shard = self.shard_of(rank);
        let own = self.range(shard, whole.len());
        let next = self.range((shard + 1) % self.shards(), whole.len());
        match how {
            Reduction::NextShard if next.len() == own.len() => whole[next].to_vec(),
            _ => whole[own].to_vec(),
        }
    }

    /// A rank's shard of the parameter after so many steps.
    fn shard(self, how: Reduction, rank: u32, steps: u32, parameter: usize) -> Vec<f64> {
        let whole = self.parameter(rank, parameter);
        let mut shard = whole[self.range(self.shard_of(rank), whole.len())].to_vec();
        for step in 0..steps {
            let gradient = self.gradient_shard(how, rank, step, parameter);
            shard = sum([&shard, &times(&gradient, -RATE)]);
        }
        shard
    }

    /// All shards of the parameter after so many steps, as a rank gathers them.
    fn full(self, how: Reduction, rank: u32, steps: u32, parameter: usize) -> Vec<f64> {
        let first = rank - self.shard_of(rank);
        let holders = first..first + self.shards();
        let shards: Vec<_> = holders
            .map(|rank| self.shard(how, rank, steps, parameter))
            .collect();
        shards.concat()
    }

    fn bugs(self) -> impl Iterator<Item = (Class, Reduction)> {
        let dropped = [
            (Class::FirstRankDropped, Reduction::Without(0)),
            (
                Class::LastRankDropped,
                Reduction::Without(self.world.size - 1),
            ),
        ];
        let hybrid = match self.point.sharding {
            Sharding::Full => &[][..],
            Sharding::Hybrid => &[
                (Class::NotReduced, Reduction::Half),
                (Class::NotReduced, Reduction::HalfShare),
            ],
        };
        let hybrid = hybrid.iter().copied();
        BUGS.into_iter().chain(dropped).chain(hybrid)
    }

    fn guesses(self, of: impl Fn(Reduction) -> Vec<f64>) -> Vec<(Class, Vec<f64>)> {
        self.bugs().map(|(class, how)| (class, of(how))).collect()
    }

    fn of_rank(self, rank: u32) -> RankData {
        let mut data = RankData {
            options: self.options(rank),
            ..RankData::default()
        };
        for (parameter, size) in SIZES.into_iter().enumerate() {
            let numbers = self.parameter(rank, parameter);
            data.reads(format!("parameter.{parameter}"), &[size as u64], numbers);
        }
        for step in 0..self.point.steps {
            for (parameter, size) in SIZES.into_iter().enumerate() {
                let whole = [size as u64];
                let own = [self.range(self.shard_of(rank), size).len() as u64];
                let input = self.input(rank, step, parameter);
                data.reads(format!("input.{step}.{parameter}"), &whole, input);
                let of = |how| self.gradient_shard(how, rank, step, parameter);
                let name = format!("gradient.{step}.{parameter}");
                data.gives(name, &own, of(Reduction::Right), self.guesses(of));
                let of = |how| self.shard(how, rank, step + 1, parameter);
                let name = format!("shard.{step}.{parameter}");
                data.gives(name, &own, of(Reduction::Right), self.guesses(of));
                for (name, steps) in [("gathered", step), ("returned", step), ("full", step + 1)] {
                    let of = |how| self.full(how, rank, steps, parameter);
                    let mut guesses = self.guesses(of);
                    guesses.extend(self.gathered(rank, steps, parameter));
                    let name = format!("{name}.{step}.{parameter}");
                    data.gives(name, &whole, of(Reduction::Right), guesses);
                }
            }
        }
        data
    }

    /// Returns what known bugs of the gathering leave in the place of all shards.
    fn gathered(self, rank: u32, steps: u32, parameter: usize) -> Vec<(Class, Vec<f64>)> {
        let right = self.full(Reduction::Right, rank, steps, parameter);
        let len = right.len();
        let own = self.range(self.shard_of(rank), len);
        let mut copies = right.clone();
        for shard in 0..self.shards() {
            let place = self.range(shard, len);
            let many = place.len().min(own.len());
            // What a shard is short of is padding, which is zero.
            copies[place.start + many..place.end].fill(0.0);
            copies[place.start..place.start + many]
                .copy_from_slice(&right[own.start..own.start + many]);
        }
        let mut lost = right.clone();
        lost[self.range(self.shards() - 1, len)].fill(0.0);
        vec![(Class::NotPermuted, copies), (Class::TailZero, lost)]
    }

    fn options(self, rank: u32) -> serde_json::Value {
        let Fsdp2 {
            dtype: _,
            sharding,
            steps,
            reshard,
            late,
        } = self.point;
        let is_late = late && rank + 1 == self.world.size;
        json!({
            "parameters": SIZES.len(),
            "mesh": match sharding {
                Sharding::Full => vec![self.world.size],
                Sharding::Hybrid => vec![2, self.world.size / 2],
            },
            "steps": steps,
            "reshard": reshard,
            "rate": RATE,
            "sleep_ms": if is_late { LATE_MS } else { 0 },
        })
    }
}
