//! `SyncBatchNorm`: batches of which each rank has some rows, normalised by the mean and variance of all of them.
//!
//! Tensors: `weight`, `bias`, `mean` and `variance`, the same on all ranks; for step S `input.S`, `cotangent.S`, `output.S`,
//! `gradient.S.input`, `gradient.S.weight`, `gradient.S.bias`, `mean.S` and `variance.S`. Gradients of weight and bias are of the
//! rank's own rows: no layer reduces them here.

use serde_json::json;

use super::class::StackClass as Class;
use super::data::{About, RankData, World};
use crate::hash::{Stream, below};
use allranks_model::dtype::DType;
use allranks_model::stack::BatchNorm;

const CHANNELS: usize = 3;
/// Rows of each rank; of the first rank, where they are uneven.
const ROWS: usize = 4;
const FEWEST_ROWS: usize = 2;
const STEPS: u32 = 2;
const LARGEST: u64 = 8;
const MOMENTUM: f64 = 0.5;
const EPSILON: f64 = 1.0 / 1024.0;
/// How long the late rank sleeps, milliseconds.
const LATE_MS: u64 = 100;
/// Slots: weight, bias and running values, and from here on batches and what outputs are multiplied with.
const WEIGHT: u32 = 0;
const BIAS: u32 = 1;
const MEAN: u32 = 2;
const VARIANCE: u32 = 3;
const DATA: u32 = 10;

/// Returns the data that every rank is given, and those that it must give back.
pub(super) fn ranks(point: BatchNorm, world: World) -> Vec<RankData> {
    let norm = Norm { point, world };
    world.ranks().map(|rank| norm.of_rank(rank)).collect()
}

#[derive(Clone, Copy)]
struct Norm {
    point: BatchNorm,
    world: World,
}

/// Whose rows count: all ranks' unless something is wrong.
struct CountedRows {
    /// In mean and variance.
    statistics: Vec<u32>,
    /// In the sums of backward.
    sums: Vec<u32>,
    /// In what those sums are divided by.
    counts: Vec<u32>,
    /// Whether mean and variance are those of the first step.
    is_stale: bool,
}

/// The mean and the variance of each channel, and the number of rows.
struct Statistics {
    mean: Vec<f64>,
    variance: Vec<f64>,
    count: f64,
}

/// What a rank ends a step with.
struct StepResult {
    output: Vec<f64>,
    input: Vec<f64>,
    weight: Vec<f64>,
    mean: Vec<f64>,
    variance: Vec<f64>,
}

impl Norm {
    fn rows(self, rank: u32) -> usize {
        match self.point.uneven {
            true => FEWEST_ROWS + rank as usize,
            false => ROWS,
        }
    }

    fn drawn(self, rank: u32, slot: u32, len: usize) -> Vec<f64> {
        let words = self.world.key.stream(Stream::Block, rank, slot);
        let number = |index: u64| {
            let word = words.word(index);
            let number = 1 + below(word, LARGEST) as i64;
            (if word & 1 == 0 { number } else { -number }) as f64
        };
        (0..len as u64).map(number).collect()
    }

    /// Returns a number for each channel, the same on all ranks.
    fn shared(self, slot: u32) -> Vec<f64> {
        self.drawn(0, slot, CHANNELS)
    }

    fn input(self, rank: u32, step: u32) -> Vec<f64> {
        self.drawn(rank, DATA + 2 * step, self.rows(rank) * CHANNELS)
    }

    fn cotangent(self, rank: u32, step: u32) -> Vec<f64> {
        self.drawn(rank, DATA + 2 * step + 1, self.rows(rank) * CHANNELS)
    }

    fn count(self, ranks: &[u32]) -> f64 {
        ranks.iter().map(|rank| self.rows(*rank) as f64).sum()
    }

    fn statistics(self, ranks: &[u32], step: u32) -> Statistics {
        let count = self.count(ranks);
        let inputs: Vec<Vec<f64>> = ranks.iter().map(|rank| self.input(*rank, step)).collect();
        let mean = by_channel(inputs.iter().flatten().copied(), count);
        let squares = inputs.iter().flat_map(|input| {
            let channels = input.iter().zip(mean.iter().cycle());
            channels.map(|(x, mean)| (x - mean) * (x - mean))
        });
        let variance = by_channel(squares, count);
        Statistics {
            mean,
            variance,
            count,
        }
    }

    /// Returns what a rank ends each step with.
    fn steps(self, rank: u32, course: &CountedRows) -> Vec<StepResult> {
        let (weight, bias) = (self.shared(WEIGHT), self.shared(BIAS));
        let (mut mean, mut variance) = (self.shared(MEAN), self.running_variance());
        let mut results = Vec::new();
        for step in 0..STEPS {
            let seen = if course.is_stale { 0 } else { step };
            let all = self.statistics(&course.statistics, seen);
            let scale: Vec<f64> = all
                .variance
                .iter()
                .map(|variance| (variance + EPSILON).sqrt().recip())
                .collect();
            let count = self.count(&course.counts);
            let mut of_sum = [0.0; CHANNELS];
            let mut of_product = [0.0; CHANNELS];
            for other in &course.sums {
                let pairs = self.cotangent(*other, step).into_iter();
                for (index, (g, x)) in pairs.zip(self.input(*other, step)).enumerate() {
                    let channel = index % CHANNELS;
                    of_sum[channel] += g / count;
                    of_product[channel] += g * (x - all.mean[channel]) / count;
                }
            }
            for channel in 0..CHANNELS {
                let unbiased = all.variance[channel] * all.count / (all.count - 1.0);
                mean[channel] += MOMENTUM * (all.mean[channel] - mean[channel]);
                variance[channel] += MOMENTUM * (unbiased - variance[channel]);
            }
            let mut result = StepResult {
                output: Vec::new(),
                input: Vec::new(),
                weight: vec![0.0; CHANNELS],
                mean: mean.clone(),
                variance: variance.clone(),
            };
            let pairs = self.cotangent(rank, step).into_iter();
            for (index, (g, x)) in pairs.zip(self.input(rank, step)).enumerate() {
                let channel = index % CHANNELS;
                let scale = scale[channel];
                let centred = x - all.mean[channel];
                result
                    .output
                    .push(centred * scale * weight[channel] + bias[channel]);
                let back = g - of_sum[channel] - centred * scale * scale * of_product[channel];
                result.input.push(back * scale * weight[channel]);
                result.weight[channel] += g * centred * scale;
            }
            results.push(result);
        }
        results
    }

    fn running_variance(self) -> Vec<f64> {
        self.shared(VARIANCE).into_iter().map(f64::abs).collect()
    }

    fn right(self) -> CountedRows {
        let all: Vec<u32> = self.world.ranks().collect();
        CountedRows {
            statistics: all.clone(),
            sums: all.clone(),
            counts: all,
            is_stale: false,
        }
    }

    /// Returns how known bugs go: some ranks' rows are missing, forward, backward or both.
    fn wrong(self, rank: u32) -> Vec<(Class, CountedRows)> {
        let without = |which: u32| -> Vec<u32> {
            let others = self.world.ranks().filter(|other| *other != which);
            others.collect()
        };
        let mut courses = Vec::new();
        for (class, some) in [
            (Class::NotReduced, vec![rank]),
            (Class::FirstRankDropped, without(0)),
            (Class::LastRankDropped, without(self.world.size - 1)),
        ] {
            for (is_forward, is_backward, is_counted) in [
                (true, true, true),
                (true, true, false),
                (true, false, true),
                (true, false, false),
                (false, true, false),
            ] {
                let mut course = self.right();
                if is_forward {
                    course.statistics.clone_from(&some);
                }
                if is_backward {
                    course.sums.clone_from(&some);
                }
                if is_counted {
                    course.counts.clone_from(&some);
                }
                courses.push((class, course));
            }
        }
        let stale = CountedRows {
            is_stale: true,
            ..self.right()
        };
        courses.push((Class::Stale, stale));
        courses
    }

    fn of_rank(self, rank: u32) -> RankData {
        let BatchNorm {
            dtype,
            uneven: _,
            late,
        } = self.point;
        let is_late = late && rank + 1 == self.world.size;
        let mut data = RankData {
            options: json!({
                "steps": STEPS,
                "momentum": MOMENTUM,
                "epsilon": EPSILON,
                "sleep_ms": if is_late { LATE_MS } else { 0 },
            }),
            ..RankData::default()
        };
        let row = [CHANNELS as u64];
        let whole = [self.rows(rank) as u64, CHANNELS as u64];
        data.reads("weight".to_owned(), &row, self.shared(WEIGHT));
        data.reads("bias".to_owned(), &row, self.shared(BIAS));
        data.reads("mean".to_owned(), &row, self.shared(MEAN));
        data.reads("variance".to_owned(), &row, self.running_variance());
        // Kernels take roots, and divide by the number of rows in one order or another.
        let share = match dtype {
            DType::Float64 => (-30.0_f64).exp2(),
            _ => (-12.0_f64).exp2(),
        };
        let about = About { dtype, share };
        let right = self.steps(rank, &self.right());
        let wrong: Vec<(Class, Vec<StepResult>)> = self
            .wrong(rank)
            .into_iter()
            .map(|(class, course)| (class, self.steps(rank, &course)))
            .collect();
        for (step, right) in (0..).zip(&right) {
            data.reads(format!("input.{step}"), &whole, self.input(rank, step));
            data.reads(
                format!("cotangent.{step}"),
                &whole,
                self.cotangent(rank, step),
            );
            let mut gives = |name: String, shape, part: fn(&StepResult) -> &Vec<f64>| {
                let guesses = wrong
                    .iter()
                    .map(|(class, results)| (*class, part(&results[step as usize]).clone()));
                data.gives_about(name, shape, &about, part(right), guesses.collect());
            };
            gives(format!("output.{step}"), &whole, |result| &result.output);
            gives(format!("gradient.{step}.input"), &whole, |result| {
                &result.input
            });
            gives(format!("gradient.{step}.weight"), &row, |result| {
                &result.weight
            });
            gives(format!("mean.{step}"), &row, |result| &result.mean);
            gives(format!("variance.{step}"), &row, |result| &result.variance);
            let own = by_channel(self.cotangent(rank, step), 1.0);
            data.gives(format!("gradient.{step}.bias"), &row, own, Vec::new());
        }
        data
    }
}

/// Returns the sum of each channel's numbers, divided by a number.
fn by_channel(numbers: impl IntoIterator<Item = f64>, divisor: f64) -> Vec<f64> {
    let mut sums = [0.0; CHANNELS];
    for (index, number) in numbers.into_iter().enumerate() {
        sums[index % CHANNELS] += number;
    }
    sums.iter().map(|sum| sum / divisor + 0.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::Key;

    /// One step's gradient of the input by differences of `Σ output · cotangent`.
    #[test]
    fn the_gradient_is_the_slope_of_what_is_summed() {
        let norm = Norm {
            point: BatchNorm::default(),
            world: World {
                key: Key::of_check(1, 1, 0),
                size: 2,
            },
        };
        let inputs: Vec<f64> = [0, 1]
            .into_iter()
            .flat_map(|rank| norm.input(rank, 0))
            .collect();
        let weights = norm.shared(WEIGHT);
        let loss = |inputs: &[f64]| -> f64 {
            let count = inputs.len() as f64 / CHANNELS as f64;
            let mean = by_channel(inputs.iter().copied(), count);
            let centred: Vec<f64> = inputs
                .iter()
                .zip(mean.iter().cycle())
                .map(|(x, m)| x - m)
                .collect();
            let variance = by_channel(centred.iter().map(|x| x * x), count);
            let cotangents = [0, 1].into_iter().flat_map(|rank| norm.cotangent(rank, 0));
            let terms = centred
                .iter()
                .zip(cotangents)
                .enumerate()
                .map(|(index, (x, g))| {
                    let channel = index % CHANNELS;
                    g * x * weights[channel] / (variance[channel] + EPSILON).sqrt()
                });
            terms.sum()
        };
        let gradient: Vec<f64> = [0, 1]
            .into_iter()
            .flat_map(|rank| norm.steps(rank, &norm.right()).swap_remove(0).input)
            .collect();
        for (index, slope) in gradient.iter().enumerate() {
            let moved = |by: f64| {
                let mut inputs = inputs.clone();
                inputs[index] += by;
                loss(&inputs)
            };
            let found = (moved(1e-4) - moved(-1e-4)) / 2e-4;
            assert!((found - slope).abs() < 1e-5, "{index}: {found} and {slope}");
        }
    }
}
