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

/// The number of the signal that nothing can catch.
const SIGKILL: i32 = 9;
/// How long a script that was killed may take to go.
const UNKILLED: Duration = Duration::from_secs(5);

/// Time from one look at whether a process that imports torch gets on to the next.
const LOOK: Duration = Duration::from_millis(100);

/// Why there is no zygote.
#[derive(Debug, thiserror::Error)]
pub enum ZygoteError {
    /// The program cannot be run.
    #[error("cannot run {program}: {error}")]
    Spawn {
        /// The program's path.
        program: String,
        /// The reason that the system gives.
        error: io::Error,
    },
    /// It ended, or took too long, before torch was imported.
    #[error("the process that imports torch {what}; its last words: {tail}")]
    Died {
        /// What happened.
        what: String,
        /// The end of its log.
        tail: String,
    },
    /// It has more than one thread after its imports, so it cannot fork safely.
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
    /// Starts the process, with `path` in front of its `PYTHONPATH` if there is one, and waits until it has imported
    /// torch.
    pub async fn start(
        argv: &[String],
        path: Option<&Path>,
        control_server: &ControlServer,
        log: &Path,
        patience: Duration,
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
            // The Python one takes it back when it has imported torch: from then on it sees the connection close, and ends with
            // all that its ranks have started.
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
                Err(error) => format!("is lost ({error})"),
            })),
            why = control_server.accept_error() => return Err(died(format!("cannot be heard: {why}"))),
            () = used_up(child_id, patience) => {
                return Err(died(format!("said nothing for {} s", patience.as_secs())));
            }
        };
        if let FromZygote::Zygote {
            version, threads, ..
        } = frame
        {
            if version != VERSION {
                return Err(died(format!("speaks version {version}, not {VERSION}")));
            }
            if threads != 1 {
                return Err(ZygoteError::Threads(threads));
            }
        }
        let shared = Arc::new(Shared::default());
        let (to, orders) = mpsc::unbounded_channel();
        tokio::spawn(converse(stream, orders, Arc::clone(&shared), child));
        Ok(Self { to, shared })
    }

    /// Runs a script in a process forked from it, with this environment; returns what the script wrote, and how it ended: none if
    /// that took longer than `limit`, after which it has been killed.
    ///
    /// # Errors
    /// The process was not started, or it is not known how it ended.
    pub async fn ask(
        zygote: &Self,
        script: ForkedScript,
        env: BTreeMap<String, String>,
        limit: Duration,
    ) -> io::Result<(String, Option<ExitStatus>)> {
        let written = tempfile::NamedTempFile::new()?;
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
            stdout: written.path().to_owned(),
            stderr: written.path().to_owned(),
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
                // What waits for a device and cannot be interrupted may never end.
                let _ = tokio::time::timeout(UNKILLED, ends.recv()).await;
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
        let text = std::fs::read(written.path())?;
        Ok((String::from_utf8_lossy(&text).into_owned(), end))
    }

    /// Returns true if the zygote can still fork.
    pub fn lives(&self) -> bool {
        !self.shared.gone.load(Ordering::Acquire)
    }

    /// Requests the ranks of a world; each one's exit comes as an event.
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

/// Starts a process on a thread of its own, which lives until the sender that is returned is dropped: the kernel tells a process
/// that its parent has died when the thread has ended that started it, and the runtime's threads come and go.
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
            // If no task waits any more, the process is killed as it is dropped.
            let _ = sender.send(child);
            let _ = kept.recv();
        })?;
    let child = started.await.map_err(io::Error::other)??;
    Ok((child, keep))
}

/// Returns when the time that is charged to a process has reached a limit.
async fn used_up(pid: Option<u32>, limit: Duration) {
    let mut time = host::ChargedTime::of(pid.unwrap_or(0));
    while !time.is_over(limit) {
        tokio::time::sleep(LOOK).await;
    }
}

/// Carries frames both ways until either side ends; then every rank that has not ended is lost.
async fn converse(
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

    /// Knows none: a forked rank says hello at once, and with it its process id.
    fn roots(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Finds nothing: the zygote adopts and kills what its ranks leave, and reports it with their exits.
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
        // What was read before an error is as good.
        let _ = file.take(LONGEST as u64).read_to_end(&mut end);
    }
    String::from_utf8_lossy(&end)
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("none")
        .to_owned()
}
