//! The suite against bugs it must see: one trial for each mutant of `fixtures/mutants/index.yaml`.
//!
//! A trial is what `allranks prove --panel none MUTANT` does: a check that covers the broken requirement must fail, just
//! as the index says. So it fails if the suite is blind to the bug, or calls it by another name. One more trial,
//! `healthy`, runs the very same checks on Gloo as it is, where nothing may be unexpected.
//!
//! Without torch they are ignored; what looks after the index itself is not.

use allranks_runner::probe;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Arc, OnceLock};

use allranks::cli;
use allranks::prove::{Index, Mutant, MutantOutcome, Proof, ProofPlan, SHRINKING, SharedChecks};
use allranks::suite;
use allranks::suite::{Request, Suite};
use allranks_model::outcome::Outcome;
use allranks_oracle::{Class, stack_classes};
use allranks_runner::probe::IMPORT_PATIENCE;
use allranks_runner::run;
use allranks_runner::run::{Interrupt, Session, Settings};
use allranks_runner::world::Driver;
use libtest_mimic::{Arguments, Failed, Trial};

/// What the trials of this process share: torch is imported once.
struct Live {
    runtime: tokio::runtime::Runtime,
    proof: Proof,
}

static LIVE: OnceLock<Result<Live, String>> = OnceLock::new();

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // The session knows how many ranks may run at once; its trials mostly wait.
    arguments
        .test_threads
        .get_or_insert(cli::ranks_at_once().computing);
    // The checkout's own cases, .venv and target; cargo starts tests in the package's folder.
    if let Err(error) = std::env::set_current_dir(checkout()) {
        panic!("there is no checkout: {error}");
    }
    let python = probe::python(None).path;
    let reason = (!has_torch(&python)).then_some("needs torch");
    let on_torch = |name: &str, run: Box<dyn FnOnce() -> Result<(), Failed> + Send>| {
        Trial::test(name, run)
            .with_kind(reason.unwrap_or_default())
            .with_ignored_flag(reason.is_some())
    };
    let mut trials = vec![
        Trial::test("index_is_complete", index_is_complete),
        Trial::test("every_class_has_a_mutant", every_class_has_a_mutant),
        on_torch("healthy", Box::new(healthy)),
    ];
    // An index that cannot be read is told by its own trial.
    for mutant in index().map_or(Vec::new(), |index| index.mutants) {
        let name = mutant.name.clone();
        trials.push(on_torch(&name, Box::new(move || is_killed(&mutant))));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    if let Some(Ok(_)) = LIVE.get()
        && !conclusion.has_failed()
    {
        // Of failures it holds the logs; otherwise nothing of interest, and it may stay.
        let _ = std::fs::remove_dir_all(out());
    }
    conclusion.exit_code()
}

/// The workspace. Nextest moves archives between machines and says where the package is then.
fn checkout() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package.join("..")
}

/// Returns true if torch could be imported; importing it would take seconds.
fn has_torch(python: &Path) -> bool {
    let look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)";
    let status = Command::new(python).args(["-c", look]).status();
    status.is_ok_and(|status| status.success())
}

fn index() -> Result<Index, String> {
    let folder = suite::mutants(Path::new("")).map_err(|error| error.to_string())?;
    Index::load(&folder).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        problems.join("\n")
    })
}

fn plan() -> Result<ProofPlan, String> {
    let suite = Suite::load(&Request::default(), Path::new(""));
    let suite = suite.map_err(|error| error.to_string())?;
    ProofPlan::new(suite, index()?, SharedChecks::None).map_err(|problems| problems[0].to_string())
}

/// Functions and entries belong together, no requirement is without a mutant, and every entry names checks.
fn index_is_complete() -> Result<(), Failed> {
    let plan = plan()?;
    let (functions, entries) = plan.unmatched();
    let mut wrong: Vec<String> = Vec::new();
    wrong.extend(
        functions
            .iter()
            .map(|name| format!("{name} has no entry in the index")),
    );
    wrong.extend(entries.iter().map(|name| format!("{name} has no function")));
    let mutants = &plan.index.mutants;
    let broken: BTreeSet<_> = mutants.iter().map(|mutant| &mutant.breaks).collect();
    let requirements = &plan.suite().requirements;
    let known: BTreeSet<_> = requirements.iter().map(|each| &each.id).collect();
    // What cannot be checked on Gloo cannot be broken on it.
    let checked = requirements
        .iter()
        .filter(|each| !each.not_on.contains_key("gloo"));
    let checked: BTreeSet<_> = checked.map(|each| &each.id).collect();
    let unproven = checked.difference(&broken);
    wrong.extend(unproven.map(|id| format!("no mutant breaks {id}")));
    let unknown = broken.difference(&known);
    wrong.extend(unknown.map(|id| format!("there is no requirement {id} to break")));
    for id in plan.index.shared.keys().filter(|id| !known.contains(id)) {
        wrong.push(format!("there is no requirement {id} to share"));
    }
    // The shares of wrong values without a class, over all mutants, that `allranks prove` prints must stay as small.
    let of_values = || {
        let wrong = mutants.iter();
        wrong.filter(|mutant| mutant.outcome == Outcome::Mismatch)
    };
    let unclassified = of_values().filter(|mutant| mutant.class.as_deref() == Some("unclassified"));
    if unclassified.clone().count() * 100 >= of_values().count() * 3 {
        let names: Vec<&str> = unclassified.map(|mutant| &*mutant.name).collect();
        wrong.push(format!("too many are unclassified: {}", names.join(", ")));
    }
    for mutant in mutants {
        let checks = plan.own_scenarios(mutant);
        let mut checks = checks.iter().flat_map(|scenario| &scenario.checks);
        if checks.next().is_none() {
            wrong.push(format!("the filter of {} selects no check", mutant.name));
        }
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong.join("\n").into()),
    }
}

/// Classes that no mutant is given, and why.
const WITHOUT_A_MUTANT: &[(&str, &str)] = &[
    (
        "nan-depends-on-rank",
        "Gloo itself does it: fixtures/expectations/gloo.yaml",
    ),
    (
        "non-root-written",
        "Gloo itself does it: fixtures/expectations/gloo.yaml",
    ),
    (
        "malformed-reply",
        "a driver's fault, not a backend's: fixtures/drivers and the tests in blackbox",
    ),
];

/// Every class that a wrong answer can be given is proved by a bug that causes it, or says why it cannot be.
fn every_class_has_a_mutant() -> Result<(), Failed> {
    let given: BTreeSet<String> = index()?
        .mutants
        .into_iter()
        .filter_map(|mutant| mutant.class)
        .collect();
    let excused: BTreeSet<&str> = WITHOUT_A_MUTANT.iter().map(|(name, _)| *name).collect();
    let of_ops = Class::every();
    let of_ops = of_ops.iter().map(Class::name);
    let names: BTreeSet<&str> = of_ops
        .chain(stack_classes().map(|(name, _)| name))
        .collect();
    let mut wrong: Vec<String> = names
        .iter()
        .filter(|name| !given.contains(**name) && !excused.contains(*name))
        .map(|name| format!("no mutant is classified as {name}"))
        .collect();
    let stale = excused
        .iter()
        .filter(|name| given.contains(**name) || !names.contains(*name));
    wrong.extend(stale.map(|name| format!("{name} needs no excuse")));
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong.join("\n").into()),
    }
}

fn live() -> Result<&'static Live, Failed> {
    Ok(LIVE.get_or_init(begin).as_ref()?)
}

/// Where this process's results are.
fn out() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mutants-{}", std::process::id()))
}

fn begin() -> Result<Live, String> {
    let plan = plan()?;
    let out = out();
    let said = |error: std::io::Error| error.to_string();
    std::fs::create_dir_all(&out).map_err(said)?;
    let settings = Settings {
        out: out.clone(),
        seed: 1,
        ranks_at_once: cli::ranks_at_once(),
        worlds_per_device: NonZeroU32::MIN,
        repeat: 1,
        driver: Driver::python(&probe::python(None).path, &out).map_err(said)?,
        launcher: None,
        supervisor: Some(env!("CARGO_BIN_EXE_allranks").into()),
        import_patience: IMPORT_PATIENCE,
        shrinking: SHRINKING,
        nodes: None,
        launcher_options: Vec::new(),
        notices: None,
        profile: None,
        arguments: Vec::new(),
        requirements: BTreeMap::new(),
        absent: Vec::new(),
        origin: None,
        recorded: Arc::default(),
    };
    let runtime = run::runtime().map_err(said)?;
    let interrupt = Interrupt::default();
    let session = {
        let _inside = runtime.enter();
        Session::start(settings, Arc::clone(&plan.suite().expectations), &interrupt)
            .map_err(said)?
    };
    Ok(Live {
        runtime,
        proof: Proof::new(plan, session, interrupt, out),
    })
}

/// Without a bug, nothing is unexpected in the checks that show the mutants.
fn healthy() -> Result<(), Failed> {
    let live = live()?;
    let mutants = &live.proof.plan().index.mutants;
    let healthy = live.runtime.block_on(live.proof.try_healthy(mutants))?;
    let alarms = [healthy.false_alarms.clone(), healthy.issues.clone()].concat();
    match healthy.is_good() && healthy.checks > 0 {
        true => Ok(()),
        false => Err(format!("of {} checks:\n{}", healthy.checks, alarms.join("\n")).into()),
    }
}

/// The suite sees the bug and calls it by its name.
fn is_killed(mutant: &Mutant) -> Result<(), Failed> {
    let live = live()?;
    let kill = live.runtime.block_on(live.proof.try_mutant(mutant))?;
    if kill.outcome == MutantOutcome::Killed && kill.issues.is_empty() {
        return Ok(());
    }
    let seen = kill.requirements.iter().filter(|(_, seen)| seen.failed > 0);
    let seen: Vec<String> = seen
        .map(|(id, seen)| format!("{id}: {:?}", seen.findings))
        .collect();
    let failed: Vec<String> = kill
        .killing_check
        .iter()
        .flat_map(|failed| {
            let first = format!("{}: {}: {}", failed.check, failed.finding, failed.summary);
            let ranks = failed.ranks.iter();
            let ranks = ranks.map(|line| format!("  rank {}: {}", line.rank, line.text));
            std::iter::once(first).chain(ranks)
        })
        .collect();
    Err(format!(
        "{}: no check that covers {} ends as {}\n{}\nseen: {}\n{}",
        kill.outcome.word(),
        kill.breaks,
        kill.expected,
        failed.join("\n"),
        seen.join(", "),
        kill.issues.join("\n")
    )
    .into())
}
