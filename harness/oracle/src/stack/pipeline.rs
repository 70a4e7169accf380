//! Pipelines: stages, one or two on each rank, each of which multiplies by its weight and adds its bias.
//!
//! Tensors: `weight.K` and `bias.K` of the rank's stage K; for step S on the rank of the first stage `input.S`, on that of the
//! last one `target.S`, what the output is multiplied with before it is summed, and `output.S`; on every rank
//! `gradient.S.K.weight` and `gradient.S.K.bias`.

use serde_json::json;

use super::class::StackClass as Class;
use super::data::{RankData, World};
use crate::hash::{Stream, below};
use allranks_model::dtype::DType;
use allranks_model::stack::Pipeline;

/// Rows of a microbatch, and columns.
const ROWS: usize = 2;
const COLUMNS: usize = 5;
/// Numbers are at most so large: products of all stages stay exact in float32 up to seven stages.
const LARGEST: u64 = 5;
/// How long the late rank sleeps before each step, milliseconds.
const LATE_MS: u64 = 100;
/// Slots: weights, biases, and from here on inputs and targets.
const WEIGHT: u32 = 0;
const BIAS: u32 = 1;
const DATA: u32 = 10;

/// Returns the data that every rank is given, and those that it must give back.
pub(super) fn ranks(point: Pipeline, world: World) -> Vec<RankData> {
    let pipe = Pipe { point, world };
    world.ranks().map(|rank| pipe.of_rank(rank)).collect()
}

#[derive(Clone, Copy)]
struct Pipe {
    point: Pipeline,
    world: World,
}

/// How a step goes: right, or by a known bug.
#[derive(Clone, Copy, PartialEq)]
enum StepBehaviour {
    Right,
    /// Every microbatch has the first one's activations after the first stage.
    FirstActivations,
    /// Every microbatch has the first one's gradients before the last stage.
    FirstGradients,
    /// Every later stage of a rank has what the rank's first one was sent.
    FirstStage,
    /// Gradients are divided by the number of microbatches.
    ScaledGradients,
}

/// What a stage ends a step with.
struct StageResult {
    output: Vec<f64>,
    weight: Vec<f64>,
    bias: Vec<f64>,
}

impl Pipe {
    /// Integers of 1 to `largest` with either sign; none is zero.
    fn inputs(self, rank: u32, slot: u32, largest: u64, len: usize) -> Vec<f64> {
        let words = self.world.key.stream(Stream::Block, rank, slot);
        (0..len as u64)
            .map(|index| {
                let word = words.word(index);
                let number = 1 + below(word, largest) as i64;
                // `below` hardly looks at the low bits, so one word makes both choices.
                (if word & 1 == 0 { number } else { -number }) as f64
            })
            .collect()
    }

    /// Returns the number of stages of all ranks.
    fn count(self) -> u32 {
        self.world.size * self.point.schedule.stages_per_rank()
    }

    /// Returns the stages of a rank: they are dealt to the ranks in turn.
    fn stages_of(self, rank: u32) -> Vec<u32> {
        (rank..self.count())
            .step_by(self.world.size as usize)
            .collect()
    }

    fn weight(self, stage: u32) -> Vec<f64> {
        self.inputs(stage, WEIGHT, 2, COLUMNS)
    }

    fn bias(self, stage: u32) -> Vec<f64> {
        self.inputs(stage, BIAS, LARGEST, COLUMNS)
    }

    fn rows(self) -> usize {
        self.point.microbatches as usize * ROWS
    }

    fn input(self, step: u32) -> Vec<f64> {
        self.inputs(0, DATA + 2 * step, LARGEST, self.rows() * COLUMNS)
    }

    fn target(self, step: u32) -> Vec<f64> {
        self.inputs(0, DATA + 2 * step + 1, LARGEST, self.rows() * COLUMNS)
    }

    /// Returns every microbatch the first one.
    fn first(self, whole: &[f64]) -> Vec<f64> {
        whole[..ROWS * COLUMNS].repeat(self.point.microbatches as usize)
    }

    /// Returns the stage that should have been sent what this one has received.
    fn source(self, stage: u32, course: StepBehaviour) -> usize {
        let first = stage % self.world.size;
        match course {
            // The first stage of all is sent nothing.
            StepBehaviour::FirstStage if first > 0 => first as usize,
            _ => stage as usize,
        }
    }

    /// Returns what each stage holds at the end of a step.
    fn stages(self, step: u32, course: StepBehaviour) -> Vec<StageResult> {
        let count = self.count();
        let mut inputs = vec![self.input(step)];
        for stage in 0..count {
            let (weight, bias) = (self.weight(stage), self.bias(stage));
            let given = &inputs[self.source(stage, course)];
            let columns = || weight.iter().zip(&bias).cycle();
            let output: Vec<f64> = given
                .iter()
                .zip(columns())
                .map(|(x, (w, b))| x * w + b)
                .collect();
            let is_sent = stage + 1 < count && course == StepBehaviour::FirstActivations;
            inputs.push(if is_sent { self.first(&output) } else { output });
        }
        let mut gradient = self.target(step);
        let mut results = Vec::new();
        for stage in (0..count).rev() {
            let weight = self.weight(stage);
            let given = &inputs[self.source(stage, course)];
            let mut result = StageResult {
                output: inputs[stage as usize + 1].clone(),
                weight: vec![0.0; COLUMNS],
                bias: vec![0.0; COLUMNS],
            };
            for (index, (gradient, given)) in gradient.iter().zip(given).enumerate() {
                result.weight[index % COLUMNS] += gradient * given;
                result.bias[index % COLUMNS] += gradient;
            }
            results.push(result);
            let back = gradient.iter().zip(weight.iter().cycle());
            gradient = back.map(|(gradient, weight)| gradient * weight).collect();
            if course == StepBehaviour::FirstGradients {
                gradient = self.first(&gradient);
            }
        }
        if course == StepBehaviour::ScaledGradients {
            for result in &mut results {
                for gradient in result.weight.iter_mut().chain(&mut result.bias) {
                    *gradient = self.quotient(*gradient);
                }
            }
        }
        results.reverse();
        results
    }

    /// Returns a gradient divided by the number of microbatches, rounded to the element type.
    fn quotient(self, gradient: f64) -> f64 {
        let quotient = gradient / f64::from(self.point.microbatches);
        match self.point.dtype {
            DType::Float64 => quotient,
            _ => f64::from(quotient as f32),
        }
    }

    fn of_rank(self, rank: u32) -> RankData {
        let stages = self.stages_of(rank);
        let is_late = self.point.late && rank + 1 == self.world.size;
        let mut data = RankData {
            options: json!({
                "schedule": self.point.schedule,
                "stages": stages,
                "of_stages": self.count(),
                "microbatches": self.point.microbatches,
                "steps": self.point.steps,
                "sleep_ms": if is_late { LATE_MS } else { 0 },
            }),
            ..RankData::default()
        };
        let row = [COLUMNS as u64];
        for (at, stage) in stages.iter().enumerate() {
            data.reads(format!("weight.{at}"), &row, self.weight(*stage));
            data.reads(format!("bias.{at}"), &row, self.bias(*stage));
        }
        for step in 0..self.point.steps {
            for (at, stage) in stages.iter().enumerate() {
                self.step(step, at, *stage, &mut data);
            }
        }
        data
    }

    /// What a step gives a rank's stage.
    fn step(self, step: u32, at: usize, stage: u32, data: &mut RankData) {
        let (whole, row) = ([self.rows() as u64, COLUMNS as u64], [COLUMNS as u64]);
        let of = |step, course| self.stages(step, course).swap_remove(stage as usize);
        let right = of(step, StepBehaviour::Right);
        let mut wrong = vec![
            (Class::KthIsFirst, of(step, StepBehaviour::FirstActivations)),
            (Class::KthIsFirst, of(step, StepBehaviour::FirstGradients)),
        ];
        if self.count() > self.world.size {
            wrong.push((Class::KthIsFirst, of(step, StepBehaviour::FirstStage)));
        }
        if self.point.microbatches > 1 {
            let scaled = of(step, StepBehaviour::ScaledGradients);
            wrong.push((Class::DividedOtherwise, scaled));
        }
        if step > 0 {
            wrong.push((Class::Stale, of(step - 1, StepBehaviour::Right)));
        }
        let guesses = |part: fn(&StageResult) -> &Vec<f64>| -> Vec<(Class, Vec<f64>)> {
            wrong
                .iter()
                .map(|(class, result)| (*class, part(result).clone()))
                .collect()
        };
        if stage == 0 {
            data.reads(format!("input.{step}"), &whole, self.input(step));
        }
        if stage + 1 == self.count() {
            data.reads(format!("target.{step}"), &whole, self.target(step));
            let guesses = guesses(|result| &result.output);
            data.gives(format!("output.{step}"), &whole, right.output, guesses);
        }
        let of_weight = guesses(|result| &result.weight);
        let name = format!("gradient.{step}.{at}.weight");
        data.gives(name, &row, right.weight, of_weight);
        let of_bias = guesses(|result| &result.bias);
        let name = format!("gradient.{step}.{at}.bias");
        data.gives(name, &row, right.bias, of_bias);
    }
}
