//! The command line as clap reads it: words and defaults, no file is touched here.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use super::claim_arguments::{SUBMIT_HELP, SubmitArguments, VERIFY_HELP, VerifyArguments};
use super::expectations_arguments::{EXPECTATIONS_EXIT_CODES, ExpectationsArguments};
use super::fleet_arguments::{FleetArguments, LauncherChoice};
use super::history_arguments::{HistoryArguments, ReportHistory};
use super::prove_arguments::ProveArguments;
use super::select_arguments::{DriverChoice, SelectArguments};
use super::suite_arguments::SuiteArguments;
use super::watch::WatchArguments;

const EXIT_CODES: &str = "\
Exit codes:
  0   everything is as expected
  1   unexpected results: a regression or an unexpected pass
  2   usage, or a bad case, platform or expectation file
  3   nothing was selected, or no platform was found
  4   incomplete: a required check was not run
  10  the harness or the machine failed

Examples:
  allranks run                                     profile core on every platform found
  allranks run --profile smoke --world-size 2,4
  allranks run cases/collectives/all_reduce --filter 'dtype=bfloat16 op=sum'
  allranks run --platforms my_device.yaml --platform mine
  allranks plan --filter covers=COLL-004           what would run, and how much
  allranks explain 'collectives/broadcast@cpu.gloo.ws4#0.broadcast.float32.33.root-0'";

const PROVE_EXIT_CODES: &str = "\
Exit codes:
  0   every mutant is killed as the index says, and nothing is unexpected without a bug
  1   a mutant is not killed as the index says, or something is unexpected without a bug
  2   usage, a bad index, or a folder that holds another proof
  3   there is no mutant
  4   interrupted
  10  the harness or the machine failed";

const DIAGNOSE_EXIT_CODES: &str = "\
Exit codes:
  0   no fault seen: every rank finished every phase, or a rank is slow and making progress
  1   a verdict was given, even if it only says that ranks wait
  2   no such file, no logs in a folder, or nothing says which rank wrote them
  3   not known: no fault seen, but the logs do not show that every rank finished

Examples:
  allranks diagnose rank0.log rank1.log rank2.log rank3.log
  allranks diagnose logs/                          a folder, also torchrun's --log-dir
  allranks diagnose /tmp/nccl_trace_rank_*         dumps of torch's flight recorder
  kubectl logs -l job=train --prefix=false | allranks diagnose -";

const DIFF_EXIT_CODES: &str = "\
Exit codes:
  0   nothing got worse, both runs are whole, and every check of the new one ran
  1   worse: a check broke or is gone, or a failing one was added
  2   usage, or results that cannot be read
  4   incomplete: not worse as far as it ran, but a run is not whole, or a check was not run
  10  the harness or the machine failed

Checks that were not run, are skipped, or fail in a way that is known or waived now are no improvements: each has its own list.";

const HISTORY_EXIT_CODES: &str = "\
Exit codes:
  0   shown, or stored
  2   usage, a file that is not a history, or a run that is stored with other results
  3   no run is stored, or no check matches
  10  the file cannot be read or written

Examples:
  allranks history add nightly --db history.sqlite         store a run
  allranks history --db history.sqlite                     what broke, with its cause
  allranks history --db history.sqlite bfloat16 COLL-014   these checks, run by run";

const MERGE_EXIT_CODES: &str = "\
Exit codes:
  0   merged, and whole: what failed is in the reports
  2   usage, results that cannot be read, or two different results of one check
  4   merged, but incomplete: a run was cut off or left no record of a planned check, or a check was not run by any
  10  the harness or the machine failed";

const RERUN_EXIT_CODES: &str = "\
Exit codes are those of `run`, for both runs together; 2 also if the run cannot be continued. If there is nothing to do, it says so and
ends as the run did.

Examples:
  allranks rerun target/allranks/20261120-081530            what was not run
  allranks rerun target/allranks/20261120-081530 --failed   and once more what failed";

const DOCTOR_EXIT_CODES: &str = "\
Exit codes:
  0   no fault; there may be warnings and notes
  1   at least one fault
  2   usage, or a bad platform file
  4   --fleet: not all hosts came
  10  the harness failed

Examples:
  allranks doctor                                  where the ranks are to be started
  allranks doctor --platform cuda                  a fault if it cannot be used
  allranks doctor --platforms my.yaml --platform mine
  srun -N2 allranks doctor --json                  what each machine of a job has
  allranks doctor --fleet --nodes 3                three hosts compared, and whether each reaches each other one";

const NODE_EXIT_CODES: &str = "\
Exit codes:
  0   the run has ended
  2   usage: no credentials, or ones that others can read
  10  the run cannot be reached, refuses this host, or is gone; or the agent was interrupted

Examples:
  allranks run --launcher attached --nodes 2       prints the command for each host, and waits
  allranks node --credentials target/allranks/20261120-081530/credentials.json
  scp HOST:.../credentials.json . && allranks node --credentials credentials.json";

/// Conformance suite for torch.distributed backends: every rank initialises, every rank votes.
#[derive(Debug, Parser)]
#[command(name = "allranks", version, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run cases on real ranks and write the reports.
    ///
    /// Everything is written below --out, except empty lock files in $TMPDIR/allranks-locks-UID. They keep runs at the same time
    /// from using the same ports and devices, and may be deleted when no run is active.
    #[command(after_help = EXIT_CODES)]
    Run(Box<RunArguments>),
    /// List cases, or with --requirements the requirements and the cases that cover them. Looks for no device: a platform's file
    /// is enough.
    List(ListArguments),
    /// Show what `run` with the same options would run, and what it would leave out and why.
    Plan(PlanArguments),
    /// Explain one scenario or check: why selected, what is sent to each rank, argv and environment.
    Explain(ExplainArguments),
    /// Prove that the suite can fail: run it against backends with one seeded bug each, and write the kill matrix.
    #[command(after_help = PROVE_EXIT_CODES)]
    Prove(ProveArguments),
    /// Write a Python file that reproduces one check under plain torchrun, for a vendor's issue tracker.
    ///
    /// The file needs nothing but torch. On every rank it says what the result must be, and what it is.
    Repro(ReproArguments),
    /// Say from the logs of a job that hangs or failed which rank held it up, where, and why.
    ///
    /// It reads logs only: lines such as `[Rank 1] Before X` and `After X`, tracebacks, torchrun's table of failures and
    /// the lines of NCCL's watchdog. The rank of a line comes from its beginning ([Rank 1], [rank1]:, [default1]:), else from
    /// the file's name or folder, else from the order of the files.
    #[command(after_help = DIAGNOSE_EXIT_CODES)]
    Diagnose(DiagnoseArguments),
    /// Say what this machine has for collectives, what is wrong with it, and the fix for each.
    ///
    /// Looks at Python and torch (in processes of their own with a time limit: an import may raise, kill or hang), at
    /// packages that torch loads by itself, platforms, masks, variables that contradict each other or that no library reads,
    /// names and interfaces, ports, memory, limits, devices and the processes that use them. Changes nothing, and needs no torch.
    #[command(after_help = DOCTOR_EXIT_CODES)]
    Doctor(DoctorArguments),
    /// Print the JSON schema of case files, platform files, product files, expectation files, or waiver files.
    Schema(SchemaArguments),
    /// Render the reports of a run again from its results.jsonl.
    Report(ReportArguments),
    /// Merge the results of several runs (shards, nextest processes) into one folder, and report.
    #[command(after_help = MERGE_EXIT_CODES)]
    Merge(MergeArguments),
    /// Continue a run that was interrupted or killed: run what was not run, and make one result set of both.
    ///
    /// Platforms, profile, seed and all other options are those of the run. Its records are copied into a new folder, which then
    /// has every check once. What failed stays failed, unless --failed is given. Refused if the cases, the expectations, a
    /// platform, its torch or its devices have changed.
    #[command(after_help = RERUN_EXIT_CODES)]
    Rerun(RerunArguments),
    /// Judge the results of a run again, by the expectations and platform files of today; nothing runs.
    ///
    /// Use it after an entry was added to an expectations file, or a capability to a platform file. The outcomes stay as they
    /// were recorded; the verdicts are made anew. Exit codes are those of `run`.
    Judge(JudgeArguments),
    /// Write a file of expectations with an entry for each unexpected failure of a run.
    #[command(after_help = EXPECTATIONS_EXIT_CODES)]
    Expectations(ExpectationsArguments),
    /// Compare two runs: what changed, what is new, what is gone.
    #[command(after_help = DIFF_EXIT_CODES)]
    Diff(DiffArguments),
    /// Pack two complete runs as a claim that others can verify without torch and without the devices.
    ///
    /// The package has the product file, both runs with their logs, the platform, expectation and waiver files that they were
    /// given, the environment, reproducers of the known and waived failures, and a manifest with the SHA-256 of every file.
    #[command(after_help = SUBMIT_HELP)]
    Submit(SubmitArguments),
    /// Verify a package: plan and judge its runs again, and print what it claims and covers.
    ///
    /// Needs neither torch nor a device. The cases, requirements and own expectations are those that this binary carries, so the
    /// package must come from the same version.
    #[command(after_help = VERIFY_HELP)]
    Verify(VerifyArguments),
    /// Show what many runs say of each check: what broke, when, and what had changed by then; what is flaky; what was fixed.
    ///
    /// Runs are stored with `allranks history add`. Runs in which a check was not run are ignored for that check. For each
    /// failure, everything that changed between the last run without it and the first run with it is listed: it may be the cause.
    #[command(after_help = HISTORY_EXIT_CODES)]
    History(HistoryArguments),
    /// Run any distributed program, and say which rank it hangs for, and why.
    ///
    /// The program runs as it would without `watch`; verdicts go to standard error, and it goes on unless --kill-on-verdict is
    /// given. Its ranks are the processes below it that have RANK and WORLD_SIZE in their environment, or that call
    /// torch.distributed. A verdict is printed as soon as the evidence proves it, mostly within 3 seconds of the
    /// last progress; one that is only likely, after --patience. A rank that is slow is not accused. When the command ends, or
    /// this program does, everything the command started is killed. Ctrl-C and SIGTERM are passed on; a second one
    /// kills.
    Watch(WatchArguments),
    /// Start ranks on this host for a run elsewhere, until that run ends.
    ///
    /// That run is started with `--launcher attached`, prints the command, and waits. The connection is encrypted: this host
    /// proves that it has the run's token, and the run proves that it has the key. When the connection ends, all ranks on this
    /// host are killed.
    #[command(after_help = NODE_EXIT_CODES)]
    Node(NodeArguments),
    /// Run a command that dies with the process that watches it.
    #[command(hide = true)]
    Subreaper(SubreaperArguments),
    /// Run a command as one rank, with its output in a file of its own, and write down how it ends.
    #[command(hide = true)]
    RankWrapper(RankWrapperArguments),
    /// Become a command that dies with this process's parent.
    #[command(hide = true)]
    Supervise(SuperviseArguments),
}

/// The arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// What to run.
    #[command(flatten)]
    pub select: SelectArguments,
    /// Folder for results, reports and logs. Default: target/allranks/<time>.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Run every scenario N times.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// Number of ranks that may run at once; a world with more ranks runs alone. Default: 8 per core, plus 12 per core for
    /// scenarios that mostly wait (scripts, programs).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub ranks_at_once: Option<u32>,
    /// Number of worlds that may share a device. All runs on the machine must use the same number. The device's memory must hold
    /// all of them.
    #[arg(long, value_name = "N", default_value_t = NonZeroU32::MIN)]
    pub worlds_per_device: NonZeroU32,
    /// How a run listens for its node agents.
    #[command(flatten)]
    pub listening: ListenArguments,
}

/// How a run listens for its node agents.
#[derive(Debug, Args)]
#[command(
    next_help_heading = "Node agents (--launcher attached, slurm, mpi, torchrun, kubernetes)"
)]
pub struct ListenArguments {
    /// Address at which the run listens for node agents; port 0 means any free port. Default: all addresses of this machine.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,
    /// File to write what agents need to join: the run's addresses, the fingerprint of its key, and its token. It is made with
    /// mode 0600, and removed when the run ends. Default: credentials.json in the run's folder.
    #[arg(long, value_name = "FILE")]
    pub credentials: Option<PathBuf>,
    /// Seconds that the run waits for its nodes. After that, checks that need missing nodes are not run.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub join_patience: u64,
    /// Seconds without a byte from a node's agent after which the node counts as lost.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub lost_after: u64,
}

/// The arguments of `node`.
#[derive(Debug, Args)]
pub struct NodeArguments {
    /// The file that the run has written, or a copy that only you can read. Default: the text in $ALLRANKS_CREDENTIALS.
    #[arg(long, value_name = "FILE")]
    pub credentials: Option<PathBuf>,
    /// The Python that has torch on this host. Default: $ALLRANKS_PYTHON, the active virtual environment, .venv, python3.
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
}

/// The arguments of `plan`.
#[derive(Debug, Args)]
pub struct PlanArguments {
    /// What is planned.
    #[command(flatten)]
    pub select: SelectArguments,
    /// Print what every rank would be sent instead: for each scenario a line of JSON with the steps of the rank protocol, without
    /// their payloads. Ports are 0, and the names of rendezvous files are empty.
    #[arg(long)]
    pub steps: bool,
}

/// The arguments of `list`.
#[derive(Debug, Args)]
pub struct ListArguments {
    /// What to list.
    #[command(flatten)]
    pub select: SelectArguments,
    /// List requirements and the cases that cover them.
    #[arg(long)]
    pub requirements: bool,
}

/// The arguments of `explain`.
#[derive(Debug, Args)]
pub struct ExplainArguments {
    /// Id of a scenario or of a check, as `plan` and the reports print it; or the name of a kind of hang
    /// (`collective-skipped`) or of a class of mismatch (`chunk-shifted`).
    pub id: String,
    /// The suite to look in.
    #[command(flatten)]
    pub select: ExplainSelect,
    /// The driver to explain: `python`, `libtorch`, or `command:PROGRAM ARGUMENT...`. Default: `python`.
    #[arg(long, value_name = "DRIVER")]
    pub driver: Option<DriverChoice>,
}

/// The options of `explain` and `repro` that find the suite.
#[derive(Debug, Args)]
pub struct ExplainSelect {
    /// The suite.
    #[command(flatten)]
    pub suite: SuiteArguments,
    /// Seed of all inputs.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// The arguments of `repro`.
#[derive(Debug, Args)]
pub struct ReproArguments {
    /// Id of a check, as the reports print it; or id of a scenario, for its initialisation and teardown.
    #[arg(required_unless_present = "known_failures")]
    pub id: Option<String>,
    /// The file; default: standard output.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// This many elements instead of the check's.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..1 << 20))]
    pub numel: Option<u64>,
    /// Run it here with fewer and fewer elements, and write the smallest file that fails in the same way.
    #[arg(long, conflicts_with = "numel")]
    pub shrink: bool,
    /// Folder of a run: what was seen there, its torch version and its seed go into the file.
    #[arg(long, value_name = "DIR")]
    pub run: Option<PathBuf>,
    /// Write a file into DIR for every known failure instead: for each entry of the expectations, its smallest check.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["id", "out", "numel", "run"])]
    pub known_failures: Option<PathBuf>,
    /// The Python whose torch version decides which known failures apply. The files name that version.
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// The suite to look in.
    #[command(flatten)]
    pub select: ExplainSelect,
}

/// The arguments of `diagnose`.
#[derive(Debug, Args)]
pub struct DiagnoseArguments {
    /// Log files, folders of them, or `-` for standard input; or the folders that the watches of several nodes have written
    /// (`allranks watch --evidence DIR`), which are judged together.
    #[arg(required = true, value_name = "LOG")]
    pub logs: Vec<PathBuf>,
    /// Print the diagnosis as JSON.
    #[arg(long)]
    pub json: bool,
}

/// The arguments of `doctor`.
#[derive(Debug, Args)]
#[command(
    mut_arg("launcher", |arg| arg
        .requires("fleet")
        .help("With --fleet: what starts the node agents, as for `run`. Default: attached")),
    mut_arg("nodes", |arg| arg
        .requires("fleet")
        .help("With --fleet: number of hosts. Default: 2")),
    mut_arg("launcher_options", |arg| arg
        .requires("fleet")
        .help("With --fleet: options for the launcher's command, as for `run`")),
)]
pub struct DoctorArguments {
    /// Print facts and findings as JSON.
    #[arg(long)]
    pub json: bool,
    /// The Python that has torch. Default: $ALLRANKS_PYTHON, the active virtual environment, .venv, python3.
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// Look for these platforms only; one that cannot be used is a fault.
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    pub platform: Vec<String>,
    /// More platform files, or folders of them.
    #[arg(long, value_name = "FILE_OR_DIR")]
    pub platforms: Vec<PathBuf>,
    /// Seconds after which an `import torch` counts as hanging; with --fleet, seconds in which hosts try to reach each other.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub patience: u64,
    /// Look at the hosts of a fleet instead of this machine: compare them, and let every pair exchange bytes in both directions.
    /// This needs a node agent on each host.
    #[arg(long)]
    pub fleet: bool,
    /// What starts the node agents, and on how many hosts.
    #[command(flatten)]
    pub agents: FleetArguments,
    /// How the doctor listens for node agents.
    #[command(flatten)]
    pub listening: ListenArguments,
}

/// The arguments of `schema`.
#[derive(Debug, Args)]
pub struct SchemaArguments {
    /// The kind of file.
    #[arg(default_value = "case", value_parser = ["case", "platform", "product", "expectation", "waiver"])]
    pub of: String,
}

/// The arguments of `report`.
#[derive(Debug, Args)]
pub struct ReportArguments {
    /// The run's folder.
    pub run: PathBuf,
    /// The runs before it.
    #[command(flatten)]
    pub history: ReportHistory,
}

/// The arguments of `merge`.
#[derive(Debug, Args)]
pub struct MergeArguments {
    /// Folders of runs, or packages of `allranks submit`, of which the first run is used. LABEL=RUN labels the columns of that
    /// run: results of one check with different labels stand side by side. Without LABEL, a package is labelled with the name and
    /// version of its product's package.
    #[arg(required = true, value_name = "[LABEL=]RUN")]
    pub runs: Vec<OsString>,
    /// Folder for the merged results and reports.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

/// The arguments of `rerun`.
#[derive(Debug, Args)]
pub struct RerunArguments {
    /// The run's folder.
    pub run: PathBuf,
    /// Also run checks again that failed, by themselves or because their world was lost. The record of a check that passes now
    /// says how it failed before.
    #[arg(long)]
    pub failed: bool,
    /// Folder for results, reports and logs. Default: target/allranks/<time>.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The run's driver. Needed if it is a `command:` with arguments: those are not recorded.
    #[arg(long, value_name = "DRIVER")]
    pub driver: Option<String>,
}

/// The arguments of `judge`.
#[derive(Debug, Args)]
pub struct JudgeArguments {
    /// The run's folder.
    pub run: PathBuf,
    /// Folder for the results with their new verdicts, and reports.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// The suite that was run.
    #[command(flatten)]
    pub suite: SuiteArguments,
}

/// The arguments of `diff`.
#[derive(Debug, Args)]
pub struct DiffArguments {
    /// Folder of the older run, or a package of `allranks submit`, of which the first run is used.
    pub old: PathBuf,
    /// Folder of the newer run, or such a package.
    pub new: PathBuf,
}

/// The arguments of `supervise`.
#[derive(Debug, Args)]
pub struct SuperviseArguments {
    /// The command.
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

/// The arguments of `rank-wrapper`.
#[derive(Debug, Args)]
pub struct RankWrapperArguments {
    /// The launcher that started it.
    #[arg(value_enum)]
    pub launcher: LauncherChoice,
    /// Where to write how it began and ended.
    pub records: PathBuf,
    /// Where its output goes.
    pub logs: PathBuf,
    /// The command.
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

/// The arguments of `subreaper`.
#[derive(Debug, Args)]
pub struct SubreaperArguments {
    /// The process that watches.
    pub watcher: u32,
    /// Its folder, which is removed if it is killed.
    pub folder: PathBuf,
    /// The command.
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}
