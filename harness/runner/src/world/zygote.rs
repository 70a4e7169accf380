//! The harness's side of a zygote: a process that has imported torch and forks ranks on request.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use super::control_server::ControlServer;
use super::exhaustion::names_exhaustion;
use super::frame::{read_frame, write_frame};
use super::launch_spec::{RankLaunchSpec, prepend_path};
use super::local_world::Processes;
use super::node::CREDENTIALS;
use super::{Event, Orphan, RankExit, TOKEN};
use allranks_host as host;
use allranks_model::excerpt::{LONGEST, excerpt};
use allranks_model::names::Rank;
use allranks_protocol::{Fork, ForkedScript, FromZygote, ToZygote, VERSION};

/// The number of the signal that no process can catch.
const SIGKILL: i32 = 9;
/// How long a script that was killed may take to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// Time between two reads of the processor time of a process that imports torch.
const POLL_PERIOD: Duration = Duration::from_millis(100);

/// An error from starting a zygote.
#[derive(Debug, thiserror::Error)]
pub enum ZygoteError {
    /// The zygote's program cannot be run.
    #[error("cannot run {program}: {error}")]
    Spawn {
        /// The program's path.
        program: String,
        /// The reason that the system gives.
        error: io::Error,
    },
    /// The zygote ended, or took too long, before it had imported torch.
    #[error("the process that imports torch {what}; the last line of its log: {tail}")]
    Died {
        /// What happened: `ended (exit status: 1)`.
        what: String,
        /// The last line of its log that is not empty; `none` if there is none.
        tail: String,
    },
    /// The zygote has this many threads after its imports. With more than one it cannot fork safely.
    #[error(
        "importing torch left {0} threads, so forking is unsafe; hint: set `start: fresh` in the platform file"
    )]
    Threads(u32),
}

/// A running zygote.
#[derive(Debug)]
pub struct Zygote {
    to: mpsc::UnboundedSender<ToZygote>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    next: AtomicU64,
    gone: AtomicBool,
    ranks: Mutex<HashMap<u64, Forked>>,
}

/// A rank whose fork was requested and that has not ended.
#[derive(Debug)]
struct Forked {
    rank: Rank,
    events: mpsc::Sender<Event>,
}

impl Zygote {
    /// Starts the process, with `path` in front of its `PYTHONPATH` if there is one, and waits until it has imported torch: at
    /// most until the time that is charged to it (see [`host::ChargedTime`]) reaches `limit`. Its output goes to `log`.
    ///
    /// # Errors
    /// See [`ZygoteError`].
    pub async fn start(
        argv: &[String],
        path: Option<&Path>,
        control_server: &ControlServer,
        log: &Path,
        limit: Duration,
    ) -> Result<Self, ZygoteError> {
        let program = argv[0].clone();
        let spawn_error = |error| ZygoteError::Spawn {
            program: program.clone(),
            error,
        };
        let (place, mut hello) = control_server.expect_zygote().map_err(&spawn_error)?;
        let out = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .map_err(&spawn_error)?;
        let mut env: BTreeMap<String, String> = std::env::vars().collect();
        if let Some(folder) = path {
            prepend_path(&mut env, &folder.to_string_lossy());
        }
        let mut command = Command::new(&program);
        command
            .args(&argv[1..])
            .env_clear()
            .envs(env)
            .env("ALLRANKS_CONTROL", control_server.address())
            .env(TOKEN, &place.token)
            .env_remove(CREDENTIALS)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("OMP_NUM_THREADS", "1")
            .env("OPENBLAS_NUM_THREADS", "1")
            .stdin(Stdio::null())
            .stdout(out.try_clone().map_err(&spawn_error)?)
            .stderr(out)
            .process_group(0)
            .kill_on_drop(true);
        if path.is_some() {
            // Only while the Python zygote imports torch. From then on it notices that the connection closes, and kills all
            // that its ranks have started before it ends.
            command.env("ALLRANKS_DIE_WITH_PARENT", "1");
        }
        let (mut child, _starter) = spawn(command).await.map_err(&spawn_error)?;
        let died = |what: String| ZygoteError::Died {
            what,
            tail: last_line(log),
        };
        let child_id = child.id();
        let (frame, stream) = tokio::select! {
            Some(hello) = hello.recv() => hello,
            status = child.wait() => return Err(died(match status {
                Ok(status) => format!("ended ({status})"),
                Err(error) => format!("cannot be waited for ({error})"),
            })),
            why = control_server.accept_error() => return Err(died(format!("cannot connect: {why}"))),
            () = until_charged(child_id, limit) => {
                return Err(died(format!("was not ready within {} s", limit.as_secs())));
            }
        };
        if let FromZygote::Zygote {
            version, threads, ..
        } = frame
        {
            if version != VERSION {
                return Err(died(format!(
                    "has version {version} of the protocol, and allranks has {VERSION}"
                )));
            }
            if threads != 1 {
                return Err(ZygoteError::Threads(threads));
            }
        }
        let shared = Arc::new(Shared::default());
        let (to, orders) = mpsc::unbounded_channel();
        tokio::spawn(exchange_frames(stream, orders, Arc::clone(&shared), child));
        Ok(Self { to, shared })
    }

    /// Runs a script in a process that is forked from the zygote, with this environment. Returns the script's output, and its
    /// exit status; `None` if it ran for longer than `limit` and was killed.
    ///
    /// # Errors
    /// The process was not started, or how it ended is not known.
    pub async fn run_script(
        zygote: &Self,
        script: ForkedScript,
        env: BTreeMap<String, String>,
        limit: Duration,
    ) -> io::Result<(String, Option<ExitStatus>)> {
        let output = tempfile::NamedTempFile::new()?;
        let id = zygote.shared.next.fetch_add(1, Ordering::Relaxed);
        let (events, mut ends) = mpsc::channel(1);
        let forked = Forked {
            rank: Rank(0),
            events,
        };
        zygote.shared.ranks().insert(id, forked);
        let fork = ToZygote::Fork(Fork {
            id,
            env,
            stdout: output.path().to_owned(),
            stderr: output.path().to_owned(),
            cwd: None,
            script: Some(script),
        });
        if zygote.to.send(fork).is_err() {
            zygote.shared.lose_all("the zygote is gone");
        }
        let ended = match tokio::time::timeout(limit, ends.recv()).await {
            Ok(ended) => ended,
            Err(_) => {
                let kill = ToZygote::Kill {
                    id,
                    signal: SIGKILL,
                };
                let _ = zygote.to.send(kill);
                // A process in an uninterruptible wait for a device may never end.
                let _ = tokio::time::timeout(KILL_TIMEOUT, ends.recv()).await;
                None
            }
        };
        let end = match ended {
            Some(Event::Ended(_, RankExit::Exited { code, .. })) => {
                Some(ExitStatus::from_raw((code & 0xff) << 8))
            }
            Some(Event::Ended(_, RankExit::Signalled(signal))) => {
                Some(ExitStatus::from_raw(signal))
            }
            Some(Event::Ended(_, end)) => return Err(io::Error::other(end.to_string())),
            None => None,
            Some(_) => unreachable!("a script sends no frames"),
        };
        let text = std::fs::read(output.path())?;
        Ok((String::from_utf8_lossy(&text).into_owned(), end))
    }

    /// Returns true if the zygote can still fork.
    pub fn is_alive(&self) -> bool {
        !self.shared.gone.load(Ordering::Acquire)
    }

    /// Requests a fork for each rank of a world. How each rank ends comes as an [`Event::Ended`].
    pub fn fork(
        zygote: &Arc<Self>,
        ranks: Vec<RankLaunchSpec>,
        events: &mpsc::Sender<Event>,
    ) -> ForkedProcesses {
        let mut ids = BTreeMap::new();
        for order in ranks {
            let id = zygote.shared.next.fetch_add(1, Ordering::Relaxed);
            let forked = Forked {
                rank: order.rank,
                events: events.clone(),
            };
            zygote.shared.ranks().insert(id, forked);
            ids.insert(order.rank, id);
            let fork = ToZygote::Fork(Fork {
                id,
                env: order.env,
                stdout: order.log.clone(),
                stderr: order.log,
                cwd: None,
                script: None,
            });
            if zygote.to.send(fork).is_err() {
                zygote.shared.lose_all("the zygote is gone");
            }
        }
        ForkedProcesses {
            zygote: Arc::clone(zygote),
            ids,
        }
    }
}

impl Shared {
    fn ranks(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Forked>> {
        self.ranks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, id: u64, end: RankExit) {
        if let Some(Forked { rank, events }) = self.ranks().remove(&id) {
            // The channel may be full of frames: an exit must not be lost, nor delay other worlds.
            tokio::spawn(async move {
                let _ = events.send(Event::Ended(rank, end)).await;
            });
        }
    }

    fn lose_all(&self, why: &str) {
        self.gone.store(true, Ordering::Release);
        let ids: Vec<u64> = self.ranks().keys().copied().collect();
        for id in ids {
            self.end(id, RankExit::Unknown(why.to_owned()));
        }
    }
}

/// Starts a process on a thread of its own, which lives until the returned sender is dropped. The kernel takes the end of the
/// thread that started a process for the death of its parent, and threads of the runtime may end at any time.
async fn spawn(mut command: Command) -> io::Result<(Child, std::sync::mpsc::Sender<()>)> {
    let (sender, started) = oneshot::channel();
    let (keep, kept) = std::sync::mpsc::channel();
    let runtime = Handle::current();
    std::thread::Builder::new()
        .name("zygote-starter".to_owned())
        .spawn(move || {
            let child = {
                let _inside = runtime.enter();
                command.spawn()
            };
            // If nothing waits for the process any more, it is dropped here, which kills it.
            let _ = sender.send(child);
            let _ = kept.recv();
        })?;
    let child = started.await.map_err(io::Error::other)??;
    Ok((child, keep))
}

/// Returns when the time that is charged to a process (see [`host::ChargedTime`]) has reached a limit.
async fn until_charged(pid: Option<u32>, limit: Duration) {
    let mut time = host::ChargedTime::of(pid.unwrap_or(0));
    while !time.is_over(limit) {
        tokio::time::sleep(POLL_PERIOD).await;
    }
}

/// Exchanges frames with a zygote until its connection closes or no orders can come any more. Every rank that has not ended
/// then has an unknown end, and the zygote is killed.
async fn exchange_frames(
    stream: UnixStream,
    mut orders: mpsc::UnboundedReceiver<ToZygote>,
    shared: Arc<Shared>,
    child: Child,
) {
    let (mut reader, mut writer) = stream.into_split();
    let listening = async {
        while let Ok(frame) = read_frame::<FromZygote>(&mut reader).await {
            match frame.header {
                FromZygote::Exited {
                    id,
                    code,
                    signal,
                    left_behind,
                    ..
                } => shared.end(
                    id,
                    match (code, signal) {
                        (Some(code), _) => RankExit::Exited { code, left_behind },
                        (None, Some(signal)) => RankExit::Signalled(signal),
                        (None, None) => RankExit::Unknown("the zygote does not say".into()),
                    },
                ),
                FromZygote::ForkFailed { id, error } => {
                    let error = excerpt(error);
                    let end = match names_exhaustion(&error) {
                        true => RankExit::MachineFault(error),
                        false => RankExit::NotStarted(error),
                    };
                    shared.end(id, end);
                }
                FromZygote::Forked { .. } | FromZygote::Zygote { .. } => {}
            }
        }
    };
    let speaking = async {
        while let Some(order) = orders.recv().await {
            if write_frame(&mut writer, &order, &[]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = listening => {}
        () = speaking => {}
    }
    shared.lose_all("the process it was forked from died");
    drop(child);
}

/// The ranks of one world that were forked from a zygote.
#[derive(Debug)]
pub struct ForkedProcesses {
    zygote: Arc<Zygote>,
    /// The zygote's number for each rank.
    ids: BTreeMap<Rank, u64>,
}

impl Processes for ForkedProcesses {
    fn signal(&self, rank: Rank, signal: i32) {
        if let Some(id) = self.ids.get(&rank) {
            let _ = self.zygote.to.send(ToZygote::Kill { id: *id, signal });
        }
    }

    /// Returns none: a forked rank reports its process id in its hello, at once.
    fn roots(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Returns none: the zygote kills the orphans of its ranks itself, and reports their number with each exit.
    fn reap_orphans(&self) -> Vec<Orphan> {
        Vec::new()
    }
}

/// Returns the last line that is not empty of the last [`LONGEST`] bytes of a file; `none` if there is none.
fn last_line(log: &Path) -> String {
    let mut end = Vec::new();
    if let Ok(mut file) = File::open(log) {
        let length = file.metadata().map_or(0, |data| data.len());
        let start = length.saturating_sub(LONGEST as u64);
        let _ = file.seek(SeekFrom::Start(start));
        // An error in the middle leaves what was read before it.
        let _ = file.take(LONGEST as u64).read_to_end(&mut end);
    }
    String::from_utf8_lossy(&end)
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("none")
        .to_owned()
}
