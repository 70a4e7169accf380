//! An op with one value for each of its parameters, as scripts name it.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, IntoDeserializer, MapAccess, Visitor};
use serde_json::{Map, Value, json};

use super::StepParams;
use allranks_model::op::Op;

/// An op with one value for each of its parameters: `all_reduce`, or `{broadcast: {root: last}}`.
#[derive(Clone, Debug, PartialEq)]
pub struct OpSpec {
    /// The op that `it` issues.
    pub op: Op,
    /// The op's parameters, one value each.
    pub params: StepParams,
}

impl<'de> Deserialize<'de> for OpSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = OpSpec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an op: `all_reduce` or `{broadcast: {root: last}}`")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<OpSpec, E> {
                let op = Op::deserialize(name.into_deserializer())?;
                Ok(OpSpec {
                    op,
                    params: StepParams::default(),
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OpSpec, A::Error> {
                let op = map
                    .next_key::<Op>()?
                    .ok_or_else(|| de::Error::custom("a map without an op"))?;
                let params = map.next_value()?;
                match map.next_key::<String>()? {
                    None => Ok(OpSpec { op, params }),
                    Some(second) => Err(de::Error::custom(format!("`{second}` is a second op"))),
                }
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for OpSpec {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "OpSpec".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let op = generator.subschema_for::<Op>();
        let params = generator.subschema_for::<StepParams>().to_value();
        let ops: Map<String, Value> = Op::ALL
            .iter()
            .map(|op| (op.name().to_owned(), params.clone()))
            .collect();
        json_schema!({
            "description": "An op with one value for each of its parameters: `all_reduce`, `{broadcast: {root: last}}`.",
            "anyOf": [op, json!({
                "description": "One op, and its parameters.",
                "type": "object",
                "properties": ops,
                "additionalProperties": false,
                "minProperties": 1,
                "maxProperties": 1
            })]
        })
    }
}
