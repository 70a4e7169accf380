//! Runs mutants and the backend without a bug: worlds of one session, several mutants side by side.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use super::above::{EACH_OP, seen_in_c10d};
use super::healthy::Healthy;
use super::index::{Index, Mutant, PACKAGE};
use super::kill::{Kill, MutantOutcome, is_unexpected};
use super::record::Head;
use super::shared_checks::{self, SharedChecks};
use crate::suite::Suite;
use allranks_model::names::{RequirementId, ScenarioId};
use allranks_model::outcome::Outcome;
use allranks_model::record::{CheckRecord, FORMAT, Record};
use allranks_runner::run::{Interrupt, Session, WORLDS};
use allranks_suite::case;
use allranks_suite::case::Case;
use allranks_suite::plan;
use allranks_suite::plan::{Scenario, Selection, Target};
use allranks_suite::platform::Platform;
use allranks_yaml::Diagnostic;

/// The number of devices of the suite's simulated platforms.
const DEVICES: u32 = 8;
/// The platform on which mutants are loaded unless their entry names another.
pub const MUTANT_PLATFORM: &str = "cpu";
/// The environment variable that names a mutant to the Python package.
const VARIABLE: &str = "ALLRANKS_MUTANT";
/// The number of mutants tried at once; their worlds share the session's budget. More would not help: shared checks are many
/// worlds each.
const MUTANTS_AT_ONCE: usize = 4;
/// The number of worlds that one scenario of the shared checks may use.
const SHARED_WORLDS: u32 = 4;
/// The number of worlds that a mutant which is known to lose worlds may lose in the shared checks.
const MAX_LOST_WORLDS: usize = 3;
/// The deadline of the shared checks, in seconds, for mutants that are expected to hang. It is shorter than that of a case, so
/// that a hang does not hold up the other mutants.
const SHORT_DEADLINE: f64 = 10.0;

/// A failing check that takes at least this long is assumed to have waited for the library's own timeout.
const LIBRARY_TIMEOUT: Duration = Duration::from_secs(10);

/// The mutants and checks of a proof, planned before anything runs.
#[derive(Debug)]
pub struct ProofPlan {
    /// The mutants.
    pub index: Index,
    /// The description of each bug, by the mutant's name.
    about: BTreeMap<String, String>,
    unmutated: Target,
    /// Cases of the index that are not the suite's, by their path there.
    extra: BTreeMap<PathBuf, Vec<Arc<Case>>>,
    suite: Suite,
    shared_checks: SharedChecks,
    shared_scenarios: Vec<Scenario>,
}

impl ProofPlan {
    /// Plans a proof: the mutants of an index, and the shared checks.
    ///
    /// # Errors
    /// All problems of the files of the index.
    pub fn new(
        suite: Suite,
        index: Index,
        shared_checks: SharedChecks,
    ) -> Result<Self, Vec<Diagnostic>> {
        let of_file = |path: &Path, message: String| {
            vec![Diagnostic::of_file(&path.display().to_string(), message)]
        };
        let about = index
            .functions()
            .map_err(|error| of_file(&index.folder.join(PACKAGE), error.to_string()))?;
        let named = |name: &str| {
            target(&suite, name)
                .ok_or_else(|| of_file(Path::new(name), "there is no such platform".to_owned()))
        };
        let unmutated = named(MUTANT_PLATFORM)?;
        for name in index.mutants.iter().filter_map(|one| one.platform.as_ref()) {
            named(name)?;
        }
        let mut extra = BTreeMap::new();
        for path in index
            .mutants
            .iter()
            .filter_map(|mutant| mutant.case.clone())
        {
            if let Entry::Vacant(vacant) = extra.entry(path) {
                let library = case::load(&[index.folder.join(vacant.key())])?;
                vacant.insert(library.cases);
            }
        }
        let core = Selection {
            profile: suite.profile(shared_checks::PROFILE).cloned(),
            world_sizes: shared_checks::SIZES.to_vec(),
            ..Selection::default()
        };
        let whole = match shared_checks {
            SharedChecks::None => Vec::new(),
            SharedChecks::Quick | SharedChecks::Core => {
                let targets = [unmutated.clone()];
                let mut scenarios = plan::plan(&suite.cases, &targets, &core).scenarios;
                if shared_checks == SharedChecks::Quick {
                    scenarios.retain(|scenario| !index.leaves_out(&scenario.case.id));
                }
                scenarios
            }
        };
        Ok(Self {
            shared_scenarios: shared_checks::choose(shared_checks, whole),
            index,
            about,
            unmutated,
            extra,
            suite,
            shared_checks,
        })
    }

    /// Returns the first line of `kills.jsonl` for a proof with this number of mutants.
    #[must_use]
    pub fn head(&self, seed: u64, mutants: usize) -> Head {
        let requirements = self.suite.requirements.iter();
        Head {
            format: FORMAT,
            allranks: env!("CARGO_PKG_VERSION").to_owned(),
            started: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
            platform: self.unmutated.platform.name.clone(),
            backend: self.unmutated.backend.clone(),
            seed,
            shared_checks: self.shared_checks,
            mutants: mutants as u64,
            requirements: requirements
                .map(|one| (one.id.clone(), one.text.clone()))
                .collect(),
            shared: self.index.shared.clone(),
            elsewhere: self.untestable(),
        }
    }

    /// Returns the requirements for which the backend of the mutants cannot be checked, each with the reason and the cases that
    /// check other backends.
    fn untestable(&self) -> BTreeMap<RequirementId, String> {
        let requirements = self.suite.requirements.iter();
        let absent = requirements.filter_map(|one| {
            let why = one.not_on.get(&self.unmutated.backend)?;
            let asks = |case: &&Arc<Case>| {
                let mut steps = case.steps.iter();
                case.covers.contains(&one.id) || steps.any(|step| step.covers().contains(&one.id))
            };
            let cases = self.suite.cases.iter().filter(asks);
            let cases: Vec<&str> = cases.map(|case| case.id.as_str()).collect();
            Some((
                one.id.clone(),
                format!("{why}; tested elsewhere by {}", cases.join(", ")),
            ))
        });
        absent.collect()
    }

    /// Returns the suite whose checks are run.
    #[must_use]
    pub fn suite(&self) -> &Suite {
        &self.suite
    }

    /// Returns the scenarios of the shared checks, without a bug.
    #[must_use]
    pub fn shared_scenarios(&self) -> &[Scenario] {
        &self.shared_scenarios
    }

    /// Returns the functions of the package without an entry, and the entries without a function.
    #[must_use]
    pub fn unmatched(&self) -> (Vec<&str>, Vec<&str>) {
        let entries: BTreeSet<&str> = self.index.mutants.iter().map(|one| &*one.name).collect();
        let functions: BTreeSet<&str> = self.about.keys().map(|name| &**name).collect();
        (
            functions.difference(&entries).copied().collect(),
            entries.difference(&functions).copied().collect(),
        )
    }

    /// Returns the scenarios with the checks that a mutant's entry names, without the bug.
    #[must_use]
    pub fn own_scenarios(&self, mutant: &Mutant) -> Vec<Scenario> {
        let cases = match &mutant.case {
            Some(path) => &self.extra[path],
            None => &self.suite.cases,
        };
        let selection = Selection {
            world_sizes: vec![mutant.size],
            // The filter was parsed when the index was read.
            filters: mutant.filter.parse().into_iter().collect(),
            ..Selection::default()
        };
        plan::plan(cases, &[self.target(mutant)], &selection).scenarios
    }

    /// Returns the scenarios with one check of each op of c10d, at a mutant's world size, without the bug.
    fn each_op_scenarios(&self, mutant: &Mutant) -> Vec<Scenario> {
        let cases = self.suite.cases.iter();
        let cases: Vec<_> = cases
            .filter(|case| case.id.as_str() == EACH_OP)
            .cloned()
            .collect();
        let selection = Selection {
            world_sizes: vec![mutant.size],
            ..Selection::default()
        };
        plan::plan(&cases, &[self.target(mutant)], &selection).scenarios
    }

    /// Returns the scenarios with every check that any of these mutants meets, each once, without a bug.
    #[must_use]
    pub fn healthy_scenarios(&self, mutants: &[Mutant]) -> Vec<Scenario> {
        let mut scenarios: BTreeMap<ScenarioId, Scenario> = BTreeMap::new();
        let own = mutants.iter().flat_map(|mutant| self.own_scenarios(mutant));
        for scenario in own.chain(self.shared_scenarios.iter().cloned()) {
            let Some(known) = scenarios.get_mut(&scenario.id) else {
                scenarios.insert(scenario.id.clone(), scenario);
                continue;
            };
            let ids: BTreeSet<_> = known.checks.iter().map(|check| check.id.clone()).collect();
            let new = scenario.checks.into_iter();
            known
                .checks
                .extend(new.filter(|check| !ids.contains(&check.id)));
            known.checks.sort_by_key(|check| check.index);
        }
        scenarios.into_values().collect()
    }

    /// Returns the backend that the mutant is loaded on, without the bug.
    fn target(&self, mutant: &Mutant) -> Target {
        let named = mutant.platform.as_ref();
        named
            .and_then(|name| target(&self.suite, name))
            .unwrap_or_else(|| self.unmutated.clone())
    }

    /// Returns the mutant's platform with the bug.
    fn with_bug(&self, mutant: &Mutant) -> io::Result<Arc<Platform>> {
        let mut platform = Platform::clone(&self.target(mutant).platform);
        platform.import.push(PACKAGE.to_owned());
        platform.imports_layers = mutant.above_c10d;
        let folder = std::path::absolute(&self.index.folder)?;
        platform.python_path.insert(0, folder);
        platform
            .env
            .insert(VARIABLE.to_owned(), mutant.name.clone());
        Ok(Arc::new(platform))
    }
}

/// Returns the first backend of a platform. The number of devices is fixed, because simulated ones are enough for every mutant.
fn target(suite: &Suite, name: &str) -> Option<Target> {
    let platform = suite.platforms.iter().find(|one| one.name == name)?;
    let backend = platform.backends.keys().next()?;
    Some(Target {
        platform: Arc::clone(platform),
        backend: backend.clone(),
        devices: platform.is_on_device().then_some(DEVICES),
    })
}

/// An event of a running proof.
#[derive(Debug)]
pub enum Event {
    /// The backend without a bug has been through everything.
    Healthy(Healthy),
    /// A mutant has been tried.
    Mutant(Box<Kill>),
}

/// A proof that runs: a plan, and the session that its worlds share.
pub struct Proof {
    plan: ProofPlan,
    session: Session,
    interrupt: Interrupt,
    out: PathBuf,
}

impl Proof {
    /// Makes a proof in a session that has been started for it. Mutants that are not killed leave their logs below
    /// `out`.
    #[must_use]
    pub fn new(plan: ProofPlan, session: Session, interrupt: Interrupt, out: PathBuf) -> Self {
        Self {
            plan,
            session,
            interrupt,
            out,
        }
    }

    /// Returns the plan of the proof.
    #[must_use]
    pub fn plan(&self) -> &ProofPlan {
        &self.plan
    }

    /// Runs the backend without a bug, then every mutant, and sends events in the order in which they happen.
    ///
    /// # Errors
    /// A folder cannot be made.
    pub async fn run(
        self: Arc<Self>,
        mutants: Vec<Mutant>,
        events: mpsc::UnboundedSender<Event>,
    ) -> io::Result<()> {
        let healthy = self.try_healthy(&mutants).await?;
        // The receiver may be gone; the proof continues to its end.
        let _ = events.send(Event::Healthy(healthy));
        let permits = Arc::new(Semaphore::new(MUTANTS_AT_ONCE));
        let mut tasks: JoinSet<io::Result<()>> = JoinSet::new();
        for mutant in mutants {
            let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
                unreachable!("the semaphore is never closed");
            };
            if self.interrupt.is_set() {
                break;
            }
            let (proof, events) = (Arc::clone(&self), events.clone());
            tasks.spawn(async move {
                let kill = proof.try_mutant(&mutant).await;
                drop(permit);
                let _ = events.send(Event::Mutant(Box::new(kill?)));
                Ok(())
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.map_err(io::Error::other)??;
        }
        Ok(())
    }

    /// Runs the checks that these mutants meet without a bug: no check may report anything unexpected.
    ///
    /// # Errors
    /// A folder cannot be made.
    pub async fn try_healthy(&self, mutants: &[Mutant]) -> io::Result<Healthy> {
        let folder = self.out.join("healthy");
        let session = self.session.sibling(folder, WORLDS, &self.interrupt)?;
        let records =
            run_concurrently(&session, self.plan.healthy_scenarios(mutants), |_| ()).await;
        Ok(Healthy::of(&records))
    }

    /// Tries one mutant.
    ///
    /// # Errors
    /// Its folder cannot be made or removed.
    pub async fn try_mutant(&self, mutant: &Mutant) -> io::Result<Kill> {
        let began = Instant::now();
        let folder = self.out.join("mutants").join(&mutant.name);
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        let platform = self.plan.with_bug(mutant)?;
        let infect = |mut scenario: Scenario| {
            scenario.platform = Arc::clone(&platform);
            scenario
        };
        let own = self.plan.own_scenarios(mutant).into_iter().map(infect);
        let session = self
            .session
            .sibling(folder.join("own"), WORLDS, &self.interrupt)?;
        let own = run_concurrently(&session, own.collect(), |_| ()).await;
        // The shared scenarios are of the platform without a bug; a mutant with a platform of its own does not meet them.
        let shared = match mutant.platform {
            None => self
                .plan
                .shared_scenarios
                .iter()
                .cloned()
                .map(infect)
                .collect(),
            Some(_) => Vec::new(),
        };
        let (shared, stopped) = self
            .run_shared(mutant, folder.join("panel"), shared)
            .await?;
        let about = self.plan.about.get(&mutant.name).cloned();
        let about = about.unwrap_or_default();
        let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut kill = Kill::of(mutant, about, &own, &shared, stopped, took);
        if mutant.above_c10d {
            let each_op = self.plan.each_op_scenarios(mutant).into_iter().map(infect);
            let session = self
                .session
                .sibling(folder.join("c10d"), WORLDS, &self.interrupt)?;
            let each_op = run_concurrently(&session, each_op.collect(), |_| ()).await;
            kill.issues
                .extend(seen_in_c10d(each_op.iter().chain(&shared)));
        }
        if let Some(wanted) = mutant.shrinks_to {
            match super::shrunk::shrunk_units(&folder.join("own").join("shrunk")) {
                Ok(found) if found == wanted => {}
                Ok(found) => kill
                    .issues
                    .push(format!("shrunk to {found} ops, not to {wanted}")),
                Err(why) => kill.issues.push(why),
            }
        }
        if kill.outcome == MutantOutcome::Killed {
            std::fs::remove_dir_all(&folder)?;
        }
        Ok(kill)
    }

    /// Runs the shared checks. Returns their records, and why they were stopped early; `None` if they were not.
    async fn run_shared(
        &self,
        mutant: &Mutant,
        folder: PathBuf,
        scenarios: Vec<Scenario>,
    ) -> io::Result<(Vec<CheckRecord>, Option<String>)> {
        if scenarios.is_empty() {
            return Ok((Vec::new(), None));
        }
        if mutant.loses_worlds() {
            return self.run_shared_in_turn(folder, scenarios).await;
        }
        let enough = Interrupt::default();
        let session = self.session.sibling(folder, SHARED_WORLDS, &enough)?;
        let playing = run_concurrently(&session, scenarios, |checks| {
            if checks.iter().any(has_unexpected_hang) {
                enough.set();
            }
        });
        let mut playing = std::pin::pin!(playing);
        let records = tokio::select! {
            records = &mut playing => records,
            () = self.interrupt.wait() => {
                enough.set();
                playing.await
            }
        };
        let hang = records.iter().find(|check| has_unexpected_hang(check));
        let stopped = hang.map(|check| format!("{} hangs", check.id));
        Ok((records, stopped))
    }

    /// Runs the shared checks for a mutant that is known to lose worlds, one scenario after the other, up to the first hang or a
    /// few lost worlds. So the results are the same each time.
    async fn run_shared_in_turn(
        &self,
        folder: PathBuf,
        scenarios: Vec<Scenario>,
    ) -> io::Result<(Vec<CheckRecord>, Option<String>)> {
        let session = self.session.sibling(folder, 1, &self.interrupt)?;
        let (mut records, mut losses) = (Vec::new(), 0);
        for mut scenario in scenarios {
            let world = &mut Arc::make_mut(&mut scenario.case).world;
            world.deadline_s = world.deadline_s.min(SHORT_DEADLINE);
            let played = session.scenario(Arc::new(scenario), 0).await;
            let mut stopped = None;
            for check in checks(played) {
                if has_unexpected_hang(&check) {
                    stopped = Some(format!("{} hangs", check.id));
                } else if is_unexpected(check.verdict) && check.outcome == Outcome::Crash {
                    losses += 1;
                    if losses == MAX_LOST_WORLDS {
                        stopped.get_or_insert_with(|| format!("{MAX_LOST_WORLDS} worlds lost"));
                    }
                }
                records.push(check);
            }
            if stopped.is_some() {
                return Ok((records, stopped));
            }
        }
        Ok((records, None))
    }
}

/// Returns true if a check hangs unexpectedly, or would have hung without the library's own timeout. This only decides when the
/// shared checks are stopped.
fn has_unexpected_hang(check: &CheckRecord) -> bool {
    let hangs = check.outcome == Outcome::Hang || check.class.as_deref() == Some("hang");
    let waited = Duration::from_micros(check.duration_us) >= LIBRARY_TIMEOUT;
    is_unexpected(check.verdict) && (hangs || waited)
}

/// Runs scenarios within the session's budget; `watch` sees the checks of each as it ends.
async fn run_concurrently(
    session: &Session,
    scenarios: Vec<Scenario>,
    mut watch: impl FnMut(&[CheckRecord]),
) -> Vec<CheckRecord> {
    let mut tasks = JoinSet::new();
    for scenario in scenarios {
        let session = session.clone();
        tasks.spawn(async move { session.scenario(Arc::new(scenario), 0).await });
    }
    let mut all = Vec::new();
    while let Some(records) = tasks.join_next().await {
        // A scenario in which the harness fails has records, too.
        let Ok(records) = records else { continue };
        let records: Vec<CheckRecord> = checks(records).collect();
        watch(&records);
        all.extend(records);
    }
    all.sort_by(|one: &CheckRecord, two| one.id.cmp(&two.id));
    all
}

fn checks(records: Vec<Record>) -> impl Iterator<Item = CheckRecord> {
    records.into_iter().filter_map(|record| match record {
        Record::Check(check) => Some(*check),
        Record::Run(_) | Record::Scenario(_) | Record::End(_) => None,
    })
}
