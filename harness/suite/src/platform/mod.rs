//! Platforms: kinds of devices, and how to use each. One YAML file each in `fixtures/platforms/`; a vendor adds a
//! platform with such a file and no code.

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
use allranks_model::capability::{Promises, ReceiveSource};
use allranks_model::dtype::{DType, ReduceOp};
use allranks_model::evidence::Evidence;
use allranks_model::names::{Rank, WorldSize};
use allranks_model::op::Op;
use allranks_model::version::torch_version;

/// The text in the value of an environment variable that is replaced by the rank.
pub const OF_THE_RANK: &str = "{rank}";

/// A platform, a kind of device with its backends, as its file declares it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a map: with `name`, `device_type`, `evidence`, `backends` and so on"
)]
#[schemars(title = "allranks platform")]
pub struct Platform {
    /// Its name on the command line and in reports: `cuda`.
    pub name: String,
    /// The type in `torch.device(type, index)`: `cpu`, `cuda`, `xpu`. `cpu` is the host.
    pub device_type: String,
    /// What a pass on it proves. If the device says that it is simulated (`torch.TYPE.is_simulated`), results are
    /// shown as `simulated` whatever this field says.
    pub evidence: Evidence,
    /// Python modules that are imported before the device is used, in this order: `[torch_npu]`.
    #[serde(default)]
    pub import: Vec<String>,
    /// Folders that are put in front of `sys.path`, relative to this file.
    #[serde(default)]
    pub python_path: Vec<PathBuf>,
    /// Python expression for the number of devices: `torch.xpu.device_count()`. Absent: no devices are counted, and
    /// worlds of any size fit, as on the host.
    #[serde(default)]
    pub count: Option<String>,
    /// Dotted name of the function that makes a device the current one, called with its index: `torch.xpu.set_device`.
    /// Absent: there is none to call.
    #[serde(default)]
    pub set_device: Option<String>,
    /// Dotted name of the function that waits for the device: `torch.xpu.synchronize`. Absent: there is none to call.
    #[serde(default)]
    pub synchronize: Option<String>,
    /// `true`: a process can use any of the devices, and names one by its index (`cuda:1`). `false`: it has one, which
    /// the vendor's library finds by the local rank, and names it by its type alone (`hpu`).
    #[serde(default = "yes")]
    pub indexed: bool,
    /// How many ranks may share one device. With more than 1, a world needs fewer devices than it has ranks, and
    /// `program:` cases are not run, because a program takes its local rank for the index of its device.
    #[serde(default = "one")]
    pub ranks_per_device: NonZeroU32,
    /// How a world initialises if its case does not say.
    #[serde(default)]
    pub recipe: Recipe,
    /// Whether a tensor and its views stay one piece of memory on the device. `false`: an op may give a view a new
    /// value that the original tensor never sees. Then what each tensor holds is read back, and nothing around it.
    #[serde(default = "yes")]
    pub shares_memory: bool,
    /// `true`: it is run only if `--platform` names it, because it needs an environment of its own.
    #[serde(default)]
    pub only_if_named: bool,
    /// The environment variable that hides devices from a process: `CUDA_VISIBLE_DEVICES`.
    #[serde(default)]
    pub visible_devices: Option<String>,
    /// The vendor's command that lists devices: `nvidia-smi`. `allranks doctor` looks whether it is installed.
    #[serde(default)]
    pub tool: Option<String>,
    /// Versions that packages must have: `{torch: ">=2.8"}`.
    #[serde(default)]
    pub requires: BTreeMap<String, String>,
    /// How the processes of ranks are started.
    #[serde(default)]
    pub start: Start,
    /// Environment variables for every rank: `{ZE_AFFINITY_MASK: "{rank}"}`, where `{rank}` stands for its rank.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Its backends, by the names that c10d knows them by: `{nccl: {supports: [...]}}`.
    pub backends: BTreeMap<String, Backend>,
    /// The torch version that the platform was narrowed to, see [`with_torch`](Self::with_torch). `None`: it was not,
    /// or that version is unknown.
    #[serde(skip)]
    pub torch: Option<String>,
    /// True if what it imports needs the layers above c10d: then all ranks are forked from a process that has imported these layers,
    /// whether their case uses one or not.
    #[serde(skip)]
    pub imports_layers: bool,
}

fn yes() -> bool {
    true
}

fn one() -> NonZeroU32 {
    NonZeroU32::MIN
}

impl Platform {
    /// Returns true if the platform's tensors lie on a device.
    #[must_use]
    pub fn is_on_device(&self) -> bool {
        self.device_type != "cpu"
    }

    /// Returns the number of devices that a world of this size needs, on a platform with devices.
    #[must_use]
    pub fn devices_for(&self, size: WorldSize) -> u32 {
        size.0.div_ceil(self.ranks_per_device.get())
    }

    /// Returns the index of a rank's device among those of its world, from 0.
    #[must_use]
    pub fn device_of(&self, rank: Rank) -> u32 {
        rank.0 / self.ranks_per_device
    }
}

/// How the process of a rank is started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// It is forked from a process that has imported torch and has not touched a device; a world starts within tens of
    /// milliseconds.
    #[default]
    Fork,
    /// It is started as a process of its own, because forking is unsafe.
    Fresh,
}

/// A backend on a platform: `{supports: [{ops: all_reduce, dtypes: float32}]}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Backend {
    /// Its name, the key in the file. Loading fills it in.
    #[serde(skip)]
    pub name: String,
    /// The argument `backend=` of `init_process_group`: `cpu:gloo,xpu:xccl`. Absent: the backend's name.
    #[serde(default)]
    pub init: Option<String>,
    /// The backend of another platform that does its work. What that one declares, promises, and is expected to fail
    /// then holds for this one too.
    #[serde(default)]
    pub made_of: Option<MadeOf>,
    /// What it declares that works: a check is supported if **any** entry allows it. Everything else must be refused
    /// with a clear error on every rank.
    #[serde(default)]
    pub supports: Vec<Support>,
    /// What it promises of its arithmetic beyond being right. A check that sees otherwise fails.
    #[serde(default)]
    pub promises: Promises,
}

impl Backend {
    /// Returns c10d's name of the backend for the device's tensors: `nccl`, if a world is initialised with
    /// `cpu:gloo,cuda:nccl`.
    #[must_use]
    pub fn on_device(&self, device_type: &str) -> &str {
        let given = self.init.as_deref().unwrap_or(&self.name);
        let mut parts = given.split(',').filter_map(|part| part.split_once(':'));
        let of_device = parts.find(|(device, _)| *device == device_type);
        of_device.map_or(given, |(_, backend)| backend)
    }
}

/// The backend that another one hands its work to: `{platform: cpu, backend: gloo}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MadeOf {
    /// The platform of that backend.
    pub platform: String,
    /// Its name on that platform. It must not be made of another one itself.
    pub backend: String,
    /// Ops that are not handed to it: what it declares of them does not count.
    #[serde(default)]
    pub except: Vec<Op>,
}

/// A set of combinations that work: `{ops: [all_reduce, reduce], dtypes: [float32, int32], reduce: sum}`. An absent
/// field allows every value. `torch` is a condition on the whole entry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Support {
    /// Ops that the entry is about: `[all_reduce, broadcast]`.
    pub ops: Option<OneOrMany<Op>>,
    /// Element types; ignored for ops without tensors.
    pub dtypes: Option<OneOrMany<DType>>,
    /// Reduce operators; ignored for ops that do not reduce.
    pub reduce: Option<OneOrMany<ReduceOp>>,
    /// Whether calls are sync or async.
    pub modes: Option<OneOrMany<Mode>>,
    /// How tensors lie in their storages.
    pub layouts: Option<OneOrMany<Layout>>,
    /// Which of an op's tensors may have these layouts; ignored for contiguous ones.
    pub layouts_of: Option<OneOrMany<LayoutOf>>,
    /// Kinds of tensors: plain, `requires_grad`, ...
    pub tensors: Option<OneOrMany<TensorKind>>,
    /// Shapes of tensors that hold the contributions of all ranks.
    pub joined: Option<OneOrMany<Joined>>,
    /// Kinds of split sizes, and of sizes of the tensors in lists.
    pub splits: Option<OneOrMany<SplitsKind>>,
    /// Whether input and output share memory.
    pub placements: Option<OneOrMany<Placement>>,
    /// Which ranks send to which, for point-to-point ops. In a group of one, `ring` and `all` count as `own`.
    pub pairs: Option<OneOrMany<Pairs>>,
    /// What receives name as their source, for `send_recv` and `isend_irecv`: `named`. Without `any`, a receive that names no
    /// source must be refused.
    pub sources: Option<OneOrMany<ReceiveSource>>,
    /// Kinds of objects, for object collectives.
    pub objects: Option<OneOrMany<ObjectKind>>,
    /// Sizes of the group that makes the call.
    pub world_sizes: Option<OneOrMany<u32>>,
    /// The torch versions for which the entry holds: `">=2.12"`. If the version is unknown, it does not hold.
    pub torch: Option<String>,
}

impl Platform {
    /// Returns the platform narrowed to a torch version: entries of `supports` for other versions are removed, and the
    /// others lose their condition. With an unknown version (`None`), all entries with a condition are removed.
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

/// Returns the JSON schema of platform files, draft 2020-12.
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
