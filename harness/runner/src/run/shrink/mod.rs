//! Shrinks a random sequence that fails to a short one that fails in the same way.
//!
//! In: a scenario, the index of a check with a [`Sequence`], and its result. Out: the result with a sentence about the
//! shortest failing sequence, and a case file that plays it, `shrunk/ID.yaml` in the run's folder.
//!
//! ```text
//! result ─► search proposes units ─► Sequence::only ─► replay (a check) ─► fresh world, same runner ─► result
//!              ▲                                                                                        │
//!              └──────────────── fails the same way: same outcome, same class ──────────────────────────┘
//! ```
//!
//! A replay never changes the outcome of the original result. A replay in which nothing moves for [`REPLAY_TIMEOUT`], or for
//! as long as the error took to come, is called hung before the case's own deadline. On a slow machine that may be
//! wrong, so a sequence shrunk by hangs is shown only if it hangs once more with the whole deadline.
//!
//! With intermittent bugs the search keeps more than necessary; it never shows a sequence that has not failed.

mod search;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use search::Search;

use super::Shared;
use super::launch::world;
use super::logs::cut;
use super::rank_run::RankRun;
use crate::check_result::CheckResult;
use crate::world::LaunchError;
use allranks_model::group::Group;
use allranks_model::names::Rank;
use allranks_model::outcome::Outcome;
use allranks_suite::case::Case;
use allranks_suite::plan::{Check, Scenario, Sequence, Unit, replay};

/// The most worlds that shrinking one sequence may take.
const WORLDS: u32 = 200;
/// How long nothing may move before a replay is called hung.
const REPLAY_TIMEOUT: Duration = Duration::from_secs(4);
/// Largest number of units that the sentence names; the file has all of them.
const MAX_NAMED_UNITS: usize = 5;

/// Returns the random sequence of a check that failed, which replays can cut down; `None` if the check has no sequence,
/// or has an outcome that a replay cannot show again.
pub(super) fn failed_sequence<'a>(
    check: &'a Check,
    check_result: &CheckResult,
) -> Option<&'a Sequence> {
    let sequence = check.script().and_then(|one| one.sequence.as_deref());
    sequence.filter(|_| is_failure(check_result.outcome))
}

/// Cuts the [failed sequence](failed_sequence) of the check at this index down, and adds to its result a sentence about
/// that. The result of any other check is returned as it is.
pub(super) async fn shrink(
    shared: &Shared,
    scenario: &Scenario,
    index: usize,
    check_result: CheckResult,
    logs: &Path,
) -> CheckResult {
    let check = &scenario.checks[index];
    let Some(sequence) = failed_sequence(check, &check_result) else {
        return check_result;
    };
    let mut shrinking = Shrinking {
        shared,
        scenario,
        check,
        sequence,
        check_result: &check_result,
        logs,
        worlds: 0,
    };
    let said = match shrinking.search().await {
        Ok(Shrunk::To(shortest)) => {
            let text = file(scenario, check, &shortest, sequence, &check_result);
            match write(shared, check, &text) {
                Ok(path) => sentence(&shortest, sequence, &path),
                Err(error) => format!("its shortest form cannot be written: {error}"),
            }
        }
        Ok(Shrunk::Not(why)) => format!("not shrunk: {why}"),
        Err(error) => format!("not shrunk: {error}"),
    };
    CheckResult {
        summary: format!("{}; {said}", check_result.summary),
        ..check_result
    }
}

/// Returns true if a replay can show this outcome again, so that it tells a shorter sequence that fails from one that
/// does not.
fn is_failure(outcome: Outcome) -> bool {
    match outcome {
        Outcome::Mismatch | Outcome::Error | Outcome::Hang | Outcome::Crash => true,
        Outcome::Pass
        | Outcome::InitFailed
        | Outcome::Unsupported
        | Outcome::HarnessError
        | Outcome::NotRun => false,
    }
}

/// The result of a search.
enum Shrunk {
    /// The shortest sequence that was seen to fail.
    To(Sequence),
    /// There is no shorter one, and why.
    Not(&'static str),
}

struct Shrinking<'a> {
    shared: &'a Shared,
    scenario: &'a Scenario,
    check: &'a Check,
    sequence: &'a Sequence,
    check_result: &'a CheckResult,
    logs: &'a Path,
    worlds: u32,
}

impl Shrinking<'_> {
    async fn search(&mut self) -> Result<Shrunk, LaunchError> {
        let began = Instant::now();
        let whole = Duration::from_secs_f64(self.scenario.case.world.deadline_s);
        let patience = self.patience().min(whole);
        let mut search = Search::new(self.sequence.units.len());
        let mut reproduced = false;
        while let Some(units) = search.next() {
            let spent = self.worlds >= WORLDS || began.elapsed() > self.shared.settings.shrinking;
            if spent || *self.shared.interrupt.borrow() {
                break;
            }
            let fails = self.fails(&units, patience).await?;
            reproduced |= fails;
            search.record(fails);
        }
        if !reproduced {
            return Ok(Shrunk::Not("it does not fail again in a world of its own"));
        }
        let hangs = self.check_result.outcome == Outcome::Hang;
        if hangs && REPLAY_TIMEOUT < whole && !self.fails(search.best(), whole).await? {
            return Ok(Shrunk::Not("what seemed to hang was slow"));
        }
        Ok(Shrunk::To(self.sequence.only(search.best())))
    }

    /// Returns how long nothing may move in a replay: an error that came after some time, such as a timeout, does not come
    /// sooner in a replay.
    fn patience(&self) -> Duration {
        match self.check_result.outcome {
            Outcome::Hang => REPLAY_TIMEOUT,
            Outcome::Pass
            | Outcome::Mismatch
            | Outcome::Error
            | Outcome::Crash
            | Outcome::InitFailed
            | Outcome::Unsupported
            | Outcome::HarnessError
            | Outcome::NotRun => REPLAY_TIMEOUT
                .max(Duration::from_micros(self.check_result.duration_us).mul_f64(1.25)),
        }
    }

    /// Returns true if these units fail in a world of their own as the whole did: same outcome, same class.
    async fn fails(&mut self, units: &[usize], deadline: Duration) -> Result<bool, LaunchError> {
        self.worlds += 1;
        let Ok(check) = replay(self.scenario, self.check, &self.sequence.only(units)) else {
            return Ok(false);
        };
        let mut case = Case::clone(&self.scenario.case);
        case.world.deadline_s = deadline.as_secs_f64();
        let scenario = Scenario {
            case: Arc::new(case),
            checks: vec![check],
            ..self.scenario.clone()
        };
        let size = scenario.world_size;
        let logs: Vec<PathBuf> = size
            .ranks()
            .map(|rank| self.logs.join(format!("rank{rank}.log")))
            .collect();
        let mut again = None;
        let mut decided = |_: &[RankRun], _, check_result| again = Some(check_result);
        let played = world(self.shared, &scenario, vec![0], &logs, &mut decided).await?;
        if played.is_none() {
            return Ok(false);
        }
        if let Some(issue) = cut(self.shared, &logs).pop() {
            return Err(io::Error::other(issue).into());
        }
        Ok(again.is_some_and(|again| {
            again.outcome == self.check_result.outcome && again.class == self.check_result.class
        }))
    }
}

/// Writes the case file. Returns its path, relative to the run's folder.
fn write(shared: &Shared, check: &Check, text: &str) -> io::Result<PathBuf> {
    let path = PathBuf::from("shrunk").join(stem(check) + ".yaml");
    let full = shared.settings.out.join(&path);
    if let Some(folder) = full.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(full, text)?;
    Ok(path)
}

/// Returns the check's id with every character replaced that names of files and cases cannot have.
fn stem(check: &Check) -> String {
    let word = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    check.id.as_str().chars().map(word).collect()
}

/// Returns the sentence about the result: `3 of 120 ops do it: broadcast op3, all_gather op9; shrunk/X.yaml plays
/// them`.
fn sentence(shortest: &Sequence, sequence: &Sequence, path: &Path) -> String {
    let named: Vec<String> = shortest
        .units
        .iter()
        .take(MAX_NAMED_UNITS)
        .map(Unit::to_string)
        .collect();
    let more = match shortest.units.len().saturating_sub(MAX_NAMED_UNITS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "{} of its {} ops suffice: {}{more}; {} plays them",
        shortest.units.len(),
        sequence.units.len(),
        named.join(", "),
        path.display()
    )
}

/// Returns the text of a case file that plays the shortest sequence.
fn file(
    scenario: &Scenario,
    check: &Check,
    shortest: &Sequence,
    sequence: &Sequence,
    check_result: &CheckResult,
) -> String {
    let world = &scenario.case.world;
    let class = check_result.class.as_deref().unwrap_or_default();
    let covers: Vec<&str> = check.covers.iter().map(|id| id.as_str()).collect();
    let mut text = format!(
        "# {}: {} {class}\n# {}\n# {} of {} ops; the same outcome and class in a world of its own.\n\
         id: {}\ntitle: the shortest failing part of {}\ncovers: [{}]\n\
         world: {{size: {}, timeout_s: {}, deadline_s: {}}}\n",
        check.id,
        check_result.outcome,
        check_result.summary.lines().next().unwrap_or_default(),
        shortest.units.len(),
        sequence.units.len(),
        stem(check),
        sequence.name,
        covers.join(", "),
        scenario.world_size,
        world.timeout_s,
        world.deadline_s,
    );
    let groups: Vec<&Arc<Group>> = scenario
        .groups
        .iter()
        .skip(1)
        .filter(|group| !group.ranks.is_empty())
        .collect();
    if !groups.is_empty() {
        text += "groups:\n";
    }
    for group in groups {
        let ranks: Vec<String> = group.ranks.iter().map(Rank::to_string).collect();
        let backend = group.backend.as_ref();
        let backend = backend.map_or_else(String::new, |name| format!(", backend: \"{name}\""));
        text += &format!(
            "  {}: {{ranks: [{}]{backend}}}\n",
            group.name,
            ranks.join(", ")
        );
    }
    text + "steps:\n" + &shortest.yaml()
}
