//! Scripts: from a plan's [`allranks_suite::plan::Script`] to what each rank is sent, and from the answers to a finding.
//!
//! In: a check with a script, where the ranks may meet, the seed. Out: a [`CompiledScript`] script: one step for each rank, what
//! the harness must do when a rank enters a call ([`Cue`]), which ranks leave and how, and the judgement. Data are the
//! oracle's business: every op a script issues is a check of its own, prepared and verified there.
//!
//! | module | holds |
//! |---|---|
//! | `lower` | moves → calls, storages, cues |
//! | `expectation` | what moves promise, held against answers |
//! | `judge` | answers → finding |
//! | `trace_events` | calls → what they are to the other ranks |

mod expectation;
mod judge;
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

/// Where the ranks of a world may meet, for scripts that initialise.
#[derive(Clone, Debug, Default)]
pub struct Points {
    /// The host of all of them.
    pub host: String,
    /// Port and file of each.
    pub all: Vec<(u16, String)>,
}

/// A script made ready.
#[derive(Debug)]
pub struct CompiledScript {
    script: Arc<Script>,
    /// One for each rank.
    pub steps: Vec<RankStep>,
    parts: Vec<Part>,
    /// For each rank, what its calls must come to.
    claims: Vec<Vec<Expectation>>,
    cues: Vec<BTreeMap<usize, Cue>>,
    departures: Vec<Option<Departure>>,
    /// For each rank, what each of its calls is to the others.
    pub deeds: Vec<Vec<TraceEvent>>,
    /// Ranks that must mark a name before those who hold for it go on.
    marks: BTreeMap<String, BTreeSet<Rank>>,
}

/// An op of a script, with where its storages and calls are in the ranks' steps.
#[derive(Debug)]
struct Part {
    prepared: Prepared,
    /// Whether the oracle judges it.
    judged: bool,
    /// Bytes of each rank's payload.
    bytes: Vec<Range<usize>>,
    /// For each rank, where each of its own calls stands; none if it is not made.
    calls: Vec<Vec<Option<MoveRef>>>,
}

/// A call in a rank's step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MoveRef {
    call: usize,
    /// Inside `together`: thread and place.
    inner: Option<(usize, usize)>,
    /// Whether it is inside `attempt`.
    attempted: bool,
}

/// What a call must come to.
#[derive(Clone, Debug)]
struct Expectation {
    at: MoveRef,
    /// Its move.
    of: usize,
    kind: expectation::ExpectationKind,
}

/// What the harness does when a rank enters a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cue {
    /// Notes it.
    Mark(String),
    /// Says `go` when every mark of the name has been made.
    Hold(String),
    /// Lets it go on after that long.
    Pause(Duration),
    /// Leaves it stopped.
    Freeze,
}

/// How a rank leaves in the middle of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// In which of its calls.
    pub call: usize,
    /// How.
    pub how: Leaving,
}

/// How a rank leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// A signal.
    Signal(i32),
    /// An exit code.
    Code(i32),
    /// Stopped, not gone.
    Frozen,
}

/// What came of one rank.
#[derive(Clone, Debug)]
pub enum Answer {
    /// It answered.
    Reply(RankReply),
    /// It left: the call it was in, and how its process ended, if that is known.
    Left(Option<usize>, Option<RankExit>),
}

impl Answer {
    /// Its reply, if it sent one.
    #[must_use]
    pub fn reply(&self) -> Option<&RankReply> {
        match self {
            Self::Reply(reply) => Some(reply),
            Self::Left(..) => None,
        }
    }
}

impl CompiledScript {
    /// What becomes of the world.
    #[must_use]
    pub fn afterwards(&self) -> Afterwards {
        self.script.afterwards
    }

    /// The verdict that must be given on it.
    #[must_use]
    pub fn hang(&self) -> Option<&Hang> {
        self.script.hang.as_ref()
    }

    /// For each op of the script, what is expected of it, and whether the oracle judges it.
    pub fn parts(&self) -> impl Iterator<Item = (&Prepared, bool)> {
        self.parts.iter().map(|part| (&part.prepared, part.judged))
    }

    /// What the harness does when the rank enters that call.
    #[must_use]
    pub fn cue(&self, rank: Rank, call: usize) -> Option<&Cue> {
        self.cues[rank.index()].get(&call)
    }

    /// How the rank leaves, if it does.
    #[must_use]
    pub fn departure(&self, rank: Rank) -> Option<Departure> {
        self.departures[rank.index()]
    }

    /// Whether everyone who has to mark the name has done so.
    #[must_use]
    pub fn is_marked(&self, name: &str, marked: &BTreeMap<String, BTreeSet<Rank>>) -> bool {
        let none = BTreeSet::new();
        let due = self.marks.get(name).unwrap_or(&none);
        due.is_subset(marked.get(name).unwrap_or(&none))
    }
}
