//! `fully_shard`: training steps of a model of four sharded parameters, with an optimiser whose rate is 1/2.
//!
//! The loss of a step is the sum of all parameters times their inputs. Tensors: `parameter.P`, what a rank has in full before
//! sharding (each its own, so that a shard that comes from elsewhere is seen); for step S `input.S.P`; `gathered.S.P`, the
//! parameter as the forward has it; `returned.S.P`, the input's gradient, which is the parameter as the backward has it;
//! `gradient.S.P` and `shard.S.P`, the rank's shard of the gradient and, after the optimiser's step, of the parameter;
//! `full.S.P`, all shards together after it. Where gradients are clipped, `norm.S`, the norm of all of them before that.

use serde_json::json;

use super::class::StackClass as Class;
use super::data::{RankData, World, sum, times};
use super::matrix;
use super::norm::KnownNorm;
use crate::format::precision;
use crate::hash::{Stream, below};
use allranks_model::dtype::DType;
use allranks_model::stack::{Divide, Fsdp2, Precision, Sharding};
use half::bf16;

/// Elements of the parameters: no multiple of any number of ranks, and one that is smaller.
const SIZES: &[usize] = &[33, 1, 64, 7];
/// The rate of the optimiser: a power of two.
const RATE: f64 = 0.5;
/// Slots from here on are inputs; from here on the gradients of which the norm is known.
const INPUT: u32 = 100;
const KNOWN: u32 = 1000;
/// Numbers that bfloat16 has are at most so large, before powers of two.
const NARROW: u64 = 255;
/// What is added to numbers that bfloat16 has is lost in it if it is at most so large.
const LOST: u64 = 7;
/// Numbers that bfloat16 has and that such small ones do not change are multiples of this.
const COARSE: f64 = 4096.0;
/// How long the late rank sleeps before each backward, milliseconds.
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
    /// That of the next shard; what that is short of is padding.
    NextShard,
    /// Divided once more for each rank.
    DividedTwice,
    /// In another element type than asked for.
    AnotherType,
    /// Clipped by the norm of a rank's own shards.
    LocalNorm,
}

/// By how much numbers may be off.
#[derive(Clone, Copy, Debug, Default)]
struct Rounding {
    /// An element of a gradient.
    gradient: f64,
    /// The norm of all gradients.
    norm: f64,
    /// An element of a parameter, from the rounding of one step of the optimiser.
    parameter: f64,
    /// An element of a parameter in forward, from another type that it has there.
    forward: f64,
}

impl Rounding {
    /// Returns an element of a parameter after so many steps.
    fn after(self, steps: u32) -> f64 {
        f64::from(steps) * (RATE * self.gradient + self.parameter)
    }

    /// The same as forward and backward have it.
    fn in_forward(self, steps: u32) -> f64 {
        match steps {
            0 => 0.0,
            _ => self.after(steps) + self.forward,
        }
    }
}

const BUGS: &[(Class, Reduction)] = &[
    (Class::NotReduced, Reduction::Local),
    (Class::NotReduced, Reduction::LocalShare),
    (Class::AvgDidSum, Reduction::Sum),
    (Class::Stale, Reduction::Earlier),
    (Class::BlocksShifted, Reduction::NextShard),
];

impl Training {
    /// Numbers exact after all steps, halves included.
    fn inputs(self, rank: u32, slot: u32, len: usize) -> Vec<f64> {
        let terms = 2 * (self.point.steps + 1);
        self.world.inputs(self.point.dtype, terms, rank, slot, len)
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

    /// Returns the elements of a shard, as `torch.chunk` has them: the last ones may be short, or empty.
    fn range(self, shard: u32, len: usize) -> std::ops::Range<usize> {
        matrix::range(self.shards(), shard, len)
    }

    /// Returns a parameter in full before sharding; replicas have the same.
    fn parameter(self, rank: u32, parameter: usize) -> Vec<f64> {
        self.inputs(self.shard_of(rank), parameter as u32, SIZES[parameter])
    }

    fn slot(self, first: u32, step: u32, parameter: usize) -> u32 {
        first + step * SIZES.len() as u32 + parameter as u32
    }

    fn input(self, rank: u32, step: u32, parameter: usize) -> Vec<f64> {
        if let Some(norm) = self.norm() {
            return self.part_of_known(norm, rank, step, parameter);
        }
        let slot = self.slot(INPUT, step, parameter);
        let len = SIZES[parameter];
        match self.point.precision {
            Precision::Own => self.inputs(rank, slot, len),
            Precision::ReduceWide => self.narrow_input(rank, slot, len),
            Precision::ReduceNarrow => self.wide_input(rank, slot, len),
        }
    }

    /// Numbers that bfloat16 has; a sum that takes in the first rank's has more digits than that.
    fn narrow_input(self, rank: u32, slot: u32, len: usize) -> Vec<f64> {
        let size = u64::from(self.world.size);
        let largest = NARROW / (size >> size.trailing_zeros());
        let scale = if rank == 0 { 256.0 } else { 1.0 };
        let words = self.world.key.stream(Stream::Block, rank, slot);
        (0..len as u64)
            .map(|index| signed(words.word(index), largest) * size as f64 * scale)
            .collect()
    }

    /// Numbers that bfloat16 rounds to multiples of [`COARSE`].
    fn wide_input(self, rank: u32, slot: u32, len: usize) -> Vec<f64> {
        let words = self.world.key.stream(Stream::Block, rank, slot);
        (0..len as u64)
            .map(|index| {
                let word = words.word(index);
                let lost = signed(word.rotate_left(32), LOST);
                (signed(word, 3) * COARSE + lost) * f64::from(self.world.size)
            })
            .collect()
    }

    /// Gradients of which the norm is known, if they must be clipped.
    fn norm(self) -> Option<KnownNorm> {
        self.point
            .clip
            .then(|| KnownNorm::of(self.shards()))
            .flatten()
    }

    /// Returns the average of all ranks' inputs where its norm is known.
    fn known(self, norm: KnownNorm, step: u32, parameter: usize) -> Vec<f64> {
        let ranges: Vec<_> = (0..self.shards())
            .map(|shard| self.range(shard, SIZES[parameter]))
            .collect();
        let words = self.world.key.stream(Stream::Shared, 0, KNOWN);
        let word = words.word(u64::from(self.slot(0, step, parameter)));
        norm.gradient(&ranges, word)
    }

    /// Returns a rank's input where the norm of the average is known: what the last rank's must be follows from the others'.
    fn part_of_known(self, norm: KnownNorm, rank: u32, step: u32, parameter: usize) -> Vec<f64> {
        let slot = self.slot(INPUT, step, parameter);
        let inputs = |rank| self.inputs(rank, slot, SIZES[parameter]);
        let last = self.world.size - 1;
        if rank != last {
            return inputs(rank);
        }
        let whole = times(
            &self.known(norm, step, parameter),
            f64::from(self.world.size),
        );
        let others: Vec<_> = (0..last).map(inputs).collect();
        sum([&whole, &times(&sum(&others), -1.0)])
    }

    /// Returns an input's gradient contribution, as it is reduced.
    fn contribution(self, rank: u32, step: u32, parameter: usize) -> Vec<f64> {
        let input = self.input(rank, step, parameter);
        match self.point.precision {
            Precision::ReduceNarrow => narrowed(&input),
            Precision::Own | Precision::ReduceWide => input,
        }
    }

    /// Returns the gradient in full, as a rank has it.
    fn gradient(self, how: Reduction, rank: u32, step: u32, parameter: usize) -> Vec<f64> {
        let share = self.share();
        let of = |step: u32, left_out: Option<u32>| {
            let ranks = self.world.ranks().filter(|rank| Some(*rank) != left_out);
            let inputs: Vec<_> = ranks
                .map(|rank| self.contribution(rank, step, parameter))
                .collect();
            sum(&inputs)
        };
        match how {
            Reduction::Right | Reduction::NextShard | Reduction::LocalNorm => {
                times(&of(step, None), share)
            }
            Reduction::DividedTwice => times(&of(step, None), share * share),
            Reduction::AnotherType => self.reduced_in_another_type(step, parameter),
            Reduction::Half | Reduction::HalfShare => {
                let first = rank - self.shard_of(rank);
                let half = first..first + self.shards();
                let inputs: Vec<_> = half
                    .map(|rank| self.contribution(rank, step, parameter))
                    .collect();
                let factor = match how {
                    Reduction::Half => 1.0 / f64::from(self.shards()),
                    _ => share,
                };
                times(&sum(&inputs), factor)
            }
            Reduction::Local => self.contribution(rank, step, parameter),
            Reduction::LocalShare => times(&self.contribution(rank, step, parameter), share),
            Reduction::Sum => of(step, None),
            Reduction::Without(left_out) => times(&of(step, Some(left_out)), share),
            Reduction::Earlier => times(&of(step.saturating_sub(1), None), share),
        }
    }

    /// Returns what one rank's gradient is multiplied with in the reduction.
    fn share(self) -> f64 {
        let divisor = match self.point.divide {
            Divide::Average | Divide::Sum => self.world.size,
            Divide::Factor => self.shards(),
        };
        1.0 / f64::from(divisor)
    }

    /// Returns the average in full, if the reduction is made in the other of bfloat16 and float32.
    fn reduced_in_another_type(self, step: u32, parameter: usize) -> Vec<f64> {
        let inputs: Vec<_> = self
            .world
            .ranks()
            .map(|rank| self.input(rank, step, parameter))
            .collect();
        let average = times(&sum(&inputs), self.share());
        match self.point.precision {
            Precision::ReduceWide => narrowed(&average),
            Precision::Own | Precision::ReduceNarrow => average,
        }
    }

    /// Returns a rank's shard of the gradient, clipped if it must be.
    fn gradient_shard(self, how: Reduction, rank: u32, step: u32, parameter: usize) -> Vec<f64> {
        let shard = self.reduced_shard(how, rank, step, parameter);
        let Some(norm) = self.norm() else {
            return shard;
        };
        let total = match how {
            Reduction::LocalNorm => self.local_squares(rank, step),
            _ => norm.total() * norm.total(),
        };
        norm.clipped(&shard, total)
    }

    /// Returns the sum of the squares of a rank's shards of all gradients.
    fn local_squares(self, rank: u32, step: u32) -> f64 {
        let shards = (0..SIZES.len())
            .flat_map(|parameter| self.reduced_shard(Reduction::Right, rank, step, parameter));
        shards.map(|element| element * element).sum()
    }

    /// Returns a rank's shard of the gradient after the reduction.
    fn reduced_shard(self, how: Reduction, rank: u32, step: u32, parameter: usize) -> Vec<f64> {
        let whole = self.gradient(how, rank, step, parameter);
        let shard = self.shard_of(rank);
        let own = self.range(shard, whole.len());
        let next = self.range((shard + 1) % self.shards(), whole.len());
        match how {
            Reduction::NextShard => {
                let mut numbers = whole[next].to_vec();
                numbers.resize(own.len(), 0.0);
                numbers
            }
            _ => whole[own].to_vec(),
        }
    }

    /// Returns a rank's shard of the parameter after so many steps.
    fn shard(self, how: Reduction, rank: u32, steps: u32, parameter: usize) -> Vec<f64> {
        let whole = self.parameter(rank, parameter);
        let mut shard = whole[self.range(self.shard_of(rank), whole.len())].to_vec();
        for step in 0..steps {
            let gradient = self.gradient_shard(how, rank, step, parameter);
            shard = sum([&shard, &times(&gradient, -RATE)]);
            if let Reduction::LocalNorm = how {
                // No number with few digits.
                shard = shard
                    .iter()
                    .map(|number| f64::from(*number as f32))
                    .collect();
            }
        }
        shard
    }

    /// Returns the parameter in full as forward and backward have it.
    fn unsharded(self, how: Reduction, rank: u32, steps: u32, parameter: usize) -> Vec<f64> {
        self.as_in_forward(&self.full(how, rank, steps, parameter))
    }

    /// Numbers of a parameter in the type that it has in forward.
    fn as_in_forward(self, numbers: &[f64]) -> Vec<f64> {
        match self.point.precision {
            Precision::ReduceWide => narrowed(numbers),
            Precision::Own | Precision::ReduceNarrow => numbers.to_vec(),
        }
    }

    /// Returns all shards of the parameter after so many steps, as a rank gathers them.
    fn full(self, how: Reduction, rank: u32, steps: u32, parameter: usize) -> Vec<f64> {
        let first = rank - self.shard_of(rank);
        let holders = first..first + self.shards();
        let shards: Vec<_> = holders
            .map(|rank| self.shard(how, rank, steps, parameter))
            .collect();
        shards.concat()
    }

    fn bugs(self) -> Vec<(Class, Reduction)> {
        if self.point.clip {
            return vec![(Class::LocalNorm, Reduction::LocalNorm)];
        }
        let mut bugs = BUGS.to_vec();
        bugs.push((Class::FirstRankDropped, Reduction::Without(0)));
        let last = self.world.size - 1;
        bugs.push((Class::LastRankDropped, Reduction::Without(last)));
        if self.point.sharding == Sharding::Hybrid {
            bugs.push((Class::NotReduced, Reduction::Half));
            bugs.push((Class::NotReduced, Reduction::HalfShare));
        }
        // Where halves of halves are exact.
        let is_wide = matches!(self.point.dtype, DType::Float32 | DType::Float64);
        if self.point.divide == Divide::Sum && is_wide && self.world.size.is_power_of_two() {
            bugs.push((Class::AvgDividedTwice, Reduction::DividedTwice));
        }
        // What bfloat16 loses is less than what an average over three ranks may be rounded by there.
        let is_hidden =
            self.point.precision == Precision::ReduceNarrow && !self.world.size.is_power_of_two();
        if self.point.precision != Precision::Own && !is_hidden {
            bugs.push((Class::ReducedInAnotherType, Reduction::AnotherType));
        }
        bugs
    }

    fn guesses(self, of: impl Fn(Reduction) -> Vec<f64>) -> Vec<(Class, Vec<f64>)> {
        self.bugs()
            .into_iter()
            .map(|(class, how)| (class, of(how)))
            .collect()
    }

    /// Returns by how much numbers may be off. A backend may round an average over a count of ranks that is no power of two.
    fn rounding(self) -> Rounding {
        let count = self.world.size;
        if count.is_power_of_two() {
            return Rounding::default();
        }
        let unit = |dtype: DType| 0.5_f64.powi(precision(dtype).unwrap_or(8) as i32);
        let most = |numbers: Vec<f64>| numbers.into_iter().map(f64::abs).fold(0.0, f64::max);
        let of_all = |numbers: &dyn Fn(u32, usize) -> Vec<f64>| {
            let ranks = self.world.ranks();
            let each = ranks.flat_map(|rank| (0..SIZES.len()).map(move |one| (rank, one)));
            each.map(|(rank, one)| most(numbers(rank, one)))
                .fold(0.0, f64::max)
        };
        let reduced = match self.point.precision {
            Precision::Own => self.point.dtype,
            Precision::ReduceWide => DType::Float32,
            Precision::ReduceNarrow => DType::Bfloat16,
        };
        let steps = || 0..self.point.steps;
        let contribution = steps()
            .map(|step| of_all(&|rank, one| self.contribution(rank, step, one)))
            .fold(0.0, f64::max);
        let average = f64::from(count + 1) * unit(reduced) * contribution;
        // Errors of all elements at once, as far as the norm goes.
        let elements: usize = SIZES.iter().sum();
        let norm = average * (elements as f64).sqrt();
        // No element is larger than the norm, by which it is divided.
        let clipped = if self.point.clip { norm } else { 0.0 };
        let after = |steps| of_all(&|rank, one| self.shard(Reduction::Right, rank, steps, one));
        let parameter = after(0).max(after(self.point.steps));
        Rounding {
            gradient: average + clipped,
            norm,
            parameter: unit(self.point.dtype) * parameter,
            forward: match self.point.precision {
                Precision::ReduceWide => 2.0 * unit(DType::Bfloat16) * parameter,
                Precision::Own | Precision::ReduceNarrow => 0.0,
            },
        }
    }

    fn of_rank(self, rank: u32) -> RankData {
        let rounding = self.rounding();
        let mut data = RankData {
            options: self.options(rank),
            ..RankData::default()
        };
        for (parameter, size) in SIZES.iter().copied().enumerate() {
            let numbers = self.parameter(rank, parameter);
            data.reads(format!("parameter.{parameter}"), &[size as u64], numbers);
        }
        for step in 0..self.point.steps {
            for (parameter, size) in SIZES.iter().copied().enumerate() {
                let whole = [size as u64];
                let own = [self.range(self.shard_of(rank), size).len() as u64];
                let input = self.input(rank, step, parameter);
                data.reads(format!("input.{step}.{parameter}"), &whole, input);
                let of = |how| self.gradient_shard(how, rank, step, parameter);
                let name = format!("gradient.{step}.{parameter}");
                data.gives(name, &own, of(Reduction::Right), self.guesses(of));
                data.may_be_off_by(rounding.gradient);
                let of = |how| self.shard(how, rank, step + 1, parameter);
                let name = format!("shard.{step}.{parameter}");
                data.gives(name, &own, of(Reduction::Right), self.guesses(of));
                data.may_be_off_by(rounding.after(step + 1));
                let of = |how| self.full(how, rank, step + 1, parameter);
                let mut guesses = self.guesses(of);
                guesses.extend(self.gathered(rank, step + 1, parameter));
                let name = format!("full.{step}.{parameter}");
                data.gives(name, &whole, of(Reduction::Right), guesses);
                data.may_be_off_by(rounding.after(step + 1));
                for name in ["gathered", "returned"] {
                    let of = |how| self.unsharded(how, rank, step, parameter);
                    let mut guesses = self.guesses(of);
                    let wrong = self.gathered(rank, step, parameter).into_iter();
                    guesses.extend(
                        wrong.map(|(class, numbers)| (class, self.as_in_forward(&numbers))),
                    );
                    let name = format!("{name}.{step}.{parameter}");
                    data.gives(name, &whole, of(Reduction::Right), guesses);
                    data.may_be_off_by(rounding.in_forward(step));
                }
            }
            if let Some(norm) = self.norm() {
                let local = f64::from(self.local_squares(rank, step).sqrt() as f32);
                let guesses = vec![(Class::LocalNorm, vec![local])];
                data.gives(format!("norm.{step}"), &[1], vec![norm.total()], guesses);
                data.may_be_off_by(rounding.norm);
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
        let mut guesses = vec![(Class::NotPermuted, copies), (Class::TailZero, lost)];
        if steps > 0 {
            let earlier = self.full(Reduction::Right, rank, steps - 1, parameter);
            guesses.push((Class::Stale, earlier));
        }
        guesses
    }

    fn options(self, rank: u32) -> serde_json::Value {
        let Fsdp2 {
            dtype: _,
            sharding,
            steps,
            reshard,
            units,
            divide,
            precision,
            clip: _,
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
            "units": units,
            "divide_by": (divide == Divide::Factor).then(|| self.shards()),
            "force_sum": divide == Divide::Sum,
            "parameter_dtype": (precision == Precision::ReduceWide).then_some("bfloat16"),
            "reduce_dtype": match precision {
                Precision::Own => None,
                Precision::ReduceWide => Some("float32"),
                Precision::ReduceNarrow => Some("bfloat16"),
            },
            "clip_to": self.norm().map(KnownNorm::limit),
            "rate": RATE,
            "sleep_ms": if is_late { LATE_MS } else { 0 },
        })
    }
}

/// Returns an integer of 1 to `largest` with either sign.
fn signed(word: u64, largest: u64) -> f64 {
    let number = 1 + below(word, largest) as i64;
    // `below` hardly looks at the low bits, so one word makes both choices.
    (if word & 1 == 0 { number } else { -number }) as f64
}

/// Numbers rounded to bfloat16.
fn narrowed(numbers: &[f64]) -> Vec<f64> {
    numbers
        .iter()
        .map(|number| bf16::from_f64(*number).to_f64())
        .collect()
}
