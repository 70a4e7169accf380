//! The command line: reads arguments, calls the library and renders the results. It is the only module that writes to the
//! terminal, and only through the streams that it is given.

mod args;
mod claim_arguments;
mod claims;
mod command_line;
mod diagnose;
mod doctor;
mod doctor_fleet;
mod earlier;
mod environment;
mod expectations;
mod expectations_arguments;
mod explain;
mod explain_name;
mod files_of_run;
mod fleet;
mod fleet_arguments;
mod history;
mod history_arguments;
mod inputs;
mod judging;
mod list;
mod locate;
mod node;
mod origin;
mod orphans;
mod plan_text;
mod planning;
mod prove;
mod prove_arguments;
mod rank_limits;
mod read_run;
mod repro;
mod required;
mod rerunning;
mod results;
mod run_folder;
mod running;
mod select_arguments;
mod selecting;
mod side;
mod signals;
mod suite_arguments;
mod threads;
mod until_closed;
mod watch;

use std::ffi::OsString;
use std::io::{self, Write};

use clap::Parser;

pub use args::Arguments;
use args::{Command, SchemaArguments};
pub use planning::{Absent, PlanRequest, Planned, check_inputs};
pub use rank_limits::ranks_at_once;
pub use select_arguments::{DriverChoice, SelectArguments};
use until_closed::UntilClosed;

use crate::claim::product_schema;
use crate::conclusion::Exit;
use crate::suite::SuiteError;
use allranks_runner::world;
use allranks_suite::{case, expectation, platform};

/// Why a command failed, with a hint for the user.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Case or platform files are invalid.
    #[error(transparent)]
    Suite(#[from] SuiteError),
    /// The command line is wrong, or names something that does not exist; the second text is a hint.
    #[error("{0}")]
    Usage(String, String),
    /// Nothing matches; the second text is a hint.
    #[error("{0}")]
    Nothing(String, String),
    /// The harness or the machine failed.
    #[error("{0}")]
    Harness(String),
    /// A stream or file could not be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Failure {
    fn exit(&self) -> Exit {
        match self {
            Self::Suite(SuiteError::Invalid(_)) | Self::Usage(..) => Exit::Usage,
            Self::Nothing(..) => Exit::Nothing,
            Self::Suite(SuiteError::Io(_)) | Self::Harness(_) | Self::Io(_) => Exit::HarnessFailed,
        }
    }

    /// Writes the error and its hint.
    ///
    /// # Errors
    /// The stream cannot be written.
    pub fn explain(&self, err: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Suite(SuiteError::Invalid(problems)) => {
                for problem in problems {
                    writeln!(err, "{}\n", problem.render(true))?;
                }
            }
            Self::Usage(_, hint) | Self::Nothing(_, hint) => {
                writeln!(err, "error: {self}\n  hint: {hint}")?;
                return Ok(());
            }
            Self::Suite(_) | Self::Harness(_) | Self::Io(_) => {}
        }
        writeln!(err, "error: {self}")
    }
}

/// Runs the command that the arguments name. Returns the exit code.
///
/// Results go to `out`, progress and errors to `err`. If the reader of a stream closes it early, further output is dropped, and
/// the command continues to its end and its exit code.
pub fn main(
    arguments: impl IntoIterator<Item = OsString>,
    out: &mut (impl Write + Send),
    err: &mut (impl Write + Send),
) -> u8 {
    let (out, err) = (&mut UntilClosed::new(out), &mut UntilClosed::new(err));
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let parsed = match Arguments::try_parse_from(&arguments) {
        Ok(parsed) => parsed,
        Err(error) => {
            let text = error.render().ansi().to_string();
            let exit = match error.exit_code() {
                0 => write!(out, "{text}").map(|()| Exit::AsExpected),
                _ => write!(err, "{text}").map(|()| Exit::Usage),
            };
            return exit.unwrap_or(Exit::HarnessFailed) as u8;
        }
    };
    let words: Vec<String> = arguments
        .iter()
        .skip(1)
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    if has_threads(&parsed.command)
        && let Err(failure) = threads::check_available()
    {
        // If this fails too, the error cannot be reported any more.
        let _ = failure.explain(err);
        return failure.exit() as u8;
    }
    let result = match parsed.command {
        Command::Run(run) => orphans::run_and_reap(|| running::run(&run, words, out, err)),
        Command::Prove(arguments) => orphans::run_and_reap(|| prove::prove(&arguments, out, err)),
        Command::List(arguments) => list::list(&arguments, out, err),
        Command::Plan(arguments) => plan_text::print(&arguments, out, err),
        Command::Explain(arguments) => explain::explain(&arguments, out),
        Command::Repro(arguments) => repro::repro(&arguments, words, out),
        Command::Diagnose(arguments) => diagnose::diagnose(&arguments, out),
        Command::Doctor(arguments) if arguments.fleet => {
            orphans::run_and_reap(|| doctor_fleet::doctor_fleet(&arguments, out, err))
        }
        Command::Doctor(arguments) => doctor::doctor(&arguments, out),
        Command::Schema(arguments) => schema(&arguments, out),
        Command::Report(arguments) => results::report(&arguments, out),
        Command::Merge(arguments) => results::merge(&arguments, out),
        Command::Rerun(arguments) => {
            orphans::run_and_reap(|| rerunning::rerun(&arguments, out, err))
        }
        Command::Judge(arguments) => judging::judge(&arguments, out),
        Command::Diff(arguments) => results::diff(&arguments, out),
        Command::Submit(arguments) => claims::submit(&arguments, out),
        Command::Verify(arguments) => claims::verify(&arguments, out),
        Command::Expectations(arguments) => expectations::expectations(&arguments, out),
        Command::History(arguments) => history::history(&arguments, out),
        Command::Watch(arguments) => {
            return orphans::run_and_reap(|| watch::watch(&arguments, err));
        }
        Command::Node(arguments) => node::node(&arguments, err),
        Command::Subreaper(arguments) => Err(Failure::Io(allranks_runner::watch::subreaper(
            arguments.watcher,
            arguments.folder,
            &arguments.command,
        ))),
        Command::RankWrapper(arguments) => {
            let launcher = arguments.launcher.into();
            let (records, logs) = (&arguments.records, &arguments.logs);
            match world::run_wrapped(launcher, records, logs, &arguments.command) {
                Ok(code) => std::process::exit(code),
                Err(error) => Err(Failure::Io(error)),
            }
        }
        Command::Supervise(arguments) => Err(Failure::Io(world::supervise(&arguments.command))),
    };
    let exit = match result {
        Ok(exit) => exit,
        Err(failure) => {
            // If this fails too, the error cannot be reported any more.
            let _ = failure.explain(err);
            failure.exit()
        }
    };
    exit as u8
}

/// Returns true if a command starts threads, to plan or to run.
fn has_threads(command: &Command) -> bool {
    matches!(
        command,
        Command::Run(_)
            | Command::Prove(_)
            | Command::List(_)
            | Command::Plan(_)
            | Command::Explain(_)
            | Command::Repro(_)
            | Command::Doctor(_)
            | Command::Rerun(_)
    )
}

fn schema(arguments: &SchemaArguments, out: &mut impl Write) -> Result<Exit, Failure> {
    let schema = match arguments.of.as_str() {
        "platform" => platform::schema(),
        "product" => product_schema(),
        "expectation" => expectation::schema(),
        "waiver" => expectation::waiver_schema(),
        _ => case::schema(),
    };
    serde_json::to_writer_pretty(&mut *out, &schema).map_err(io::Error::from)?;
    writeln!(out)?;
    Ok(Exit::AsExpected)
}
