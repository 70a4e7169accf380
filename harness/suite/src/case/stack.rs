//! A step that is about a layer above c10d: `- ddp: {buckets: many, steps: 3}`. Every parameter takes a value or a list, and
//! means what the field of its name means in [`allranks_model::stack`].

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::MapAccess;

use super::{OneOrMany, Only, Sweep};
use allranks_model::dtype::{DType, ReduceOp};
use allranks_model::names::RequirementId;
use allranks_model::stack::{
    Buckets, Collective, Ddp, Dtensor, Fsdp2, Functional, Hook, Layer, LayerName, Mesh, Pipeline,
    Schedule, Sharding, Splits, TensorPlacement, Wait,
};

/// One point of a layer's sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerPoint {
    /// The layer with this point's values.
    pub layer: Layer,
    /// The parameters that the step names, each with its value here.
    pub params: Vec<(String, String)>,
}

/// How a value is written in ids and reports.
fn text(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(serde_json::Value::Bool(true)) => "yes".to_owned(),
        Ok(serde_json::Value::Bool(false)) => "no".to_owned(),
        Ok(other) => other.to_string(),
        Err(error) => unreachable!("a plain value: {error}"),
    }
}

/// Makes the parameters of a layer's steps from the fields of the layer: each may be given a value or a list.
macro_rules! layer {
    ($(#[$about:meta])* $spec:ident, $layer:ident {$($(#[$doc:meta])* $field:ident: $type:ty,)*}) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        pub struct $spec {
            $($(#[$doc])* pub $field: Option<OneOrMany<$type>>,)*
            /// How the lists are combined.
            pub sweep: Sweep,
            /// Requirements this step covers besides the case's.
            pub covers: Vec<RequirementId>,
            /// The one profile it belongs to; absent: those of its case.
            pub profile: Option<Only>,
        }

        impl $spec {
            /// How many values each parameter has.
            fn lengths(&self) -> Vec<usize> {
                vec![$(self.$field.as_ref().map_or(1, |values| values.as_slice().len()),)*]
            }

            /// The point that has these of the parameters' values.
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

            /// The first parameter whose list has a value twice.
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

fn has_twice<T: PartialEq>(values: &[T]) -> bool {
    let mut places = 1..values.len();
    places.any(|at| values[..at].contains(&values[at]))
}

layer! {
    /// Functional collectives: two calls on different data, both made before either result is used.
    FunctionalSpec, Functional {
        /// The functions; absent: `all_reduce`.
        collective: Collective,
        /// Element types; absent: float32.
        dtype: DType,
        /// Reduce operators; absent: sum.
        op: ReduceOp,
        /// Gather or scatter dimensions, 0 or 1; absent: 0.
        dim: u32,
        /// Split sizes of `all_to_all_single`; absent: even.
        splits: Splits,
        /// How results are waited for; absent: by using them.
        wait: Wait,
        /// Whether inputs require gradients, and what comes back to them is checked; absent: no.
        backward: bool,
        /// Whether the last rank makes its calls 0.1 s late; absent: no.
        late: bool,
    }
}

layer! {
    /// Training steps of a model under `DistributedDataParallel`.
    DdpSpec, Ddp {
        /// Element types of parameters and buffers; absent: float32.
        dtype: DType,
        /// How gradients are put together; absent: all in one bucket.
        buckets: Buckets,
        /// Training steps; absent: 3.
        steps: u32,
        /// Backward passes of a step, all but the last under `no_sync`; absent: 1.
        passes: u32,
        /// Whether ranks leave parameters out (`find_unused_parameters`); absent: no.
        unused: bool,
        /// `gradient_as_bucket_view`; absent: no.
        view: bool,
        /// Communication hooks; absent: none.
        hook: Hook,
        /// Whether the last rank is 0.1 s late in every pass; absent: no.
        late: bool,
    }
}

layer! {
    /// Training steps of a model under `fully_shard`, with SGD.
    Fsdp2Spec, Fsdp2 {
        /// Element types of parameters; absent: float32.
        dtype: DType,
        /// How parameters are laid out; absent: one shard for each rank.
        sharding: Sharding,
        /// Training steps; absent: 3.
        steps: u32,
        /// `reshard_after_forward`; absent: yes.
        reshard: bool,
        /// Whether the last rank is 0.1 s late in every step; absent: no.
        late: bool,
    }
}

layer! {
    /// A `DeviceMesh` of two dimensions: its groups, its slices and its flattening.
    MeshSpec, Mesh {
        /// Element types of what is summed over its groups; absent: float32.
        dtype: DType,
        /// Sizes of its first dimension, of those that the number of ranks divides by; absent: 2.
        outer: u32,
    }
}

layer! {
    /// A `DTensor` of one placement made one of another, and back.
    DtensorSpec, Dtensor {
        /// Element types; absent: float32.
        dtype: DType,
        /// Placements before; absent: rows.
        from: TensorPlacement,
        /// Placements after; absent: replicate.
        to: TensorPlacement,
        /// Whether the last rank is 0.1 s late; absent: no.
        late: bool,
    }
}

layer! {
    /// A pipeline of one stage on each rank, which multiplies by its weight and adds its bias.
    PipelineSpec, Pipeline {
        /// Element types, float32 or float64; absent: float32.
        dtype: DType,
        /// The order in which stages work through their microbatches; absent: `gpipe`.
        schedule: Schedule,
        /// Microbatches of a step; absent: 4.
        microbatches: u32,
        /// Steps; absent: 2.
        steps: u32,
        /// Whether the last rank is 0.1 s late in every step; absent: no.
        late: bool,
    }
}

/// The parameters of a step that is about a layer.
#[derive(Clone, Debug, PartialEq)]
pub enum StackSpec {
    /// Functional collectives.
    Functional(FunctionalSpec),
    /// `DistributedDataParallel`.
    Ddp(DdpSpec),
    /// `fully_shard`.
    Fsdp2(Fsdp2Spec),
    /// `DeviceMesh`.
    Mesh(MeshSpec),
    /// `DTensor`.
    Dtensor(DtensorSpec),
    /// A pipeline.
    Pipeline(PipelineSpec),
}

/// Calls the same on the parameters of each layer.
macro_rules! each {
    ($spec:expr, $own:ident => $value:expr) => {
        match $spec {
            StackSpec::Functional($own) => $value,
            StackSpec::Ddp($own) => $value,
            StackSpec::Fsdp2($own) => $value,
            StackSpec::Mesh($own) => $value,
            StackSpec::Dtensor($own) => $value,
            StackSpec::Pipeline($own) => $value,
        }
    };
}

impl StackSpec {
    /// Reads the parameters of a layer's step.
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
        })
    }

    /// The layer.
    #[must_use]
    pub fn name(&self) -> LayerName {
        match self {
            Self::Functional(_) => LayerName::Functional,
            Self::Ddp(_) => LayerName::Ddp,
            Self::Fsdp2(_) => LayerName::Fsdp2,
            Self::Mesh(_) => LayerName::Mesh,
            Self::Dtensor(_) => LayerName::Dtensor,
            Self::Pipeline(_) => LayerName::Pipeline,
        }
    }

    /// Requirements the step covers besides the case's.
    #[must_use]
    pub fn covers(&self) -> &[RequirementId] {
        each!(self, own => &own.covers)
    }

    /// The one profile it belongs to, if any.
    #[must_use]
    pub fn profile(&self) -> Option<Only> {
        each!(self, own => own.profile)
    }

    /// How its lists are combined.
    #[must_use]
    pub fn sweep(&self) -> Sweep {
        each!(self, own => own.sweep)
    }

    /// How many values each of its parameters has.
    #[must_use]
    pub fn lengths(&self) -> Vec<usize> {
        each!(self, own => own.lengths())
    }

    /// The point that has these of its parameters' values.
    #[must_use]
    pub fn point(&self, at: &[usize]) -> LayerPoint {
        each!(self, own => own.point(at))
    }

    /// The first parameter whose list has a value twice.
    pub(super) fn repeated(&self) -> Option<&'static str> {
        each!(self, own => own.repeated())
    }
}
