//! `world.init`, how a world initialises, and `expect`, what is expected of scenarios in which not everything works.
//!
//! Every combination of the lists of [`InitSpec`] is a scenario. The first entry of `expect` whose `when` matches a
//! scenario counts; where none matches, everything must work.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::OneOrMany;
use allranks_model::group::Group;
use allranks_model::recipe::CpuBackend;
use allranks_model::recipe::DeviceId;
use allranks_model::recipe::SetDevice;
use allranks_model::store::StoreMethod;

/// How ranks initialise; every combination of the lists is a scenario. What is not given is as the platform's `recipe`
/// says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InitSpec {
    /// How ranks find each other: `env`, or `[env, tcp, file, store]`.
    pub method: OneOrMany<StoreMethod>,
    /// The argument `device_id` of `init_process_group`. On platforms without a device, scenarios with another value
    /// than `absent` are left out.
    pub device_id: Option<OneOrMany<DeviceId>>,
    /// When the rank's device is made the current one. On platforms that name no such function, scenarios with another
    /// value than `before` are left out.
    pub set_device: Option<OneOrMany<SetDevice>>,
    /// The backend that the world has for tensors of the host. On platforms without a device, and for a backend with
    /// an `init` of its own, scenarios with another value than `absent` are left out.
    pub cpu_backend: Option<OneOrMany<CpuBackend>>,
}

impl Default for InitSpec {
    fn default() -> Self {
        Self {
            method: OneOrMany::One(StoreMethod::Env),
            device_id: None,
            set_device: None,
            cpu_backend: None,
        }
    }
}

/// How a world initialises on a platform if its case does not say: as the vendor recommends, or as was found to work
/// (`cases/platforms/recipes`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Recipe {
    /// The argument `device_id` of `init_process_group`.
    pub device_id: DeviceId,
    /// When the rank's device is made the current one.
    pub set_device: SetDevice,
    /// The backend that the world has for tensors of the host. Ignored for a backend with an `init` of its own, which
    /// says that.
    pub cpu_backend: CpuBackend,
}

/// What is expected of some scenarios of a case. In YAML `{when: {...}, fail: {...}}`, or `pass`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expected {
    /// The scenarios it is about.
    pub when: When,
    /// The failure that must happen in them. `None`: everything must work.
    pub fail: Option<Fail>,
}

/// The scenarios that are meant: those that have one of the values of every field that is given.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct When {
    /// Names of platforms.
    pub platform: Option<OneOrMany<String>>,
    /// Names of backends.
    pub backend: Option<OneOrMany<String>>,
    /// World sizes: `[2, 4]`.
    pub size: Option<OneOrMany<u32>>,
    /// Values of `device_id` in the init recipe.
    pub device_id: Option<OneOrMany<DeviceId>>,
    /// Values of `set_device` in the init recipe.
    pub set_device: Option<OneOrMany<SetDevice>>,
    /// Values of `cpu_backend` in the init recipe.
    pub cpu_backend: Option<OneOrMany<CpuBackend>>,
}

/// A failure that must happen, and no other: `{at: group evens, error: "not supported"}`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fail {
    /// `group NAME`, or a list of such: the call that creates the group raises. The group's checks are left out then,
    /// and everything else must work.
    pub at: OneOrMany<String>,
    /// The ranks on which the call raises; on the others it must return.
    #[serde(default)]
    pub on: FailOn,
    /// A regular expression that the error (type and message) must match. Case is ignored.
    pub error: String,
}

/// The ranks on which a call raises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailOn {
    /// The members of the group.
    #[default]
    Members,
    /// Every rank of the world.
    All,
}

impl Fail {
    /// Returns whether it is the creation of this group that must fail.
    #[must_use]
    pub fn is_at(&self, group: &Group) -> bool {
        let mut names = self.at.as_slice().iter().filter_map(|at| group_of(at));
        names.any(|name| group.is_called(name))
    }
}

/// Returns the group's name in a place of failure, `group NAME`; `None` if that is not what it says.
pub(super) fn group_of(at: &str) -> Option<&str> {
    at.strip_prefix("group ").map(str::trim)
}

/// The scenarios, and what must fail in them: `{when: {backend: mpi}, fail: {...}}`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// The scenarios it is about.
    when: When,
    /// The failure that must happen in them. Absent: everything must work.
    #[serde(default)]
    fail: Option<Fail>,
}

impl<'de> Deserialize<'de> for Expected {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Expected;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`pass`, or a map with `when` and `fail`")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<Expected, E> {
                match word {
                    "pass" => Ok(Expected::default()),
                    other => Err(E::unknown_variant(other, &["pass"])),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Expected, A::Error> {
                let Entry { when, fail } = Entry::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Expected { when, fail })
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for Expected {
    fn schema_name() -> Cow<'static, str> {
        "Expected".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let entry = generator.subschema_for::<Entry>();
        json_schema!({
            "description": "What is expected of some scenarios: `{when: {backend: mpi}, fail: {...}}`, or `pass`, that everything works.",
            "anyOf": [{"const": "pass", "description": "Everything works."}, entry]
        })
    }
}
