//! How the words of a sweep are written in YAML: `x` or `[x, y]`, sizes in terms of `W`, roots, members, splits.
//!
//! Hand-written `Deserialize`s instead of untagged enums, so that an error keeps its place and says what would fit.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};

use super::{Members, Numel, OneOrMany, RootSpec, SplitsSpec};

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

/// Implements `Deserialize` for a word that is a number or a string: what it is called, how each is read, and the
/// strings there are (none if they follow a rule that the name explains).
macro_rules! word {
    ($type:ty, $expecting:literal, $number:expr, $text:expr, $words:expr) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Word;

                impl Visitor<'_> for Word {
                    type Value = $type;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }

                    fn visit_u64<E: de::Error>(self, v: u64) -> Result<Self::Value, E> {
                        let parse: fn(u64) -> Option<$type> = $number;
                        parse(v).ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(v), &self))
                    }

                    fn visit_str<E: de::Error>(self, v: &str) -> Result<Self::Value, E> {
                        let parse: fn(&str) -> Option<$type> = $text;
                        let words: &'static [&'static str] = $words;
                        parse(v).ok_or_else(|| match words {
                            [] => E::invalid_value(de::Unexpected::Str(v), &self),
                            words => E::unknown_variant(v, words),
                        })
                    }
                }

                deserializer.deserialize_any(Word)
            }
        }
    };
}

word!(
    Numel,
    "a number of elements: 33, scalar, \"1..67\", \"3W+1\" or \"W-1\"",
    |number| Some(Numel::Exact(number)),
    parse_numel,
    &[]
);

word!(
    RootSpec,
    "a root: a group rank, all or last",
    |number| u32::try_from(number).ok().map(RootSpec::GroupRank),
    |text| match text {
        "all" => Some(RootSpec::All),
        "last" => Some(RootSpec::Last),
        _ => None,
    },
    &["all", "last"]
);

fn parse_numel(text: &str) -> Option<Numel> {
    if text == "scalar" {
        return Some(Numel::Scalar);
    }
    if let Some((from, to)) = text.split_once("..") {
        let (from, to) = (from.parse().ok()?, to.parse().ok()?);
        return (from <= to).then_some(Numel::Range(from, to));
    }
    let (times, plus) = text.split_once('W')?;
    let times = if times.is_empty() {
        1
    } else {
        times.parse().ok()?
    };
    let plus = if plus.is_empty() {
        0
    } else if plus.starts_with(['+', '-']) {
        plus.parse().ok()?
    } else {
        return None;
    };
    Some(Numel::OfWorld { times, plus })
}

impl JsonSchema for Numel {
    fn schema_name() -> Cow<'static, str> {
        "Numel".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A number of elements: 33, scalar, \"1..67\", \"3W+1\" or \"W-1\" (W: the group's size).",
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"const": "scalar"},
                {"type": "string", "pattern": "^([0-9]+\\.\\.[0-9]+|[0-9]*W([+-][0-9]+)?)$"}
            ]
        })
    }
}

impl JsonSchema for RootSpec {
    fn schema_name() -> Cow<'static, str> {
        "Root".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A root: a group rank, all (every one in turn) or last.",
            "anyOf": [{"type": "integer", "minimum": 0}, {"enum": ["all", "last"]}]
        })
    }
}

/// The words for members.
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
            "description": "Members of a group: a rule, or a list of global ranks in group order.",
            "anyOf": [
                {"enum": RULES},
                {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
            ]
        })
    }
}

impl<'de> Deserialize<'de> for SplitsSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Word;

        impl<'de> Visitor<'de> for Word {
            type Value = SplitsSpec;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("splits: even, uneven, with_zero, all_zero, or {matrix: [[..], ..]}")
            }

            fn visit_str<E: de::Error>(self, v: &str) -> Result<Self::Value, E> {
                match v {
                    "even" => Ok(SplitsSpec::Even),
                    "uneven" => Ok(SplitsSpec::Uneven),
                    "with_zero" => Ok(SplitsSpec::WithZero),
                    "all_zero" => Ok(SplitsSpec::AllZero),
                    _ => Err(E::unknown_variant(
                        v,
                        &["even", "uneven", "with_zero", "all_zero", "matrix"],
                    )),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                match map.next_key::<String>()?.as_deref() {
                    Some("matrix") => {
                        let matrix = SplitsSpec::Matrix(map.next_value()?);
                        match map.next_key::<String>()? {
                            None => Ok(matrix),
                            Some(key) => Err(de::Error::unknown_field(&key, &["matrix"])),
                        }
                    }
                    Some(key) => Err(de::Error::unknown_field(key, &["matrix"])),
                    None => Err(de::Error::missing_field("matrix")),
                }
            }
        }

        deserializer.deserialize_any(Word)
    }
}

impl JsonSchema for SplitsSpec {
    fn schema_name() -> Cow<'static, str> {
        "Splits".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Split sizes: a rule, or a matrix whose entry [i][j] goes from group rank i to group rank j.",
            "anyOf": [
                {"enum": ["even", "uneven", "with_zero", "all_zero"]},
                {
                    "type": "object",
                    "properties": {
                        "matrix": {
                            "type": "array",
                            "items": {"type": "array", "items": {"type": "integer", "minimum": 0}}
                        }
                    },
                    "required": ["matrix"],
                    "additionalProperties": false
                }
            ]
        })
    }
}
