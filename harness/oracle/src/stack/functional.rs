//! Functional collectives: two calls of the same function on different data, both made before either result is used.
//!
//! Tensors: `input.C.T` and `result.C.T` of call C and its tensor T; with backward, what is multiplied with the result before it
//! is summed, `cotangent.C.T`, and what the input gets from that, `gradient.C.T`. All are matrices of 5 columns, or of 5 rows
//! where columns are gathered or scattered.

use serde_json::json;

use super::class::StackClass as Class;
use super::data::{RankData, World, sum, times};
use crate::format::precision;
use allranks_model::dtype::ReduceOp;
use allranks_model::stack::{Collective, Functional, Splits, Wait};

/// Calls of a check.
const CALLS: u32 = 2;
/// Rows of one rank's share, and columns.
const ROWS: usize = 3;
const COLUMNS: usize = 5;
/// How long the late rank sleeps, milliseconds.
const LATE_MS: u64 = 100;
/// Slots from here on are cotangents.
const COTANGENT: u32 = 100;

type Guesses = Vec<(Class, Vec<f64>)>;

/// Returns the data that every rank is given, and those that it must give back.
pub(super) fn ranks(point: Functional, world: World) -> Vec<RankData> {
    let calls = Calls { point, world };
    world.ranks().map(|rank| calls.of_rank(rank)).collect()
}

/// A matrix of one rank's share, joined with those of others along a dimension or cut along it.
#[derive(Clone, Copy)]
struct Form {
    dim: u32,
    parts: usize,
}

impl Form {
    /// Shares joined along the dimension.
    fn joined(self, shares: &[Vec<f64>]) -> Vec<f64> {
        match self.dim {
            0 => shares.concat(),
            _ => {
                let rows = 0..COLUMNS;
                rows.flat_map(|row| {
                    let of_row =
                        move |share: &Vec<f64>| share[row * ROWS..(row + 1) * ROWS].to_vec();
                    shares.iter().flat_map(of_row)
                })
                .collect()
            }
        }
    }

    /// Returns a rank's share of a whole.
    fn share(self, whole: &[f64], rank: usize) -> Vec<f64> {
        match self.dim {
            0 => chunk(whole, self.parts, rank),
            _ => {
                let rows = whole.chunks_exact(ROWS * self.parts);
                rows.flat_map(|row| row[rank * ROWS..(rank + 1) * ROWS].to_vec())
                    .collect()
            }
        }
    }

    fn share_shape(self) -> [u64; 2] {
        let (rows, columns) = (ROWS as u64, COLUMNS as u64);
        match self.dim {
            0 => [rows, columns],
            _ => [columns, rows],
        }
    }

    fn whole_shape(self) -> [u64; 2] {
        let (parts, rows, columns) = (self.parts as u64, ROWS as u64, COLUMNS as u64);
        match self.dim {
            0 => [rows * parts, columns],
            _ => [columns, rows * parts],
        }
    }
}

/// Returns one of so many equal parts, in the order of memory.
fn chunk(whole: &[f64], parts: usize, number: usize) -> Vec<f64> {
    let len = whole.len() / parts;
    whole[number * len..(number + 1) * len].to_vec()
}

#[derive(Clone, Copy)]
struct Calls {
    point: Functional,
    world: World,
}

impl Calls {
    fn size(self) -> usize {
        self.world.size as usize
    }

    fn form(self) -> Form {
        Form {
            dim: self.point.dim,
            parts: self.size(),
        }
    }

    /// Returns true for a reduce-scatter: a rank's result is a part of its input.
    fn scatters(self) -> bool {
        matches!(
            self.point.collective,
            Collective::ReduceScatterTensor | Collective::ReduceScatterTensorCoalesced
        )
    }

    fn gathers(self) -> bool {
        matches!(
            self.point.collective,
            Collective::AllGatherTensor | Collective::AllGatherIntoTensorCoalesced
        )
    }

    /// Rows that one rank sends to another in `all_to_all_single`.
    fn rows(self, from: usize, to: usize) -> usize {
        match self.point.splits {
            Splits::Even => ROWS,
            // Some are 0, and no two ranks have the same.
            Splits::Uneven => (from + 2 * to + 1) % 4,
        }
    }

    fn sent(self, rank: usize) -> Vec<usize> {
        (0..self.size()).map(|to| self.rows(rank, to)).collect()
    }

    fn received(self, rank: usize) -> Vec<usize> {
        (0..self.size()).map(|from| self.rows(from, rank)).collect()
    }

    fn input_shape(self, rank: usize) -> [u64; 2] {
        match self.point.collective {
            Collective::AllToAllSingle => rows_of(&self.sent(rank)),
            _ if self.scatters() => self.form().whole_shape(),
            _ => self.form().share_shape(),
        }
    }

    fn result_shape(self, rank: usize) -> [u64; 2] {
        match self.point.collective {
            Collective::AllToAllSingle => rows_of(&self.received(rank)),
            _ if self.gathers() => self.form().whole_shape(),
            _ => self.form().share_shape(),
        }
    }

    /// Numbers of a rank: inputs, or what results are multiplied with.
    fn drawn(self, rank: usize, slot: u32, shape: [u64; 2]) -> Vec<f64> {
        let len = (shape[0] * shape[1]) as usize;
        self.world
            .inputs(self.point.dtype, 1, rank as u32, slot, len)
    }

    fn inputs(self, call: u32, tensor: u32) -> Vec<Vec<f64>> {
        let ranks = 0..self.size();
        let slot = 2 * call + tensor;
        ranks
            .map(|rank| self.drawn(rank, slot, self.input_shape(rank)))
            .collect()
    }

    fn cotangents(self, call: u32, tensor: u32) -> Vec<Vec<f64>> {
        let ranks = 0..self.size();
        let slot = COTANGENT + 2 * call + tensor;
        ranks
            .map(|rank| self.drawn(rank, slot, self.result_shape(rank)))
            .collect()
    }

    /// Returns the number by which a sum is divided.
    fn divisor(self) -> f64 {
        match self.point.op {
            ReduceOp::Avg => self.size() as f64,
            _ => 1.0,
        }
    }

    /// Returns by how much an average of such numbers may differ from the exact one. A backend may multiply each number by the
    /// rounded inverse of their count, in a fused multiply-add or before the sum, as NCCL does (`ncclAvg` is a sum with a
    /// factor, `FuncPreMulSum` in its reduce_kernel.h): for n numbers that is an error of two roundings for each and one for
    /// each addition,
    /// (n + 1) · u · |x| with the unit roundoff u and the largest number x. Of counts that are powers of two the inverse is exact.
    fn rounding(self, numbers: &[Vec<f64>]) -> f64 {
        let count = self.size();
        if self.point.op != ReduceOp::Avg || count.is_power_of_two() {
            return 0.0;
        }
        let all = numbers.iter().flatten();
        let largest = all.fold(0.0, |most: f64, one| most.max(one.abs()));
        let bits = precision(self.point.dtype).unwrap_or(8);
        (count + 1) as f64 * largest * 0.5_f64.powi(bits as i32)
    }

    /// Rows that went from one rank to another, out of what that one sent.
    fn block(self, sent: &[f64], from: usize, to: usize) -> Vec<f64> {
        let before: usize = self.sent(from)[..to].iter().sum();
        let start = before * COLUMNS;
        sent[start..start + self.rows(from, to) * COLUMNS].to_vec()
    }

    /// Returns the result of a call on a rank.
    fn result(self, inputs: &[Vec<f64>], rank: usize) -> Vec<f64> {
        let form = self.form();
        match self.point.collective {
            Collective::AllReduce | Collective::AllReduceCoalesced => {
                times(&sum(inputs), 1.0 / self.divisor())
            }
            Collective::AllGatherTensor | Collective::AllGatherIntoTensorCoalesced => {
                form.joined(inputs)
            }
            Collective::ReduceScatterTensor | Collective::ReduceScatterTensorCoalesced => {
                times(&form.share(&sum(inputs), rank), 1.0 / self.divisor())
            }
            Collective::AllToAllSingle => {
                let blocks = (0..self.size()).map(|from| self.block(&inputs[from], from, rank));
                blocks.collect::<Vec<_>>().concat()
            }
            Collective::Broadcast => inputs[self.size() - 1].clone(),
        }
    }

    /// Returns the gradient that the input of a rank gets from all ranks' sums of result times cotangent.
    fn gradient(self, cotangents: &[Vec<f64>], rank: usize) -> Vec<f64> {
        let form = self.form();
        match self.point.collective {
            Collective::AllReduce | Collective::AllReduceCoalesced | Collective::Broadcast => {
                times(&sum(cotangents), 1.0 / self.divisor())
            }
            Collective::AllGatherTensor | Collective::AllGatherIntoTensorCoalesced => {
                form.share(&sum(cotangents), rank)
            }
            Collective::ReduceScatterTensor | Collective::ReduceScatterTensorCoalesced => {
                times(&form.joined(cotangents), 1.0 / self.divisor())
            }
            Collective::AllToAllSingle => {
                let block = |to: usize| {
                    let before: usize = self.received(to)[..rank].iter().sum();
                    let start = before * COLUMNS;
                    cotangents[to][start..start + self.rows(rank, to) * COLUMNS].to_vec()
                };
                (0..self.size()).map(block).collect::<Vec<_>>().concat()
            }
        }
    }

    /// Returns what known bugs leave in the place of a result.
    fn guesses(self, inputs: &[Vec<f64>], rank: usize) -> Guesses {
        let (form, size) = (self.form(), self.size());
        let own = &inputs[rank];
        let next = (rank + 1) % size;
        match self.point.collective {
            Collective::AllReduce | Collective::AllReduceCoalesced => {
                self.reduction_guesses(inputs, rank, |whole| whole.to_vec())
            }
            Collective::ReduceScatterTensor | Collective::ReduceScatterTensorCoalesced => {
                let mut guesses =
                    self.reduction_guesses(inputs, rank, |whole| form.share(whole, rank));
                let factor = 1.0 / self.divisor();
                let shifted = times(&form.share(&sum(inputs), next), factor);
                guesses.push((Class::BlocksShifted, shifted));
                if form.dim > 0 {
                    let flat = times(&chunk(&sum(inputs), size, rank), factor);
                    guesses.push((Class::Interleaved, flat));
                }
                guesses
            }
            Collective::AllGatherTensor | Collective::AllGatherIntoTensorCoalesced => {
                let copies = vec![own.clone(); size];
                let mut rotated = inputs.to_vec();
                rotated.rotate_left(1);
                let mut guesses = vec![
                    (Class::NotPermuted, form.joined(&copies)),
                    (Class::BlocksShifted, form.joined(&rotated)),
                ];
                if form.dim > 0 {
                    guesses.push((Class::Interleaved, inputs.concat()));
                }
                guesses
            }
            Collective::AllToAllSingle => self.same_length(Class::NotPermuted, own, rank),
            Collective::Broadcast => vec![
                (Class::OwnKept, own.clone()),
                (Class::WrongRoot, inputs[0].clone()),
            ],
        }
    }

    /// Returns what known bugs leave in the place of a sum or average, of which a rank has a part.
    fn reduction_guesses(
        self,
        blocks: &[Vec<f64>],
        rank: usize,
        part: impl Fn(&[f64]) -> Vec<f64>,
    ) -> Guesses {
        let divided = 1.0 / self.divisor();
        let total = sum(blocks);
        let dropped = |which: usize| {
            let others = (0..).zip(blocks).filter(|(at, _)| *at != which);
            times(&part(&sum(others.map(|(_, block)| block))), divided)
        };
        let mut guesses = vec![
            (Class::NotReduced, part(&blocks[rank])),
            (
                Class::NotReduced,
                times(&part(&blocks[rank]), 1.0 / self.size() as f64),
            ),
            (Class::FirstRankDropped, dropped(0)),
            (Class::LastRankDropped, dropped(self.size() - 1)),
        ];
        if self.point.op == ReduceOp::Avg {
            guesses.push((Class::AvgDidSum, part(&total)));
        }
        guesses
    }

    /// Returns the guess of this class, or none if its numbers are not as many as the result's.
    fn same_length(self, class: Class, numbers: &[f64], rank: usize) -> Guesses {
        let [rows, columns] = self.result_shape(rank);
        let fits = numbers.len() as u64 == rows * columns;
        fits.then(|| (class, numbers.to_vec()))
            .into_iter()
            .collect()
    }

    /// Returns what known bugs leave in the place of a gradient.
    fn gradient_guesses(self, cotangents: &[Vec<f64>], rank: usize) -> Guesses {
        let form = self.form();
        let own = &cotangents[rank];
        match self.point.collective {
            Collective::AllReduce | Collective::AllReduceCoalesced | Collective::Broadcast => {
                self.reduction_guesses(cotangents, rank, |whole| whole.to_vec())
            }
            Collective::AllGatherTensor | Collective::AllGatherIntoTensorCoalesced => {
                self.reduction_guesses(cotangents, rank, |whole| form.share(whole, rank))
            }
            Collective::ReduceScatterTensor | Collective::ReduceScatterTensorCoalesced => {
                let copies = times(
                    &form.joined(&vec![own.clone(); self.size()]),
                    1.0 / self.divisor(),
                );
                vec![(Class::NotPermuted, copies)]
            }
            Collective::AllToAllSingle => {
                let is_as_long = own.len() == self.gradient(cotangents, rank).len();
                let guess = is_as_long.then(|| (Class::NotPermuted, own.clone()));
                guess.into_iter().collect()
            }
        }
    }

    fn of_rank(self, rank: u32) -> RankData {
        let at = rank as usize;
        let tensors = self.point.collective.tensors();
        let mut data = RankData {
            options: self.options(at),
            ..RankData::default()
        };
        let (into, out) = (self.input_shape(at), self.result_shape(at));
        for call in 0..CALLS {
            for tensor in 0..tensors {
                let name = |kind: &str| format!("{kind}.{call}.{tensor}");
                let inputs = self.inputs(call, tensor);
                data.reads(name("input"), &into, inputs[at].clone());
                let mut guesses = self.guesses(&inputs, at);
                if call > 0 {
                    let earlier = self.result(&self.inputs(call - 1, tensor), at);
                    guesses.push((Class::Stale, earlier));
                }
                if tensor > 0 {
                    let first = self.result(&self.inputs(call, 0), at);
                    guesses.push((Class::KthIsFirst, first));
                }
                data.gives(name("result"), &out, self.result(&inputs, at), guesses);
                data.may_be_off_by(self.rounding(&inputs));
                if self.point.backward {
                    let cotangents = self.cotangents(call, tensor);
                    data.reads(name("cotangent"), &out, cotangents[at].clone());
                    let mut guesses = self.gradient_guesses(&cotangents, at);
                    if call > 0 {
                        let earlier = self.gradient(&self.cotangents(call - 1, tensor), at);
                        guesses.push((Class::Stale, earlier));
                    }
                    if tensor > 0 {
                        let first = self.gradient(&self.cotangents(call, 0), at);
                        guesses.push((Class::KthIsFirst, first));
                    }
                    data.gives(
                        name("gradient"),
                        &into,
                        self.gradient(&cotangents, at),
                        guesses,
                    );
                    data.may_be_off_by(self.rounding(&cotangents));
                }
            }
        }
        data
    }

    fn options(self, rank: usize) -> serde_json::Value {
        let Functional {
            collective,
            dtype: _,
            op,
            dim,
            splits,
            wait,
            backward,
            traced,
            late,
        } = self.point;
        let is_late = late && rank + 1 == self.size();
        let splits = (splits == Splits::Uneven).then(|| [self.received(rank), self.sent(rank)]);
        json!({
            "collective": collective,
            "op": op,
            "dim": dim,
            "root": self.size() - 1,
            "splits": splits,
            "wait": wait == Wait::Explicit,
            "backward": backward,
            "traced": traced,
            "calls": CALLS,
            "tensors": collective.tensors(),
            "sleep_ms": if is_late { LATE_MS } else { 0 },
        })
    }
}

fn rows_of(splits: &[usize]) -> [u64; 2] {
    [splits.iter().sum::<usize>() as u64, COLUMNS as u64]
}
