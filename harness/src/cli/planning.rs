//! Turns arguments into a plan: loads the suite, finds Python and platforms, and says why what is missing is missing.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use rayon::prelude::*;

use super::Failure;
use super::fleet_arguments::FleetArguments;
use super::read_run::read;
use super::select_arguments::{DriverChoice, SelectArguments};
use crate::suite::Suite;
use allranks_model::evidence::Evidence;
use allranks_model::launcher::Launcher;
use allranks_model::names::{RequirementId, ScenarioId};
use allranks_oracle as oracle;
use allranks_runner::probe;
use allranks_runner::probe::{Interpreter, ProbeResult};
use allranks_runner::world::ForkedInterpreter;
use allranks_suite::case::Case;
use allranks_suite::plan::{Plan, Selection, Share, Target, plan};
use allranks_suite::platform::Platform;

/// The time after which slow imports are reported.
const REPORT_AFTER: Duration = Duration::from_secs(10);
/// The profile used when neither cases nor a profile are named.
const DEFAULT_PROFILE: &str = "core";
/// The place of a profile where there is none: the whole suite.
const ALL: &str = "";

/// The checks that will run, the backends found for them, and the backends that are missing.
pub struct Planned {
    /// The suite that was loaded.
    pub suite: Suite,
    /// The scenarios and checks that will run.
    pub plan: Plan,
    /// The selection that the plan was made with, including the profile.
    pub selection: Selection,
    /// The Python interpreter; `None` if the driver needs none.
    pub python: Option<Interpreter>,
    /// The backends that were probed and not found.
    pub absent: Vec<Absent>,
    /// The backends that were found.
    pub targets: Vec<Target>,
}

impl Planned {
    /// Returns the name of the profile; `None` if none is used.
    #[must_use]
    pub fn profile(&self) -> Option<&str> {
        let profile = self.selection.profile.as_ref();
        profile.map(|profile| profile.name.as_str())
    }

    /// Returns the sentences of the suite's requirements, for the record of a run.
    #[must_use]
    pub fn sentences(&self) -> BTreeMap<RequirementId, String> {
        let requirements = self.suite.requirements.iter();
        requirements
            .map(|requirement| (requirement.id.clone(), requirement.text.clone()))
            .collect()
    }

    /// Returns the backends that were not found, for the record of a run.
    #[must_use]
    pub fn absences(&self) -> Vec<allranks_model::record::Absent> {
        let absent = self.absent.iter();
        absent
            .map(|absent| allranks_model::record::Absent {
                platform: absent.platform.name.clone(),
                reason: absent.reason.clone(),
            })
            .collect()
    }

    /// Plans what would run on each absent backend if it were there, in the order of [`absent`](Self::absent).
    #[must_use]
    pub fn not_run(&self) -> Vec<Plan> {
        self.absent
            .iter()
            .map(|absent| {
                let targets: Vec<Target> = absent
                    .backends
                    .iter()
                    .map(|backend| Target {
                        platform: Arc::clone(&absent.platform),
                        backend: backend.clone(),
                        devices: None,
                    })
                    .collect();
                plan(&self.suite.cases, &targets, &self.selection)
            })
            .collect()
    }
}

/// The backends of one platform that were probed and not found.
#[derive(Clone, Debug)]
pub struct Absent {
    /// The platform.
    pub platform: Arc<Platform>,
    /// The backends that were asked for and are missing.
    pub backends: Vec<String>,
    /// Why they are missing.
    pub reason: String,
}

/// What the arguments ask for, before anything is looked for on this machine.
#[derive(Debug)]
pub struct PlanRequest {
    selection: Selection,
    /// The suite that was loaded.
    pub suite: Suite,
    requested: Vec<RequestedPlatform>,
    /// The Python interpreter; `None` if the driver needs none.
    pub python: Option<Interpreter>,
    libtorch: Option<PathBuf>,
    import_patience: Duration,
    forked: Option<ForkedInterpreter>,
}

impl PlanRequest {
    /// Loads the suite and reads the arguments; nothing is started. `scratch` is where the binary's own suite is unpacked,
    /// if it is.
    ///
    /// # Errors
    /// Files are wrong, or the arguments ask for what does not exist.
    pub fn new(arguments: &SelectArguments, scratch: &Path) -> Result<Self, Failure> {
        let suite = Suite::load(&arguments.request(), scratch)?;
        let requested = requested(arguments, &suite)?;
        if let Some(DriverChoice::Command(_)) = &arguments.driver {
            check_has_host(&requested, &suite)?;
        }
        Ok(Self {
            selection: selection(arguments, &suite, DEFAULT_PROFILE)?,
            requested,
            suite,
            python: interpreter(arguments),
            forked: None,
            import_patience: arguments.import_patience(),
            libtorch: match &arguments.driver {
                Some(DriverChoice::Libtorch) => Some(libtorch()?),
                None
                | Some(DriverChoice::Python | DriverChoice::Program | DriverChoice::Command(_)) => {
                    None
                }
            },
        })
    }

    /// Lets platforms be probed in forks of a zygote, where those give the same answer as an interpreter of their own.
    #[must_use]
    pub fn with_forked_interpreter(self, forked: Option<ForkedInterpreter>) -> Self {
        Self { forked, ..self }
    }

    /// Probes the platforms and makes the plan. On a terminal `err` gets a line at once with what it waits for, elsewhere if that
    /// takes long.
    pub fn probe_and_plan(self, err: &mut impl Write) -> Planned {
        if let Some(python) = self.python.as_ref().filter(|_| io::stderr().is_terminal()) {
            // The stream may be closed already.
            let _ = writeln!(err, "importing torch with {}", python.path.display());
        }
        let (targets, absent) = thread::scope(|scope| {
            let (over, done) = mpsc::channel::<()>();
            let finding = scope.spawn(|| {
                let _over = over;
                self.find()
            });
            if done.recv_timeout(REPORT_AFTER) == Err(mpsc::RecvTimeoutError::Timeout) {
                let most = self.import_patience.as_secs();
                // The stream may be closed already.
                let _ = writeln!(
                    err,
                    "still waiting for `import torch`, at most {most} s (--import-patience); `allranks doctor` says why it takes long"
                );
            }
            finding.join().unwrap_or_else(|panic| resume_unwind(panic))
        });
        Planned {
            plan: plan(&self.suite.cases, &targets, &self.selection),
            selection: self.selection,
            suite: self.suite,
            python: self.python,
            absent,
            targets,
        }
    }

    /// Returns the backends to test that are here, and those that are not.
    fn find(&self) -> (Vec<Target>, Vec<Absent>) {
        let requested = self.requested.iter();
        let platforms: Vec<&Platform> = requested.map(|(platform, _)| &**platform).collect();
        let (mut targets, mut absent) = (Vec::new(), Vec::new());
        for ((platform, backends), observed) in self.requested.iter().zip(self.probe(&platforms)) {
            if let Err(reason) = observed.usable {
                absent.push(Absent {
                    platform: Arc::clone(platform),
                    backends: backends.clone(),
                    reason,
                });
                continue;
            }
            let mut present = platform.with_torch(observed.torch.as_deref());
            // Whatever its file says: nothing that happens on a made-up device proves anything of a real one.
            if observed.is_simulated {
                present.evidence = Evidence::Simulated;
            }
            let present = Arc::new(present);
            for backend in backends {
                if observed.backends.get(backend) == Some(&false) {
                    absent.push(Absent {
                        platform: Arc::clone(platform),
                        backends: vec![backend.clone()],
                        reason: format!("this build of torch has no {backend}"),
                    });
                    continue;
                }
                targets.push(Target {
                    platform: Arc::clone(&present),
                    backend: backend.clone(),
                    devices: observed.count.and_then(|count| u32::try_from(count).ok()),
                });
            }
        }
        (targets, absent)
    }

    /// Returns what the driver finds of each platform.
    fn probe(&self, platforms: &[&Platform]) -> Vec<ProbeResult> {
        let limit = self.import_patience;
        match (&self.python, &self.libtorch) {
            (Some(python), _) => {
                probe::probe_all(&python.path, platforms, limit, self.forked.as_ref())
            }
            (None, Some(program)) => {
                let ask = |platform: &&Platform| probe::probe_libtorch(program, platform, limit);
                platforms.par_iter().map(ask).collect()
            }
            // A driver of its own knows its devices; only the host needs none.
            (None, None) => {
                let told = |platform: &&Platform| {
                    let reason = "only the Python driver can count its devices";
                    let mut observed = ProbeResult::unusable(reason.to_owned());
                    if platform.count.is_none() {
                        observed.usable = Ok(());
                    }
                    observed
                };
                platforms.iter().map(told).collect()
            }
        }
    }
}

/// Returns the interpreter, with a driver that needs one.
fn interpreter(arguments: &SelectArguments) -> Option<Interpreter> {
    match &arguments.driver {
        None | Some(DriverChoice::Python | DriverChoice::Program) => {
            Some(probe::python(arguments.python.as_deref()))
        }
        Some(DriverChoice::Libtorch | DriverChoice::Command(_)) => None,
    }
}

/// Returns the cases that the arguments select without looking at the machine: those of the profile, if one is named, that have a
/// check on a backend that there is a platform file for, found or not.
///
/// # Errors
/// The arguments name what does not exist.
pub fn selected_cases(
    arguments: &SelectArguments,
    suite: &Suite,
) -> Result<Vec<Arc<Case>>, Failure> {
    let selection = selection(arguments, suite, ALL)?;
    let targets: Vec<Target> = requested(arguments, suite)?
        .into_iter()
        .flat_map(|(platform, backends)| {
            let target = move |backend| Target {
                platform: Arc::clone(&platform),
                backend,
                devices: None,
            };
            backends.into_iter().map(target)
        })
        .collect();
    let is_narrow = !(arguments.platform.is_empty()
        && arguments.backend.is_empty()
        && arguments.world_size.is_empty()
        && arguments.filter.is_empty()
        && arguments.shard.is_none()
        && arguments.fleet.launcher.is_none()
        && arguments.driver.is_none());
    let is_selected = |case: &&Arc<Case>| {
        let profile = selection.profile.as_ref();
        let in_profile = profile.is_none_or(|profile| profile.includes(case));
        let case = std::slice::from_ref(*case);
        let mut targets = targets.iter().map(std::slice::from_ref);
        in_profile
            && (!is_narrow
                || targets.any(|target| !plan(case, target, &selection).scenarios.is_empty()))
    };
    let cases: Vec<Arc<Case>> = suite
        .cases
        .par_iter()
        .filter(is_selected)
        .cloned()
        .collect();
    match cases.is_empty() {
        true => Err(Failure::Nothing(
            "no case was selected".to_owned(),
            "`allranks list` with fewer options shows what there is".to_owned(),
        )),
        false => Ok(cases),
    }
}

/// `default`: the profile where neither cases nor a profile are named; none if it is empty.
fn selection(
    arguments: &SelectArguments,
    suite: &Suite,
    default: &'static str,
) -> Result<Selection, Failure> {
    let name = match &arguments.profile {
        Some(name) => Some(name.as_str()),
        None => (arguments.cases.is_empty() && default != ALL).then_some(default),
    };
    let profile = name
        .map(|name| {
            suite.profile(name).cloned().ok_or_else(|| {
                let known: Vec<_> = suite.profiles.iter().map(|p| p.name.as_str()).collect();
                Failure::Usage(
                    format!("there is no profile `{name}`"),
                    format!("profiles are {}", known.join(", ")),
                )
            })
        })
        .transpose()?;
    Ok(Selection {
        profile,
        world_sizes: arguments.world_size.clone(),
        filters: arguments.filter.clone(),
        shard: shard_of(arguments)?,
        launcher: arguments.fleet.launcher.map(Launcher::from),
        is_elsewhere: false,
        nodes: nodes(&arguments.fleet)?,
        programs: arguments.driver.as_ref().map(|driver| match driver {
            DriverChoice::Program => true,
            DriverChoice::Python | DriverChoice::Libtorch | DriverChoice::Command(_) => false,
        }),
    })
}

/// Returns the part of the scenarios that is asked for.
///
/// # Errors
/// The run whose times must be used cannot be read.
fn shard_of(arguments: &SelectArguments) -> Result<Option<Share>, Failure> {
    let Some(shard) = arguments.shard else {
        return Ok(None);
    };
    let Some(run) = &arguments.times else {
        return Ok(Some(Share::by_id(shard)));
    };
    let mut times = BTreeMap::<ScenarioId, u64>::new();
    // Rounds of a repeated run, and merged columns of one scenario, have one id.
    for scenario in read(run)?.scenarios {
        *times.entry(scenario.id).or_default() += scenario.duration_ms;
    }
    Ok(Some(Share::by_time(shard, &times)))
}

/// Returns the number of nodes of each world; none without node agents.
///
/// # Errors
/// Nodes are asked for, and no launcher that has any.
fn nodes(arguments: &FleetArguments) -> Result<Option<u32>, Failure> {
    match (arguments.engine().is_some(), arguments.nodes) {
        (true, nodes) => Ok(Some(nodes.unwrap_or(1))),
        (false, None) => Ok(None),
        (false, Some(_)) => Err(Failure::Usage(
            "--nodes needs a launcher with node agents".to_owned(),
            "add --launcher attached, slurm, mpi, torchrun or kubernetes".to_owned(),
        )),
    }
}

/// A platform to look for, and the backends of it to test.
type RequestedPlatform = (Arc<Platform>, Vec<String>);

/// Returns the platforms to look for, each with the backends to test.
fn requested(
    arguments: &SelectArguments,
    suite: &Suite,
) -> Result<Vec<RequestedPlatform>, Failure> {
    for name in &arguments.platform {
        if !suite
            .platforms
            .iter()
            .any(|platform| platform.name == *name)
        {
            let known: Vec<_> = suite.platforms.iter().map(|p| p.name.as_str()).collect();
            return Err(Failure::Usage(
                format!("there is no platform `{name}`"),
                format!(
                    "platforms are {}; add your own with --platforms FILE",
                    known.join(", ")
                ),
            ));
        }
    }
    let requested: Vec<_> = suite
        .platforms
        .iter()
        .filter(|one| match arguments.platform.is_empty() {
            true => !suite.on_request.contains(&one.name),
            false => arguments.platform.contains(&one.name),
        })
        .map(|platform| {
            let backends = platform
                .backends
                .keys()
                .filter(|name| arguments.backend.is_empty() || arguments.backend.contains(name))
                .cloned()
                .collect::<Vec<_>>();
            (Arc::clone(platform), backends)
        })
        .filter(|(_, backends)| !backends.is_empty())
        .collect();
    if requested.is_empty() {
        return Err(Failure::Nothing(
            format!(
                "no platform has the backend {}",
                arguments.backend.join(", ")
            ),
            "`allranks list` shows platforms and their backends".to_owned(),
        ));
    }
    Ok(requested)
}

/// Refuses platforms with devices where no other is wanted and the driver is a command: only the drivers that come with
/// allranks can count devices.
fn check_has_host(requested: &[RequestedPlatform], suite: &Suite) -> Result<(), Failure> {
    let is_host = |platform: &Platform| platform.count.is_none();
    if requested.iter().any(|(platform, _)| is_host(platform)) {
        return Ok(());
    }
    let names = |platforms: &mut dyn Iterator<Item = &Arc<Platform>>| -> String {
        let names: Vec<&str> = platforms.map(|one| one.name.as_str()).collect();
        names.join(", ")
    };
    let devices = names(&mut requested.iter().map(|(platform, _)| platform));
    let hosts = names(&mut suite.platforms.iter().filter(|one| is_host(one)));
    Err(Failure::Nothing(
        format!(
            "a driver `command:PROGRAM` runs on host platforms only, and these have devices of their own: {devices}"
        ),
        format!("name one of {hosts} with --platform, or use `--driver python`"),
    ))
}

/// Returns the path of the libtorch driver.
///
/// # Errors
/// It is nowhere, with a hint how to build it.
pub fn libtorch() -> Result<PathBuf, Failure> {
    probe::libtorch().map_err(|why| Failure::Nothing("there is no libtorch driver".to_owned(), why))
}

/// Refuses checks whose own inputs could not tell a broken backend from a right one.
///
/// # Errors
/// There are such checks.
pub fn check_inputs(plan: &Plan, seed: u64) -> Result<(), Failure> {
    let vacuous: Vec<String> = plan
        .scenarios
        .par_iter()
        .flat_map_iter(|scenario| {
            scenario.checks.iter().filter_map(|check| {
                let mut ops = check.ops().iter();
                let of_layer = |stack| oracle::vacuous_stack(stack, scenario.world_size, seed);
                ops.find_map(|op| oracle::vacuous(op, scenario.world_size, seed))
                    .or_else(|| check.stack().and_then(of_layer))
                    .map(|why| format!("{}: {why}", check.id))
            })
        })
        .collect();
    match vacuous.first() {
        None => Ok(()),
        Some(first) => Err(Failure::Harness(format!(
            "{} check(s) could not tell a broken backend from a right one; the first: {first}",
            vacuous.len()
        ))),
    }
}

/// Writes a line if the embedded suite is used, so that it is not taken for a checkout's.
pub fn write_origin(suite: &Suite, err: &mut impl Write) -> io::Result<()> {
    if suite.is_embedded {
        let version = env!("CARGO_PKG_VERSION");
        writeln!(
            err,
            "note: no cases/ here: using the suite embedded in this binary (version {version})"
        )?;
    }
    Ok(())
}

/// Returns the failure that explains why a plan is empty.
pub fn empty_plan(planned: &Planned) -> Failure {
    let (why, hint) = if planned.targets.is_empty() {
        let reasons: Vec<String> = planned
            .absent
            .iter()
            .map(|absent| format!("{}: {}", absent.platform.name, absent.reason))
            .collect();
        let hint = match planned.python {
            Some(_) => "name a Python that has torch with --python or ALLRANKS_PYTHON",
            None => "`--driver python` can use any torch; see above what this driver wants",
        };
        (
            format!("no platform was found ({})", reasons.join("; ")),
            hint,
        )
    } else if let Some((id, reason)) = planned.plan.too_large.first() {
        let more = planned.plan.too_large.len() - 1;
        (
            match more {
                0 => format!("what was selected does not fit this machine: {id}: {reason}"),
                _ => format!(
                    "what was selected does not fit this machine: {id}: {reason}; and {more} more scenarios"
                ),
            },
            "--world-size selects smaller worlds; `allranks doctor` shows the devices",
        )
    } else if let Some(reason) = planned.plan.left_out.first().map(|left| &left.reason)
        && planned
            .selection
            .launcher
            .is_some_and(|one| one != Launcher::Local)
    {
        (
            format!("no check was selected: {reason}"),
            "leave --launcher out, or name a case with `program:`",
        )
    } else {
        (
            "no check was selected".to_owned(),
            "`allranks plan` with fewer options shows what there is",
        )
    };
    Failure::Nothing(why, hint.to_owned())
}
