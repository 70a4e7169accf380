//! Turns arguments into a plan: loads the suite, finds Python and platforms, and explains what is missing.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use rayon::prelude::*;

use super::Failure;
use super::select_arguments::{DriverChoice, SelectArguments};
use super::selecting::{RequestedPlatform, check_has_host, requested_platforms, selection};
use crate::suite::Suite;
use allranks_model::evidence::Evidence;
use allranks_model::launcher::Launcher;
use allranks_model::names::RequirementId;
use allranks_oracle as oracle;
use allranks_runner::probe;
use allranks_runner::probe::{Interpreter, ProbeResult};
use allranks_runner::world::ForkedInterpreter;
use allranks_suite::plan::{Plan, Selection, Target, plan};
use allranks_suite::platform::Platform;

/// The time after which slow imports are reported.
const REPORT_AFTER: Duration = Duration::from_secs(10);
/// The profile used when neither cases nor a profile are named.
const DEFAULT_PROFILE: &str = "core";

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

/// A plan that the arguments ask for, before the platforms are probed.
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
    /// Loads the suite and evaluates the arguments. Starts no process. `scratch` is the folder where the binary's own suite is
    /// unpacked if there is no checkout.
    ///
    /// # Errors
    /// A file is invalid, or the arguments name something that does not exist.
    pub fn new(arguments: &SelectArguments, scratch: &Path) -> Result<Self, Failure> {
        let suite = Suite::load(&arguments.request(), scratch)?;
        let requested = requested_platforms(arguments, &suite)?;
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

    /// Probes the platforms and makes the plan. Writes to `err` what it waits for: on a terminal at once, otherwise after
    /// [`REPORT_AFTER`].
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

    /// Returns the requested backends that were found, and those that were not.
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
            // Results of a simulated device prove nothing about a real one, whatever the platform file says.
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

    /// Probes the platforms with the driver of the run.
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
            // A `command:` driver cannot count devices, so only platforms without devices can be used.
            (None, None) => {
                let observe = |platform: &&Platform| {
                    let reason = "only the Python driver can count its devices";
                    let mut observed = ProbeResult::unusable(reason.to_owned());
                    if platform.count.is_none() {
                        observed.usable = Ok(());
                    }
                    observed
                };
                platforms.iter().map(observe).collect()
            }
        }
    }
}

/// Returns the interpreter; `None` if the driver needs none.
fn interpreter(arguments: &SelectArguments) -> Option<Interpreter> {
    match &arguments.driver {
        None | Some(DriverChoice::Python | DriverChoice::Program) => {
            Some(probe::python(arguments.python.as_deref()))
        }
        Some(DriverChoice::Libtorch | DriverChoice::Command(_)) => None,
    }
}

/// Returns the path of the libtorch driver.
///
/// # Errors
/// The driver is not built. The hint says how to build it.
pub fn libtorch() -> Result<PathBuf, Failure> {
    probe::libtorch().map_err(|why| Failure::Nothing("there is no libtorch driver".to_owned(), why))
}

/// Checks that the inputs of every check can tell a wrong backend from a right one.
///
/// # Errors
/// Some checks are vacuous.
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
            "{} check(s) would pass on a broken backend, because of their inputs; the first: {first}",
            vacuous.len()
        ))),
    }
}

/// Writes a note if the embedded suite is used instead of a checkout's.
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
