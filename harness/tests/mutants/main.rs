//! The suite against bugs it must see: one trial for each mutant of `fixtures/mutants/index.yaml`.
//!
//! A trial runs the real binary on the mutant's checks twice over, in one run: on Gloo with the bug, where a check that
//! covers the broken requirement must fail just as the index says, and on Gloo without it, where nothing may. So a
//! trial fails if the suite is blind to the bug, if it calls it by another name, and if it sees bugs everywhere.
//!
//! Without torch the trials are ignored, all but the one that looks after the index itself.

mod index;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use allranks::case::Requirements;
use allranks::judge::Verdict;
use allranks::platform;
use allranks::report::{CheckRecord, Record};
use index::Mutant;
use libtest_mimic::{Arguments, Failed, Trial};
use serde_yaml::Value;

/// The platform with the bug; the one without is the suite's own.
const MUTANT: &str = "mutant";
const GENUINE: &str = "cpu";

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let python = platform::python(None).path;
    let kind = if has_torch(&python) {
        ""
    } else {
        "needs torch"
    };
    let mut trials = vec![Trial::test("index_is_complete", index_is_complete)];
    trials.extend(index::mutants().into_iter().map(|mutant| {
        let name = mutant.name.clone();
        Trial::test(name, move || kills(&mutant))
            .with_kind(kind)
            .with_ignored_flag(!kind.is_empty())
    }));
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

/// The suite sees the bug and calls it by its name.
fn kills(mutant: &Mutant) -> Result<(), Failed> {
    let out = folder_of(&mutant.name)?;
    let platform = out.with_extension("yaml");
    fs::write(&platform, platform_with(mutant)?)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_allranks"));
    command
        .current_dir(index::folder().join("../.."))
        .arg("run");
    command.args(mutant.case.iter().map(|case| index::folder().join(case)));
    command.args(["--platform", MUTANT, "--platform", GENUINE, "--platforms"]);
    command.arg(&platform);
    command.args(["--filter", &mutant.filter, "--world-size"]);
    command.args([&mutant.size.to_string(), "--out"]).arg(&out);
    let output = command.output()?;
    let said = || String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.code() != Some(1) {
        let status = output.status;
        return Err(format!("{status}; it must end with exit code 1\n{}", said()).into());
    }
    let checks = checks(&out.join("results.jsonl"))?;
    let on = |name: &str| {
        let on = move |check: &&CheckRecord| check.column.platform.as_str() == name;
        checks.iter().filter(on).collect::<Vec<_>>()
    };
    let unexpected = |checks: &[&CheckRecord]| {
        let lines: Vec<String> = checks
            .iter()
            .filter(|check| is_unexpected(check.verdict))
            .map(|check| describe(check))
            .collect();
        lines.join("\n")
    };
    let (bad, good) = (on(MUTANT), on(GENUINE));
    if good.len() <= 2 || good.len() != bad.len() {
        return Err(format!("{} checks with the bug, {} without", bad.len(), good.len()).into());
    }
    if good.iter().any(|check| is_unexpected(check.verdict)) {
        return Err(format!("fails without the bug, too:\n{}", unexpected(&good)).into());
    }
    let seen = bad.iter().any(|check| {
        check.verdict == mutant.verdict
            && check.outcome == mutant.outcome
            && check.class == mutant.class
            && check.covers.contains(&mutant.breaks)
    });
    match seen {
        true => Ok(()),
        false => Err(format!(
            "no check that covers {} ends as {} {} {}. What does not end as it must:\n{}",
            mutant.breaks,
            mutant.verdict,
            mutant.outcome,
            mutant.class.as_deref().unwrap_or_default(),
            unexpected(&bad)
        )
        .into()),
    }
}

/// A fresh folder for a trial's results; they stay for whoever wants to look.
fn folder_of(name: &str) -> Result<PathBuf, Failed> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutants");
    fs::create_dir_all(&folder)?;
    let out = folder.join(name);
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    Ok(out)
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
