//! `allranks repro`: writes one check as a single Python file that needs only torch.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::args::ReproArguments;
use super::command_line::{without_places, without_secrets};
use super::read_run::read;
use super::{Exit, Failure, inputs, locate};
use crate::repro::{Notes, ReproError, Subject, TrialOutcome, smaller, trial, with_numel};
use crate::suite::{Request, Suite};
use allranks_model::evidence::Evidence;
use allranks_model::outcome::{Outcome, Verdict};
use allranks_model::record::CheckRecord;
use allranks_report::{Results, command_line, summary_line};
use allranks_runner::probe;
use allranks_runner::run;
use allranks_runner::world;
use allranks_suite::expectation::{Entry, Point};
use allranks_suite::plan::{Check, Plan, Scenario};
use allranks_yaml::yaml_files;

/// The size of a reproducer, in bytes, above which fewer elements are tried.
const READABLE_SIZE: usize = 7 << 10;
/// The largest size of a known failure's reproducer, in bytes; a larger one gets few elements, tried or not.
const MAX_SIZE: usize = 8 << 10;
/// The longest name of a reproducer of a run's failure, in characters, without its ending.
const LONGEST_NAME: usize = 200;
/// The number of elements that is enough for a reproducer's data.
const FEW_ELEMENTS: u64 = 5;

/// Writes the reproducer of a check, or one for each known failure.
pub fn repro(
    arguments: &ReproArguments,
    words: Vec<String>,
    out: &mut impl Write,
) -> Result<Exit, Failure> {
    let scratch = tempfile::tempdir()?;
    let suite = Suite::load(&arguments.select.suite.request(), scratch.path())?;
    let python = probe::python(arguments.python.as_deref()).path;
    let torch = torch_of(&python);
    let context = ReproContext {
        torch,
        python,
        shrink: arguments.shrink,
        suite,
        seed: arguments.select.seed,
        command: without_places(without_secrets(words)),
    };
    match (&arguments.known_failures, &arguments.id) {
        (Some(folder), _) => context.known_failures(folder, out)?,
        (None, Some(id)) => context.write_one(id, arguments, out)?,
        (None, None) => unreachable!("the arguments demand one of them"),
    }
    Ok(Exit::AsExpected)
}

/// Writes a reproducer for each expectation or waiver that matched in a run: of its failed checks, the one in the smallest world.
/// Checks that have no reproducer are left out. Returns the number of reproducers.
///
/// # Errors
/// The suite with the run's input files cannot be loaded, or a reproducer cannot be written.
pub fn write_excused(run: &Results, folder: &Path) -> Result<usize, Failure> {
    let mut failures = BTreeMap::<(&str, Option<&str>), &CheckRecord>::new();
    let excused =
        |check: &&CheckRecord| matches!(check.verdict, Verdict::KnownFailure | Verdict::Waived);
    let size = |check: &CheckRecord| (check.column.world_size, check.id.as_str().len());
    for check in run.checks.iter().filter(excused) {
        let Some(reason) = &check.expectation else {
            continue;
        };
        let key = (reason.text.as_str(), reason.url.as_deref());
        let least = failures.entry(key).or_insert(check);
        if size(check) < size(least) {
            *least = check;
        }
    }
    let scratch = tempfile::tempdir()?;
    let given = run.folder.join(inputs::FOLDER);
    let paths = |kind: &str| yaml_files(&given.join(kind)).unwrap_or_default();
    let request = Request {
        platforms: paths("platforms"),
        expectations: paths("expectations"),
        waivers: paths("waivers"),
        ..Request::default()
    };
    let context = ReproContext {
        suite: Suite::load_embedded(&request, scratch.path())?,
        torch: String::new(),
        python: PathBuf::new(),
        shrink: false,
        seed: run.run.seed,
        command: Vec::new(),
    };
    let mut count = 0;
    for record in failures.into_values() {
        if let Some(text) = context.of_record(record) {
            std::fs::create_dir_all(folder)?;
            let name = record.id.as_str().replace(['/', '#', ':'], ".");
            let name: String = name.chars().take(LONGEST_NAME).collect();
            write(&folder.join(format!("{name}.py")), &text)?;
            count += 1;
        }
    }
    Ok(count)
}

/// What is needed to write reproducers.
struct ReproContext {
    suite: Suite,
    /// The version of torch; empty if there is none.
    torch: String,
    python: PathBuf,
    /// True if a smaller check that fails in the same way is searched for.
    shrink: bool,
    seed: u64,
    command: Vec<String>,
}

impl ReproContext {
    fn write_one(
        &self,
        id: &str,
        arguments: &ReproArguments,
        out: &mut impl Write,
    ) -> Result<(), Failure> {
        let plan = locate::plan_id(&self.suite, Some(&self.torch), id);
        let scenario = locate::find_scenario(&self.suite, &plan, id)?;
        let check = scenario.checks.iter().find(|check| check.id.as_str() == id);
        let is_frame = id == scenario.id.as_str()
            || scenario
                .frame_checks()
                .iter()
                .any(|frame| frame.as_str() == id);
        if check.is_none() && !is_frame {
            return Err(locate::unknown_id(&self.suite, id));
        }
        if let Some(program) = &scenario.case.program {
            let (python, size) = (Path::new("python"), scenario.world_size);
            let command = run::program_of_rank(scenario, program, python);
            return Err(Failure::Usage(
                format!("`{id}` runs a program: the program itself is the reproduction"),
                format!(
                    "torchrun --nproc-per-node {size} --no-python {}",
                    command_line(&command)
                ),
            ));
        }
        let run = arguments.run.as_deref().map(read).transpose()?;
        let record = run
            .as_ref()
            .and_then(|run| run.checks.iter().find(|check| check.id.as_str() == id));
        if let (Some(run), None) = (&run, record) {
            return Err(Failure::Usage(
                format!("{} has no result of `{id}`", run.folder.display()),
                "the ids of a run are in its results.jsonl".to_owned(),
            ));
        }
        let torch = record.map_or(self.torch.as_str(), |record| record.column.torch.as_str());
        let seed = run.as_ref().map_or(self.seed, |run| run.run.seed);
        let entry = check.and_then(|check| self.entry(scenario, check, torch));
        let smaller = match (check, arguments.numel) {
            (Some(check), Some(numel)) => Some(with_numel(check, numel).ok_or_else(|| {
                Failure::Usage(
                    format!("the check cannot have {numel} elements"),
                    "leave --numel out".to_owned(),
                )
            })?),
            (Some(check), None) => self.shrunk(scenario, check, seed)?,
            (None, _) => None,
        };
        let subject = Subject {
            scenario,
            check: smaller.as_ref().or(check),
            seed,
        };
        let mut notes = self.notes(&subject, torch);
        match (record, entry) {
            (Some(record), _) => note_record(&mut notes, record),
            (None, Some(entry)) => note_expectation(&mut notes, entry),
            (None, None) => notes.torch.clear(),
        }
        if let (Some(check), Some(_)) = (check, &smaller) {
            notes.shrunk = format!("from the {} of {}", elements(check), check.id);
        }
        let text = self.reproducer(&subject, &notes)?;
        match &arguments.out {
            Some(path) => write(path, &text)?,
            None => out.write_all(text.as_bytes())?,
        }
        Ok(())
    }

    /// Returns the reproducer of a recorded failure; `None` if there can be none.
    fn of_record(&self, record: &CheckRecord) -> Option<String> {
        let torch = &record.column.torch;
        let plan = locate::plan_id(&self.suite, Some(torch), record.id.as_str());
        let scenario = locate::find_scenario(&self.suite, &plan, record.id.as_str()).ok()?;
        let mut checks = scenario.checks.iter();
        let check = checks.find(|check| check.id == record.id)?;
        let reproducer = |check: &Check, numel: Option<u64>| {
            let subject = Subject {
                scenario,
                check: Some(check),
                seed: self.seed,
            };
            let mut notes = self.notes(&subject, torch);
            note_record(&mut notes, record);
            let numel = numel.map_or_else(String::new, |numel| format!(" --numel {numel}"));
            let seed = self.seed;
            notes.command = format!("allranks repro '{}'{numel} --seed {seed}", record.id);
            self.reproducer(&subject, &notes).ok()
        };
        reproducer(check, None)
            .or_else(|| reproducer(&with_numel(check, FEW_ELEMENTS)?, Some(FEW_ELEMENTS)))
    }

    /// Writes one reproducer for each entry of the expectations that holds for this torch: that of its check in the smallest
    /// world with the fewest elements. Prints the entries that have none, with the reason.
    fn known_failures(&self, folder: &Path, out: &mut impl Write) -> Result<(), Failure> {
        std::fs::create_dir_all(folder)?;
        let mut names = BTreeSet::new();
        let plan = locate::plan_all(&self.suite, Some(&self.torch));
        let smallest = self.smallest(&plan);
        for entry in self.suite.expectations.iter() {
            let Some((scenario, check)) = smallest.get(entry.at.as_str()).copied() else {
                writeln!(
                    out,
                    "{}: no check of the suite with torch {}",
                    entry.at, self.torch
                )?;
                continue;
            };
            let smaller = self.shrunk(scenario, check, self.seed)?;
            let mut text = self.known_failure(entry, scenario, check, smaller.as_ref());
            if text.as_ref().map_or(true, |text| text.len() > MAX_SIZE)
                && smaller.is_none()
                && let Some(few) = with_numel(check, FEW_ELEMENTS)
            {
                text = self.known_failure(entry, scenario, check, Some(&few));
            }
            // The others are written even if one cannot be.
            let text = match text {
                Ok(text) => text,
                Err(why) => {
                    writeln!(out, "{}: no reproducer of {}: {why}", entry.at, check.id)?;
                    continue;
                }
            };
            let file_stem = file_stem(entry, scenario, check);
            let mut name = format!("{file_stem}.py");
            for number in 2.. {
                if names.insert(name.clone()) {
                    break;
                }
                name = format!("{file_stem}.{number}.py");
            }
            let path = folder.join(name);
            write(&path, &text)?;
            writeln!(out, "{}: {} ({})", entry.at, path.display(), check.id)?;
        }
        Ok(())
    }

    /// Returns for each expectation, by file and line, its check in the smallest world with the fewest elements. Checks on the
    /// host come before those on devices.
    fn smallest<'a>(&'a self, plan: &'a Plan) -> HashMap<&'a str, (&'a Scenario, &'a Check)> {
        let size = |(scenario, check): &(&Scenario, &Check)| {
            let needs_device = scenario.platform.evidence != Evidence::Host;
            let world = (scenario.world_size, check.group.size());
            let is_part = check.group.name != "world";
            // A script counts as having the default number of elements.
            let numel = check.op().map_or(33, |op| op.extent.numel());
            (needs_device, world, is_part, numel, check.index)
        };
        let checks = plan.scenarios.iter().flat_map(|scenario| {
            let checks = scenario.checks.iter();
            checks.map(move |check| (scenario, check))
        });
        let mut smallest: HashMap<&str, (&Scenario, &Check)> = HashMap::new();
        // A program is its own reproducer.
        let has_script = |check: &Check| check.program_check().is_none() && check.stack().is_none();
        for found in checks.filter(|(_, check)| has_script(check)) {
            if let Some(entry) = self.entry(found.0, found.1, &self.torch) {
                let least = smallest.entry(&entry.at).or_insert(found);
                if size(&found) < size(least) {
                    *least = found;
                }
            }
        }
        smallest
    }

    /// Returns the reproducer of a known failure. Its docstring ends with the command that writes it again.
    fn known_failure(
        &self,
        entry: &Entry,
        scenario: &Scenario,
        check: &Check,
        smaller: Option<&Check>,
    ) -> Result<String, Failure> {
        let subject = Subject {
            scenario,
            check: Some(smaller.unwrap_or(check)),
            seed: self.seed,
        };
        let mut notes = self.notes(&subject, &self.torch);
        let numel = smaller.map_or_else(String::new, |smaller| {
            let numel = smaller.op().map_or(FEW_ELEMENTS, |op| op.extent.numel());
            format!(" --numel {numel}")
        });
        notes.command = format!("allranks repro '{}'{numel} --seed {}", check.id, self.seed);
        note_expectation(&mut notes, entry);
        if smaller.is_some() {
            notes.shrunk = format!("from the check's {}", elements(check));
        }
        self.reproducer(&subject, &notes)
    }

    fn entry(&self, scenario: &Scenario, check: &Check, torch: &str) -> Option<&Entry> {
        self.suite
            .expectations
            .find(&Point::of(scenario, torch, Some(check)))
    }

    /// Returns a smaller check that fails here in the same way; `None` if there is none, or [`shrink`](Self::shrink) is false.
    fn shrunk(
        &self,
        scenario: &Scenario,
        check: &Check,
        seed: u64,
    ) -> Result<Option<Check>, Failure> {
        if !self.shrink {
            return Ok(None);
        }
        let ends = |check: &Check| -> Result<TrialOutcome, Failure> {
            let subject = Subject {
                scenario,
                check: Some(check),
                seed,
            };
            let text = self.reproducer(&subject, &Notes::default())?;
            let port = world::lease_port().map_err(|error| Failure::Harness(error.to_string()))?;
            let deadline_s = scenario.case.world.deadline_s;
            Ok(trial(
                &self.python,
                &text,
                scenario.world_size,
                port.port,
                deadline_s,
            )?)
        };
        // A script takes long to fail, and its data are usually small already: it is tried only once, if its text is long.
        let candidates: Vec<Check> = match check.script() {
            Some(_) => {
                let text = self.reproducer(
                    &Subject {
                        scenario,
                        check: Some(check),
                        seed,
                    },
                    &Notes::default(),
                )?;
                let smaller = (text.len() > READABLE_SIZE)
                    .then(|| with_numel(check, FEW_ELEMENTS))
                    .flatten();
                smaller.into_iter().collect()
            }
            None => smaller(check).collect(),
        };
        if check.script().is_some() && candidates.is_empty() {
            return Ok(None);
        }
        let whole = ends(check)?;
        if whole == TrialOutcome::AsExpected {
            return Err(Failure::Nothing(
                format!("{} does not fail here", check.id),
                "without --shrink the file is written all the same".to_owned(),
            ));
        }
        for smaller in candidates {
            if ends(&smaller)? == whole {
                return Ok(Some(smaller));
            }
        }
        Ok(None)
    }

    fn notes(&self, subject: &Subject<'_>, torch: &str) -> Notes {
        let covers = subject.check.map_or(&[][..], |check| &check.covers);
        let requirements = covers
            .iter()
            .filter_map(|id| self.suite.requirements.get(id));
        Notes {
            requirements: requirements
                .map(|one| format!("{} ({}; {})", one.text, one.id, one.source))
                .collect(),
            torch: torch.to_owned(),
            command: format!("allranks {}", command_line(&self.command)),
            ..Notes::default()
        }
    }

    fn reproducer(&self, subject: &Subject<'_>, notes: &Notes) -> Result<String, Failure> {
        crate::repro::reproducer(subject, notes).map_err(|error| match error {
            ReproError::Unpreparable(error) => Failure::Harness(error.to_string()),
            ReproError::Unstaged(error) => Failure::Harness(error),
            ReproError::Program | ReproError::Stack => Failure::Harness(error.to_string()),
            ReproError::Grown => Failure::Usage(
                error.to_string(),
                "run it by itself with `allranks run --filter id=...`".to_owned(),
            ),
            ReproError::TooLarge(_) => Failure::Usage(
                error.to_string(),
                "give it fewer elements with --numel, and see that it still fails".to_owned(),
            ),
        })
    }
}

/// Returns the size of a check's tensors as text.
fn elements(check: &Check) -> String {
    match check.op() {
        Some(op) => format!("{} elements", op.extent.numel()),
        None => "larger tensors".to_owned(),
    }
}

/// Returns the file name for a known failure, without its ending.
fn file_stem(entry: &Entry, scenario: &Scenario, check: &Check) -> String {
    let class = match entry.outcomes[0] {
        Outcome::Mismatch => entry.classes.first(),
        _ => None,
    };
    let kind = class.map_or(entry.outcomes[0].name(), String::as_str);
    if let Some(op) = check.op() {
        return format!("{}.{kind}", op.op.name());
    }
    let case = scenario.case.id.as_str().replace('/', ".");
    let told = |axis: &str| check.params.iter().find(|(name, _)| name == axis);
    let words: Vec<_> = ["script", "over"]
        .iter()
        .filter_map(|axis| told(axis))
        .map(|(_, value)| value.as_str())
        .collect();
    format!("{case}.{}.{kind}", words.join("."))
}

/// Adds a recorded result to the notes.
fn note_record(notes: &mut Notes, record: &CheckRecord) {
    let class = record
        .class
        .as_ref()
        .map_or_else(String::new, |class| format!(" ({class})"));
    notes.observed = format!("{}{class}: {}", record.outcome, summary_line(record));
    let reason = record.expectation.as_ref();
    notes.url = reason
        .and_then(|reason| reason.url.clone())
        .unwrap_or_default();
}

/// Adds an expectation to the notes.
fn note_expectation(notes: &mut Notes, entry: &Entry) {
    let outcomes: Vec<_> = entry
        .outcomes
        .iter()
        .map(|outcome| outcome.name())
        .collect();
    let class = match (entry.outcomes[0], &*entry.classes) {
        (Outcome::Mismatch, [_, ..]) => format!(" ({})", entry.classes.join(" or ")),
        _ => String::new(),
    };
    notes.observed = format!("{}{class}: {}", outcomes.join(" or "), entry.reason);
    notes.url = entry.url.clone().unwrap_or_default();
}

/// Returns the version of an interpreter's torch without importing it; empty if it has none.
fn torch_of(python: &Path) -> String {
    const VERSION_SCRIPT: &str = "from importlib.metadata import version; print(version('torch'))";
    let asked = Command::new(python).args(["-c", VERSION_SCRIPT]).output();
    asked
        .ok()
        .filter(|output| output.status.success())
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        .unwrap_or_default()
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text)
        .map_err(|error| Failure::Harness(format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Torch versions that the files are of: each entry of the expectations holds for one of them.
    const VERSIONS: &[&str] = &["2.11.0", "2.15.0", "2.9.1"];

    fn context(torch: &str) -> ReproContext {
        let scratch = tempfile::tempdir().unwrap();
        let mut suite = Suite::load(&Request::default(), scratch.path()).unwrap();
        // The files are of the host, and planning for all devices takes a minute.
        suite.platforms.retain(|platform| platform.name == "cpu");
        ReproContext {
            torch: torch.to_owned(),
            python: PathBuf::new(),
            shrink: false,
            suite,
            seed: 1,
            command: Vec::new(),
        }
    }

    /// The number of elements in the command that a file says it was made by.
    fn numel(text: &str) -> Option<u64> {
        let (_, rest) = text.split_once(" --numel ")?;
        rest.split_whitespace().next()?.parse().ok()
    }

    #[test]
    fn every_known_failure_has_its_file_and_each_is_what_is_written_today() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/expectations/repro");
        let files: Vec<(PathBuf, String)> = std::fs::read_dir(&folder)
            .unwrap()
            .map(|file| file.unwrap().path())
            .filter(|path| path.extension().is_some_and(|end| end == "py"))
            .map(|path| (path.clone(), std::fs::read_to_string(path).unwrap()))
            .collect();
        let mut open: BTreeSet<String> = BTreeSet::new();
        let (mut known, mut fileless) = (BTreeSet::new(), BTreeSet::new());
        for version in VERSIONS {
            let context = context(version);
            let plan = locate::plan_all(&context.suite, Some(version));
            let smallest = context.smallest(&plan);
            let above_c10d: BTreeSet<&str> = (plan.scenarios.iter())
                .flat_map(|scenario| scenario.checks.iter().map(move |check| (scenario, check)))
                .filter(|(_, check)| check.stack().is_some())
                .filter_map(|(scenario, check)| {
                    Some(context.entry(scenario, check, version)?.at.as_str())
                })
                .collect();
            for entry in context.suite.expectations.iter() {
                // The suite is in another folder each time.
                let line = entry.at.rsplit('/').next().unwrap();
                if !["gloo.yaml:", "torch.yaml:"]
                    .iter()
                    .any(|file| line.starts_with(file))
                {
                    continue;
                }
                if known.contains(line) {
                    continue;
                }
                // A check of a layer above c10d has no file: `repro` says so.
                if above_c10d.contains(entry.at.as_str()) {
                    fileless.insert(line.to_owned());
                }
                open.insert(line.to_owned());
                let Some((scenario, check)) = smallest.get(entry.at.as_str()).copied() else {
                    continue;
                };
                let file_stem = file_stem(entry, scenario, check);
                let is_written = |(path, text): &&(PathBuf, String)| {
                    let smaller = numel(text).and_then(|numel| with_numel(check, numel));
                    let name = path.file_name().unwrap().to_string_lossy();
                    name.starts_with(&file_stem)
                        && *text
                            == context
                                .known_failure(entry, scenario, check, smaller.as_ref())
                                .unwrap()
                };
                if let Some((path, text)) = files.iter().find(is_written) {
                    assert!(text.len() <= MAX_SIZE, "{} is too long", path.display());
                    open.remove(line);
                    known.insert(line.to_owned());
                }
            }
        }
        open.retain(|line| !fileless.contains(line));
        assert!(
            open.is_empty(),
            "no file of the entry in this line, or another than `allranks repro --known-failures` writes: {open:?}"
        );
        assert_eq!(files.len(), known.len(), "there is a file of no entry");
    }
}
