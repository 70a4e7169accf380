//! `allranks rerun`: continues a run that ended early, in a folder of its own. What is recorded and stands is taken over; what was
//! not run is run, and on request what failed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;

use clap::Parser;

use super::args::{Arguments, Command, DriverChoice, RerunArguments, RunArguments};
use super::command_line::{REDACTED, is_redacted, without_secrets};
use super::planning::Planned;
use super::{Exit, Failure, origin, planning, results, running};
use allranks_model::names::{CheckId, ScenarioId};
use allranks_model::outcome::{Outcome, Verdict};
use allranks_model::record::{CheckRecord, Record};
use allranks_report::{Results, merge};
use allranks_runner::run::in_round;
use allranks_suite::plan::{Plan, Scenario};

/// The observation of a check that had failed: what it had come to.
const BEFORE: &str = "before";

/// Continues a run.
pub fn rerun(
    arguments: &RerunArguments,
    out: &mut (impl Write + Send),
    err: &mut (impl Write + Send),
) -> Result<Exit, Failure> {
    let earlier = results::read(&arguments.run)?;
    let run = recorded(&earlier, &arguments.run, arguments.driver.as_deref())?;
    if let Some(exit) = nothing_to_do(&earlier, arguments.failed) {
        writeln!(
            out,
            "nothing to do: every check of {} has a result{}",
            arguments.run.display(),
            match arguments.failed {
                true => ", and none failed",
                false => "",
            }
        )?;
        return Ok(exit);
    }
    let folder = planning::make_out(arguments.out.as_deref())?;
    let words = earlier.run.arguments.clone();
    let earlier = Earlier {
        results: merge::moved(earlier, &folder),
        failed: arguments.failed,
    };
    running::execute_in(&folder, &run, words, Some(earlier), out, err)
}

/// The arguments that a run recorded.
fn recorded(
    earlier: &Results,
    folder: &Path,
    driver: Option<&str>,
) -> Result<RunArguments, Failure> {
    let refused = |why: &str| {
        Failure::Usage(
            format!("{} cannot be continued: {why}", folder.display()),
            "name the folder of an `allranks run`; merged results, and those of tests, have no command line".to_owned(),
        )
    };
    let version = env!("CARGO_PKG_VERSION");
    if earlier.run.allranks != version {
        let theirs = &earlier.run.allranks;
        return Err(Failure::Usage(
            format!(
                "{} was run by allranks {theirs}, and this is {version}",
                folder.display()
            ),
            "continue a run with the version that began it".to_owned(),
        ));
    }
    if earlier.run.origin.is_none() {
        return Err(refused("what it was made from is not recorded"));
    }
    let mut words = vec!["allranks".to_owned()];
    words.extend(earlier.run.arguments.clone());
    let parsed = Arguments::try_parse_from(words).map(|parsed| parsed.command);
    let Ok(Command::Run(mut run)) = parsed else {
        return Err(refused("its command line is no `allranks run`"));
    };
    run.select.driver = same_driver(run.select.driver.take(), driver)?;
    Ok(*run)
}

/// The driver of a run, whose arguments are not recorded if they may be secret: then they are given again.
fn same_driver(
    recorded: Option<DriverChoice>,
    given: Option<&str>,
) -> Result<Option<DriverChoice>, Failure> {
    match (recorded, given) {
        (Some(DriverChoice::Command(argv)), None) if argv.iter().any(|word| is_redacted(word)) => {
            Err(Failure::Usage(
                "the arguments of the run's driver are not recorded, for they may be secret"
                    .to_owned(),
                "give the driver again: --driver 'command:PROGRAM ARGUMENT...'".to_owned(),
            ))
        }
        (recorded, None) => Ok(recorded),
        (recorded, Some(given)) => {
            let parse = |text: &str| text.parse::<DriverChoice>();
            let usage = |what: String| {
                Failure::Usage(
                    what,
                    "leave --driver out, or give that of the run".to_owned(),
                )
            };
            let choice = parse(given).map_err(usage)?;
            let shown = without_secrets(vec!["--driver".to_owned(), given.to_owned()]);
            let shown = shown.get(1).and_then(|shown| parse(shown).ok());
            match shown == recorded.map(in_this_version) {
                true => Ok(Some(choice)),
                false => Err(usage("this is not the driver of the run".to_owned())),
            }
        }
    }
}

/// The driver of a run as this version records it.
fn in_this_version(driver: DriverChoice) -> DriverChoice {
    let word = |word: String| match is_redacted(&word) {
        true => REDACTED.to_owned(),
        false => word,
    };
    match driver {
        DriverChoice::Command(argv) => DriverChoice::Command(argv.into_iter().map(word).collect()),
        other => other,
    }
}

/// The exit code of a run in which there is nothing to run again.
fn nothing_to_do(earlier: &Results, failed: bool) -> Option<Exit> {
    let is_left = |check: &CheckRecord| match check.verdict {
        Verdict::NotRun => true,
        _ => failed && check.status().is_failing(),
    };
    let is_done = earlier.is_whole() && earlier.missing() == 0;
    (is_done && !earlier.checks.iter().any(is_left)).then(|| running::exit(earlier, &[]))
}

/// What an earlier run has left.
#[derive(Debug)]
pub struct Earlier {
    results: Results,
    /// Whether what failed is run again.
    failed: bool,
}

/// What of an earlier run stands.
#[derive(Debug, Default)]
pub struct ReusedRecords {
    /// The records that are taken over.
    pub records: Vec<Record>,
    /// The checks among them.
    pub recorded: BTreeSet<CheckId>,
    /// Checks that failed and are run again, with what they came to: `regression: SUMMARY`.
    pub failed: BTreeMap<CheckId, String>,
    /// How long the earlier run took, in milliseconds.
    pub lasted_ms: u64,
}

impl Earlier {
    /// Sorts out what stands, under the plan of today.
    ///
    /// # Errors
    /// The plan is not that of the run.
    pub fn reused(
        self,
        planned: &Planned,
        rounds: u32,
        folder: &Path,
    ) -> Result<ReusedRecords, Failure> {
        let run = &self.results.run;
        let now = origin::of(planned, folder);
        let differs = run
            .origin
            .as_ref()
            .and_then(|then| origin::difference(then, &now));
        let checks = planned.plan.check_count() as u64 * u64::from(rounds);
        let differs = differs.or_else(|| {
            (checks != run.planned.checks).then(|| {
                format!(
                    "{checks} checks are planned now, and {} were then",
                    run.planned.checks
                )
            })
        });
        match differs {
            Some(why) => Err(Failure::Usage(
                format!("the run cannot be continued: {why}"),
                "continue it in the folder in which it was begun, with the files, the Python and the devices that it had; or begin \
                 anew with `allranks run`"
                    .to_owned(),
            )),
            None => Ok(self.sort_out(&planned.plan, rounds)),
        }
    }

    fn sort_out(self, plan: &Plan, rounds: u32) -> ReusedRecords {
        let ends = self.results.scenarios.iter();
        let ends = ends.map(|scenario| scenario.start_ms.saturating_add(scenario.duration_ms));
        let mut reused = ReusedRecords {
            lasted_ms: ends.max().unwrap_or(0),
            ..ReusedRecords::default()
        };
        let mut checks: BTreeMap<CheckId, CheckRecord> = BTreeMap::new();
        for check in self.results.checks {
            checks.entry(check.id.clone()).or_insert(check);
        }
        let mut whole = BTreeSet::<ScenarioId>::new();
        for scenario in &plan.scenarios {
            let mut is_whole = true;
            for round in 0..rounds {
                let own = Own::of(scenario, round, &mut checks);
                is_whole &= own.sort_out(scenario, self.failed, &mut reused);
            }
            if is_whole {
                whole.insert(scenario.id.clone());
            }
        }
        // Of a scenario in several rounds, one record each: those of a scenario that runs again come anew.
        let scenarios = self.results.scenarios.into_iter();
        let scenarios = scenarios.filter(|scenario| whole.contains(&scenario.id));
        let scenarios = scenarios.map(|scenario| Record::Scenario(Box::new(scenario)));
        reused.records.extend(scenarios);
        reused
    }
}

/// The records of one scenario in one round.
struct Own {
    frames: Vec<CheckRecord>,
    checks: Vec<CheckRecord>,
    planned: usize,
}

impl Own {
    fn of(scenario: &Scenario, round: u32, checks: &mut BTreeMap<CheckId, CheckRecord>) -> Self {
        let mut take = |id: &CheckId| checks.remove(&in_round(id, round));
        Self {
            frames: scenario
                .frame_checks()
                .iter()
                .filter_map(&mut take)
                .collect(),
            checks: scenario
                .checks
                .iter()
                .filter_map(|check| take(&check.id))
                .collect(),
            planned: scenario.check_count(),
        }
    }

    /// Puts what stands where it belongs; whether that is the whole scenario.
    fn sort_out(self, scenario: &Scenario, failed: bool, reused: &mut ReusedRecords) -> bool {
        let is_recorded = self.frames.len() + self.checks.len() == self.planned;
        let init = scenario.frame_checks()[0].to_string();
        let is_init = |check: &CheckRecord| check.id.as_str().starts_with(&init);
        // What was not run for want of a world was lost with init, and stands or falls with it.
        let has_failed = self.frames.iter().any(|check| {
            is_init(check) && !matches!(check.outcome, Outcome::Pass | Outcome::NotRun)
        });
        if is_recorded && has_failed && !(failed && self.frames.iter().any(is_failing)) {
            self.keep_all(reused);
            return true;
        }
        let stands = |check: &CheckRecord| {
            check.verdict != Verdict::NotRun && !(failed && is_failing(check))
        };
        let all = self.frames.iter().chain(&self.checks);
        if is_recorded && all.clone().all(stands) {
            self.keep_all(reused);
            return true;
        }
        let is_program = scenario.case.program.is_some();
        for check in self
            .frames
            .iter()
            .chain(&self.checks)
            .filter(|check| is_failing(check))
        {
            if is_program || failed {
                let earlier = format!("{}: {}", check.verdict, check.summary);
                reused.failed.insert(check.id.clone(), earlier);
            }
        }
        // A program is judged by what all of it leaves behind.
        if !is_program {
            // Init and teardown come anew with the new worlds; a failure of theirs is not made good by that.
            let is_bad = |check: &CheckRecord| check.outcome != Outcome::Pass && stands(check);
            let frames = self.frames.into_iter().filter(is_bad);
            let kept = frames.chain(self.checks.into_iter().filter(stands));
            kept.for_each(|check| reused.keep(check));
        }
        false
    }

    fn keep_all(self, reused: &mut ReusedRecords) {
        let all = self.frames.into_iter().chain(self.checks);
        all.for_each(|check| reused.keep(check));
    }
}

impl ReusedRecords {
    /// Puts a record of the later run behind those of the earlier: times go on from its end, and a check that had failed says so.
    pub fn amend(&self, record: &mut Record) {
        match record {
            Record::Scenario(scenario) => {
                scenario.start_ms = scenario.start_ms.saturating_add(self.lasted_ms);
            }
            Record::Check(check) => {
                if let Some(earlier) = self.failed.get(&check.id) {
                    let earlier = earlier.clone();
                    check.observations.insert(BEFORE.to_owned(), earlier);
                }
            }
            Record::Run(_) | Record::End(_) => {}
        }
    }

    fn keep(&mut self, check: CheckRecord) {
        self.recorded.insert(check.id.clone());
        self.records.push(Record::Check(Box::new(check)));
    }
}

fn is_failing(check: &CheckRecord) -> bool {
    check.status().is_failing()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_whose_arguments_are_redacted_is_given_again_whichever_version_recorded_it() {
        for redacted in ["(redacted)", "<redacted>"] {
            let recorded = || Some(format!("command:prog {redacted}").parse().unwrap());
            assert!(same_driver(recorded(), None).is_err());
            let given = Some("command:prog --token=x");
            assert_eq!(
                same_driver(recorded(), given).ok().flatten(),
                given.map(|given| given.parse().unwrap())
            );
            assert!(same_driver(recorded(), Some("command:other x")).is_err());
        }
    }
}
