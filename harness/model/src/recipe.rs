//! The parameters of an init recipe: how a rank calls `init_process_group` and sets its device.

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
    /// The argument is not passed.
    #[default]
    Absent,
    /// The device's index, a number.
    Index,
    /// A `torch.device` with an index.
    Device,
}

impl DeviceId {
    /// Returns the name in files.
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
    /// After `init_process_group`.
    After,
    /// It is not called.
    Never,
}

impl SetDevice {
    /// Returns the name in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The backend for tensors in host memory, in a world on a device.
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
    /// None: the world is initialised with the backend's name alone.
    #[default]
    Absent,
    /// Gloo: the world is initialised with `cpu:gloo,DEVICE:BACKEND`.
    Gloo,
}

impl CpuBackend {
    /// Returns the name in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}
