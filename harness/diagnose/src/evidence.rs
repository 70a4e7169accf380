//! Hang evidence: what is known of a job at one moment. Every source (the harness's own journal, a program watched from outside,
//! logs) fills in what it can. What it cannot know stays unknown, and no rule may read "unknown" as "no".

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use allranks_model::flight_recorder::RecordedOp;
use allranks_model::names::Rank;
use serde::{Deserialize, Serialize};

/// A process that listens at the endpoint of a job and is no rank of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignListener {
    /// The port that it listens at.
    pub port: u16,
    /// The process in words: `python (pid 4711)`, `a process of another user`.
    pub owner: String,
    /// Whether it accepts connections and never answers.
    pub is_silent: bool,
}

/// What is known of a job at one moment.
#[derive(Clone, Debug, Default)]
pub struct HangEvidence {
    /// Every process of the job, in the launcher's order.
    pub ranks: Vec<RankState>,
    /// Whether these are all the processes that the job has.
    pub is_whole: bool,
    /// Processes outside the job that listen where the ranks want to meet.
    pub foreign_listeners: Vec<ForeignListener>,
    /// Endpoints, `host:port`, at which no rank can be reached, each with the reason.
    pub endpoints_without_listener: Vec<(String, String)>,
    /// How many collectives of a group, by name, came before the first one in `done`, on every rank alike. Absent:
    /// none.
    pub forgotten: BTreeMap<String, usize>,
    /// How long nothing has moved.
    pub still: Duration,
}

/// What is known of one rank.
#[derive(Clone, Debug)]
pub struct RankState {
    /// The rank that the launcher gave it, or else the one that it claims; the next free number if another process claims the same.
    pub rank: Rank,
    /// Whether the launcher gave it its rank.
    pub has_assigned_rank: bool,
    /// The state of its process.
    pub process: Process,
    /// The events that are over, oldest first.
    pub done: Vec<TraceEvent>,
    /// Numbers, from 0, of the messages in `done` whose work was dropped before it had been waited for.
    pub dropped: Vec<usize>,
    /// The number, from 0, of a message or collective in `done` whose work it has waited for -> how many events it had begun when that
    /// wait ended.
    pub waited: BTreeMap<usize, usize>,
    /// The event that it is in, and how long (zero: not known); `None` if it is in none that is known.
    pub doing: Option<(TraceEvent, Duration)>,
    /// The messages of the batch that it waits for on its device, each with its number as in [`EventKind::AwaitMessage`]; empty if it
    /// waits for none.
    pub batch: Vec<(Message, usize)>,
    /// The events that it will still enter.
    pub ahead: Remaining,
    /// The errors that it raised or printed, oldest first.
    pub errors: Vec<String>,
    /// The errors that have ended threads of it other than the main one, oldest first.
    pub thread_errors: Vec<String>,
    /// The ops that it has under way by the backend's own records (torch's flight recorder), oldest first.
    pub recorded: Vec<RecordedOp>,
    /// The keys of stores that its program has set, oldest first, with the prefixes of their stores.
    pub keys_set: Vec<String>,
    /// How often it has set those that it has set more than once.
    pub keys_set_again: BTreeMap<String, u32>,
    /// Those that it has deleted and not set again.
    pub keys_deleted: Vec<String>,
    /// The line of the program that reads keys of stores, `FILE:LINE` -> what it has read there.
    pub reads: BTreeMap<String, Reads>,
    /// The number, from 0, of a message or collective in `done` that a thread has issued which has ended -> the number of that thread.
    pub by_ended_thread: BTreeMap<usize, u32>,
    /// Whether several of its threads have issued collectives or messages.
    pub calls_by_threads: bool,
    /// Whether threads other than its main one have set keys.
    pub keys_by_threads: bool,
}

impl HangEvidence {
    /// Returns what is known of a rank; `None` if it is not in `ranks`.
    #[must_use]
    pub fn rank(&self, rank: Rank) -> Option<&RankState> {
        // Mostly all ranks are here, in their order.
        let in_place = self.ranks.get(rank.index());
        in_place
            .filter(|state| state.rank == rank)
            .or_else(|| self.ranks.iter().find(|state| state.rank == rank))
    }
}

impl RankState {
    /// Creates a rank of which nothing is known.
    #[must_use]
    pub fn unknown(rank: Rank) -> Self {
        Self {
            rank,
            has_assigned_rank: true,
            process: Process::Unknown,
            done: Vec::new(),
            dropped: Vec::new(),
            waited: BTreeMap::new(),
            doing: None,
            batch: Vec::new(),
            ahead: Remaining::Unknown,
            errors: Vec::new(),
            thread_errors: Vec::new(),
            recorded: Vec::new(),
            keys_set: Vec::new(),
            keys_set_again: BTreeMap::new(),
            keys_deleted: Vec::new(),
            reads: BTreeMap::new(),
            by_ended_thread: BTreeMap::new(),
            calls_by_threads: false,
            keys_by_threads: false,
        }
    }

    /// Returns the event that it is in; `None` if it is in none that is known.
    #[must_use]
    pub fn now(&self) -> Option<&EventKind> {
        self.doing.as_ref().map(|(event, _)| &event.what)
    }

    /// Iterates over the events that it has entered, oldest first; the last may be under way.
    pub fn entered(&self) -> impl Iterator<Item = &TraceEvent> {
        self.done
            .iter()
            .chain(self.doing.as_ref().map(|(event, _)| event))
    }

    /// Returns the event that it is in or, if it is in none and has raised an error, the last one that it was in.
    #[must_use]
    pub fn current_or_failed(&self) -> Option<&EventKind> {
        let failed = || self.done.last().filter(|_| !self.errors.is_empty());
        match &self.doing {
            Some((event, _)) => Some(&event.what),
            None => failed().map(|event| &event.what),
        }
    }

    /// Returns the events that it will still enter; `None` if they are not known.
    #[must_use]
    pub fn coming(&self) -> Option<&[TraceEvent]> {
        match &self.ahead {
            Remaining::Known(events) => Some(events),
            Remaining::Unknown => None,
        }
    }

    /// Returns true unless its process is known to have ended or to be stopped.
    #[must_use]
    pub fn is_there(&self) -> bool {
        matches!(self.process, Process::Running | Process::Unknown)
    }

    /// Returns true if it waits for a message, or is in a call that sends or receives one.
    #[must_use]
    pub fn waits_for_message(&self) -> bool {
        matches!(
            self.now(),
            Some(EventKind::Message(_) | EventKind::AwaitMessage(..))
        )
    }

    /// Iterates over the collectives that it has entered, each with its event, oldest first.
    pub(crate) fn collectives(&self) -> impl Iterator<Item = (&TraceEvent, &Collective)> {
        self.entered()
            .filter_map(|event| Some((event, as_collective(&event.what)?)))
    }

    /// Describes where it is, with its rank, as evidence of a verdict: `rank 3: in all_reduce on world (train.py:41) for 5.0 s`.
    pub(crate) fn place_of_rank(&self) -> String {
        format!("rank {}: {}", self.rank, self.place())
    }

    /// Describes where it is, for reports: `in all_reduce on world (train.py:41) for 5.0 s`.
    #[must_use]
    pub fn place(&self) -> String {
        match (&self.process, &self.doing, self.done.last()) {
            (Process::Ended(how), ..) => format!("its process ended: {how}"),
            (Process::Stopped, Some((event, _)), _) => format!("stopped in {event}"),
            (Process::Stopped, None, _) => "stopped".to_owned(),
            (Process::Running | Process::Unknown, Some((event, Duration::ZERO)), _) => {
                format!("in {event}")
            }
            (Process::Running | Process::Unknown, Some((event, since)), _) => {
                format!("in {event} for {:.1} s", since.as_secs_f64())
            }
            (Process::Running | Process::Unknown, None, Some(last)) => match self.errors.last() {
                Some(error) => format!("after {last}; it raised {}", first_line(error)),
                None => format!("after {last}"),
            },
            (Process::Running, None, None) => match self.ahead {
                Remaining::Known(_) => "has begun nothing".to_owned(),
                Remaining::Unknown => "runs; where is not known".to_owned(),
            },
            (Process::Unknown, None, None) => "nothing is known of it".to_owned(),
        }
    }
}

/// What a line of a rank's program has read of stores.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reads(
    /// How often it has begun to read.
    pub usize,
    /// The keys of the last times, oldest first.
    pub Vec<Vec<String>>,
);

impl Reads {
    /// Returns the keys that it has read at its nth time, from 1; `None` if there was none, or if they are no longer known.
    #[must_use]
    pub fn nth(&self, nth: usize) -> Option<&[String]> {
        let forgotten = self.0.checked_sub(self.1.len())?;
        let keys = self.1.get(nth.checked_sub(forgotten + 1)?)?;
        Some(keys)
    }
}

/// How the key begins that a member of a process group sets when it joins one that the program makes by itself: see `allranks_patch.py`.
pub const JOINED: &str = "process group at ";

/// The state of a rank's process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Process {
    /// It runs or sleeps.
    Running,
    /// It is stopped by a signal or a debugger.
    Stopped,
    /// It has ended, and how: `exit 1`, `signal 9 (SIGKILL)`.
    Ended(String),
    /// Its state is not known.
    Unknown,
}

/// The events that a rank will still enter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remaining {
    /// Exactly these, in order.
    Known(Vec<TraceEvent>),
    /// They are not known.
    Unknown,
}

/// Something a rank does, and where that is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// What the rank does.
    pub what: EventKind,
    /// Where in the program it is: `move 3`, `train.py:41`; empty if unknown.
    pub at: String,
}

/// What a rank does, as far as others are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// Joins the world, by `init_process_group`.
    Init(Rendezvous),
    /// Makes a group with these members.
    NewGroup(Vec<Rank>),
    /// Issues a collective.
    Collective(Collective),
    /// Waits for a collective: the group's name, and the collective's number on this rank, from 0.
    Await(String, usize),
    /// Sends or receives a message.
    Message(Message),
    /// Waits for a message: its side of it, and its number among this rank's messages that are equal to it, from 1.
    AwaitMessage(Message, usize),
    /// Waits until these keys of a store are set, by any rank.
    AwaitKeys(Vec<String>),
    /// Waits for certain ranks in something other than a collective or a message.
    AwaitRanks(RankWait),
    /// Destroys the group of this name.
    Destroy(String),
    /// Is in a call of which only the stack is known.
    Seen(SeenCall),
    /// Ends, after everything else, and needs no other rank for it.
    Leave,
    /// Does something that needs no other rank, in words.
    Own(String),
    /// Waits for itself: none of its threads ever goes on.
    Deadlock(Deadlock),
}

/// Returns true if each member of a collective with this name, Python's or a recorder's, has a share of its own, which may have another
/// size than those of the rest.
#[must_use]
pub fn has_shares(name: &str) -> bool {
    let of_shares = ["gather", "scatter", "all_to_all", "alltoall"];
    of_shares.iter().any(|part| name.contains(part))
}

/// Returns the collective that an event is; `None` if it is something else.
pub(crate) fn as_collective(what: &EventKind) -> Option<&Collective> {
    match what {
        EventKind::Collective(one) => Some(one),
        _ => None,
    }
}

/// A rank whose threads, and the processes that they wait for, wait for each other without a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlock {
    /// What it is in, in words: `its own code, `worker.join()``.
    pub text: String,
    /// What its threads wait for, a sentence each.
    pub facts: Vec<String>,
}

/// A wait for certain ranks: for a lock that one of them has, or for the answer to a remote procedure call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankWait {
    /// What it waits in, in words: `a wait for the lock of /data/a.lock, which rank 2 has`.
    pub text: String,
    /// The ranks that it waits for.
    pub ranks: Vec<Rank>,
    /// Whether it ends only by what these ranks do on their main threads.
    pub is_proved: bool,
}

/// A call with other ranks that a rank's stack shows: which number of its group it is, is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenCall {
    /// The name of the call: `all_reduce`.
    pub name: String,
    /// Whether it is a collective, which every member of its group must make; a message is none.
    pub is_collective: bool,
    /// Whether it is known to be one of the default group; else the group is not known.
    pub is_default_group: bool,
}

/// How and where a rank joins the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendezvous {
    /// The method: `env`, `tcp`, `file`, `store`.
    pub method: String,
    /// The endpoint: `127.0.0.1:29500`, or a file; empty if unknown.
    pub place: String,
    /// The endpoint that the launcher gave it; `None` if it gave none.
    pub assigned: Option<String>,
    /// The rank that it claims.
    pub rank: u32,
    /// The world size that it was given.
    pub world_size: u32,
}

impl Rendezvous {
    /// Returns host and port of the endpoint; `None` if it has no port.
    #[must_use]
    pub fn address(&self) -> Option<(&str, u16)> {
        let (host, port) = self.place.rsplit_once(':')?;
        Some((host, port.parse().ok()?))
    }
}

/// What a rank is in, as [`EventKind::Own`], whose call of torch.distributed is not known.
pub const A_CALL: &str = "a call of torch.distributed";

/// How a process ended whose program returned by itself.
pub const END_OF_PROGRAM: &str = "came to the end of its program";

/// How many groups a rank has when it makes one with `use_local_synchronization`. torch names such a group by its members and by
/// this number, so members that have another number wait for each other under other names (pytorch#173608).
pub const GROUPS_OF_CALLER: &str = "groups of the caller";

/// A collective as one rank calls it. It is equal to the call of another member that goes together with it: `splits`, in which members
/// may differ, does not count.
#[derive(Clone, Debug)]
pub struct Collective {
    /// The name of its group.
    pub group: String,
    /// The group's members.
    pub members: Arc<[Rank]>,
    /// The call, such as `all_reduce`.
    pub name: String,
    /// The arguments that every member must give alike, by name: `reduce op`, `dtype`, `elements`, `root`, [`GROUPS_OF_CALLER`].
    pub nature: BTreeMap<&'static str, String>,
    /// The amounts that the rank exchanges with each member; `None`: not known, or no all-to-all.
    pub splits: Option<Splits>,
}

impl PartialEq for Collective {
    fn eq(&self, other: &Self) -> bool {
        let Self {
            group,
            members,
            name,
            nature,
            splits: _,
        } = self;
        (group, members, name, nature) == (&other.group, &other.members, &other.name, &other.nature)
    }
}

impl Eq for Collective {}

/// The numbers of elements that a rank sends to and receives from each member of a group, in their order, in an all-to-all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Splits {
    /// The elements that it sends to each member.
    pub sends: Vec<u64>,
    /// The elements that it receives from each member.
    pub receives: Vec<u64>,
}

/// One side of a point-to-point message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The name of its group.
    pub group: String,
    /// Whether this is the sender's side.
    pub sends: bool,
    /// The rank of the other side; `None`: any rank.
    pub peer: Option<Rank>,
    /// The tag of the message.
    pub tag: u32,
}

impl std::fmt::Display for TraceEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.what)?;
        match self.at.as_str() {
            "" => Ok(()),
            at => write!(f, " ({at})"),
        }
    }
}

impl std::fmt::Display for EventKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Init(rendezvous) if rendezvous.place.is_empty() => {
                f.write_str("init_process_group")
            }
            Self::Init(rendezvous) => write!(f, "init_process_group at {}", rendezvous.place),
            Self::NewGroup(members) => write!(f, "new_group({})", list(members)),
            Self::Collective(one) => write!(f, "{one}"),
            Self::Await(group, number) => {
                write!(f, "wait for collective number {} of {group}", number + 1)
            }
            Self::Message(message) | Self::AwaitMessage(message, _) => {
                let verb = if message.sends {
                    "send to"
                } else {
                    "recv from"
                };
                match message.peer {
                    Some(peer) => write!(f, "{verb} rank {peer}"),
                    None => write!(f, "{verb} any rank"),
                }
            }
            Self::AwaitRanks(wait) => f.write_str(&wait.text),
            Self::AwaitKeys(keys) => write!(f, "a wait for `{}` of a store", keys.join("`, `")),
            Self::Destroy(group) => write!(f, "destroy_process_group({group})"),
            Self::Seen(call) => write!(f, "{call}"),
            Self::Leave => f.write_str("leaving"),
            Self::Own(what) | Self::Deadlock(Deadlock { text: what, .. }) => f.write_str(what),
        }
    }
}

impl std::fmt::Display for SeenCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.is_default_group {
            true => write!(f, "{} on world", self.name),
            false => f.write_str(&self.name),
        }
    }
}

impl std::fmt::Display for Collective {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} on {}", self.name, self.group)
    }
}

/// Returns the first line of a text; empty if there is none.
#[must_use]
pub fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// Joins ranks with commas: `0, 1, 5`.
#[must_use]
pub fn list(ranks: &[Rank]) -> String {
    let texts: Vec<String> = ranks.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

/// Names ranks in a sentence: `rank 3`, `ranks 0, 1 and 5`, `no rank`.
#[must_use]
pub fn named(ranks: &[Rank]) -> String {
    match ranks {
        [one] => format!("rank {one}"),
        [most @ .., last] => format!("ranks {} and {last}", list(most)),
        [] => "no rank".to_owned(),
    }
}

/// Returns the form of a verb that agrees with the ranks as [`named`] names them: no rank takes the form of one.
#[must_use]
pub fn verb<'a>(ranks: &[Rank], one: &'a str, several: &'a str) -> &'a str {
    if ranks.len() < 2 { one } else { several }
}
