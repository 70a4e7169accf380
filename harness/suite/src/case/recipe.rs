//! How a world initialises, `world.init`, and what a case expects where it is not that everything works, `expect`.
//!
//! Every combination of the lists of [`InitSpec`] is a scenario. Of the entries of `expect` the first whose `when` fits
//! a scenario counts; where none fits, everything must work.

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

/// The init matrix of a world. What it does not name is as the platform's `recipe` has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InitSpec {
    /// How ranks find each other.
    pub method: OneOrMany<StoreMethod>,
    /// What `init_process_group` is told of the rank's device. Platforms without a device take `absent` only.
    pub device_id: Option<OneOrMany<DeviceId>>,
    /// When the rank's device is made the current one. Platforms that name no such function take `before` only.
    pub set_device: Option<OneOrMany<SetDevice>>,
    /// The backend for the host's tensors in the world itself. Platforms without a device take `absent` only.
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

/// How a world initialises on a platform where its case does not say: the way that the vendor recommends, or that was
/// found to work (`cases/platforms/recipes`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Recipe {
    /// What `init_process_group` is told of the rank's device.
    pub device_id: DeviceId,
    /// When the rank's device is made the current one.
    pub set_device: SetDevice,
    /// What the world has for the host's tensors; a backend that names its own `init` has what that says.
    pub cpu_backend: CpuBackend,
}

/// What is expected of some scenarios of a case. In YAML `{when: {...}, fail: {...}}`, or `pass`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expected {
    /// Which scenarios.
    pub when: When,
    /// What fails in them; none: everything works.
    pub fail: Option<Fail>,
}

/// Which scenarios of a case are meant; what is absent may be anything.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct When {
    /// Platforms.
    pub platform: Option<OneOrMany<String>>,
    /// Backends.
    pub backend: Option<OneOrMany<String>>,
    /// World sizes.
    pub size: Option<OneOrMany<u32>>,
    /// `device_id` of init.
    pub device_id: Option<OneOrMany<DeviceId>>,
    /// `set_device` of init.
    pub set_device: Option<OneOrMany<SetDevice>>,
    /// `cpu_backend` of init.
    pub cpu_backend: Option<OneOrMany<CpuBackend>>,
}

/// A failure that must happen, exactly so.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fail {
    /// `group NAME`, one or more: the call that makes the group raises. There are no checks of the group then; everything
    /// else must work as ever.
    pub at: OneOrMany<String>,
    /// On whom; the others' calls must return.
    #[serde(default)]
    pub on: FailOn,
    /// A regular expression that the error (type and message) must match, whatever the case of letters.
    pub error: String,
}

/// Whose call raises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailOn {
    /// The group's members'.
    #[default]
    Members,
    /// Every rank's.
    All,
}

impl Fail {
    /// Whether it is the making of this group that fails.
    #[must_use]
    pub fn is_at(&self, group: &Group) -> bool {
        let mut names = self.at.as_slice().iter().filter_map(|at| group_of(at));
        names.any(|name| group.is_called(name))
    }
}

/// The group that a place of failure names, if it names one.
pub(super) fn group_of(at: &str) -> Option<&str> {
    at.strip_prefix("group ").map(str::trim)
}

/// `{when, fail}`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Entry {
    when: When,
    /// Absent: everything works.
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
            "description": "What is expected of some scenarios: a failure, exactly so, or that everything works.",
            "anyOf": [{"const": "pass"}, entry]
        })
    }
}
