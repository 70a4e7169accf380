//! Compiles scripts ([`allranks_suite::plan::Script`]) to steps for each rank, and makes check results of the answers.
//!
//! In: a check with a script, the endpoints, the seed. Out: a [`CompiledScript`]: one step for each rank, what the
//! harness must do when a rank enters a call ([`OnEnter`]), which ranks leave and how, and the check result. Data are left to
//! the oracle: every op that a script issues is a check of its own, prepared and verified there.
//!
//! | module | holds |
//! |---|---|
//! | `check_results` | turns answers into a check result |
//! | `lower` | lowers moves to calls, storages and cues |
//! | `expectation` | compares what moves promise with the answers |
//! | `trace_events` | turns calls into the events that other ranks can meet |

mod check_results;
mod expectation;
mod lower;
mod trace_events;

pub(crate) use expectation::{is_match, raised_in};

pub use lower::turn;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::world::RankExit;
use allranks_diagnose::TraceEvent;
use allranks_model::names::Rank;
use allranks_oracle::{Prepared, RankReply, RankStep};
use allranks_suite::case::Afterwards;
use allranks_suite::plan::{Hang, Script};

/// The endpoints at which the ranks of a world may meet, for scripts that initialise.
#[derive(Clone, Debug, Default)]
pub struct Endpoints {
    /// The host of all endpoints.
    pub host: String,
    /// For each endpoint, its port and its file.
    pub all: Vec<(u16, String)>,
}

/// A script lowered to steps.
#[derive(Debug)]
pub struct CompiledScript {
    script: Arc<Script>,
    /// For each rank, its step.
    pub steps: Vec<RankStep>,
    parts: Vec<Part>,
    /// For each rank, what its calls must do.
    expectations: Vec<Vec<Expectation>>,
    on_enter: Vec<BTreeMap<usize, OnEnter>>,
    departures: Vec<Option<Departure>>,
    /// For each rank, the timeouts in seconds that its calls are given.
    timeouts: Vec<Vec<f64>>,
    /// For each rank, the event of each of its calls.
    pub events: Vec<Vec<TraceEvent>>,
    /// For each mark, the ranks that must make it before ranks that hold for it go on.
    marks: BTreeMap<String, BTreeSet<Rank>>,
}

/// One op of a script, with the positions of its storages and calls in the ranks' steps.
#[derive(Debug)]
struct Part {
    prepared: Prepared,
    /// True if the oracle judges its data.
    judged: bool,
    /// For each rank, the range of the op's bytes in the step's payload.
    bytes: Vec<Range<usize>>,
    /// For each rank, the position of each of the op's calls; none if the call is not made.
    calls: Vec<Vec<Option<MoveRef>>>,
}

/// The position of a call in a rank's step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MoveRef {
    call: usize,
    /// Inside a `together`: the thread, and the index on that thread.
    inner: Option<(usize, usize)>,
    /// True if it is inside an `attempt`.
    attempted: bool,
}

/// What a call must do.
#[derive(Clone, Debug)]
struct Expectation {
    at: MoveRef,
    /// The index of its move.
    of: usize,
    kind: expectation::ExpectationKind,
}

/// What the harness does when a rank enters a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnEnter {
    /// Records that the rank has made this mark.
    Mark(String),
    /// Sends `go` once every rank that must make this mark has made it.
    Hold(String),
    /// The rank stops itself; the harness lets it go on after this time.
    Pause(Duration),
    /// The rank stops itself, and stays stopped.
    Freeze,
}

/// How a rank leaves in the middle of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The index of the call in which it leaves.
    pub call: usize,
    /// The way in which it leaves.
    pub how: Leaving,
}

/// The way in which a rank leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// Its process is ended by this signal.
    Signal(i32),
    /// Its process exits with this code.
    Code(i32),
    /// Its process is stopped and does not end.
    Frozen,
}

/// The answer of one rank to a step.
#[derive(Clone, Debug)]
pub enum Answer {
    /// It sent its result.
    Reply(RankReply),
    /// It left: the call it was in, and how its process ended, each if known.
    Left(Option<usize>, Option<RankExit>),
}

impl Answer {
    /// Returns its reply; none if it left.
    #[must_use]
    pub fn reply(&self) -> Option<&RankReply> {
        match self {
            Self::Reply(reply) => Some(reply),
            Self::Left(..) => None,
        }
    }
}

impl CompiledScript {
    /// Returns what becomes of the world afterwards.
    #[must_use]
    pub fn afterwards(&self) -> Afterwards {
        self.script.afterwards
    }

    /// Returns the hang verdict that the script demands; none if it demands none.
    #[must_use]
    pub fn hang(&self) -> Option<&Hang> {
        self.script.hang.as_ref()
    }

    /// Iterates over the ops of the script: what is expected of each, and whether the oracle judges it.
    pub fn parts(&self) -> impl Iterator<Item = (&Prepared, bool)> {
        self.parts.iter().map(|part| (&part.prepared, part.judged))
    }

    /// Returns what the harness does when the rank enters that call; none if nothing.
    #[must_use]
    pub fn on_enter(&self, rank: Rank, call: usize) -> Option<&OnEnter> {
        self.on_enter[rank.index()].get(&call)
    }

    /// Returns how the rank leaves; none if it stays.
    #[must_use]
    pub fn departure(&self, rank: Rank) -> Option<Departure> {
        self.departures[rank.index()]
    }

    /// Returns the timeout, in seconds, after which a call must have raised: it has lasted for `seconds`, longer than it may. None
    /// for a call that need not raise, or that may last longer. `world` is the timeout of the world.
    #[must_use]
    pub fn missed_timeout(&self, rank: Rank, call: usize, seconds: f64, world: f64) -> Option<f64> {
        let mut promises = self.expectations[rank.index()].iter();
        let promise = promises.find(|promise| promise.at.call == call)?;
        let least = promise.kind.overdue(seconds)?;
        let timeouts = self.timeouts[rank.index()].iter().copied().chain([world]);
        timeouts
            .filter(|timeout| *timeout >= least)
            .min_by(f64::total_cmp)
    }

    /// Returns true if every rank that must make the mark has made it.
    #[must_use]
    pub fn is_marked(&self, name: &str, marked: &BTreeMap<String, BTreeSet<Rank>>) -> bool {
        let none = BTreeSet::new();
        let due = self.marks.get(name).unwrap_or(&none);
        due.is_subset(marked.get(name).unwrap_or(&none))
    }
}
