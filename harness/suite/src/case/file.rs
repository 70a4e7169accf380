//! The shape of a case file, as serde reads it. [`super::validate`] turns it into a [`super::Case`].

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

/// A case file: what ranks do, in which worlds, and which requirements that covers.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a map: with `id`, `title`, `covers`, `profile`, `world`, `layout`, `groups`, `steps` or `program`, `expect`"
)]
#[schemars(title = "allranks case", extend("oneOf" = [{"required": ["steps"]}, {"required": ["program"]}]))]
pub(super) struct CaseFile {
    /// The path of the file under `cases/`, without `.yaml`: `collectives/all_reduce/dtypes`.
    pub id: CaseId,
    /// What the case proves, in one line of at most 120 characters.
    #[schemars(length(min = 1, max = 120))]
    pub title: String,
    /// Requirements of `requirements.yaml` that every check of the case covers: `[COLL-001]`.
    #[serde(default)]
    pub covers: Vec<RequirementId>,
    /// `full`: the case belongs to that profile only, because it takes long. Absent: to every profile whose patterns
    /// match its id.
    #[serde(default)]
    pub profile: Option<Only>,
    /// The world matrix: every combination of its lists is a scenario.
    #[serde(default)]
    pub world: WorldSpec,
    /// The world as a grid whose axes are kinds of parallelism; `along:` of a group makes groups along them.
    #[serde(default)]
    pub layout: Option<LayoutSpec>,
    /// Groups that every rank creates after init, in this order: `{evens: {ranks: even}}`.
    #[serde(default)]
    pub groups: Entries<GroupSpec>,
    /// What every rank does, in order: `- all_reduce: {dtype: [float32, int8]}`. Either this or `program`.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub steps: Vec<Step>,
    /// A user's own program that the ranks run in place of steps.
    #[serde(default)]
    pub program: Option<ProgramSpec>,
    /// What is expected of scenarios in which not everything works. The first entry whose `when` matches a scenario
    /// counts; where none matches, everything must work.
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
    /// Returns the key the step is written with: the name of its op or layer, `script` or `random`.
    pub(super) fn key(&self) -> &'static str {
        match self {
            Self::Sweep(sweep) => sweep.op.name(),
            Self::Script(_) => SCRIPT,
            Self::Random(_) => RANDOM,
            Self::Stack(stack) => stack.name().name(),
        }
    }
}

/// A step about an op, as written: `OP: {PARAMETERS}`.
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

/// The key of a step. It is read as a string, so that an error in the parameters below it is reported with the path
/// `steps > 3 > all_reduce`.
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

/// Returns serde's error for an unknown variant of an enum, with all that a step's key may be.
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
