//! The oracle: inputs and expected bytes, from the check alone. It knows nothing of torch.
//!
//! In: an [`OpCheck`]. Out: a [`Step`] for each rank and, when the ranks have answered, either how many elements were
//! compared on each or a classified [`Mismatch`]. Every rank returns **all** bytes of its storages, so one comparison
//! covers results, guard bands, gaps of strided tensors, inputs, sentinels in untouched outputs and the buffers of ranks
//! that take no part.
//!
//! | module | holds |
//! |---|---|
//! | `number`, `float8` | the 17 element types |
//! | `hash`, `inputs` | input values |
//! | `geometry`, `rank_plan`, `ops` | what each rank holds and does; the meaning of every op |
//! | `payload`, `combine` | the bytes sent and the bytes expected |
//! | `vacuity` | whether a check could fail at all |
//! | `verify`, `answers`, `wrong` | the comparison, and what it finds |
//! | `rounding` | whether results are rounded to nearest |
//! | `observe` | what right answers show: how they were accumulated, whether they are the same again |
//! | `double_double` | arithmetic to 106 bits |
//! | `class`, `classify`, `comparison`, `bug_model`, `ignored_strides`, `special_values` | which bug explains a wrong answer |
//! | `search`, `partial` | where the data in wrong elements comes from; results of a reduction that stopped early |
//! | `unpreparable` | checks without an expected value |
//! | `format` | elements as numbers and as text |
//! | `expected_tensors` | a check described tensor by tensor |
//! | `stack` | layers above c10d, with inputs, expected bytes and classes of their own |
//! | `prepared_check` | a check of either kind |

mod answers;
mod bug_model;
mod class;
mod classify;
mod combine;
mod comparison;
mod double_double;
mod expected_tensors;
mod float8;
mod format;
mod geometry;
mod hash;
mod ignored_strides;
mod inputs;
mod number;
mod observe;
mod ops;
mod partial;
mod payload;
mod prepared_check;
mod rank_plan;
mod rounding;
mod search;
mod special_values;
mod stack;
#[cfg(test)]
mod tests;
mod unpreparable;
mod vacuity;
mod verify;
mod wrong;

pub use class::Class;
pub use expected_tensors::{After, Answer, ExpectedTensor};
pub use observe::Observations;
pub use prepared_check::PreparedCheck;
pub use stack::{StackPrepared, stack_classes, vacuous_stack};
pub use unpreparable::Unpreparable;
pub use vacuity::vacuous;

use allranks_model::axes::Values;
use allranks_model::capability::Promises;
use allranks_model::dtype::{DType, DTypeKind, ReduceOp};
use allranks_model::names::WorldSize;
use allranks_model::op::Op;
use allranks_model::op_check::OpCheck;
use allranks_model::record::Difference;
use allranks_protocol::{Step, StepResult, Tensor};

use self::hash::Key;
use self::inputs::Purpose;
use self::payload::{BlockIndex, Results, image};
use self::rank_plan::RankPlan;

/// What one rank is asked to do in a check.
#[derive(Clone, Debug)]
pub struct RankStep {
    /// Storages, tensors, calls; `step.step` is filled in by the world.
    pub step: Step,
    /// Initial bytes of the storages, one after another.
    pub payload: Vec<u8>,
}

/// What one rank answered.
#[derive(Clone, Debug)]
pub struct RankReply {
    /// How its calls went.
    pub result: StepResult,
    /// Final bytes of the storages, one after another.
    pub payload: Vec<u8>,
}

/// A wrong answer, classified.
#[derive(Clone, Debug, PartialEq)]
pub struct Mismatch {
    /// Stable name of the class, `avg-divided-twice`.
    pub class: String,
    /// Describes the mismatch in one line.
    pub sentence: String,
    /// The first wrong element, if the mismatch is about elements.
    pub difference: Option<Difference>,
}

/// How results are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareMode {
    /// The result is exactly representable in any order of the ranks; tolerance 0.
    Exact,
    /// Values are only moved, so every bit pattern is used; tolerance 0.
    Payload,
    /// A right backend may round: random reals, averages of floats over a number of ranks that is not a power of two, and
    /// signs of zeros in complex products.
    Bounded,
    /// NaN, infinities, zeros with a sign, denormals, overflow: the expected bits, except for what IEEE 754 leaves open (the
    /// bits of a NaN, which zero is smaller, whether MIN and MAX see or skip a NaN).
    Special,
}

impl CompareMode {
    /// Returns how results of this combination are compared.
    #[must_use]
    pub fn of(
        op: Op,
        dtype: DType,
        reduce: Option<ReduceOp>,
        values: Values,
        ranks: usize,
    ) -> Self {
        let rounds = matches!(dtype.kind(), DTypeKind::Float | DTypeKind::Complex);
        match reduce {
            _ if !op.reduces() => Self::Payload,
            _ if values == Values::Special => Self::Special,
            _ if values == Values::Random => Self::Bounded,
            Some(ReduceOp::Avg) if rounds && !ranks.is_power_of_two() => Self::Bounded,
            Some(ReduceOp::Product) if dtype.kind() == DTypeKind::Complex => Self::Bounded,
            _ => Self::Exact,
        }
    }
}

/// A check with its inputs: what each rank does, and the expected bytes.
#[derive(Debug)]
pub struct Prepared {
    steps: Vec<RankStep>,
    works: Vec<RankPlan>,
    block_index: BlockIndex,
    results: Results,
    facts: Facts,
}

/// What comparing and classifying need to know of the check.
#[derive(Debug)]
struct Facts {
    op: Op,
    purpose: Purpose,
    /// Global ranks in group order.
    members: Vec<u32>,
    /// Position of the root.
    root: Option<u32>,
    /// Whether no tensor has gaps or is permuted.
    dense: bool,
    /// Whether a tensor that is written to has several elements at one place, and so can hold no result.
    overlaps: bool,
    /// What the platform file promises.
    promises: Promises,
}

/// A step's tensors, where those of the check's group lie.
fn on_host(check: &OpCheck, mut tensors: Vec<Tensor>) -> Vec<Tensor> {
    for tensor in &mut tensors {
        tensor.host = check.group.on_host;
    }
    tensors
}

impl Prepared {
    /// Inputs and expectations for every rank of the world (non-members of the check's group get bystander
    /// buffers and no call).
    ///
    /// # Errors
    /// The check has no expected value, or contradicts itself or the world.
    pub fn new(check: &OpCheck, world_size: WorldSize, seed: u64) -> Result<Self, Unpreparable> {
        unpreparable::refuse(check, world_size)?;
        Ok(Self::best(|salt| {
            Self::attempt(check, world_size, seed, salt)
        }))
    }

    fn attempt(check: &OpCheck, world_size: WorldSize, seed: u64, salt: u32) -> Self {
        let members: Vec<u32> = check.group.ranks.iter().map(|rank| rank.0).collect();
        let mut works: Vec<RankPlan> = world_size
            .ranks()
            .map(|rank| ops::work(check, seed, rank))
            .collect();
        let purpose = Purpose {
            dtype: check.dtype,
            mode: CompareMode::of(
                check.op,
                check.dtype,
                check.reduce,
                check.values,
                members.len(),
            ),
            reduce: check.reduce,
            ranks: members.len() as u32,
            values: check.values,
            factor: check.factor,
            repeated: ops::repeats(check),
        };
        let key = Key::of_check(seed, check.index, salt);
        let image = image(purpose, key, &works, &members);
        let steps = works
            .iter_mut()
            .zip(image.payloads)
            .map(|(work, payload)| RankStep {
                step: Step {
                    step: 0,
                    storages: work
                        .buffers
                        .iter()
                        .map(|buffer| buffer.storage.1 as u64)
                        .collect(),
                    tensors: on_host(check, std::mem::take(&mut work.tensors)),
                    calls: std::mem::take(&mut work.calls),
                },
                payload,
            })
            .collect();
        let dense = works
            .iter()
            .flat_map(|work| &work.buffers)
            .all(|buffer| buffer.place.is_dense());
        let overlaps = works.iter().flat_map(|work| &work.buffers).any(|buffer| {
            buffer.place.overlaps()
                && !matches!(
                    buffer.role,
                    rank_plan::Role::Input | rank_plan::Role::Bystander
                )
        });
        Self {
            steps,
            works,
            block_index: image.block_index,
            results: image.results,
            facts: Facts {
                op: check.op,
                purpose,
                members,
                root: check.root.map(|root| root.group_rank),
                dense,
                overlaps,
                promises: check.promises,
            },
        }
    }

    /// One step for each rank of the world, in rank order.
    #[must_use]
    pub fn steps(&self) -> &[RankStep] {
        &self.steps
    }
}
