//! Steps about a layer above c10d: `- ddp: {buckets: many, steps: 3}`. Every parameter takes a value or a list, and
//! means what the field of its name means in [`allranks_model::stack`].

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::MapAccess;

use super::{OneOrMany, Only, Sweep};
use allranks_model::dtype::{DType, ReduceOp};
use allranks_model::names::RequirementId;
use allranks_model::stack::{
    BatchNorm, Buckets, Checkpoint, Collective, ContextParallel, Ddp, Divide, Dtensor, Fault,
    Fsdp2, Functional, Hook, Layer, LayerName, Mesh, Pipeline, Precision, RandomNumbers, RandomOp,
    RandomPlacement, Rotation, Save, Schedule, Sharding, Splits, TensorParallel, TensorPlacement,
    Units, Wait, Zero,
};

/// One point of a layer's sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerPoint {
    /// The layer, with the values of this point.
    pub layer: Layer,
    /// The parameters that the step gives, each with its value at this point as reports show it.
    pub params: Vec<(String, String)>,
}

/// Returns a parameter's value as ids and reports show it: `true` and `false` as `yes` and `no`.
fn text(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(serde_json::Value::Bool(true)) => "yes".to_owned(),
        Ok(serde_json::Value::Bool(false)) => "no".to_owned(),
        Ok(other) => other.to_string(),
        Err(error) => unreachable!("a plain value: {error}"),
    }
}

/// Defines the parameters of a layer's steps from the fields of the layer: each may be given a value or a list.
macro_rules! layer {
    ($(#[$about:meta])* $spec:ident, $layer:ident {$($(#[$doc:meta])* $field:ident: $type:ty,)*}) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        pub struct $spec {
            $($(#[$doc])* pub $field: Option<OneOrMany<$type>>,)*
            /// How the lists are combined into checks.
            pub sweep: Sweep,
            /// Requirements that this step covers besides the case's: `[DDP-001]`.
            pub covers: Vec<RequirementId>,
            /// `full`: the step belongs to that profile only, because it takes long. Absent: to the profiles of its
            /// case.
            pub profile: Option<Only>,
        }

        impl $spec {
            /// Returns the number of values of each parameter, in the order of the fields; 1 for one that is not
            /// given.
            fn lengths(&self) -> Vec<usize> {
                vec![$(self.$field.as_ref().map_or(1, |values| values.as_slice().len()),)*]
            }

            /// Returns the point at these places, one for each parameter, in the lists of values. Places that are left
            /// out are 0.
            fn point(&self, at: &[usize]) -> LayerPoint {
                let mut point = $layer::default();
                let mut params = Vec::new();
                let mut at = at.iter();
                $(
                    let index = at.next().copied().unwrap_or_default();
                    if let Some(values) = &self.$field {
                        point.$field = values.as_slice()[index];
                        params.push((stringify!($field).to_owned(), text(&point.$field)));
                    }
                )*
                LayerPoint {
                    layer: Layer::$layer(point),
                    params,
                }
            }

            /// Returns the first parameter whose list has a value twice, if any.
            fn repeated(&self) -> Option<&'static str> {
                $(
                    if let Some(values) = &self.$field
                        && has_twice(values.as_slice())
                    {
                        return Some(stringify!($field));
                    }
                )*
                None
            }
        }
    };
}

/// Returns whether some value occurs more than once.
fn has_twice<T: PartialEq>(values: &[T]) -> bool {
    let mut places = 1..values.len();
    places.any(|at| values[..at].contains(&values[at]))
}

layer! {
    /// Functional collectives: two calls on different data, both made before either result is used.
    FunctionalSpec, Functional {
        /// Functions of `torch.distributed._functional_collectives`. Absent: `all_reduce`.
        collective: Collective,
        /// Element types of the tensors. Absent: `float32`.
        dtype: DType,
        /// Reduce operators, for functions that reduce. Absent: `sum`.
        op: ReduceOp,
        /// Gather or scatter dimensions, 0 or 1. Absent: 0.
        dim: u32,
        /// Split sizes of `all_to_all_single`. Absent: even ones.
        splits: Splits,
        /// How results are waited for. Absent: by using them.
        wait: Wait,
        /// `true`: inputs require gradients, and the gradients that come back are checked. Absent: `false`.
        backward: bool,
        /// `true`: the calls are traced by `torch.compile` with backend `aot_eager`. Absent: `false`.
        traced: bool,
        /// `true`: the last rank makes its calls 0.1 s late. Absent: `false`.
        late: bool,
    }
}

layer! {
    /// Training steps of a model under `DistributedDataParallel`.
    DdpSpec, Ddp {
        /// Element types of parameters and buffers. Absent: `float32`.
        dtype: DType,
        /// How gradients are put into buckets. Absent: all in one.
        buckets: Buckets,
        /// Number of training steps, 1 to 20; each has its own data. Absent: 3.
        steps: u32,
        /// Number of backward passes of a step, 1 to 4; all but the last are made under `no_sync`. Absent: 1.
        passes: u32,
        /// `true`: ranks leave parameters out of their forward pass, with `find_unused_parameters=True`. Absent:
        /// `false`.
        unused: bool,
        /// The argument `gradient_as_bucket_view`: whether gradients are views of the buckets. Absent: `false`.
        view: bool,
        /// The communication hook that reduces the gradients. Absent: none, DDP's own reduction.
        hook: Hook,
        /// `true`: the first ranks have inputs for fewer steps than the last, under the context manager `join`. Absent:
        /// `false`.
        join: bool,
        /// `true`: the first rank's model has a parameter more than the others', which DDP must refuse on every rank.
        /// Absent: `false`.
        differs: bool,
        /// `true`: the last rank is 0.1 s late in every backward pass. Absent: `false`.
        late: bool,
    }
}

layer! {
    /// Training steps of a model under `fully_shard`, with SGD.
    Fsdp2Spec, Fsdp2 {
        /// Element types of the parameters. Absent: `float32`.
        dtype: DType,
        /// How parameters are laid out over the ranks. Absent: one shard for each rank.
        sharding: Sharding,
        /// Number of training steps, 1 to 8, each with its own data. Absent: 3.
        steps: u32,
        /// The argument `reshard_after_forward` of `fully_shard`. Absent: `true`.
        reshard: bool,
        /// Which parameters are gathered and reduced together, and when. Absent: all in one unit.
        units: Units,
        /// By which operator gradients are averaged. Absent: FSDP2's own choice.
        divide: Divide,
        /// Element types of parameters in forward and of the reduction, by a `MixedPrecisionPolicy`. Absent: `dtype`.
        precision: Precision,
        /// `true`: `clip_grad_norm_` halves the gradients, whose norm is known. Absent: `false`.
        clip: bool,
        /// `true`: the last rank is 0.1 s late in every step. Absent: `false`.
        late: bool,
    }
}

layer! {
    /// A `DeviceMesh` of two dimensions: its groups, its slices and its flattening.
    MeshSpec, Mesh {
        /// Element types of what is summed over its groups. Absent: `float32`.
        dtype: DType,
        /// Sizes of its first dimension, 1 or more. Worlds whose size they do not divide are left out. Absent: 2.
        outer: u32,
    }
}

layer! {
    /// A `DTensor` that is redistributed from one placement to another, and back.
    DtensorSpec, Dtensor {
        /// Element types of the tensor. Absent: `float32`.
        dtype: DType,
        /// Placements before the redistribution, along the mesh's first dimension. Absent: rows.
        from: TensorPlacement,
        /// Placements after it, along the mesh's first dimension. Absent: `replicate`.
        to: TensorPlacement,
        /// Sizes of the mesh's first dimension, 1 or more; above 1 it has two, and worlds whose size they do not divide are
        /// left out. Absent: 1, a mesh of one dimension.
        outer: u32,
        /// Placements before the redistribution, along the mesh's second dimension. Absent: `replicate`.
        inner_from: TensorPlacement,
        /// Placements after it, along the mesh's second dimension. Absent: `replicate`.
        inner_to: TensorPlacement,
        /// How matrices of a partial placement are reduced: `sum`, `avg`, `min`, `max`. Absent: `sum`.
        op: ReduceOp,
        /// `true`: the last rank is 0.1 s late. Absent: `false`.
        late: bool,
    }
}

layer! {
    /// A pipeline of stages, one or two on each rank, each of which multiplies by its weight and adds its bias.
    PipelineSpec, Pipeline {
        /// Element types, `float32` or `float64`. Absent: `float32`.
        dtype: DType,
        /// The order in which stages work through their microbatches. Absent: `gpipe`.
        schedule: Schedule,
        /// Number of microbatches of a step, 2 to 8. Absent: 4.
        microbatches: u32,
        /// Number of steps, 1 to 8, each with its own data. Absent: 2.
        steps: u32,
        /// `true`: the last rank is 0.1 s late in every step. Absent: `false`.
        late: bool,
    }
}

layer! {
    /// Training steps of a model under `DistributedDataParallel` with `ZeroRedundancyOptimizer`.
    ZeroSpec, Zero {
        /// Element types of the parameters. Absent: `float32`.
        dtype: DType,
        /// Number of steps, 1 to 8, each with its own data. Absent: 3.
        steps: u32,
        /// The argument `parameters_as_bucket_view`. Absent: `false`.
        view: bool,
        /// `true`: the last rank is 0.1 s late in every step. Absent: `false`.
        late: bool,
    }
}

layer! {
    /// Two linear layers divided over the ranks, the first by columns and the second by rows.
    TensorParallelSpec, TensorParallel {
        /// Element types, `float32` or `float64`. Absent: `float32`.
        dtype: DType,
        /// `true`: input and output are divided by rows (sequence parallelism). Absent: `false`.
        sequence: bool,
        /// Whether the layers have a bias. Absent: `true`.
        bias: bool,
        /// `true`: the last rank is 0.1 s late. Absent: `false`.
        late: bool,
    }
}

layer! {
    /// A checkpoint that is saved by all ranks, and loaded by all or fewer.
    CheckpointSpec, Checkpoint {
        /// Element types of the matrix. Absent: `float32`.
        dtype: DType,
        /// Placements when it is saved, all but `partial`. Absent: rows.
        from: TensorPlacement,
        /// Placements when it is loaded, all but `partial`. Absent: rows.
        to: TensorPlacement,
        /// `true`: all ranks but the last load it. Absent: `false`.
        fewer: bool,
        /// How it is written. Absent: by `save`.
        save: Save,
        /// What the checkpoint that is loaded lacks; `load` must then fail on every rank. Absent: nothing.
        fault: Fault,
        /// `true`: the last rank is 0.1 s late. Absent: `false`.
        late: bool,
    }
}

layer! {
    /// Training steps of `SyncBatchNorm` on batches of which each rank has some rows.
    BatchNormSpec, BatchNorm {
        /// Element types, `float32` or `float64`. Absent: `float32`.
        dtype: DType,
        /// `true`: later ranks have more rows. Absent: `false`.
        uneven: bool,
        /// `true`: the last rank is 0.1 s late in every step. Absent: `false`.
        late: bool,
    }
}

layer! {
    /// Attention under `context_parallel`, over a sequence of which each rank has a part.
    ContextParallelSpec, ContextParallel {
        /// `true`: a position attends to no later one. Absent: `false`.
        causal: bool,
        /// `true`: each rank has a part from either end of the sequence; with `causal` only. Absent: `false`.
        balanced: bool,
        /// How keys and values go from rank to rank. Absent: `allgather`.
        rotation: Rotation,
        /// `true`: the last rank is 0.1 s late. Absent: `false`.
        late: bool,
    }
}

layer! {
    /// Random numbers of a `DTensor`, drawn by ranks whose own seeds differ.
    RandomNumbersSpec, RandomNumbers {
        /// What draws them. Absent: `uniform`.
        op: RandomOp,
        /// Where the drawn tensor is. Absent: `rows`.
        placement: RandomPlacement,
        /// `true`: the last rank is 0.1 s late. Absent: `false`.
        late: bool,
    }
}

/// A step about a layer, by layer: the lists of the layer's parameters, and what all steps have.
#[derive(Clone, Debug, PartialEq)]
pub enum StackSpec {
    /// A step `functional:`, about functional collectives.
    Functional(FunctionalSpec),
    /// A step `ddp:`, about `DistributedDataParallel`.
    Ddp(DdpSpec),
    /// A step `fsdp2:`, about `fully_shard`.
    Fsdp2(Fsdp2Spec),
    /// A step `mesh:`, about `DeviceMesh`.
    Mesh(MeshSpec),
    /// A step `dtensor:`, about `DTensor`.
    Dtensor(DtensorSpec),
    /// A step `pipeline:`, about `torch.distributed.pipelining`.
    Pipeline(PipelineSpec),
    /// A step `zero:`, about `ZeroRedundancyOptimizer`.
    Zero(ZeroSpec),
    /// A step `tensor_parallel:`, about `torch.distributed.tensor.parallel`.
    TensorParallel(TensorParallelSpec),
    /// A step `checkpoint:`, about `torch.distributed.checkpoint`.
    Checkpoint(CheckpointSpec),
    /// A step `batch_norm:`, about `SyncBatchNorm`.
    BatchNorm(BatchNormSpec),
    /// A step `context_parallel:`, about `context_parallel`.
    ContextParallel(ContextParallelSpec),
    /// A step `random_numbers:`, about random numbers of a `DTensor`.
    RandomNumbers(RandomNumbersSpec),
}

/// Evaluates the same expression on the parameters of whichever layer a step is about.
macro_rules! each {
    ($spec:expr, $own:ident => $value:expr) => {
        match $spec {
            StackSpec::Functional($own) => $value,
            StackSpec::Ddp($own) => $value,
            StackSpec::Fsdp2($own) => $value,
            StackSpec::Mesh($own) => $value,
            StackSpec::Dtensor($own) => $value,
            StackSpec::Pipeline($own) => $value,
            StackSpec::Zero($own) => $value,
            StackSpec::TensorParallel($own) => $value,
            StackSpec::Checkpoint($own) => $value,
            StackSpec::BatchNorm($own) => $value,
            StackSpec::ContextParallel($own) => $value,
            StackSpec::RandomNumbers($own) => $value,
        }
    };
}

impl StackSpec {
    /// Reads the parameters of a step about this layer: the value of the map's next entry.
    pub(super) fn read<'de, A: MapAccess<'de>>(
        layer: LayerName,
        map: &mut A,
    ) -> Result<Self, A::Error> {
        Ok(match layer {
            LayerName::Functional => Self::Functional(map.next_value()?),
            LayerName::Ddp => Self::Ddp(map.next_value()?),
            LayerName::Fsdp2 => Self::Fsdp2(map.next_value()?),
            LayerName::Mesh => Self::Mesh(map.next_value()?),
            LayerName::Dtensor => Self::Dtensor(map.next_value()?),
            LayerName::Pipeline => Self::Pipeline(map.next_value()?),
            LayerName::Zero => Self::Zero(map.next_value()?),
            LayerName::TensorParallel => Self::TensorParallel(map.next_value()?),
            LayerName::Checkpoint => Self::Checkpoint(map.next_value()?),
            LayerName::BatchNorm => Self::BatchNorm(map.next_value()?),
            LayerName::ContextParallel => Self::ContextParallel(map.next_value()?),
            LayerName::RandomNumbers => Self::RandomNumbers(map.next_value()?),
        })
    }

    /// Returns the layer that the step is about.
    #[must_use]
    pub fn name(&self) -> LayerName {
        match self {
            Self::Functional(_) => LayerName::Functional,
            Self::Ddp(_) => LayerName::Ddp,
            Self::Fsdp2(_) => LayerName::Fsdp2,
            Self::Mesh(_) => LayerName::Mesh,
            Self::Dtensor(_) => LayerName::Dtensor,
            Self::Pipeline(_) => LayerName::Pipeline,
            Self::Zero(_) => LayerName::Zero,
            Self::TensorParallel(_) => LayerName::TensorParallel,
            Self::Checkpoint(_) => LayerName::Checkpoint,
            Self::BatchNorm(_) => LayerName::BatchNorm,
            Self::ContextParallel(_) => LayerName::ContextParallel,
            Self::RandomNumbers(_) => LayerName::RandomNumbers,
        }
    }

    /// Returns the requirements that the step covers besides the case's.
    #[must_use]
    pub fn covers(&self) -> &[RequirementId] {
        each!(self, own => &own.covers)
    }

    /// Returns the only profile the step belongs to; `None` if it belongs to those of its case.
    #[must_use]
    pub fn profile(&self) -> Option<Only> {
        each!(self, own => own.profile)
    }

    /// Returns how the lists of the step are combined.
    #[must_use]
    pub fn sweep(&self) -> Sweep {
        each!(self, own => own.sweep)
    }

    /// Returns the number of values of each parameter; 1 for one that is not given.
    #[must_use]
    pub fn lengths(&self) -> Vec<usize> {
        each!(self, own => own.lengths())
    }

    /// Returns the point at these places, one for each parameter, in the lists of values.
    #[must_use]
    pub fn point(&self, at: &[usize]) -> LayerPoint {
        each!(self, own => own.point(at))
    }

    /// Returns the first parameter whose list has a value twice, if any.
    pub(super) fn repeated(&self) -> Option<&'static str> {
        each!(self, own => own.repeated())
    }
}
