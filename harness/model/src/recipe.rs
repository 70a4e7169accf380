//! How a world initialises: the points of an init recipe.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The argument `device_id` of `init_process_group`.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum DeviceId {
    /// It is not passed.
    #[default]
    Absent,
    /// A number.
    Index,
    /// A `torch.device` with an index.
    Device,
}

impl DeviceId {
    /// The word in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// When a rank calls the platform's `set_device`.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum SetDevice {
    /// Before `init_process_group`.
    #[default]
    Before,
    /// After it.
    After,
    /// Not at all.
    Never,
}

impl SetDevice {
    /// The word in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// What a world on a device has for tensors of the host.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum CpuBackend {
    /// Nothing: it is initialised with the backend's name.
    #[default]
    Absent,
    /// Gloo: it is initialised with `cpu:gloo,DEVICE:BACKEND`.
    Gloo,
}

impl CpuBackend {
    /// The word in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}
