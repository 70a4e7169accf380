//! A case file as serde reads it; [`super::validate`] makes a [`super::Case`] of it.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use super::entries::Entries;
use super::program::ProgramSpec;
use super::random::{RANDOM, RandomSpec};
use super::script::{SCRIPT, ScriptSpec};
use super::stack::StackSpec;
use super::{Expected, GroupSpec, LayoutSpec, Only, StepParams, WorldSpec};
use allranks_model::names::{CaseId, RequirementId};
use allranks_model::op::Op;
use allranks_model::stack::LayerName;

/// The whole file.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a map: with `id`, `title`, `covers`, `profile`, `world`, `layout`, `groups`, `steps` or `program`, `expect`"
)]
#[schemars(title = "allranks case", extend("oneOf" = [{"required": ["steps"]}, {"required": ["program"]}]))]
pub(super) struct CaseFile {
    /// The path of the file under `cases/`, without `.yaml`.
    pub id: CaseId,
    /// What the case proves, one line.
    #[schemars(length(min = 1, max = 120))]
    pub title: String,
    /// Requirements of `requirements.yaml` that every check of the case covers.
    #[serde(default)]
    pub covers: Vec<RequirementId>,
    /// `full`: the case belongs to that profile only, because it takes long.
    #[serde(default)]
    pub profile: Option<Only>,
    /// The world matrix: every combination is a scenario.
    #[serde(default)]
    pub world: WorldSpec,
    /// The world as a grid of kinds of parallelism; groups are made along its axes.
    #[serde(default)]
    pub layout: Option<LayoutSpec>,
    /// Groups that every rank creates after init, in this order.
    #[serde(default)]
    pub groups: Entries<GroupSpec>,
    /// What every rank does, in order.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub steps: Vec<Step>,
    /// A user's own program in the place of steps.
    #[serde(default)]
    pub program: Option<ProgramSpec>,
    /// What is expected where not everything works; the first whose `when` fits counts.
    #[serde(default)]
    pub expect: Vec<Expected>,
}

/// `OP: {PARAMETERS}`, `script: {...}`, `random: {...}` or `LAYER: {PARAMETERS}`.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there are few, and they are not moved about"
)]
pub(super) enum Step {
    Sweep(Sweep),
    Script(Box<ScriptSpec>),
    Random(Box<RandomSpec>),
    Stack(Box<StackSpec>),
}

impl Step {
    /// Its key.
    pub(super) fn key(&self) -> &'static str {
        match self {
            Self::Sweep(sweep) => sweep.op.name(),
            Self::Script(_) => SCRIPT,
            Self::Random(_) => RANDOM,
            Self::Stack(stack) => stack.name().name(),
        }
    }
}

/// `OP: {PARAMETERS}`.
#[derive(Debug)]
pub(super) struct Sweep {
    pub op: Op,
    pub params: StepParams,
}

impl<'de> Deserialize<'de> for Step {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneKey;

        impl<'de> Visitor<'de> for OneKey {
            type Value = Step;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an op with its parameters: such as `barrier: {}`")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let Some(key) = map.next_key()? else {
                    return Err(de::Error::custom("a step without an op"));
                };
                let step = match key {
                    Key::Op(op) => Step::Sweep(Sweep {
                        op,
                        params: map.next_value()?,
                    }),
                    Key::Script => Step::Script(map.next_value()?),
                    Key::Random => Step::Random(map.next_value()?),
                    Key::Layer(layer) => Step::Stack(Box::new(StackSpec::read(layer, &mut map)?)),
                };
                match map.next_key::<String>()? {
                    None => Ok(step),
                    Some(second) => Err(de::Error::custom(format!(
                        "a step is one op, and `{second}` is a second one; \
                         hint: begin another list item, or indent it below `{}`",
                        step.key()
                    ))),
                }
            }
        }

        deserializer.deserialize_map(OneKey)
    }
}

/// The key of a step: read as a string, so that the way to its parameters is known by it.
enum Key {
    Op(Op),
    Script,
    Random,
    Layer(LayerName),
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;

        impl Visitor<'_> for Name {
            type Value = Key;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of an op")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Key, E> {
                match name {
                    SCRIPT => Ok(Key::Script),
                    RANDOM => Ok(Key::Random),
                    name => {
                        let layer = name.parse().map(Key::Layer);
                        layer
                            .or_else(|_| name.parse().map(Key::Op))
                            .map_err(|_| unknown(name))
                    }
                }
            }
        }

        deserializer.deserialize_str(Name)
    }
}

/// The error that serde has for a variant of an enum, with what a step's key may be.
fn unknown<E: de::Error>(name: &str) -> E {
    let layers = LayerName::ALL.iter().map(|layer| layer.name());
    let ops = Op::ALL.iter().map(|op| op.name());
    let known = ops.chain([SCRIPT]).chain(layers);
    let known: Vec<String> = known.map(|name| format!("`{name}`")).collect();
    let known = known.join(", ");
    E::custom(format!("unknown variant `{name}`, expected one of {known}"))
}

impl JsonSchema for Step {
    fn schema_name() -> Cow<'static, str> {
        "Step".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        super::step_schema::step(generator)
    }
}
