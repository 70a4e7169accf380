//! Deserialises what YAML may write in two forms: a value or a list of them ([`OneOrMany`]), a rule or a list of ranks
//! ([`Members`]).
//!
//! `Deserialize` is written by hand, because an error of an untagged enum has lost its line and does not say what
//! would fit.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};

use super::{Members, OneOrMany};

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
            type Value = OneOrMany<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value or a list of values")
            }

            fn visit_bool<E: de::Error>(self, v: bool) -> Result<Self::Value, E> {
                T::deserialize(v.into_deserializer()).map(OneOrMany::One)
            }

            fn visit_u64<E: de::Error>(self, v: u64) -> Result<Self::Value, E> {
                T::deserialize(v.into_deserializer()).map(OneOrMany::One)
            }

            fn visit_i64<E: de::Error>(self, v: i64) -> Result<Self::Value, E> {
                T::deserialize(v.into_deserializer()).map(OneOrMany::One)
            }

            fn visit_f64<E: de::Error>(self, v: f64) -> Result<Self::Value, E> {
                T::deserialize(v.into_deserializer()).map(OneOrMany::One)
            }

            fn visit_str<E: de::Error>(self, v: &str) -> Result<Self::Value, E> {
                T::deserialize(v.into_deserializer()).map(OneOrMany::One)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(de::value::MapAccessDeserializer::new(map)).map(OneOrMany::One)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = seq.next_element()? {
                    values.push(value);
                }
                if values.is_empty() {
                    return Err(de::Error::custom("an empty list selects nothing"));
                }
                Ok(OneOrMany::Many(values))
            }
        }

        deserializer.deserialize_any(Either(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for OneOrMany<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("OneOrMany_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<T>();
        json_schema!({
            "anyOf": [one, {"type": "array", "items": one, "minItems": 1}]
        })
    }
}

/// The words that [`Members`] are written with, besides lists.
const RULES: &[&str] = &[
    "all",
    "even",
    "odd",
    "first",
    "last",
    "all_but_first",
    "all_but_last",
    "reversed",
    "first_half",
    "second_half",
    "ends",
    "neighbours",
];

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Word;

        impl<'de> Visitor<'de> for Word {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "members: {}, or a list of ranks", RULES.join(", "))
            }

            fn visit_str<E: de::Error>(self, v: &str) -> Result<Self::Value, E> {
                match v {
                    "all" => Ok(Members::All),
                    "even" => Ok(Members::Even),
                    "odd" => Ok(Members::Odd),
                    "all_but_first" => Ok(Members::AllButFirst),
                    "all_but_last" => Ok(Members::AllButLast),
                    "first" => Ok(Members::First),
                    "last" => Ok(Members::Last),
                    "reversed" => Ok(Members::Reversed),
                    "first_half" => Ok(Members::FirstHalf),
                    "second_half" => Ok(Members::SecondHalf),
                    "ends" => Ok(Members::Ends),
                    "neighbours" => Ok(Members::Neighbours),
                    _ => Err(E::unknown_variant(v, RULES)),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut ranks = Vec::new();
                while let Some(rank) = seq.next_element()? {
                    ranks.push(rank);
                }
                if ranks.is_empty() {
                    return Err(de::Error::custom("a group needs at least one member"));
                }
                Ok(Members::List(ranks))
            }
        }

        deserializer.deserialize_any(Word)
    }
}

impl JsonSchema for Members {
    fn schema_name() -> Cow<'static, str> {
        "Members".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Ranks: a list of global ranks such as `[2, 0]`, or a rule. `all`; `even`, `odd`; `first`, `last`; `all_but_first`, `all_but_last`; `first_half` (rounded up), `second_half`; `ends`: the first and the last; `neighbours`: ranks 0 and 1, for copy number n of a group ranks n and n + 1; `reversed`: all, from the last to the first.",
            "anyOf": [
                {"enum": RULES, "description": "A rule."},
                {
                    "type": "array",
                    "items": {"type": "integer", "minimum": 0},
                    "minItems": 1,
                    "description": "Global ranks, in this order."
                }
            ]
        })
    }
}
