//! The suite against bugs it must see: one trial for each mutant of `fixtures/mutants/index.yaml`.
//!
//! A trial runs the real binary on Gloo with one bug: a check that covers the broken requirement must fail, just as the
//! index says. So it fails if the suite is blind to the bug, or calls it by another name. One more trial, `healthy`,
//! runs the very same checks on Gloo as it is, where nothing may be unexpected.
//!
//! Without torch they are ignored; what looks after the index itself is not.

mod index;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};
use std::sync::Arc;

use allranks::case::{self, Requirements, StepSpec, Verb};
use allranks::judge::Verdict;
use allranks::oracle::Class;
use allranks::plan::{Selection, Target, plan};
use allranks::platform;
use allranks::report::{CheckRecord, Record};
use index::Mutant;
use libtest_mimic::{Arguments, Failed, Trial};
use serde_yaml::Value;

/// The platform with the bug, and the suite's own that it is made from.
const MUTANT: &str = "mutant";
const GENUINE: &str = "cpu";

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let python = platform::python(None).path;
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
    for mutant in index::mutants() {
        let name = mutant.name.clone();
        trials.push(on_torch(&name, Box::new(move || kills(&mutant))));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Whether torch could be imported; importing it would take seconds.
fn has_torch(python: &Path) -> bool {
    let look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)";
    let status = Command::new(python).args(["-c", look]).status();
    status.is_ok_and(|status| status.success())
}

/// Functions and entries belong together, and no requirement is without a mutant.
fn index_is_complete() -> Result<(), Failed> {
    let mutants = index::mutants();
    let entries: BTreeSet<String> = mutants.iter().map(|mutant| mutant.name.clone()).collect();
    let functions = index::functions();
    let mut wrong: Vec<String> = Vec::new();
    if entries.len() < mutants.len() {
        wrong.push("two entries have the same name".to_owned());
    }
    let without_entry = functions.difference(&entries);
    wrong.extend(without_entry.map(|name| format!("{name} has no entry in the index")));
    let without_function = entries.difference(&functions);
    wrong.extend(without_function.map(|name| format!("{name} has no function")));
    let path = index::folder().join("../../cases/requirements.yaml");
    let requirements = Requirements::load(&path).map_err(|problems| problems[0].to_string())?;
    let broken: BTreeSet<_> = mutants.iter().map(|mutant| &mutant.breaks).collect();
    let known: BTreeSet<_> = requirements.iter().map(|each| &each.id).collect();
    let unproven = known.difference(&broken);
    wrong.extend(unproven.map(|id| format!("no mutant breaks {id}")));
    let unknown = broken.difference(&known);
    wrong.extend(unknown.map(|id| format!("there is no requirement {id} to break")));
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(wrong.join("\n").into()),
    }
}

/// Classes that no mutant is given, and why.
const WITHOUT_A_MUTANT: [(&str, &str); 2] = [
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
    let given: BTreeSet<String> = index::mutants()
        .into_iter()
        .filter_map(|mutant| mutant.class)
        .collect();
    let excused: BTreeSet<&str> = WITHOUT_A_MUTANT.iter().map(|(name, _)| *name).collect();
    let names: BTreeSet<&str> = Class::every().iter().map(Class::name).collect();
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

/// Without a bug, nothing is unexpected in the checks that show the mutants.
fn healthy() -> Result<(), Failed> {
    let platforms = [index::folder().join(format!("../platforms/{GENUINE}.yaml"))];
    let platforms = platform::load(&platforms).map_err(|problems| problems[0].to_string())?;
    let targets = platforms.into_iter().map(|platform| Target {
        backend: platform.backends.keys().next().cloned().unwrap_or_default(),
        platform: Arc::new(platform),
        devices: None,
    });
    let targets: Vec<Target> = targets.collect();
    let (mut cases, mut ids) = (BTreeSet::new(), BTreeSet::new());
    for mutant in index::mutants() {
        let library = case::load(&[mutant.cases()]).map_err(|problems| problems[0].to_string())?;
        let selection = Selection {
            world_sizes: vec![mutant.size],
            filters: vec![mutant.filter.parse()?],
            ..Selection::default()
        };
        let plan = plan(&library.cases, &targets, &selection);
        let checks = plan.scenarios.iter().flat_map(|scenario| &scenario.checks);
        ids.extend(checks.map(|check| check.id.to_string()));
        cases.insert(mutant.cases());
    }
    let ids: Vec<String> = ids.into_iter().collect();
    let mut command = allranks("healthy")?;
    command.args(cases).args(["--platform", GENUINE]);
    command.arg("--filter").arg(format!("id={}", ids.join(",")));
    let output = command.output()?;
    match output.status.code() {
        Some(0) => Ok(()),
        _ => Err(format!("{}\n{}", output.status, text(&output)).into()),
    }
}

/// The suite sees the bug and calls it by its name.
fn kills(mutant: &Mutant) -> Result<(), Failed> {
    let mut command = allranks(&mutant.name)?;
    let platform = folder_of(&mutant.name).with_extension("yaml");
    fs::write(&platform, platform_with(mutant)?)?;
    command.arg(mutant.cases()).arg("--platforms").arg(platform);
    command.args(["--platform", MUTANT, "--filter", &mutant.filter]);
    command.args(["--world-size", &mutant.size.to_string()]);
    let output = command.output()?;
    if output.status.code() != Some(1) {
        let status = output.status;
        return Err(format!("{status}; it must end with exit code 1\n{}", text(&output)).into());
    }
    let checks = checks(&folder_of(&mutant.name).join("results.jsonl"))?;
    let seen = checks.iter().any(|check| {
        check.verdict == mutant.verdict
            && check.outcome == mutant.outcome
            && check.class == mutant.class
            && check.covers.contains(&mutant.breaks)
    });
    if seen {
        return mutant
            .shrinks_to
            .map_or(Ok(()), |units| is_shrunk(&mutant.name, units));
    }
    let unexpected: Vec<String> = checks
        .iter()
        .filter(|check| is_unexpected(check.verdict))
        .map(describe)
        .collect();
    Err(format!(
        "no check that covers {} ends as {} {} {}; what does not end as it must:\n{}",
        mutant.breaks,
        mutant.verdict,
        mutant.outcome,
        mutant.class.as_deref().unwrap_or_default(),
        unexpected.join("\n")
    )
    .into())
}

/// The run left one case beside its results that plays so many ops and no more, and it is a case.
fn is_shrunk(name: &str, units: usize) -> Result<(), Failed> {
    let folder = folder_of(name).join("shrunk");
    let files = fs::read_dir(&folder)?.map(|entry| entry.map(|entry| entry.path()));
    let files: Vec<PathBuf> = files.collect::<Result<_, _>>()?;
    let library = case::load(&files).map_err(|problems| problems[0].to_string())?;
    let [case] = library.cases.as_slice() else {
        return Err(format!("{} files in {}", files.len(), folder.display()).into());
    };
    let StepSpec::Script { spec, .. } = &case.steps[0] else {
        return Err("its step is no script".into());
    };
    let ops = spec.moves.iter();
    let ops = ops.filter(|one| matches!(one.verb, Verb::Issue(..)));
    let found = ops.count() + spec.messages.0.len();
    match found == units {
        true => Ok(()),
        false => Err(format!(
            "shrunk to {found} ops and not to {units}: {}",
            files[0].display()
        )
        .into()),
    }
}

/// `allranks run` in the checkout, with results in the trial's folder.
fn allranks(trial: &str) -> Result<Command, Failed> {
    let out = folder_of(trial);
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    fs::create_dir_all(&out)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_allranks"));
    command.current_dir(index::folder().join("../.."));
    command.args(["run", "--out"]).arg(out);
    Ok(command)
}

/// Where a trial's results stay for whoever wants to look.
fn folder_of(trial: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("mutants")
        .join(trial)
}

fn text(output: &Output) -> String {
    let streams = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    streams.concat()
}

/// The genuine platform's file, with the bug.
fn platform_with(mutant: &Mutant) -> Result<String, Failed> {
    let genuine = index::folder().join(format!("../platforms/{GENUINE}.yaml"));
    let mut file: Value = serde_yaml::from_str(&fs::read_to_string(genuine)?)?;
    file["name"] = MUTANT.into();
    file["import"] = vec!["allranks_mutants"].into();
    let package = index::folder().canonicalize()?;
    file["python_path"] = vec![package.to_string_lossy().into_owned()].into();
    file["env"]["ALLRANKS_MUTANT"] = mutant.name.as_str().into();
    Ok(serde_yaml::to_string(&file)?)
}

fn checks(results: &Path) -> Result<Vec<CheckRecord>, Failed> {
    let text = fs::read_to_string(results)?;
    let mut checks = Vec::new();
    for line in text.lines() {
        if let Record::Check(check) = serde_json::from_str(line)? {
            checks.push(*check);
        }
    }
    Ok(checks)
}

/// Whether it makes a run fail.
fn is_unexpected(verdict: Verdict) -> bool {
    match verdict {
        Verdict::Regression | Verdict::UnexpectedPass | Verdict::Flaky | Verdict::NotRun => true,
        Verdict::Expected | Verdict::KnownFailure | Verdict::Waived => false,
    }
}

fn describe(check: &CheckRecord) -> String {
    let covers: Vec<&str> = check.covers.iter().map(|id| id.as_str()).collect();
    format!(
        "{}: {} {} {}: {} (covers {})",
        check.id,
        check.verdict,
        check.outcome,
        check.class.as_deref().unwrap_or_default(),
        check.summary,
        covers.join(" ")
    )
}
