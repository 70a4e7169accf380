//! `DistributedDataParallel`: training steps of a model of four parameters and a buffer.
//!
//! The loss of a pass is the sum of all parameters times their inputs, so a parameter's gradient is its input, and after the
//! reduction the average of the ranks' inputs. Tensors: `parameter.P` (each rank begins with its own, and all end with the first
//! rank's); for step S `buffer.S`, what the rank's buffer holds before it, and `synced.S`, what it holds after the first forward;
//! `input.S.M.P` of pass M; `local.S.P`, the gradient before the last pass of a step with several; `gradient.S.P`. A model that
//! must be refused has `refused` in their place, which is 1 if DDP raised.

use serde_json::json;

use super::class::StackClass as Class;
use super::data::{RankData, World, sum, times};
use allranks_model::dtype::DType;
use allranks_model::stack::{Buckets, Ddp, Hook};

/// Elements of the parameters: no multiple of any number of ranks, and one that is smaller.
const SIZES: &[usize] = &[33, 1, 64, 7];
/// Elements of the buffer.
const BUFFER: usize = 5;
/// The parameter that no rank uses, the one that all but the first use, the one that only the last rank uses.
const UNUSED: usize = 2;
const UNUSED_ON_FIRST: usize = 1;
const USED_ON_LAST: usize = 3;
/// Megabytes of a bucket that holds one parameter or two.
const SMALL_MB: f64 = 0.0001;
/// How long the late rank sleeps before each backward, milliseconds.
const LATE_MS: u64 = 100;

/// Returns the data that every rank is given, and those that it must give back.
pub(super) fn ranks(point: Ddp, world: World) -> Vec<RankData> {
    let training = Training { point, world };
    world.ranks().map(|rank| training.of_rank(rank)).collect()
}

#[derive(Clone, Copy)]
struct Training {
    point: Ddp,
    world: World,
}

impl Training {
    /// Returns the type in which numbers must be exact: that of the reduction.
    fn dtype(self) -> DType {
        match self.point.hook {
            Hook::Fp16 => DType::Float16,
            Hook::Bf16 => DType::Bfloat16,
            Hook::None | Hook::Allreduce | Hook::Negated => self.point.dtype,
        }
    }

    fn inputs(self, rank: u32, slot: u32, len: usize) -> Vec<f64> {
        self.world
            .inputs(self.dtype(), self.point.passes, rank, slot, len)
    }

    fn parameter(self, rank: u32, parameter: usize) -> Vec<f64> {
        self.inputs(rank, parameter as u32, SIZES[parameter])
    }

    fn buffer(self, rank: u32, step: u32) -> Vec<f64> {
        self.inputs(rank, 10 + step, BUFFER)
    }

    fn input(self, rank: u32, step: u32, pass: u32, parameter: usize) -> Vec<f64> {
        let pass = step * self.point.passes + pass;
        let slot = 1000 + pass * SIZES.len() as u32 + parameter as u32;
        self.inputs(rank, slot, SIZES[parameter])
    }

    /// Returns true if a rank uses a parameter.
    fn uses(self, rank: u32, parameter: usize) -> bool {
        match parameter {
            _ if !self.point.unused => true,
            UNUSED => false,
            UNUSED_ON_FIRST => rank != 0,
            USED_ON_LAST => rank + 1 == self.world.size,
            _ => true,
        }
    }

    /// Returns the steps that a rank has inputs for: under join, the first ranks have fewer.
    fn steps_of(self, rank: u32) -> u32 {
        let behind = self.world.size - 1 - rank;
        match self.point.join {
            true => self.point.steps.saturating_sub(behind).max(1),
            false => self.point.steps,
        }
    }

    /// Returns the rank whose buffers all have in a step: the first, or under join the last that still has inputs.
    fn root(self) -> u32 {
        if self.point.join {
            self.world.size - 1
        } else {
            0
        }
    }

    /// Returns a rank's own gradient after so many passes of a step.
    fn local(self, rank: u32, step: u32, passes: u32, parameter: usize) -> Vec<f64> {
        let has_one = self.uses(rank, parameter) && step < self.steps_of(rank);
        let factor = f64::from(u8::from(has_one));
        let inputs: Vec<_> = (0..passes)
            .map(|pass| times(&self.input(rank, step, pass, parameter), factor))
            .collect();
        sum(&inputs)
    }

    fn locals(self, step: u32, parameter: usize) -> Vec<Vec<f64>> {
        let passes = self.point.passes;
        let ranks = self.world.ranks();
        ranks
            .map(|rank| self.local(rank, step, passes, parameter))
            .collect()
    }

    /// Returns what the ranks' gradients of a step are reduced to: their average, if a hook makes nothing else of them.
    fn gradient(self, step: u32, parameter: usize) -> Vec<f64> {
        times(&sum(&self.locals(step, parameter)), self.share())
    }

    /// Returns one rank's part of it.
    fn share(self) -> f64 {
        let factor = match self.point.hook {
            Hook::Negated => -1.0,
            Hook::None | Hook::Allreduce | Hook::Fp16 | Hook::Bf16 => 1.0,
        };
        factor / f64::from(self.world.size)
    }

    /// Returns what known bugs leave in the place of a gradient.
    fn guesses(self, rank: u32, step: u32, parameter: usize) -> Vec<(Class, Vec<f64>)> {
        let locals = self.locals(step, parameter);
        let own = &locals[rank as usize];
        let dropped = |which: usize| {
            let others = (0..).zip(&locals).filter(|(at, _)| *at != which);
            times(&sum(others.map(|(_, local)| local)), self.share())
        };
        let mut guesses = vec![
            (Class::NotReduced, own.clone()),
            // DDP divides before it reduces.
            (Class::NotReduced, times(own, self.share())),
            (Class::AvgDidSum, sum(&locals)),
            (Class::FirstRankDropped, dropped(0)),
            (Class::LastRankDropped, dropped(locals.len() - 1)),
        ];
        if self.world.size.is_power_of_two() && self.point.hook != Hook::Negated {
            let again = times(&self.gradient(step, parameter), self.share());
            guesses.push((Class::AvgDividedTwice, again));
        }
        if step > 0 {
            guesses.push((Class::Stale, self.gradient(step - 1, parameter)));
        }
        if self.point.join {
            // Ranks that have run out of inputs give their last gradients once more.
            let again = self.world.ranks().map(|rank| {
                let last = step.min(self.steps_of(rank) - 1);
                self.local(rank, last, self.point.passes, parameter)
            });
            let again = times(&sum(&again.collect::<Vec<_>>()), self.share());
            guesses.push((Class::Stale, again));
        }
        if !self.uses(rank, parameter) {
            guesses.push((Class::UnusedMistaken, own.clone()));
        }
        guesses
    }

    fn of_rank(self, rank: u32) -> RankData {
        let mut data = RankData {
            options: self.options(rank),
            ..RankData::default()
        };
        if self.point.differs {
            for (parameter, size) in SIZES.iter().copied().enumerate() {
                let own = self.parameter(rank, parameter);
                data.reads(format!("parameter.{parameter}"), &[size as u64], own);
            }
            data.reads(
                "buffer.0".to_owned(),
                &[BUFFER as u64],
                self.buffer(rank, 0),
            );
            let guesses = vec![(Class::NotRefused, vec![0.0])];
            data.gives("refused".to_owned(), &[1], vec![1.0], guesses);
            return data;
        }
        for (parameter, size) in SIZES.iter().copied().enumerate() {
            let own = self.parameter(rank, parameter);
            let after = self.parameter(0, parameter);
            let guesses = vec![(Class::OwnKept, own.clone())];
            data.changes(
                format!("parameter.{parameter}"),
                &[size as u64],
                own,
                after,
                guesses,
            );
        }
        for step in 0..self.steps_of(rank) {
            self.step(rank, step, &mut data);
        }
        data
    }

    fn step(self, rank: u32, step: u32, data: &mut RankData) {
        let own = self.buffer(rank, step);
        let mut guesses = vec![(Class::OwnKept, own.clone())];
        if step > 0 {
            guesses.push((Class::Stale, self.buffer(self.root(), step - 1)));
        }
        data.reads(format!("buffer.{step}"), &[BUFFER as u64], own);
        data.gives(
            format!("synced.{step}"),
            &[BUFFER as u64],
            self.buffer(self.root(), step),
            guesses,
        );
        for (parameter, size) in SIZES.iter().copied().enumerate() {
            let shape = [size as u64];
            for pass in 0..self.point.passes {
                let input = self.input(rank, step, pass, parameter);
                data.reads(format!("input.{step}.{pass}.{parameter}"), &shape, input);
            }
            let before_last = self.point.passes - 1;
            let name = format!("local.{step}.{parameter}");
            if before_last > 0 && self.uses(rank, parameter) {
                let local = self.local(rank, step, before_last, parameter);
                let early = self
                    .world
                    .ranks()
                    .map(|rank| self.local(rank, step, before_last, parameter));
                let early = times(&sum(&early.collect::<Vec<_>>()), self.share());
                data.gives(name, &shape, local, vec![(Class::ReducedEarly, early)]);
            }
            let name = format!("gradient.{step}.{parameter}");
            let guesses = self.guesses(rank, step, parameter);
            let is_used = self.world.ranks().any(|rank| self.uses(rank, parameter));
            match is_used {
                true => data.gives(name, &shape, self.gradient(step, parameter), guesses),
                false => data.leaves(name, &shape, vec![(Class::UnusedMistaken, vec![0.0; size])]),
            }
        }
    }

    fn options(self, rank: u32) -> serde_json::Value {
        let Ddp {
            dtype: _,
            buckets,
            steps,
            passes,
            unused,
            view,
            hook,
            join,
            differs,
            late,
        } = self.point;
        let used: Vec<usize> = (0..SIZES.len())
            .filter(|parameter| self.uses(rank, *parameter))
            .collect();
        let is_late = late && rank + 1 == self.world.size;
        json!({
            "parameters": SIZES.len(),
            "used": used,
            "find_unused": unused,
            "bucket_mb": (buckets == Buckets::Many).then_some(SMALL_MB),
            "steps": self.steps_of(rank).min(steps),
            "passes": passes,
            "view": view,
            "hook": hook,
            "join": join,
            "one_more": differs && rank == 0,
            "is_refused": differs,
            "sleep_ms": if is_late { LATE_MS } else { 0 },
        })
    }
}
