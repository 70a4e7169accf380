//! `allranks rerun`: continues a run in a new folder. Recorded results are taken over; checks that were not run are run, and with
//! `--failed` those that failed.

use std::io::Write;
use std::path::Path;

use clap::Parser;

use super::args::{Arguments, Command, RerunArguments, RunArguments};
use super::command_line::{REDACTED, is_redacted, without_secrets};
use super::earlier::EarlierRun;
use super::read_run::read_packed;
use super::select_arguments::DriverChoice;
use super::{Failure, run_folder, running};
use crate::conclusion::{Exit, exit};
use allranks_model::outcome::Verdict;
use allranks_report::check_set::{Brief, CheckSet};
use allranks_report::{PackedResults, merge};

/// Runs `allranks rerun`.
pub fn rerun(
    arguments: &RerunArguments,
    out: &mut (impl Write + Send),
    err: &mut (impl Write + Send),
) -> Result<Exit, Failure> {
    let earlier = read_packed(&arguments.run)?;
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
    let folder = run_folder::make_run_folder(arguments.out.as_deref())?;
    let words = earlier.run.arguments.clone();
    let earlier = EarlierRun {
        results: merge::relocated(earlier, &folder),
        failed: arguments.failed,
    };
    running::execute_in(&folder, &run, words, Some(earlier), out, err)
}

/// Returns the arguments that a run recorded.
fn recorded(
    earlier: &PackedResults,
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
                "{} was made by allranks {theirs}; this is {version}",
                folder.display()
            ),
            "continue a run with the version that began it".to_owned(),
        ));
    }
    if earlier.run.origin.is_none() {
        return Err(refused(
            "it does not record the suite and platforms that it was made from",
        ));
    }
    let mut words = vec!["allranks".to_owned()];
    words.extend(earlier.run.arguments.clone());
    let parsed = Arguments::try_parse_from(words).map(|parsed| parsed.command);
    let Ok(Command::Run(mut run)) = parsed else {
        return Err(refused("its command line is not one of `allranks run`"));
    };
    run.select.driver = same_driver(run.select.driver.take(), driver)?;
    Ok(*run)
}

/// Returns the driver of a run. If its arguments were not recorded because they may be secret, `--driver` must give them again.
fn same_driver(
    recorded: Option<DriverChoice>,
    given: Option<&str>,
) -> Result<Option<DriverChoice>, Failure> {
    match (recorded, given) {
        (Some(DriverChoice::Command(argv)), None) if argv.iter().any(|word| is_redacted(word)) => {
            Err(Failure::Usage(
                "the arguments of the run's driver are not recorded, because they may be secret"
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
                    "leave --driver out, or give the driver of the run".to_owned(),
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

/// Returns the driver of a run as this version records it.
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

/// Returns the exit code of a run in which there is nothing to run again; `None` if there is something.
fn nothing_to_do(earlier: &PackedResults, failed: bool) -> Option<Exit> {
    let is_left = |check: Brief<'_>| match check.verdict {
        Verdict::NotRun => true,
        _ => failed && check.status().is_failing(),
    };
    let is_done = earlier.is_whole() && earlier.missing() == 0;
    (is_done && !earlier.checks.briefs().any(is_left)).then(|| exit(earlier, &[]))
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
