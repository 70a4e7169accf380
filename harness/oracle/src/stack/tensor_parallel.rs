//! Tensor parallelism: two linear layers, the first divided by columns (`ColwiseParallel`), the second by rows
//! (`RowwiseParallel`).
//!
//! Tensors: `input` (the rank's rows of it under sequence parallelism), `weight.L` and `bias.L` of layer L in full (each rank has
//! its own; the first rank's are handed out), `cotangent`, what the output is multiplied with before it is summed; `output`,
//! `gradient.input`, `gradient.weight.L` and `gradient.bias.0`, the rank's parts, and `gradient.bias.1`, the whole. All are small
//! integers.

use serde_json::json;

use super::class::StackClass as Class;
use super::data::{RankData, World, times};
use super::linear::{Matrix, column_sums, plus_row};
use crate::hash::{Stream, below};
use allranks_model::stack::TensorParallel;

/// Features of the input and of the output, and those in between for each rank; rows of the input for each rank.
const INPUTS: usize = 3;
const OUTPUTS: usize = 5;
const HIDDEN: usize = 2;
const ROWS: usize = 2;
/// Numbers are at most so large: products of two layers stay exact in float32 for any number of ranks.
const LARGEST: u64 = 3;
/// How long the late rank sleeps, milliseconds.
const LATE_MS: u64 = 100;
/// Slots: the input, what the output is multiplied with, and from here on two for each layer.
const INPUT: u32 = 0;
const COTANGENT: u32 = 1;
const LAYER: u32 = 10;

/// Returns what every rank is given and must give back.
pub(super) fn ranks(point: TensorParallel, world: World) -> Vec<RankData> {
    let layers = Layers { point, world };
    world.ranks().map(|rank| layers.of_rank(rank)).collect()
}

#[derive(Clone, Copy)]
struct Layers {
    point: TensorParallel,
    world: World,
}

impl Layers {
    fn size(self) -> usize {
        self.world.size as usize
    }

    fn hidden(self) -> usize {
        HIDDEN * self.size()
    }

    fn rows(self) -> usize {
        ROWS * self.size()
    }

    fn drawn(self, rank: u32, slot: u32, rows: usize, columns: usize) -> Matrix {
        let words = self.world.key.stream(Stream::Block, rank, slot);
        let number = |index: u64| {
            let word = words.word(index);
            let number = 1 + below(word, LARGEST) as i64;
            (if word & 1 == 0 { number } else { -number }) as f64
        };
        Matrix {
            columns,
            numbers: (0..(rows * columns) as u64).map(number).collect(),
        }
    }

    /// Returns the weight of a layer, one row for each feature that it gives.
    fn weight(self, rank: u32, layer: u32) -> Matrix {
        match layer {
            0 => self.drawn(rank, LAYER, self.hidden(), INPUTS),
            _ => self.drawn(rank, LAYER + 2, OUTPUTS, self.hidden()),
        }
    }

    fn bias(self, rank: u32, layer: u32) -> Vec<f64> {
        let len = if layer == 0 { self.hidden() } else { OUTPUTS };
        let numbers = self.drawn(rank, LAYER + 1 + 2 * layer, 1, len).numbers;
        // torch adds a part of the second bias on each rank: the division must be exact.
        let factor = if layer == 0 { 1.0 } else { self.size() as f64 };
        times(&numbers, factor)
    }

    /// Returns the rows of a matrix that a rank has: some under sequence parallelism, all otherwise.
    fn own_rows(self, whole: &Matrix, rank: u32) -> Matrix {
        match self.point.sequence {
            true => whole.rows(rank as usize * ROWS, ROWS),
            false => whole.clone(),
        }
    }

    fn of_rank(self, rank: u32) -> RankData {
        let TensorParallel {
            dtype: _,
            sequence,
            bias,
            late,
        } = self.point;
        let is_late = late && rank + 1 == self.world.size;
        let mut data = RankData {
            options: json!({
                "sequence": sequence,
                "bias": bias,
                "sleep_ms": if is_late { LATE_MS } else { 0 },
            }),
            ..RankData::default()
        };
        let input = self.drawn(0, INPUT, self.rows(), INPUTS);
        let cotangent = self.drawn(0, COTANGENT, self.rows(), OUTPUTS);
        let own = self.own_rows(&input, rank);
        data.reads("input".to_owned(), &own.shape(), own.numbers);
        let own = self.own_rows(&cotangent, rank);
        data.reads("cotangent".to_owned(), &own.shape(), own.numbers);
        for layer in [0, 1] {
            let weight = self.weight(rank, layer);
            data.reads(format!("weight.{layer}"), &weight.shape(), weight.numbers);
            if bias {
                let numbers = self.bias(rank, layer);
                let shape = [numbers.len() as u64];
                data.reads(format!("bias.{layer}"), &shape, numbers);
            }
        }
        self.results(rank, &input, &cotangent, &mut data);
        data
    }

    fn results(self, rank: u32, input: &Matrix, cotangent: &Matrix, data: &mut RankData) {
        let (first, second) = (self.weight(0, 0), self.weight(0, 1));
        let biases = self.point.bias.then(|| [self.bias(0, 0), self.bias(0, 1)]);
        let mut hidden = input.times_transposed(&first);
        let own_columns = rank as usize * HIDDEN;
        if let Some([bias, _]) = &biases {
            hidden = plus_row(&hidden, bias);
        }
        let mut output = hidden.times_transposed(&second);
        // A rank's own summand of the output: its columns of the layer in between.
        let mut summand = hidden
            .columns(own_columns, HIDDEN)
            .times_transposed(&second.columns(own_columns, HIDDEN));
        let mut biased_by_all = output.clone();
        if let Some([_, bias]) = &biases {
            summand = plus_row(&summand, bias);
            biased_by_all = plus_row(&output, &times(bias, self.size() as f64));
            output = plus_row(&output, bias);
        }
        let mut guesses = vec![(Class::NotReduced, self.own_rows(&summand, rank).numbers)];
        if biases.is_some() {
            let numbers = self.own_rows(&biased_by_all, rank).numbers;
            guesses.push((Class::ReducedTwice, numbers));
        }
        let own = self.own_rows(&output, rank);
        data.gives("output".to_owned(), &own.shape(), own.numbers, guesses);

        let back = cotangent.times(&second);
        let own_back = back.columns(own_columns, HIDDEN);
        let own_first = first.rows(own_columns, HIDDEN);
        let gradient = self.own_rows(&back.times(&first), rank);
        let summand = self.own_rows(&own_back.times(&own_first), rank);
        let guesses = vec![(Class::NotReduced, summand.numbers)];
        data.gives(
            "gradient.input".to_owned(),
            &gradient.shape(),
            gradient.numbers,
            guesses,
        );

        // Each rank's rows of input and cotangent alone: what is left if they are not gathered or reduced.
        let of_weight = own_back.transposed_times(input);
        let local = self
            .alone(rank, &own_back)
            .transposed_times(&self.alone(rank, input));
        let guesses = self.when_divided(local.numbers);
        data.gives(
            "gradient.weight.0".to_owned(),
            &of_weight.shape(),
            of_weight.numbers,
            guesses,
        );
        let own_hidden = hidden.columns(own_columns, HIDDEN);
        let of_weight = cotangent.transposed_times(&own_hidden);
        let local = self
            .alone(rank, cotangent)
            .transposed_times(&self.alone(rank, &own_hidden));
        let guesses = self.when_divided(local.numbers);
        data.gives(
            "gradient.weight.1".to_owned(),
            &of_weight.shape(),
            of_weight.numbers,
            guesses,
        );
        if biases.is_some() {
            let numbers = column_sums(&own_back);
            let guesses = self.when_divided(column_sums(&self.alone(rank, &own_back)));
            let shape = [numbers.len() as u64];
            data.gives("gradient.bias.0".to_owned(), &shape, numbers, guesses);
            let numbers = column_sums(cotangent);
            let guesses = self.when_divided(column_sums(&self.alone(rank, cotangent)));
            let shape = [numbers.len() as u64];
            data.gives("gradient.bias.1".to_owned(), &shape, numbers, guesses);
        }
    }

    fn alone(self, rank: u32, whole: &Matrix) -> Matrix {
        whole.rows(rank as usize * ROWS, ROWS)
    }

    /// Returns what is left of a sum over all rows if a rank has its own only.
    fn when_divided(self, numbers: Vec<f64>) -> Vec<(Class, Vec<f64>)> {
        self.point
            .sequence
            .then_some((Class::NotReduced, numbers))
            .into_iter()
            .collect()
    }
}
