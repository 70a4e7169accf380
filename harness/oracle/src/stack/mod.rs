//! Layers above c10d: what each rank is given, and the bytes expected of it.
//!
//! In: a [`StackCheck`]. Out: one step for each rank, with one call; and, when the ranks have answered, how many elements were
//! compared on each or a classified [`Mismatch`](crate::Mismatch). A layer is a function from its options to the numbers that
//! each rank is given and must give back, together with the numbers that known bugs would leave; nothing else is known of it
//! here.
//!
//! | module | holds |
//! |---|---|
//! | `data` | numbers, and tensors made of them |
//! | `bytes` | storages, with guard bands and sentinels |
//! | `verify`, `class` | the comparison, and which bug explains a wrong answer |
//! | `drawn` | random numbers, which are compared with each other |
//! | `matrix` | a matrix divided by rows or columns |
//! | `linear` | products of small matrices |
//! | `norm` | gradients whose norm is known |
//! | `functional`, `ddp`, `fsdp2`, `mesh`, `dtensor`, `pipeline`, `zero`, `tensor_parallel`, `checkpoint`, `batch_norm`, `context_parallel`, `random_numbers` | a layer each |

mod batch_norm;
mod bytes;
mod checkpoint;
mod class;
mod context_parallel;
mod data;
mod ddp;
mod drawn;
mod dtensor;
mod fsdp2;
mod functional;
mod linear;
mod matrix;
mod mesh;
mod norm;
mod pipeline;
mod random_numbers;
mod tensor_parallel;
#[cfg(test)]
mod tests;
mod verify;
mod zero;

use self::bytes::{Placed, placed};
use self::class::StackClass;
use self::data::{RankData, World};
use crate::hash::Key;
use crate::{RankStep, Unpreparable};
use allranks_model::dtype::DType;
use allranks_model::names::WorldSize;
use allranks_model::stack::{Layer, StackCheck};
use allranks_protocol::{Call, Step};
use strum::VariantArray as _;

/// A check of a layer with its inputs: what each rank does, and what is expected of it.
#[derive(Debug)]
pub struct StackPrepared {
    dtype: DType,
    steps: Vec<RankStep>,
    ranks: Vec<Vec<Placed>>,
}

impl StackPrepared {
    /// Inputs and expectations for every rank of the world.
    ///
    /// # Errors
    /// The check's group is not the world, or has fewer than two ranks.
    pub fn new(check: &StackCheck, world_size: WorldSize, seed: u64) -> Result<Self, Unpreparable> {
        let size = world_size.0;
        if check.group.size() as u32 != size || size < 2 {
            return Err(Unpreparable::NotTheWorld(check.group.name.clone()));
        }
        let world = World {
            key: Key::of_check(seed, check.index, 0),
            size,
        };
        let dtype = check.layer.dtype();
        let data = match &check.layer {
            Layer::Functional(point) => functional::ranks(*point, world),
            Layer::Ddp(point) => ddp::ranks(*point, world),
            Layer::Fsdp2(point) => fsdp2::ranks(*point, world),
            Layer::Mesh(point) => mesh::ranks(*point, world),
            Layer::Dtensor(point) => dtensor::ranks(*point, world),
            Layer::Pipeline(point) => pipeline::ranks(*point, world),
            Layer::Zero(point) => zero::ranks(*point, world),
            Layer::TensorParallel(point) => tensor_parallel::ranks(*point, world),
            Layer::Checkpoint(point) => checkpoint::ranks(*point, world),
            Layer::BatchNorm(point) => batch_norm::ranks(*point, world),
            Layer::ContextParallel(point) => context_parallel::ranks(*point, world),
            Layer::RandomNumbers(point) => random_numbers::ranks(*point, world),
        };
        let mut steps = Vec::new();
        let mut ranks = Vec::new();
        for (rank, RankData { entries, options }) in (0..).zip(data) {
            let (tensors, payload) = placed(dtype, world, rank, entries);
            let names = (0..).zip(&tensors);
            let call = Call::Stack {
                group: check.group.name.clone(),
                layer: check.layer.name().to_owned(),
                tensors: names
                    .map(|(index, placed)| (placed.entry.name.clone(), index))
                    .collect(),
                options,
            };
            let step = Step {
                step: 0,
                storages: tensors.iter().map(Placed::bytes).collect(),
                tensors: (0..)
                    .zip(&tensors)
                    .map(|(storage, placed)| placed.tensor(storage, dtype))
                    .collect(),
                calls: vec![call],
            };
            steps.push(RankStep { step, payload });
            ranks.push(tensors);
        }
        Ok(Self {
            dtype,
            steps,
            ranks,
        })
    }

    /// One step for each rank of the world, in rank order.
    #[must_use]
    pub fn steps(&self) -> &[RankStep] {
        &self.steps
    }
}

/// Returns the classes of wrong answers of layers above c10d: the name of each, and its sentence.
pub fn stack_classes() -> impl Iterator<Item = (&'static str, &'static str)> {
    let described = |class: &StackClass| (class.name(), class.sentence());
    StackClass::VARIANTS.iter().map(described)
}

/// Why a check of a layer proves nothing, if so: which known bug its data do not tell from the right result.
#[must_use]
pub fn vacuous_stack(check: &StackCheck, world_size: WorldSize, seed: u64) -> Option<String> {
    match StackPrepared::new(check, world_size, seed) {
        Ok(prepared) => prepared.indistinct(),
        Err(reason) => Some(reason.to_string()),
    }
}
