//! A test bench: a folder, a mark that every process started in it carries, and the binary under test.

use allranks_runner::probe;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use allranks_model::outcome::{Outcome, Verdict};
use allranks_model::record::CheckRecord;
use allranks_report::{Results, jsonl};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The variable that marks the processes of a stage. Its name is not one the harness keeps from ranks.
const MARK: &str = "BLACKBOX_STAGE";
/// No command takes this long, on a machine that is busy with other things too.
const LIMIT: Duration = Duration::from_secs(240);
/// What is left must be gone by then.
const GONE: Duration = Duration::from_secs(10);
/// How often is looked.
const PERIOD: Duration = Duration::from_millis(10);

/// A folder, a mark that every process started in it carries, and the binary under test.
pub struct Stage {
    folder: TempDir,
    mark: String,
    started: AtomicU32,
}

/// A command that has ended.
pub struct Ran {
    /// Exit code; 1000 and the signal's number if a signal ended it.
    pub code: i32,
    /// What it wrote.
    pub stdout: String,
    /// What it complained of.
    pub stderr: String,
    /// How long it took.
    pub took: Duration,
}

/// A command that runs.
pub struct Running {
    child: Child,
    began: Instant,
    texts: [PathBuf; 2],
}

/// The workspace.
pub fn checkout() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package.join("..")
}

impl Stage {
    /// An empty stage.
    pub fn new(name: &str) -> Self {
        static STAGES: AtomicU32 = AtomicU32::new(0);
        let number = STAGES.fetch_add(1, Ordering::Relaxed);
        Self {
            folder: tempfile::Builder::new()
                .prefix(&format!("blackbox-{name}-"))
                .tempdir()
                .unwrap(),
            started: AtomicU32::new(0),
            mark: format!("{}.{number}.{name}", std::process::id()),
        }
    }

    /// A path on it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The folder that [`run_out`](Self::run_out) names.
    pub fn out(&self) -> PathBuf {
        self.path("out")
    }

    /// Writes a file.
    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// Installs a package `NAME-wheel` of one module in `lib`, with these entry points.
    pub fn install(&self, name: &str, code: &str, points: &str) {
        let info = format!("lib/{name}_wheel-1.0.dist-info");
        let metadata = format!("Metadata-Version: 2.1\nName: {name}-wheel\nVersion: 1.0\n");
        self.write(&format!("lib/{name}.py"), code);
        self.write(&format!("{info}/METADATA"), &metadata);
        self.write(&format!("{info}/entry_points.txt"), points);
    }

    /// The binary, to be run in the checkout.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_allranks"));
        command.args(arguments);
        // Found here, whatever folder the command will run in.
        let python = probe::python(None).path;
        if python.is_file() {
            command.env("ALLRANKS_PYTHON", std::path::absolute(python).unwrap());
        }
        self.marked(command)
    }

    /// Any program, with the stage's mark.
    pub fn marked(&self, mut command: Command) -> Command {
        command
            .current_dir(checkout())
            .env(MARK, &self.mark)
            .stdin(Stdio::null());
        command
    }

    /// Starts `allranks run`, whose files all go onto the stage, temporary ones too.
    pub fn start_run(&self, arguments: &[&str]) -> Running {
        let temporary = self.path("tmp");
        fs::create_dir_all(&temporary).unwrap();
        let out = self.out().display().to_string();
        let mut all = vec!["run"];
        all.extend(arguments);
        all.extend(["--out", &out]);
        let mut command = self.command(&all);
        command.env("TMPDIR", temporary);
        self.start(command)
    }

    /// Starts a command.
    pub fn start(&self, mut command: Command) -> Running {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let texts = ["stdout", "stderr"].map(|name| self.path(&format!("{name}.{number}")));
        command
            .stdout(File::create(&texts[0]).unwrap())
            .stderr(File::create(&texts[1]).unwrap());
        Running {
            began: Instant::now(),
            child: command.spawn().unwrap(),
            texts,
        }
    }

    /// Runs the binary to its end; nothing may be left of it.
    pub fn run(&self, arguments: &[&str]) -> Ran {
        let ran = self.start(self.command(arguments)).end();
        self.assert_nothing_remains();
        ran
    }

    /// `run ARGUMENTS --out OUT`.
    pub fn run_out(&self, arguments: &[&str]) -> Ran {
        let out = self.out().display().to_string();
        let mut all = vec!["run"];
        all.extend(arguments);
        all.extend(["--out", &out]);
        self.run(&all)
    }

    /// The results in a folder of the stage.
    pub fn results(&self, folder: &str) -> Results {
        read(&self.path(folder))
    }

    /// Processes that carry the mark, in their environment or as a word of their command line: their ids and command lines.
    pub fn processes(&self) -> Vec<(Pid, String)> {
        let mark = format!("{MARK}={}", self.mark);
        let pids = fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|entry| {
                let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
                Pid::from_raw(pid)
            });
        pids.filter_map(|pid| {
            let file = |name| fs::read(format!("/proc/{}/{name}", pid.as_raw_nonzero()));
            let environment = file("environ").ok()?;
            let words = file("cmdline").ok()?;
            let is_ours = environment
                .split(|byte| *byte == 0)
                .chain(words.split(|byte| *byte == 0))
                .any(|variable| variable == mark.as_bytes());
            let line = String::from_utf8_lossy(&words).replace('\0', " ");
            is_ours.then_some((pid, line))
        })
        .collect()
    }

    /// Everything that was started here is gone, or goes within a few seconds.
    pub fn assert_nothing_remains(&self) {
        let began = Instant::now();
        loop {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            assert!(began.elapsed() < GONE, "left behind: {left:?}");
            sleep(PERIOD);
        }
    }

    /// Waits until something is so.
    pub fn wait(&self, what: &str, is_so: impl Fn() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < LIMIT, "never: {what}");
            sleep(PERIOD);
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Of a trial that failed.
        for (pid, _) in self.processes() {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

impl Running {
    /// Sends a signal to the process, and to no other.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Its id.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits for its end.
    pub fn end(mut self) -> Ran {
        use std::os::unix::process::ExitStatusExt;

        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if self.began.elapsed() > LIMIT {
                let _ = self.child.kill();
                panic!("it did not end; it said:\n{}", self.texts().join("\n"));
            }
            sleep(PERIOD);
        };
        let [stdout, stderr] = self.texts();
        Ran {
            code: status
                .code()
                .unwrap_or_else(|| 1000 + status.signal().unwrap_or(0)),
            stdout,
            stderr,
            took: self.began.elapsed(),
        }
    }

    /// What it has written so far: output, complaints.
    pub fn texts(&self) -> [String; 2] {
        self.texts
            .each_ref()
            .map(|path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned())
    }
}

impl Ran {
    /// The exit code is this one, and no thread panicked.
    #[track_caller]
    pub fn assert_code(&self, code: i32) -> &Self {
        let Self { stdout, stderr, .. } = self;
        assert_eq!(self.code, code, "stdout:\n{stdout}\nstderr:\n{stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
        self
    }

    /// It complained of this.
    #[track_caller]
    pub fn assert_says(&self, words: &str) -> &Self {
        let stderr = &self.stderr;
        assert!(stderr.contains(words), "`{words}` is not in:\n{stderr}");
        self
    }
}

/// The results in a folder.
#[track_caller]
pub fn read(folder: &Path) -> Results {
    jsonl::read(folder).unwrap()
}

/// The results are whole and every report is there.
#[track_caller]
pub fn assert_reported(results: &Results) {
    assert!(results.end.is_some(), "no end record");
    assert_eq!(results.missing(), 0, "checks without a record");
    assert_eq!(results.remarks, Vec::<String>::new());
    for name in [
        "junit.xml",
        "junit-extended.xml",
        "report.html",
        "summary.md",
    ] {
        let length = fs::metadata(results.folder.join(name)).map_or(0, |data| data.len());
        assert!(length > 100, "{name} has {length} bytes");
    }
    for rank in results.scenarios.iter().flat_map(|one| &one.ranks) {
        let log = results.folder.join(&rank.log);
        assert!(log.is_file(), "no log {}", log.display());
    }
}

/// The check whose id ends like this.
#[track_caller]
pub fn check<'a>(results: &'a Results, end: &str) -> &'a CheckRecord {
    let found = results
        .checks
        .iter()
        .find(|check| check.id.as_str().ends_with(end));
    found.unwrap_or_else(|| panic!("no check ends with {end}"))
}

/// Ids, outcomes and verdicts, in order of id.
pub fn essence(results: &Results) -> Vec<(String, Outcome, Verdict)> {
    let mut essence: Vec<_> = results
        .checks
        .iter()
        .map(|check| (check.id.to_string(), check.outcome, check.verdict))
        .collect();
    essence.sort_by(|one, two| one.0.cmp(&two.0));
    essence
}
