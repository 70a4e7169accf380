//! The parameters of a step: lists of values for the axes of its op, and what every step has.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{OneOrMany, Only, Sweep};
use allranks_model::dtype::{DType, ReduceOp};
use allranks_model::names::RequirementId;

/// Defines [`StepParams`] from the table of axes: one field for each axis.
macro_rules! step_params {
    ($($(#[$about:meta])* $field:ident: $value:ty {
        key: $key:ident, $written:ty, $described:literal;
        $($rest:tt)*
    })*) => {
        /// The parameters of a step about an op; each op takes some of them. A list makes one check for each value, as
        /// `sweep` combines them: `{dtype: [float32, int8], numel: 33}`.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        pub struct StepParams {
            /// The group that makes the calls: `world`, or one of the case's `groups:`. Absent: `world`.
            pub group: Option<OneOrMany<String>>,
            $(#[doc = $described] pub $key: Option<OneOrMany<$written>>,)*
            /// How the lists are combined into checks.
            pub sweep: Sweep,
            /// Requirements that this step covers besides the case's: `[COLL-014]`.
            pub covers: Vec<RequirementId>,
            /// `full`: the step belongs to that profile only, because it takes long. Absent: to the profiles of its
            /// case.
            pub profile: Option<Only>,
        }

        impl StepParams {
            /// Returns these parameters, with those that are not given taken from `other`. `sweep`, `covers` and
            /// `profile` are always those of `self`.
            #[must_use]
            pub fn or(self, other: Self) -> Self {
                Self {
                    group: self.group.or(other.group),
                    $($key: self.$key.or(other.$key),)*
                    ..self
                }
            }

            /// Returns for each axis, in the order of [`AXES`](allranks_model::axis::AXES), whether it is given.
            #[must_use]
            pub fn given(&self) -> Vec<bool> {
                vec![$(self.$key.is_some()),*]
            }
        }
    };
}

allranks_model::for_each_axis!(step_params);

impl StepParams {
    /// The element type of a step that gives none.
    pub const DEFAULT_DTYPE: DType = DType::Float32;
    /// The reduce operator of a step that gives none.
    pub const DEFAULT_OP: ReduceOp = ReduceOp::Sum;
}

#[cfg(test)]
mod tests {
    use super::*;
    use allranks_model::axis::AXES;
    use allranks_model::op::Op;

    #[test]
    fn every_key_that_an_op_takes_is_a_field() {
        let fields = serde_json::to_value(StepParams::default()).unwrap();
        let mut fields: Vec<_> = fields
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let mut taken: Vec<_> = Op::ALL.iter().flat_map(|op| op.keys()).collect();
        taken.sort_unstable();
        taken.dedup();
        fields.sort_unstable();
        assert_eq!(taken, fields);
    }

    #[test]
    fn what_is_given_is_told_in_the_order_of_the_table() {
        let params = StepParams {
            numel: Some(OneOrMany::One(super::super::Numel::Scalar)),
            ..StepParams::default()
        };
        let given = AXES.iter().zip(params.given()).filter(|(_, given)| *given);
        let given: Vec<_> = given.map(|(axis, _)| axis.key).collect();
        assert_eq!(given, ["numel"]);
    }
}
