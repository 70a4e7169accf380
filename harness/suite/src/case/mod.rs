//! A case: one YAML file, a scenario template and its matrix.
//!
//! These are the *typed* files. A [`Case`] that exists is valid: loading refuses unknown fields, bad values and
//! impossible combinations with file, line, column, an excerpt and a hint.

mod checker;
mod entries;
mod expect;
mod file;
mod form;
mod layout;
mod load;
mod move_params;
mod op_spec;
mod params;
mod profile;
mod program;
mod random;
mod recipe;
mod requirement;
mod schema;
mod script;
mod script_move;
mod stack;
mod step_schema;
mod validate;
mod validate_program;
mod validate_random;
mod validate_script;
mod validate_stack;
mod validate_step;
mod values;

pub use allranks_model::written::{Numel, RootSpec, SplitsSpec};
pub use expect::ExpectSpec;
pub(crate) use form::{filled, is_backend_string, is_env_name, is_name};
pub use layout::LayoutSpec;
pub use load::{Library, load, root_of};
pub use move_params::{InitMove, IssueSpec, MessageMove, NewGroupMove, SteadySpec};
pub use op_spec::OpSpec;
pub use params::StepParams;
pub use profile::{Profile, load_profiles};
pub use program::{ARGUMENTS, ExitCode, ExitOf, ExitSpec, LineSpec, PYTHON, ProgramSpec};
pub use random::{RANDOM, RandomSpec};
pub use recipe::{Expected, Fail, FailOn, InitSpec, Recipe, When};
pub(crate) use requirement::is_well_formed;
pub use requirement::{Level, Requirement, Requirements};
pub use schema::schema;
#[cfg(test)]
pub(crate) use schema::tests as schema_tests;
pub use script::{Afterwards, AnySource, HangSpec, MessageSpec, SCRIPT, ScriptSpec};
pub use script_move::{MoveSpec, Verb};
pub use stack::{
    BatchNormSpec, CheckpointSpec, ContextParallelSpec, DdpSpec, DtensorSpec, Fsdp2Spec,
    FunctionalSpec, LayerPoint, MeshSpec, PipelineSpec, RandomNumbersSpec, StackSpec,
    TensorParallelSpec, ZeroSpec,
};

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use allranks_model::names::{CaseId, Rank, RequirementId, WorldSize};
use allranks_model::op::Op;

/// A case file that has been validated, see the module's documentation.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Its file, relative to its root, the folder with `requirements.yaml`; as given if it has none. Reports and
    /// messages name it.
    pub source: PathBuf,
    /// Its id, the path of the file without `.yaml`: `collectives/all_reduce/dtypes`.
    pub id: CaseId,
    /// What the case proves, in one line of at most 120 characters.
    pub title: String,
    /// Requirements that every check of the case covers.
    pub covers: Vec<RequirementId>,
    /// The only profile it belongs to. `None`: every profile whose `include` patterns match its id.
    pub profile: Option<Only>,
    /// The world matrix: each of its combinations is a scenario.
    pub world: WorldSpec,
    /// Groups that every rank creates after init, by name, in file order.
    pub groups: Vec<(String, GroupSpec)>,
    /// What every rank does, in order. Empty if the ranks run a program.
    pub steps: Vec<StepSpec>,
    /// The user's program that the ranks run in place of steps. `None` if the case has steps.
    pub program: Option<Arc<ProgramSpec>>,
    /// What is expected of scenarios in which not everything works. The first entry whose `when` matches a scenario
    /// counts.
    pub expect: Vec<Expected>,
}

/// The world matrix: the case becomes one scenario for each combination of platform, backend, world size and init
/// recipe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorldSpec {
    /// Names of platforms: `cuda`. Absent: every platform found.
    #[serde(default)]
    pub platform: Option<OneOrMany<String>>,
    /// Names of backends: `[gloo, nccl]`. Absent: every backend of the platform.
    #[serde(default)]
    pub backend: Option<OneOrMany<String>>,
    /// World sizes, the numbers of ranks: `4` or `[2, 3, 8]`, each from 1 to 8192.
    #[serde(default = "default_sizes")]
    pub size: OneOrMany<u32>,
    /// Numbers of nodes that the ranks are on: `2` or `[1, 2]`, each from 1 to 8192. Ranks are placed in blocks, as evenly as they
    /// can be; worlds with fewer ranks than nodes are left out. Absent: as many nodes as `--nodes` says.
    #[serde(default)]
    pub nodes: Option<OneOrMany<u32>>,
    /// Number of ranks on each node: `[3, 1]`, three on the first node and one on the second; their sum is the world size. Absent:
    /// even, as `nodes` says.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub placement: Option<Vec<u32>>,
    /// How ranks initialise: `{method: [env, tcp]}`.
    #[serde(default)]
    pub init: InitSpec,
    /// The timeout that torch is given, in seconds: `timeout=` of `init_process_group` and `new_group`.
    #[serde(default = "default_timeout")]
    pub timeout_s: f64,
    /// How long no rank may show any progress, in seconds, before the harness calls the world hung.
    #[serde(default = "default_deadline")]
    pub deadline_s: f64,
    /// Environment variables of every rank: `{GLOO_SOCKET_IFNAME: lo}`. Those that the harness sets (`RANK`,
    /// `MASTER_ADDR`, ...) are refused.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Whether ranks are initialised before the first step.
    #[serde(default)]
    pub starts: Starts,
    /// `true`: the case is run only on platforms whose tensors lie on a device, not on those of the host.
    #[serde(default)]
    pub on_device: bool,
    /// What the machine must have: `[ipv6]`. The checks are not run where it is missing.
    #[serde(default)]
    pub needs: Vec<Need>,
}

/// Something that a machine may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// IPv6: a process can listen at `::1`.
    Ipv6,
}

impl Need {
    /// Says in a sentence what this machine lacks; `None` if it has what is needed. Opens and closes a port to find
    /// out.
    #[must_use]
    pub fn lacking(self) -> Option<String> {
        match self {
            Self::Ipv6 => std::net::TcpListener::bind("[::1]:0").err().map(|error| {
                format!("this machine has no IPv6: no process can listen at ::1 ({error})")
            }),
        }
    }
}

/// Whether ranks are initialised before the first step of a case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Starts {
    /// They are initialised, and have created every group of the case.
    #[default]
    Initialised,
    /// They are not: the moves of scripts initialise and destroy.
    Bare,
}

impl Default for WorldSpec {
    fn default() -> Self {
        Self {
            platform: None,
            backend: None,
            size: default_sizes(),
            nodes: None,
            placement: None,
            init: InitSpec::default(),
            timeout_s: default_timeout(),
            deadline_s: default_deadline(),
            env: BTreeMap::new(),
            starts: Starts::default(),
            on_device: false,
            needs: Vec::new(),
        }
    }
}

fn default_sizes() -> OneOrMany<u32> {
    OneOrMany::Many(vec![1, 2, 3, 4, 5, 8])
}

fn default_timeout() -> f64 {
    20.0
}

fn default_deadline() -> f64 {
    30.0
}

/// A process group of the case: `{ranks: even}`, `{ranks: [2, 0], timeout_s: 5}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupSpec {
    /// Its members. Required, except beside `along`, which names them.
    #[serde(default = "no_members")]
    pub ranks: Members,
    /// Axes of the case's layout: `tp` or `[dp, cp]`. Makes every group along them, named `NAME-0`, `NAME-1` and so
    /// on; a step that names `NAME` means each of them.
    #[serde(default)]
    pub along: Option<OneOrMany<String>>,
    /// The argument `backend=` of `new_group`: `gloo`, `cpu:gloo,{device}:{backend}`, where `{device}` and `{backend}`
    /// stand for the scenario's. Absent: that of the world.
    #[serde(default)]
    pub backend: Option<String>,
    /// Where the tensors of its checks lie. Absent: on the platform's device, or on the host if its backend is not one
    /// for the device.
    #[serde(default)]
    pub tensors: Option<On>,
    /// The argument `timeout=` of `new_group`, in seconds. Absent: the world's.
    #[serde(default)]
    pub timeout_s: Option<f64>,
    /// `true`: it is created with `use_local_synchronization=True`, so that its members alone have to call
    /// `new_group`.
    #[serde(default)]
    pub local_sync: bool,
    /// `true`: it is made by `split_group` and not by `new_group`.
    #[serde(default)]
    pub split: bool,
    /// How many copies of it are made, named `NAME-0`, `NAME-1` and so on; a step that names `NAME` means each of
    /// them. Absent: one, named `NAME`.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000))]
    pub count: Option<u32>,
}

/// The longest time that a case may name, in seconds: eleven days, which every clock and timeout can express.
pub(crate) const MAX_SECONDS: f64 = 1e6;

/// Returns the members of a group whose file names none: no copy at all, which validation tells from every written value.
fn no_members() -> Members {
    Members::Each(Vec::new())
}

impl GroupSpec {
    /// Fills in its members and its number of copies from the case's layout, if it is along axes of one.
    #[must_use]
    fn laid_out(self, layout: Option<&LayoutSpec>) -> Self {
        let (Some(along), Some(layout)) = (&self.along, layout) else {
            return self;
        };
        let groups = layout.groups(along.as_slice());
        Self {
            count: Some(groups.len() as u32),
            ranks: Members::Each(groups),
            ..self
        }
    }
}

/// Where the tensors of a group's checks lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum On {
    /// In the memory of the host.
    Host,
    /// On the platform's device.
    Device,
}

/// Members of a group, or the ranks that something applies to: a rule, or a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Members {
    /// `all`: the whole world.
    All,
    /// `even`: ranks 0, 2, 4, ...
    Even,
    /// `odd`: ranks 1, 3, ...; in a world of one, empty, and the group's steps have no checks.
    Odd,
    /// `all_but_first`: ranks 1 to the last.
    AllButFirst,
    /// `all_but_last`: ranks 0 to the last but one; in a world of one, empty.
    AllButLast,
    /// `first`: rank 0 alone.
    First,
    /// `last`: the last rank alone.
    Last,
    /// `reversed`: the whole world, given from the last rank to the first.
    Reversed,
    /// `first_half`: the lower half of the ranks, rounded up.
    FirstHalf,
    /// `second_half`: the others; in a world of one, empty.
    SecondHalf,
    /// `ends`: the first and the last rank.
    Ends,
    /// `neighbours`: two ranks next to each other, or the last and the first. Copy number `n` of a group has ranks `n`
    /// and `n + 1`, modulo the world size.
    Neighbours,
    /// A list of global ranks, in the order in which they are given. A case with a world that is too small for it is
    /// refused.
    List(Vec<u32>),
    /// One list of global ranks for each copy of a group. Made from a layout; files cannot write it.
    Each(Vec<Vec<u32>>),
}

impl Members {
    /// Returns the members in a world of this size, in the order in which `new_group` is given them; for a group of
    /// several copies, those of the first. Empty if the rule selects none.
    #[must_use]
    pub fn in_world(&self, size: WorldSize) -> Vec<Rank> {
        self.of_copy(size, 0)
    }

    /// Returns the members of copy number `copy`, from 0, in a world of this size. Only `Neighbours` and `Each` differ
    /// between copies.
    #[must_use]
    pub fn of_copy(&self, size: WorldSize, copy: u32) -> Vec<Rank> {
        match self {
            Self::Reversed => (0..size.0).rev().map(Rank).collect(),
            Self::FirstHalf => (0..size.0.div_ceil(2)).map(Rank).collect(),
            Self::SecondHalf => (size.0.div_ceil(2)..size.0).map(Rank).collect(),
            Self::Ends | Self::Neighbours if size.0 == 1 => vec![Rank(0)],
            Self::Ends => vec![Rank(0), Rank(size.0 - 1)],
            Self::Neighbours => vec![Rank(copy % size.0), Rank((copy + 1) % size.0)],
            Self::All => size.ranks().collect(),
            Self::Even => size.ranks().filter(|rank| rank.0 % 2 == 0).collect(),
            Self::Odd => size.ranks().filter(|rank| rank.0 % 2 == 1).collect(),
            Self::AllButFirst => size.ranks().skip(1).collect(),
            Self::AllButLast => size.ranks().take(size.count() - 1).collect(),
            Self::First => size.ranks().take(1).collect(),
            Self::Last => size.ranks().last().into_iter().collect(),
            Self::List(ranks) => ranks.iter().copied().map(Rank).collect(),
            Self::Each(groups) => {
                let own = groups.get(copy as usize);
                own.into_iter().flatten().copied().map(Rank).collect()
            }
        }
    }
}

/// One step. In YAML a map with one key: an op's name, `script`, `random`, or a layer's name.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "there are few, and they are not moved about"
)]
pub enum StepSpec {
    /// An op and the sweep of its parameters.
    Sweep(SweepSpec),
    /// A script: what each rank does, move by move.
    Script {
        /// The moves, and what is expected of them.
        spec: Arc<ScriptSpec>,
        /// Line of the step in the file, from 1.
        line: usize,
    },
    /// Random sequences: ops and messages that a generator draws.
    Random {
        /// The seed, and what is drawn from.
        spec: Arc<RandomSpec>,
        /// Line of the step in the file, from 1.
        line: usize,
    },
    /// A layer above c10d and the sweep of its parameters.
    Stack {
        /// The layer and the lists of its parameters.
        spec: Arc<StackSpec>,
        /// Line of the step in the file, from 1.
        line: usize,
    },
}

impl Case {
    /// Returns whether a step is a layer above c10d, so that its ranks need the modules of torch that layers use, whichever of
    /// its checks are selected.
    #[must_use]
    pub fn has_layers(&self) -> bool {
        let mut steps = self.steps.iter();
        steps.any(|step| matches!(step, StepSpec::Stack { .. }))
    }
}

impl StepSpec {
    /// Returns the line of the step in the file, from 1.
    #[must_use]
    pub fn line(&self) -> usize {
        match self {
            Self::Sweep(step) => step.line,
            Self::Script { line, .. } | Self::Random { line, .. } | Self::Stack { line, .. } => {
                *line
            }
        }
    }

    /// Returns the only profile the step belongs to; `None` if it belongs to those of its case.
    #[must_use]
    pub fn profile(&self) -> Option<Only> {
        match self {
            Self::Sweep(step) => step.params.profile,
            Self::Script { spec, .. } => spec.profile,
            Self::Random { spec, .. } => spec.profile,
            Self::Stack { spec, .. } => spec.profile(),
        }
    }

    /// Returns the requirements that the step covers besides those of the case.
    #[must_use]
    pub fn covers(&self) -> &[RequirementId] {
        match self {
            Self::Sweep(step) => &step.params.covers,
            Self::Script { spec, .. } => &spec.covers,
            Self::Random { spec, .. } => &spec.covers,
            Self::Stack { spec, .. } => spec.covers(),
        }
    }
}

/// An op and the sweep of its parameters: `- all_reduce: {dtype: [float32, int8], op: sum, numel: 33}`.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepSpec {
    /// The op that every check of the step exercises.
    pub op: Op,
    /// The lists that are swept, and what all checks of the step share.
    pub params: StepParams,
    /// Line of the step in the file, from 1.
    pub line: usize,
}

/// The only profile that a case or a step belongs to, because it takes too long for the others. A run that names cases
/// and no profile runs it as well.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Only {
    /// Profile `full`: everything.
    Full,
}

impl Only {
    /// Returns the profile's name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// How a step's lists are combined into checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Sweep {
    /// One check with the first value of every list, then one for each other value of each list, the other lists at
    /// their first value.
    #[default]
    OneAtATime,
    /// Few checks, chosen so that every pair of values of every two lists appears in one of them.
    Pairwise,
    /// One check for every combination of values.
    Full,
}

/// A value or a list of values: `x` or `[x, y, z]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum OneOrMany<T> {
    /// A value alone; it means the same as a list of it.
    One(T),
    /// A list; never empty in a valid case.
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    /// Returns the values in order; one, if a value stands alone.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Many(values) => values,
        }
    }
}
