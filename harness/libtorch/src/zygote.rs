//! A zygote: one process that has loaded libtorch and forks ranks on request (`harness/doc/reference/protocol.md`, §9).
//!
//! In: `fork` and `kill` frames. Out: `zygote`, then `forked`, `fork_failed` and `exited`. It has one thread and touches
//! no device.

use std::collections::{HashMap, HashSet};
use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use allranks_protocol::{Fork, FromZygote, ToZygote, VERSION};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, getpid, getsid, kill_process,
    kill_process_group, pidfd_open, set_child_subreaper, setsid, waitid,
};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use crate::c10d;
use crate::candidates::Candidates;
use crate::process::{fork, set_variable, threads};
use crate::process_exit::die_with_parent;
use crate::rank::{self, Ending};
use crate::wire::{Wire, garbage};

/// The time between two checks whether a process that was killed has ended.
const CHECK_PERIOD: Duration = Duration::from_millis(1);
/// The time that killed processes may take to end. One in an uninterruptible wait for a device may never end.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// The time that orphans killed together may take to end, before further orphans are looked for.
const ROUND_TIMEOUT: Duration = Duration::from_secs(1);

/// A rank that has not been reaped.
#[derive(Debug)]
struct Forked {
    /// The number that the harness gave it.
    id: u64,
    /// A pidfd: readable when the process has ended.
    end: OwnedFd,
}

/// The connection to the harness, and the ranks that have been forked.
#[derive(Debug)]
struct Zygote {
    wire: Wire,
    /// The ranks by pid. A pid is not reused as long as it is in here, because its process is not reaped.
    ranks: HashMap<Pid, Forked>,
    /// Children that did not end when they were killed, until they are reaped.
    unkilled: HashSet<Pid>,
    /// Orphans whose rank is not known.
    candidates: Candidates,
}

/// Runs the zygote until its connection closes; in each rank that it forks, runs the rank.
///
/// # Errors
/// The harness cannot be reached, or breaks the protocol.
pub fn run() -> io::Result<Ending> {
    let variable = |name: &str| {
        env::var(name).map_err(|error| garbage(format!("the environment has no {name}: {error}")))
    };
    let wire = Wire::connect(&variable("ALLRANKS_CONTROL")?)?;
    // Orphans of ranks become children of this process, which kills them.
    set_child_subreaper(Some(getpid()))?;
    let hello = FromZygote::Zygote {
        version: VERSION,
        token: variable("ALLRANKS_TOKEN")?,
        pid: std::process::id(),
        torch: c10d::torch_version().to_owned(),
        threads: u32::try_from(threads()?).unwrap_or(u32::MAX),
    };
    wire.send(&serde_json::to_vec(&hello)?, std::iter::empty())?;
    let mut zygote = Zygote {
        wire,
        ranks: HashMap::new(),
        unkilled: HashSet::new(),
        candidates: Candidates::default(),
    };
    match zygote.serve() {
        Ok(order) => {
            // In the rank: what is the zygote's is closed here.
            drop(zygote);
            become_rank(order)
        }
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            zygote.kill_everything();
            Ok(Ending::AtOnce(0))
        }
        Err(error) => {
            zygote.kill_everything();
            Err(error)
        }
    }
}

impl Zygote {
    /// Answers frames until the connection closes. Returns in forked ranks only, with the order to carry out.
    fn serve(&mut self) -> io::Result<ForkOrder> {
        loop {
            let mut polled = vec![PollFd::new(&self.wire, PollFlags::IN)];
            polled.extend(
                self.ranks
                    .values()
                    .map(|rank| PollFd::from_borrowed_fd(rank.end.as_fd(), PollFlags::IN)),
            );
            match poll(&mut polled, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let has_frame = !polled[0].revents().is_empty();
            self.reap()?;
            if !has_frame {
                continue;
            }
            loop {
                let (header, _) = self.wire.receive()?;
                let frame = serde_json::from_slice(&header)
                    .map_err(|error| garbage(format!("unknown frame: {error}")))?;
                match frame {
                    ToZygote::Fork(order) => {
                        if let Some(order) = self.fork(order)? {
                            return Ok(order);
                        }
                    }
                    ToZygote::Kill { id, signal } => self.kill(id, signal),
                }
                if !self.wire.has_buffered() {
                    break;
                }
            }
        }
    }

    fn send(&mut self, frame: &FromZygote) -> io::Result<()> {
        self.wire
            .send(&serde_json::to_vec(frame)?, std::iter::empty())
    }

    /// Forks one rank. Returns `None` in the zygote, and in the rank the order to carry out.
    fn fork(&mut self, fork_order: Fork) -> io::Result<Option<ForkOrder>> {
        let parent = getpid();
        let id = fork_order.id;
        let forked = fork().and_then(|pid| match pid {
            None => Ok(None),
            Some(pid) => match pidfd_open(pid, PidfdFlags::empty()) {
                Ok(end) => Ok(Some((pid, end))),
                Err(error) => {
                    // A rank whose end would not be seen.
                    send_signal(pid, Signal::KILL);
                    let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
                    Err(error.into())
                }
            },
        });
        match forked {
            Ok(None) => Ok(Some(ForkOrder {
                fork: fork_order,
                parent,
            })),
            Ok(Some((pid, end))) => {
                self.ranks.insert(pid, Forked { id, end });
                self.send(&FromZygote::Forked {
                    id,
                    pid: pid.as_raw_nonzero().get().unsigned_abs(),
                })?;
                Ok(None)
            }
            Err(error) => {
                self.send(&FromZygote::ForkFailed {
                    id,
                    error: error.to_string(),
                })?;
                Ok(None)
            }
        }
    }

    fn kill(&self, id: u64, signal: i32) {
        let Some(signal) = Signal::from_named_raw(signal) else {
            return;
        };
        for (pid, rank) in &self.ranks {
            if rank.id == id {
                send_signal(*pid, signal);
            }
        }
    }

    /// Reports every rank that has ended, after killing what it left running.
    fn reap(&mut self) -> io::Result<()> {
        let ended: Vec<(Pid, WaitIdStatus)> = self
            .ranks
            .keys()
            .filter_map(|pid| Some((*pid, exit_status(*pid)?)))
            .collect();
        for (pid, end) in ended {
            // Look first, reap later: until then the pid, and the process group it names, are not reused.
            let left_behind = self.kill_orphans(Some(pid));
            let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED);
            let Some(rank) = self.ranks.remove(&pid) else {
                continue;
            };
            self.send(&FromZygote::Exited {
                id: rank.id,
                pid: pid.as_raw_nonzero().get().unsigned_abs(),
                code: end.exit_status(),
                signal: end.terminating_signal(),
                left_behind,
            })?;
        }
        Ok(())
    }

    /// Kills the orphans of an ended rank, whatever session they are in; returns how many of them were running. With `None`,
    /// kills the orphans of all ranks.
    ///
    /// An orphan whose session belongs to a living rank is left until that rank ends. If several ranks may have left it, it is
    /// killed when the last of them is reaped, and counted for none. If it does not end within [`KILL_TIMEOUT`], it is named on
    /// standard error and left alone from then on.
    fn kill_orphans(&mut self, of: Option<Pid>) -> u32 {
        self.unkilled.retain(|pid| !reap(*pid));
        self.candidates.retain(&own_children());
        if let Some(ended) = of {
            self.candidates.end(ended);
        }
        let mut running = HashSet::new();
        let began = Instant::now();
        let mut left = self.kill_orphans_once(of, &mut running);
        while !left.is_empty() && began.elapsed() < KILL_TIMEOUT {
            thread::sleep(CHECK_PERIOD);
            left = self.kill_orphans_once(of, &mut running);
        }
        let children = own_children();
        for pid in left.into_iter().filter(|pid| children.contains(pid)) {
            self.unkilled.insert(pid);
            let raw = pid.as_raw_nonzero().get().unsigned_abs();
            let _ = writeln!(io::stderr(), "allranks: cannot kill pid {raw}");
        }
        running.len() as u32
    }

    /// Kills the orphans that a rank has now; returns them. Adds to `running` those that were running and that no other rank can
    /// have left.
    fn kill_orphans_once(&mut self, of: Option<Pid>, running: &mut HashSet<Pid>) -> Vec<Pid> {
        let ranks: HashSet<Pid> = self.ranks.keys().copied().collect();
        let orphans: Vec<Pid> = own_children()
            .into_iter()
            .filter(|pid| !ranks.contains(pid) && !self.unkilled.contains(pid))
            .filter(|pid| {
                of.is_none_or(|ended| {
                    let session = getsid(Some(*pid)).ok();
                    self.candidates.may_kill(*pid, session, ended, &ranks)
                })
            })
            .collect();
        running.extend(
            orphans
                .iter()
                .filter(|pid| exit_status(**pid).is_none() && !self.candidates.has(**pid)),
        );
        for pid in &orphans {
            send_signal(*pid, Signal::KILL);
        }
        // Only when they have ended do their own children become children of this process.
        wait_for(&orphans, ROUND_TIMEOUT);
        for pid in &orphans {
            reap(*pid);
        }
        orphans
    }

    /// Kills every rank and every orphan.
    fn kill_everything(&mut self) {
        let ranks: Vec<Pid> = self.ranks.keys().copied().collect();
        for pid in &ranks {
            send_signal(*pid, Signal::KILL);
        }
        wait_for(&ranks, KILL_TIMEOUT);
        self.kill_orphans(None);
    }
}

/// The order that a forked process carries out: the rank to run, and the zygote's pid.
struct ForkOrder {
    fork: Fork,
    parent: Pid,
}

/// Runs one rank in the forked process, after giving it a session, output and environment of its own.
fn become_rank(order: ForkOrder) -> io::Result<Ending> {
    let ForkOrder { fork, parent } = order;
    setsid()?;
    die_with_parent(parent);
    let append = |path| OpenOptions::new().create(true).append(true).open(path);
    // First, so that what goes wrong next has somewhere to go.
    dup2_stderr(append(&fork.stderr)?)?;
    dup2_stdout(append(&fork.stdout)?)?;
    dup2_stdin(File::open("/dev/null")?)?;
    for (name, _) in env::vars_os() {
        set_variable(&name, None);
    }
    for (name, value) in &fork.env {
        set_variable(name.as_ref(), Some(value.as_ref()));
    }
    if let Some(folder) = &fork.cwd {
        env::set_current_dir(folder)?;
    }
    // What libtorch read from the zygote's environment, read again from the rank's.
    c10d::read_debug_level().map_err(io::Error::other)?;
    rank::run()
}

/// Returns the children of this process: ranks, and orphans of ranks that have ended.
fn own_children() -> Vec<Pid> {
    let pid = std::process::id();
    let text = fs::read_to_string(format!("/proc/self/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace()
        .filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
        .collect()
}

/// Signals the process group that a child leads, or the child alone if it leads none (yet).
fn send_signal(pid: Pid, signal: Signal) {
    if kill_process_group(pid, signal).is_err() {
        let _ = kill_process(pid, signal);
    }
}

/// Returns how a child has ended, without reaping it; `None` if it runs.
fn exit_status(pid: Pid) -> Option<WaitIdStatus> {
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(pid), how).ok().flatten()
}

/// Reaps a child if it has ended. Returns true if it is no longer a child.
fn reap(pid: Pid) -> bool {
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    !matches!(waitid(WaitId::Pid(pid), how), Ok(None))
}

/// Waits until children have ended, for at most `limit`.
fn wait_for(children: &[Pid], limit: Duration) {
    let until = Instant::now() + limit;
    while children.iter().any(|pid| exit_status(*pid).is_none()) && Instant::now() < until {
        thread::sleep(CHECK_PERIOD);
    }
}
