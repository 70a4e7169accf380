//! How the values of some axes are written in YAML, where that is not the value itself: sizes in terms of `W`, roots by rule,
//! splits. [`Written`] gives the values that they stand for in a group.
//!
//! Hand-written `Deserialize`s instead of untagged enums, so that an error keeps its place and says what would fit.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use crate::axes::{Extent, Root, RootBy, Splits};
use crate::dtype::ReduceOp;
use crate::op::Op;

/// A number of elements, possibly in terms of the group's size `W`.
///
/// In YAML: `33`, `scalar` (0-dim), `"1..67"` (every number, both ends included), `"3W+1"`, `"W-1"`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Numel {
    /// A 0-dim tensor.
    Scalar,
    /// That many.
    Exact(u64),
    /// Every number from the first to the second, both included.
    Range(u64, u64),
    /// `times·W + plus`.
    OfWorld {
        /// Multiple of the group size.
        times: u64,
        /// Added to it; may be negative. A negative result is left out.
        plus: i64,
    },
}

/// A root of a group. In YAML: a group rank, `all` (every one in turn) or `last`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum RootSpec {
    /// Every group rank in turn.
    All,
    /// The last group rank.
    Last,
    /// This group rank; must exist in every world of the case.
    GroupRank(u32),
}

/// Split sizes. In YAML: `even`, `uneven`, `with_zero`, `all_zero`, or `{matrix: [[1, 2], [3, 4]]}` whose entry
/// `[i][j]` is what group rank i sends to group rank j.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum SplitsSpec {
    /// No split sizes passed.
    Even,
    /// Different for every ordered pair.
    Uneven,
    /// Some are zero.
    WithZero,
    /// All are zero.
    AllZero,
    /// Given; the case must fix one world size that matches.
    Matrix(Vec<Vec<u64>>),
}

/// The list that a step gives for an axis, and the values of the axis that it stands for. Most axes are written as what they are.
pub trait Written<Value>: Sized {
    /// Returns the values for an op in a group of that size, in order; empty if the group has none of them.
    fn values(list: &[Self], op: Op, group_size: u32) -> Vec<Value>;
}

impl<T: Clone> Written<T> for T {
    fn values(list: &[T], _: Op, _: u32) -> Vec<T> {
        list.to_vec()
    }
}

/// An op that does not reduce has no operator, whatever is listed.
impl Written<Option<ReduceOp>> for ReduceOp {
    fn values(list: &[Self], op: Op, _: u32) -> Vec<Option<Self>> {
        if !op.reduces() {
            return vec![None];
        }
        list.iter().copied().map(Some).collect()
    }
}

/// Sizes that come out equal are one.
impl Written<Extent> for Numel {
    fn values(list: &[Self], _: Op, group_size: u32) -> Vec<Extent> {
        let mut extents = Vec::new();
        for numel in list {
            match numel {
                Self::Scalar => extents.push(Extent::Scalar),
                Self::Exact(n) => extents.push(Extent::Flat(*n)),
                Self::Range(from, to) => extents.extend((*from..=*to).map(Extent::Flat)),
                Self::OfWorld { times, plus } => {
                    let size = times * u64::from(group_size);
                    extents.extend(size.checked_add_signed(*plus).map(Extent::Flat));
                }
            }
        }
        let mut seen = BTreeSet::new();
        extents.retain(|extent| seen.insert(*extent));
        extents
    }
}

/// Roots that come out equal, one after the other, are one. An op without a root has none, whatever is listed.
impl Written<Option<Root>> for RootSpec {
    fn values(list: &[Self], op: Op, group_size: u32) -> Vec<Option<Root>> {
        if !op.has_root() {
            return vec![None];
        }
        let ranks = list.iter().flat_map(|spec| match spec {
            Self::All => 0..group_size,
            Self::Last => group_size - 1..group_size,
            Self::GroupRank(rank) => *rank..*rank + 1,
        });
        let mut ranks: Vec<u32> = ranks.collect();
        ranks.dedup();
        let root = |group_rank| Root {
            group_rank,
            by: RootBy::Global,
        };
        ranks.into_iter().map(root).map(Some).collect()
    }
}

impl Written<Splits> for SplitsSpec {
    fn values(list: &[Self], _: Op, _: u32) -> Vec<Splits> {
        let value = |spec: &Self| match spec {
            Self::Even => Splits::Even,
            Self::Uneven => Splits::Uneven,
            Self::WithZero => Splits::WithZero,
            Self::AllZero => Splits::AllZero,
            Self::Matrix(matrix) => Splits::Explicit(matrix.clone()),
        };
        list.iter().map(value).collect()
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
                {"type": "integer", "minimum": 0, "description": "This many."},
                {"const": "scalar", "description": "One, in a tensor without dimensions."},
                {
                    "type": "string",
                    "pattern": "^([0-9]+\\.\\.[0-9]+|[0-9]*W([+-][0-9]+)?)$",
                    "description": "Each number of a range, or a multiple of the group's size and so many more or less."
                }
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
            "anyOf": [
                {"type": "integer", "minimum": 0, "description": "This group rank."},
                {"enum": ["all", "last"], "description": "Every group rank in turn, or the last one."}
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
                {"enum": ["even", "uneven", "with_zero", "all_zero"], "description": "A rule."},
                {
                    "description": "The number of elements from each group rank (row) to each group rank (column).",
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
