//! A case: one YAML file, a scenario template and its matrix.
//!
//! These are the *typed* files. A [`Case`] that exists is valid: loading refuses unknown fields, bad values and
//! impossible combinations with file, line, column, an excerpt and a hint.

mod entries;
mod file;
mod layout;
mod load;
mod params;
mod profile;
mod program;
mod random;
mod recipe;
mod requirement;
mod schema;
mod script;
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
pub use layout::LayoutSpec;
pub use load::{Library, load, root_of};
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
pub use script::{
    Afterwards, ExpectSpec, HangSpec, InitMove, IssueSpec, MessageSpec, MoveSpec, NewGroupMove,
    OpSpec, SCRIPT, ScriptSpec, SteadySpec, Verb,
};
pub use stack::{
    DdpSpec, DtensorSpec, Fsdp2Spec, FunctionalSpec, LayerPoint, MeshSpec, PipelineSpec, StackSpec,
};
pub(crate) use validate::{filled, is_backend_string, is_env_name, is_name};

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use allranks_model::names::{CaseId, Rank, RequirementId, WorldSize};
use allranks_model::op::Op;

/// A valid case file.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Its file, as shown to people: relative to the folder of cases.
    pub source: PathBuf,
    /// `collectives/all_reduce/dtypes`.
    pub id: CaseId,
    /// What a reader should know it proves, one line.
    pub title: String,
    /// Requirements that every check of the case covers.
    pub covers: Vec<RequirementId>,
    /// The one profile it belongs to; none: those whose patterns take it in.
    pub profile: Option<Only>,
    /// The world matrix.
    pub world: WorldSpec,
    /// Groups made after init on every rank, in file order.
    pub groups: Vec<(String, GroupSpec)>,
    /// What every rank does, in order; nothing if it is a program.
    pub steps: Vec<StepSpec>,
    /// The user's program that its ranks run, if it is one.
    pub program: Option<Arc<ProgramSpec>>,
    /// What is expected where not everything works; the first that fits counts.
    pub expect: Vec<Expected>,
}

/// The world matrix: every combination is a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorldSpec {
    /// Platforms; absent: every platform found.
    #[serde(default)]
    pub platform: Option<OneOrMany<String>>,
    /// Backends; absent: every backend of the platform.
    #[serde(default)]
    pub backend: Option<OneOrMany<String>>,
    /// World sizes.
    #[serde(default = "default_sizes")]
    pub size: OneOrMany<u32>,
    /// How ranks initialise.
    #[serde(default)]
    pub init: InitSpec,
    /// The library's own timeout, seconds: `timeout=` of `init_process_group` and `new_group`.
    #[serde(default = "default_timeout")]
    pub timeout_s: f64,
    /// Seconds without any sign of progress from any rank after which the harness calls the world hung.
    #[serde(default = "default_deadline")]
    pub deadline_s: f64,
    /// Environment variables for every rank.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Whether ranks are initialised before the first step.
    #[serde(default)]
    pub starts: Starts,
    /// Only where tensors lie on a device: platforms of the host are left out.
    #[serde(default)]
    pub on_device: bool,
    /// What the machine must have; where it has not, the case is not run.
    #[serde(default)]
    pub needs: Vec<Need>,
}

/// Something that a machine may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// An IPv6 address of its own, `::1`.
    Ipv6,
}

impl Need {
    /// What this machine lacks of it; none if it has it.
    #[must_use]
    pub fn lacking(self) -> Option<String> {
        match self {
            Self::Ipv6 => std::net::TcpListener::bind("[::1]:0").err().map(|error| {
                format!("this machine has no IPv6: nobody can listen at ::1 ({error})")
            }),
        }
    }
}

/// Whether ranks are initialised before the first step of a case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Starts {
    /// They are, and have every group of the case.
    #[default]
    Initialised,
    /// They are not: scripts initialise and destroy.
    Bare,
}

impl Default for WorldSpec {
    fn default() -> Self {
        Self {
            platform: None,
            backend: None,
            size: default_sizes(),
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

/// A process group of the case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupSpec {
    /// Members; absent only beside `along`.
    #[serde(default = "unsaid")]
    pub ranks: Members,
    /// Makes every group along these axes of the case's layout, each a group of its own, named `NAME-0`, `NAME-1` and so
    /// on; a step that names `NAME` means each of them.
    #[serde(default)]
    pub along: Option<OneOrMany<String>>,
    /// Its backend, if not the world's; `{device}` and `{backend}` stand for the scenario's.
    #[serde(default)]
    pub backend: Option<String>,
    /// Where the tensors of its checks lie; absent: on the host, if its backend is not for the platform's device.
    #[serde(default)]
    pub tensors: Option<On>,
    /// `timeout=`, seconds; absent: the world's.
    #[serde(default)]
    pub timeout_s: Option<f64>,
    /// Made with `use_local_synchronization=True`.
    #[serde(default)]
    pub local_sync: bool,
    /// Made by `split_group` instead of `new_group`.
    #[serde(default)]
    pub split: bool,
    /// Makes that many of it, each a group of its own, named `NAME-0`, `NAME-1` and so on; a step that names `NAME`
    /// means each of them. Absent: one, of that very name.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000))]
    pub count: Option<u32>,
}

/// The longest time that a case may name, in seconds: eleven days, which every clock and timeout can express.
pub(crate) const MAX_SECONDS: f64 = 1e6;

fn unsaid() -> Members {
    Members::Each(Vec::new())
}

impl GroupSpec {
    /// With its members taken from a layout, if it is along axes of one.
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

/// Where tensors lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum On {
    /// In the host's memory.
    Host,
    /// On the platform's device.
    Device,
}

/// Members of a group, by rule or by list.
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
    /// `neighbours`: two ranks next to each other, or around the end of the world; of several copies, each has the next
    /// two.
    Neighbours,
    /// A list of global ranks, in the order in which they are given. Worlds too small for it are an error in the case.
    List(Vec<u32>),
    /// A list for each of several copies; made of a layout, not written in files.
    Each(Vec<Vec<u32>>),
}

impl Members {
    /// The members in a world of this size, as given to the library; empty if the rule selects none.
    #[must_use]
    pub fn in_world(&self, size: WorldSize) -> Vec<Rank> {
        self.of_copy(size, 0)
    }

    /// The same for one of several copies.
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
    /// What each rank does, move by move.
    Script {
        /// The script.
        spec: Arc<ScriptSpec>,
        /// Line in the file, from 1.
        line: usize,
    },
    /// Sequences of moves that a generator draws.
    Random {
        /// What it draws from.
        spec: Arc<RandomSpec>,
        /// Line in the file, from 1.
        line: usize,
    },
    /// A layer above c10d and the sweep of its parameters.
    Stack {
        /// The layer and its parameters.
        spec: Arc<StackSpec>,
        /// Line in the file, from 1.
        line: usize,
    },
}

impl StepSpec {
    /// Line in the file, from 1.
    #[must_use]
    pub fn line(&self) -> usize {
        match self {
            Self::Sweep(step) => step.line,
            Self::Script { line, .. } | Self::Random { line, .. } | Self::Stack { line, .. } => {
                *line
            }
        }
    }

    /// The profile the step is kept for, if it is for one only.
    #[must_use]
    pub fn profile(&self) -> Option<Only> {
        match self {
            Self::Sweep(step) => step.params.profile,
            Self::Script { spec, .. } => spec.profile,
            Self::Random { spec, .. } => spec.profile,
            Self::Stack { spec, .. } => spec.profile(),
        }
    }

    /// Requirements the step covers besides the case's.
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
    /// The op.
    pub op: Op,
    /// Its parameters.
    pub params: StepParams,
    /// Line in the file, from 1.
    pub line: usize,
}

/// The profile that a case or a step is kept for, because it takes too long for the others. A run of named cases,
/// without a profile, takes everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Only {
    /// `full`.
    Full,
}

impl Only {
    /// The profile's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
        }
    }
}

/// How a step's lists are combined into checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Sweep {
    /// The first value of every list, then each list in turn with the others at their first value.
    #[default]
    OneAtATime,
    /// Every pair of values of every two lists appears in some check.
    Pairwise,
    /// Every combination.
    Full,
}

/// `x` or `[x, y, z]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum OneOrMany<T> {
    /// A single value.
    One(T),
    /// A list; never empty in a valid case.
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    /// The values as a slice.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::Many(values) => values,
        }
    }
}
