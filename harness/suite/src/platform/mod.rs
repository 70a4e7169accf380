//! A platform: a kind of device and how to use it. One YAML file each in `fixtures/platforms/`; a vendor adds one
//! with such a file and no code.

mod declare;
mod load;

pub use load::{load, parse};

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::case::{OneOrMany, Recipe};
use allranks_model::axes::{
    Joined, Layout, LayoutOf, Mode, ObjectKind, Pairs, Placement, SplitsKind, TensorKind,
};
use allranks_model::capability::Promises;
use allranks_model::dtype::{DType, ReduceOp};
use allranks_model::evidence::Evidence;
use allranks_model::names::{Rank, WorldSize};
use allranks_model::op::Op;
use allranks_model::version::torch_version;

/// What stands for the rank in the value of an environment variable.
pub const OF_THE_RANK: &str = "{rank}";

/// A platform as its file declares it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a map: with `name`, `device_type`, `evidence`, `backends` and so on"
)]
#[schemars(title = "allranks platform")]
pub struct Platform {
    /// Its name on the command line and in reports.
    pub name: String,
    /// `cpu`, `cuda`, `xpu`: the type in `torch.device(type, index)`.
    pub device_type: String,
    /// What a green result on it proves. Where its device says of itself that it is simulated, that is what it is,
    /// whatever stands here: `torch.TYPE.is_simulated`.
    pub evidence: Evidence,
    /// Python modules imported before use, in order.
    #[serde(default)]
    pub import: Vec<String>,
    /// Folders put in front of `sys.path`, relative to this file.
    #[serde(default)]
    pub python_path: Vec<PathBuf>,
    /// Python expression for the number of devices; absent: no device is counted (host).
    #[serde(default)]
    pub count: Option<String>,
    /// Dotted name of the function that makes a device current, called with its index.
    #[serde(default)]
    pub set_device: Option<String>,
    /// Dotted name of the function that waits for the device.
    #[serde(default)]
    pub synchronize: Option<String>,
    /// Whether a process has any of the devices and tells them apart by an index (`cuda:1`). `false`: it has one, which the
    /// vendor's library finds by the local rank, and calls it by its type alone (`hpu`).
    #[serde(default = "yes")]
    pub indexed: bool,
    /// How many ranks may have one device between them. More than 1, and a world needs fewer devices than it has ranks; it
    /// runs no programs then, which take their local rank for a device's index.
    #[serde(default = "one")]
    pub ranks_per_device: NonZeroU32,
    /// How a world initialises where its case does not say.
    #[serde(default)]
    pub recipe: Recipe,
    /// Whether a tensor and its views stay one piece of memory on the device. `false`: an op may give a view a new value
    /// that the tensor it was made of never sees, so what each tensor holds is read back, and nothing around it.
    #[serde(default = "yes")]
    pub shares_memory: bool,
    /// Whether it runs only if it is named on the command line, as what needs an environment of its own.
    #[serde(default)]
    pub only_if_named: bool,
    /// The variable that hides devices from a process.
    #[serde(default)]
    pub visible_devices: Option<String>,
    /// The vendor's command that lists devices, for people.
    #[serde(default)]
    pub tool: Option<String>,
    /// Version requirements, `torch: ">=2.8"`.
    #[serde(default)]
    pub requires: BTreeMap<String, String>,
    /// How ranks are started.
    #[serde(default)]
    pub start: Start,
    /// Environment variables for every rank; `{rank}` in a value is its rank.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The backends it has, by c10d name.
    pub backends: BTreeMap<String, Backend>,
    /// The version of torch it has been narrowed to, if that is known: see [`with_torch`](Self::with_torch).
    #[serde(skip)]
    pub torch: Option<String>,
}

fn yes() -> bool {
    true
}

fn one() -> NonZeroU32 {
    NonZeroU32::MIN
}

impl Platform {
    /// How many devices a world of that many ranks needs, where they have devices.
    #[must_use]
    pub fn devices_for(&self, size: WorldSize) -> u32 {
        size.0.div_ceil(self.ranks_per_device.get())
    }

    /// The place of a rank's device among those of its world.
    #[must_use]
    pub fn device_of(&self, rank: Rank) -> u32 {
        rank.0 / self.ranks_per_device
    }
}

/// How a rank's process comes to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// Forked from a process that has imported torch and nothing of a device: tens of milliseconds a world.
    #[default]
    Fork,
    /// A process of its own: where forking is unsafe.
    Fresh,
}

/// A backend on a platform.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Backend {
    /// Its name: the key in the file; filled in by loading.
    #[serde(skip)]
    pub name: String,
    /// The string for `init_process_group(backend=)`; absent: the backend's name.
    #[serde(default)]
    pub init: Option<String>,
    /// A backend of another platform that does its work. What that one declares, promises, and is known to get wrong
    /// is then true of this one too.
    #[serde(default)]
    pub made_of: Option<MadeOf>,
    /// What it declares it can do: a check is supported if **any** entry has it. Everything else must be refused
    /// with a clear error on every rank.
    #[serde(default)]
    pub supports: Vec<Support>,
    /// What it promises of its arithmetic beyond being right; a check that sees otherwise fails.
    #[serde(default)]
    pub promises: Promises,
}

impl Backend {
    /// What c10d calls the backend that has the device's tensors: `nccl`, where a world is made with `cpu:gloo,cuda:nccl`.
    #[must_use]
    pub fn on_device(&self, device_type: &str) -> &str {
        let given = self.init.as_deref().unwrap_or(&self.name);
        let mut parts = given.split(',').filter_map(|part| part.split_once(':'));
        let of_device = parts.find(|(device, _)| *device == device_type);
        of_device.map_or(given, |(_, backend)| backend)
    }
}

/// The backend that another one hands its work to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MadeOf {
    /// Its platform.
    pub platform: String,
    /// Its name there; it is not made of another one itself.
    pub backend: String,
    /// Ops of it that do not reach it.
    #[serde(default)]
    pub except: Vec<Op>,
}

/// A set of combinations that work. Absent fields mean "any"; `torch` does not count among the combinations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Support {
    /// Ops.
    pub ops: Option<OneOrMany<Op>>,
    /// Element types.
    pub dtypes: Option<OneOrMany<DType>>,
    /// Reduce operators, for ops that reduce.
    pub reduce: Option<OneOrMany<ReduceOp>>,
    /// Sync or async.
    pub modes: Option<OneOrMany<Mode>>,
    /// Layouts.
    pub layouts: Option<OneOrMany<Layout>>,
    /// The tensors that have these layouts, where not all of an op's tensors do.
    pub layouts_of: Option<OneOrMany<LayoutOf>>,
    /// Kinds of tensors.
    pub tensors: Option<OneOrMany<TensorKind>>,
    /// Shapes of tensors that hold all ranks' contributions.
    pub joined: Option<OneOrMany<Joined>>,
    /// Sizes of slices, and of the tensors in lists.
    pub splits: Option<OneOrMany<SplitsKind>>,
    /// Shared memory between input and output.
    pub placements: Option<OneOrMany<Placement>>,
    /// Who sends to whom, for point-to-point ops. In a group of one, `ring` and `all` count as `own`.
    pub pairs: Option<OneOrMany<Pairs>>,
    /// Objects, for object collectives.
    pub objects: Option<OneOrMany<ObjectKind>>,
    /// Group sizes.
    pub world_sizes: Option<OneOrMany<u32>>,
    /// The torch versions in which they do, `">=2.12"`. Where the version is unknown, they do not.
    pub torch: Option<String>,
}

impl Platform {
    /// The platform as a torch version has it: what is declared for other versions only is gone, and nothing is
    /// conditional any more. An unknown version is no version.
    #[must_use]
    pub fn with_torch(&self, torch: Option<&str>) -> Self {
        let version = torch.and_then(torch_version);
        let mut platform = self.clone();
        platform.torch = torch.map(str::to_owned);
        for backend in platform.backends.values_mut() {
            backend.supports.retain_mut(|support| {
                support.torch.take().is_none_or(|wanted| {
                    let wanted = semver::VersionReq::parse(&wanted).ok();
                    wanted
                        .zip(version.as_ref())
                        .is_some_and(|(wanted, version)| wanted.matches(version))
                })
            });
        }
        platform
    }
}

/// The schema of platform files, JSON Schema draft 2020-12.
#[must_use]
pub fn schema() -> serde_json::Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12();
    let generator = settings.into_generator();
    generator.into_root_schema_for::<Platform>().to_value()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::schema_tests::{accepts, compare, read, repository};

    #[test]
    fn the_schema_in_the_repository_is_up_to_date() {
        compare("fixtures/platforms/schema.json", &schema());
    }

    #[test]
    fn what_loads_is_valid_against_the_schema() {
        let schema = schema();
        let folder = repository("fixtures/platforms");
        for file in allranks_yaml::yaml_files(&folder).unwrap() {
            let is_valid = accepts(&schema, &schema, &read(&file));
            assert!(is_valid, "{}", file.display());
        }
    }

    #[test]
    fn the_device_s_backend_is_called_as_c10d_calls_it() {
        let backend = |init: Option<&str>| Backend {
            name: "nccl".to_owned(),
            init: init.map(str::to_owned),
            made_of: None,
            supports: Vec::new(),
            promises: Promises::default(),
        };
        assert_eq!(backend(None).on_device("cuda"), "nccl");
        assert_eq!(backend(Some("gloo")).on_device("cuda"), "gloo");
        assert_eq!(
            backend(Some("cpu:gloo,cuda:nccl")).on_device("cuda"),
            "nccl"
        );
        assert_eq!(backend(Some("cpu:gloo,cuda:nccl")).on_device("cpu"), "gloo");
    }
}
