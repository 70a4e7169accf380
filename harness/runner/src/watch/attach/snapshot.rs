//! The state of one rank, from several observations.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::call_stack::{CallStackActivity, CallStackPlace, CallStacks, OwnCode};
use crate::watch::endpoints::hosts::Hosts;
use crate::watch::ranks::rank_process::RankProcess;
use crate::watch::trace::own_wait::OwnWait;
use crate::watch::waits::late_rank::SHORTEST_LIMIT;
use crate::watch::waits::patiences::{IDLE_PATIENCES, WAITING_PATIENCES};
use allranks_diagnose::{EventKind, Process, RankState, Rendezvous, SeenCall, TraceEvent};
use allranks_host as host;
use allranks_host::{Activity, ProcessEntry, Thread};
use allranks_model::names::Rank;

/// The name of threads of torch that carry out backward passes, for which the main thread waits.
const BACKWARD: &str = "pt_autograd";

/// A rank at the last look, and since when it has been there.
#[derive(Clone, Debug)]
pub struct RankSnapshot {
    threads: Vec<Thread>,
    /// The threads of the processes that it has started.
    below: Vec<Thread>,
    place: Result<CallStackPlace, String>,
    /// How often the stack was read since it last changed.
    reads: u32,
    /// Since when it was seen where it is.
    since: Instant,
    /// Since when its other threads that run Python, and all processes below it, have not run.
    quiet_since: Instant,
    /// For how long its main thread has slept, as the kernel says.
    idle: Option<Duration>,
    /// Whether it has gone from one place to another while it was looked at.
    pub has_moved: bool,
}

impl RankSnapshot {
    /// Looks at a rank again; `before` is what was seen of it last.
    pub fn look(
        rank: &RankProcess,
        before: Option<Self>,
        table: &[ProcessEntry],
        call_stacks: &mut CallStacks,
    ) -> Self {
        let now = Instant::now();
        let idle = host::idle_time(rank.pid, rank.pid);
        let threads = host::threads(rank.pid);
        let below: Vec<Thread> = below(rank.pid, table)
            .into_iter()
            .flat_map(host::threads)
            .collect();
        let Some(before) = before else {
            return Self {
                threads,
                below,
                place: call_stacks.place(rank.pid),
                reads: 1,
                since: now,
                quiet_since: now,
                idle,
                has_moved: false,
            };
        };
        let is_stopped = rank.activity == Some(Activity::Stopped);
        let has_slept = is_stopped
            || threads
                .first()
                .zip(before.threads.first())
                .is_some_and(|(main, earlier)| main.has_slept_since(earlier))
                && asleep(&before.threads, &threads, |thread| {
                    thread.name.starts_with(BACKWARD)
                });
        // What has not run is where it was, once that was read without a change in between.
        let (place, reads) = match has_slept && before.reads > 1 {
            true => (before.place.clone(), before.reads),
            false => {
                let place = call_stacks.place(rank.pid);
                match place == before.place {
                    true => (place, before.reads + 1),
                    false => (place, 1),
                }
            }
        };
        let is_same = place == before.place;
        let waits = |threads: &[Thread]| threads.first().map(|main| main.waits);
        let is_init = place
            .as_ref()
            .is_ok_and(|place| place.what == CallStackActivity::Init);
        // It dials again and again, and that is no progress.
        let stays = is_same && (has_slept || is_init);
        let python: &[u32] = place.as_ref().map_or(&[], |place| &place.threads);
        let is_quiet = asleep(&before.threads, &threads, |one| python.contains(&one.id))
            && asleep(&before.below, &below, |_| true)
            && before.below.len() == below.len();
        Self {
            has_moved: before.has_moved
                || !is_stopped
                    && (!is_same || !is_init && waits(&threads) != waits(&before.threads)),
            since: if stays { before.since } else { now },
            quiet_since: if is_quiet { before.quiet_since } else { now },
            idle,
            threads,
            below,
            place,
            reads,
        }
    }

    fn what(&self) -> Option<&CallStackActivity> {
        let place = self.place.as_ref().ok().filter(|_| self.reads > 1)?;
        Some(&place.what)
    }

    /// Returns true if it waits for other ranks.
    pub fn is_held(&self) -> bool {
        matches!(
            self.what(),
            Some(CallStackActivity::Init | CallStackActivity::Call(_))
        )
    }

    /// Returns true if it is in a call that ranks make once the world is there.
    pub fn is_past_init(&self) -> bool {
        matches!(self.what(), Some(CallStackActivity::Call(_)))
    }

    /// Returns for how long the process has been where it is, as far as that was seen, or as the kernel says.
    pub fn still(&self) -> Duration {
        let seen = self.since.elapsed();
        match self.idle {
            Some(idle) => seen.max(idle),
            None => seen,
        }
    }

    /// Returns for how long no thread of the process has run; `None` if something has since the last look.
    pub fn rest(&self) -> Option<Duration> {
        let seen = self.quiet_since.elapsed();
        let is_quiet = seen >= super::STANDSTILL && self.still() >= super::STANDSTILL;
        is_quiet.then(|| self.still())
    }

    /// Returns for how long the process must rest before its rank is reported as behind; `None` if it may rightly wait for ever, as
    /// a server for a request, or if it is not known what it waits for.
    pub fn limit(&self, patience: Duration) -> Option<Duration> {
        let times = match self.what()? {
            CallStackActivity::Own(OwnCode::Line) => IDLE_PATIENCES,
            CallStackActivity::Own(OwnCode::Breakpoint | OwnCode::Lock | OwnCode::Loader) => {
                WAITING_PATIENCES
            }
            CallStackActivity::Own(OwnCode::Input | OwnCode::Library)
            | CallStackActivity::Init
            | CallStackActivity::Call(_) => return None,
        };
        Some(SHORTEST_LIMIT.max(patience * times))
    }

    /// Returns what the program's own code waits in, as the advice has it.
    pub fn own_wait(&self) -> OwnWait {
        match self.what() {
            Some(CallStackActivity::Own(OwnCode::Breakpoint)) => OwnWait::Breakpoint,
            Some(CallStackActivity::Own(OwnCode::Lock)) => OwnWait::Lock,
            Some(CallStackActivity::Own(OwnCode::Loader)) => OwnWait::DataLoader,
            _ => OwnWait::Unknown,
        }
    }

    /// Why its stack could not be read.
    pub fn why_unread(&self) -> Option<&str> {
        self.place.as_ref().err().map(String::as_str)
    }

    /// Returns what is known of the rank; `None` while an address is looked up.
    pub fn state(&self, rank: Rank, process: &RankProcess, hosts: &mut Hosts) -> Option<RankState> {
        let mut state = RankState {
            process: match process.activity {
                Some(Activity::Alive { .. }) => Process::Running,
                Some(Activity::Stopped) => Process::Stopped,
                Some(Activity::Gone) => Process::Ended("no process of it is left".to_owned()),
                None => Process::Unknown,
            },
            ..RankState::unknown(rank)
        };
        let (Ok(place), Some(what)) = (&self.place, self.what()) else {
            return Some(state);
        };
        // What has not run for that long is where it was, though its stack was read only since.
        let is_still = self.still() >= super::STANDSTILL;
        let event = match what {
            // It makes calls, and goes on.
            CallStackActivity::Init | CallStackActivity::Call(_)
                if !is_still && state.process == Process::Running =>
            {
                return Some(state);
            }
            CallStackActivity::Init => match rendezvous(process, hosts) {
                Some(rendezvous) => EventKind::Init(rendezvous?),
                None => EventKind::Seen(SeenCall {
                    name: "init_process_group".to_owned(),
                    is_collective: false,
                    is_default_group: false,
                }),
            },
            CallStackActivity::Call(call) => EventKind::Seen(call.clone()),
            CallStackActivity::Own(_) => EventKind::Own(format!("its own code, `{}`", place.text)),
        };
        let event = TraceEvent {
            what: event,
            at: place.at.clone(),
        };
        state.doing = Some((event, self.still()));
        Some(state)
    }
}

/// Returns the endpoint that a rank's launcher gave it; `None` if it told nothing, inner `None` while the address is looked up.
fn rendezvous(process: &RankProcess, hosts: &mut Hosts) -> Option<Option<Rendezvous>> {
    let (rank, world_size) = process.number("RANK").zip(process.number("WORLD_SIZE"))?;
    let place = process.assigned_endpoint()?;
    let rendezvous = hosts.place(&place).map(|place| Rendezvous {
        method: "env".to_owned(),
        place,
        assigned: None,
        rank,
        world_size,
    });
    Some(rendezvous)
}

/// Returns true if those of the threads that fit have not run from one look to the next.
fn asleep(before: &[Thread], now: &[Thread], fits: impl Fn(&Thread) -> bool) -> bool {
    let earlier: HashMap<u32, &Thread> = before.iter().map(|one| (one.id, one)).collect();
    let mut fitting = now.iter().filter(|thread| fits(thread));
    fitting.all(|thread| {
        let before = earlier.get(&thread.id);
        before.is_some_and(|before| thread.has_slept_since(before))
    })
}

/// The processes that one has started, and those that these have.
fn below(pid: u32, table: &[ProcessEntry]) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        let is_child = |one: &&ProcessEntry| one.parent == parent && one.state != 'Z';
        found.extend(table.iter().filter(is_child).map(|one| one.pid));
        next += 1;
    }
    found.split_off(1)
}
