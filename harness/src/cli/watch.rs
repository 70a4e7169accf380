//! `allranks watch`: runs a program, or attaches to a job, and writes verdicts to standard error.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use rustix::fs::{Access, access};
use serde::Serialize;

use super::{Exit, Failure};
use allranks_model::diagnosis::Diagnosis;
use allranks_model::record::FORMAT;
use allranks_runner::watch;
use allranks_runner::watch::{Attached, Ending, Event, Settings};
use allranks_runner::world::unkilled;

const EXAMPLES: &str = "\
Exit codes:
  the command's own, or 128 + N if signal N ended it (130 is Ctrl-C)
  1   with --kill-on-verdict: it hung and was killed
  2   usage, or there is no such command
  10  the harness or the machine failed

Exit codes with --attach:
  0   no rank is accused: the ranks move, one is late, or the evidence does not say why nothing moves
  1   it hangs: there is a verdict
  2   usage, or no rank of a job is found by these processes
  10  the harness or the machine failed

Examples:
  allranks watch -- torchrun --nproc-per-node 4 train.py
  allranks watch --kill-on-verdict --json hang.json -- torchrun --nproc-per-node 8 train.py
  allranks watch --stacks off --patience 120 -- ./start-my-ranks.sh
  allranks watch --evidence /shared/evidence -- torchrun --nnodes 2 ... train.py     # on each node
  srun allranks watch --job $SLURM_JOB_ID -- python train.py          # one verdict for all nodes
  allranks watch --attach $(pgrep -f train.py)";

/// The arguments of `watch`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct WatchArguments {
    /// How to find out where Python processes are: `auto` puts a module on PYTHONPATH that records each call of
    /// torch.distributed, from a thread of its own; `off` leaves the program untouched, so that only processes, sockets and
    /// environments are seen.
    #[arg(long, value_enum, default_value_t = Stacks::Auto)]
    pub stacks: Stacks,
    /// Seconds without any progress after which a report says where each rank is, whatever the evidence proves.
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = seconds)]
    pub patience: f64,
    /// Kill the program when there is a verdict, and exit with 1.
    #[arg(long, conflicts_with = "attach")]
    pub kill_on_verdict: bool,
    /// Also write the last verdict to FILE, as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write what is seen of each world to files in DIR. `allranks diagnose DIR...` judges the files of several nodes together.
    /// They are removed when the command ends with exit code 0. With --attach they hold where each rank is.
    #[arg(long, value_name = "DIR")]
    pub evidence: Option<PathBuf>,
    /// Join the watches of the same job on other nodes. Give all of them the same ID, such as the job's number. They share the
    /// folder DIR/ID, which must be on a file system that all nodes see; DIR is that of --evidence, or `allranks-watch` in the
    /// working directory. One verdict is reported for the whole job, by one of them. The folder is removed when all commands have
    /// ended with exit code 0.
    #[arg(long, value_name = "ID", conflicts_with = "attach", value_parser = job_name)]
    pub job: Option<String>,
    /// Look at a job that already runs, by the id of any of its processes: a launcher, a shell, a rank. The job is not stopped or
    /// changed. Only jobs started under `allranks watch` record their calls, so fewer hangs are explained, and the verdict says
    /// which evidence is missing.
    #[arg(long, value_name = "PID", num_args = 1.., conflicts_with = "command", value_parser = clap::value_parser!(u32).range(1..))]
    pub attach: Vec<u32>,
    /// The command and its arguments.
    #[arg(
        last = true,
        required_unless_present = "attach",
        value_name = "COMMAND"
    )]
    pub command: Vec<OsString>,
}

/// How `watch` learns where a rank is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stacks {
    /// Python processes write call traces.
    Auto,
    /// Processes are observed from outside only.
    Off,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.0..=1e9).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds, 0 to 1000000000".to_owned()),
    }
}

/// Parses the name of a job, which is also the name of a folder.
fn job_name(text: &str) -> Result<String, String> {
    let is_fit = |one: char| one.is_ascii_alphanumeric() || "-._".contains(one);
    match text.len() {
        1..=64 if text.chars().all(is_fit) && !text.starts_with('.') => Ok(text.to_owned()),
        _ => Err("1 to 64 letters, digits, `-`, `_` and `.`, not beginning with `.`".to_owned()),
    }
}

/// The folder that the watches of a job share, unless `--evidence` names one.
const SHARED: &str = "allranks-watch";

/// The content of a verdict file.
#[derive(Serialize)]
struct VerdictFile<'a> {
    format: u32,
    command: Vec<String>,
    #[serde(flatten)]
    diagnosis: &'a Diagnosis,
    /// True if ranks have moved after the verdict.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    moves_again: bool,
}

/// Watches a program. Returns the exit code.
pub fn watch(arguments: &WatchArguments, err: &mut impl Write) -> u8 {
    if !arguments.attach.is_empty() {
        return attach(arguments, err);
    }
    match run(arguments, err) {
        Ok(Ending::Own(code) | Ending::Interrupted(code)) => code,
        Ok(Ending::Verdict) => Exit::Unexpected as u8,
        Err(failure) => {
            // If this fails too, the error cannot be reported any more.
            let _ = failure.explain(err);
            failure.exit() as u8
        }
    }
}

fn run(arguments: &WatchArguments, err: &mut impl Write) -> Result<Ending, Failure> {
    let program = arguments.command.first().map(OsString::as_os_str);
    let program = program.unwrap_or_default();
    if !is_command(program) {
        return Err(Failure::Usage(
            format!("there is no command `{}`", program.to_string_lossy()),
            "what follows -- is run as it stands, without a shell".to_owned(),
        ));
    }
    let settings = Settings {
        command: arguments.command.clone(),
        binary: std::env::current_exe()?,
        has_call_traces: arguments.stacks == Stacks::Auto,
        patience: Duration::from_secs_f64(arguments.patience),
        kill_on_verdict: arguments.kill_on_verdict,
        evidence: match &arguments.job {
            Some(job) => {
                let folder = arguments.evidence.clone();
                Some(folder.unwrap_or_else(|| SHARED.into()).join(job))
            }
            None => arguments.evidence.clone(),
        },
        is_shared: arguments.job.is_some(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut write_error = None;
    let mut recorded = None;
    let mut tell = |event: Event| {
        if let Err(error) = report(arguments, event, &mut recorded, err) {
            write_error.get_or_insert(error);
        }
    };
    let ending = runtime.block_on(watch::watch(&settings, &mut tell))?;
    match write_error {
        Some(error) => Err(Failure::Io(error)),
        None => Ok(ending),
    }
}

/// Attaches to a running job. Returns the exit code.
fn attach(arguments: &WatchArguments, err: &mut impl Write) -> u8 {
    let mut write_error = None;
    let mut recorded = None;
    let mut tell = |event: Event| {
        if let Err(error) = report(arguments, event, &mut recorded, err) {
            write_error.get_or_insert(error);
        }
    };
    let patience = Duration::from_secs_f64(arguments.patience);
    let evidence = arguments.evidence.as_deref();
    let ending = watch::attach(&arguments.attach, patience, evidence, &mut tell);
    let failure = match (write_error, ending) {
        (Some(error), _) | (None, Err(error)) => Failure::Io(error),
        (None, Ok(Attached::Verdict)) => return Exit::Unexpected as u8,
        (None, Ok(Attached::NoVerdict)) => return Exit::AsExpected as u8,
        (None, Ok(Attached::NoRank)) => {
            let pids: Vec<String> = arguments.attach.iter().map(u32::to_string).collect();
            Failure::Usage(
                format!("process {} leads to no rank of a job", pids.join(", ")),
                "name a launcher, a shell around it, or a rank: a process with RANK and WORLD_SIZE in its environment, or a Python process with torch; be its user or root"
                    .to_owned(),
            )
        }
    };
    // If this fails too, there is nowhere left to report it.
    let _ = failure.explain(err);
    failure.exit() as u8
}

/// Writes an event to standard error, and a verdict to its file. `recorded` is the last verdict, unless a rank has moved after
/// it.
fn report(
    arguments: &WatchArguments,
    event: Event,
    recorded: &mut Option<Diagnosis>,
    err: &mut impl Write,
) -> io::Result<()> {
    match event {
        Event::Verdict(diagnosis) => {
            write_diagnosis(err, "hang: ", &diagnosis)?;
            write_verdict_file(arguments, &diagnosis, false)?;
            *recorded = Some(diagnosis);
        }
        Event::Still(diagnosis, still) => {
            let seconds = still.as_secs_f64();
            write_diagnosis(
                err,
                &format!("no progress for {seconds:.0} s: "),
                &diagnosis,
            )?;
        }
        Event::StillStopped => writeln!(err, "allranks watch: it is still stopped")?,
        Event::Moves => {
            writeln!(err, "allranks watch: it makes progress again")?;
            if let Some(diagnosis) = recorded.take() {
                write_verdict_file(arguments, &diagnosis, true)?;
            }
        }
        Event::NotHung(seen) => writeln!(err, "allranks watch: not hung: {seen}")?,
        Event::Note(text) => writeln!(err, "allranks watch: {text}")?,
        Event::Unkilled(left) => {
            if let Some(text) = unkilled(&left) {
                writeln!(err, "allranks watch: {text}")?;
            }
        }
    }
    err.flush()
}

/// Writes a diagnosis with one write, so that the program's own output does not get into it.
fn write_diagnosis(err: &mut impl Write, what: &str, diagnosis: &Diagnosis) -> io::Result<()> {
    let text = allranks_model::diagnosis::lines(diagnosis).join("\n");
    err.write_all(format!("allranks watch: {what}{text}\n").as_bytes())
}

fn write_verdict_file(
    arguments: &WatchArguments,
    diagnosis: &Diagnosis,
    moves_again: bool,
) -> io::Result<()> {
    let Some(path) = &arguments.json else {
        return Ok(());
    };
    let words = arguments.command.iter();
    let record = VerdictFile {
        format: FORMAT,
        command: words
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        diagnosis,
        moves_again,
    };
    let mut text = serde_json::to_vec_pretty(&record)?;
    text.push(b'\n');
    std::fs::write(path, text)
}

/// Returns true if a program exists, by its path or in PATH.
fn is_command(program: &OsStr) -> bool {
    let is_program = |path: PathBuf| path.is_file() && access(&path, Access::EXEC_OK).is_ok();
    if program.as_encoded_bytes().contains(&b'/') {
        return is_program(program.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| is_program(folder.join(program)))
}
