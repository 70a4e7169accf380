//! What is known of a job at one moment. Every source (the harness's own journal, a program watched from outside, logs)
//! fills in what it can; what it cannot know stays open, and no rule may take open for no.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use allranks_model::flight_recorder::RecordedOp;
use allranks_model::names::Rank;

/// A process that listens at the endpoint of a job and is no rank of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignListener {
    /// The port.
    pub port: u16,
    /// `python (pid 4711)`; `a process of another user`.
    pub owner: String,
    /// Whether it takes connections and says nothing.
    pub is_silent: bool,
}

/// A job at one moment.
#[derive(Clone, Debug, Default)]
pub struct HangEvidence {
    /// Every process of the job, in the launcher's order.
    pub ranks: Vec<RankState>,
    /// Whether these are all the processes that the job has.
    pub is_whole: bool,
    /// Others who listen where the ranks want to meet.
    pub strangers: Vec<ForeignListener>,
    /// Places, `host:port`, at which nobody can be met, and why.
    pub deserted: Vec<(String, String)>,
    /// Groups of which `done` begins with a later collective than the first, alike on all ranks: how many came before.
    pub forgotten: BTreeMap<String, usize>,
    /// For how long nothing has moved.
    pub still: Duration,
}

/// One rank, as far as it can be seen.
#[derive(Clone, Debug)]
pub struct RankState {
    /// The rank the launcher gave it.
    pub rank: Rank,
    /// Its process.
    pub process: Process,
    /// What it has done, in order.
    pub done: Vec<TraceEvent>,
    /// What it is in now, and the time it has been.
    pub doing: Option<(TraceEvent, Duration)>,
    /// What it is still going to do.
    pub ahead: Remaining,
    /// What it raised or printed as an error, oldest first.
    pub errors: Vec<String>,
    /// What it has under way, by the backend's own records, oldest first.
    pub recorded: Vec<RecordedOp>,
}

impl HangEvidence {
    /// A rank of the job; `None` if it is not seen.
    #[must_use]
    pub fn rank(&self, rank: Rank) -> Option<&RankState> {
        self.ranks.iter().find(|sight| sight.rank == rank)
    }
}

impl RankState {
    /// A rank of which nothing is known.
    #[must_use]
    pub fn unknown(rank: Rank) -> Self {
        Self {
            rank,
            process: Process::Unknown,
            done: Vec::new(),
            doing: None,
            ahead: Remaining::Unknown,
            errors: Vec::new(),
            recorded: Vec::new(),
        }
    }

    /// What it is in now.
    #[must_use]
    pub fn now(&self) -> Option<&EventKind> {
        self.doing.as_ref().map(|(deed, _)| &deed.what)
    }

    /// Everything it has entered, in order.
    pub fn entered(&self) -> impl Iterator<Item = &TraceEvent> {
        self.done
            .iter()
            .chain(self.doing.as_ref().map(|(deed, _)| deed))
    }

    /// Where it waits for others, or was when waiting failed.
    #[must_use]
    pub fn stands(&self) -> Option<&EventKind> {
        let failed = || self.done.last().filter(|_| !self.errors.is_empty());
        match &self.doing {
            Some((deed, _)) => Some(&deed.what),
            None => failed().map(|deed| &deed.what),
        }
    }

    /// What it will enter, if that is known.
    #[must_use]
    pub fn coming(&self) -> Option<&[TraceEvent]> {
        match &self.ahead {
            Remaining::Known(deeds) => Some(deeds),
            Remaining::Unknown => None,
        }
    }

    /// Whether its process can still do anything.
    #[must_use]
    pub fn is_there(&self) -> bool {
        matches!(self.process, Process::Running | Process::Unknown)
    }

    /// Where it is, for people.
    #[must_use]
    pub fn place(&self) -> String {
        match (&self.process, &self.doing, self.done.last()) {
            (Process::Ended(how), ..) => format!("its process ended: {how}"),
            (Process::Stopped, Some((deed, _)), _) => format!("stopped in {deed}"),
            (Process::Stopped, None, _) => "stopped".to_owned(),
            (Process::Running | Process::Unknown, Some((deed, Duration::ZERO)), _) => {
                format!("in {deed}")
            }
            (Process::Running | Process::Unknown, Some((deed, since)), _) => {
                format!("in {deed} for {:.1} s", since.as_secs_f64())
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

/// A rank's process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Process {
    /// It runs, or sleeps as programs do.
    Running,
    /// It is stopped by a signal or a debugger.
    Stopped,
    /// It is gone: `exit 1`, `signal 9 (SIGKILL)`.
    Ended(String),
    /// Nobody looked.
    Unknown,
}

/// What a rank is going to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remaining {
    /// This, and nothing else.
    Known(Vec<TraceEvent>),
    /// Who knows.
    Unknown,
}

/// Something a rank does, and where that is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// What.
    pub what: EventKind,
    /// `move 3`, `train.py:41`; empty if unknown.
    pub at: String,
}

/// What a rank does, as far as others are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// Joins the world.
    Init(Rendezvous),
    /// Makes a group; members.
    NewGroup(Vec<Rank>),
    /// Issues a collective.
    Collective(Collective),
    /// Waits for the collective of this group that it issued as number so and so, from 0.
    Await(String, usize),
    /// Sends or receives.
    Message(Message),
    /// Waits for the message of this kind that it issued as number so and so, from 1.
    AwaitMessage(Message, usize),
    /// Waits until keys of a store are set, by whichever rank does.
    AwaitKeys(Vec<String>),
    /// Tears a group down.
    Destroy(String),
    /// Is in a call of which only the stack is known.
    Seen(SeenCall),
    /// Ends, after everything else, and needs nobody else for it.
    Leave,
    /// Something that needs nobody else.
    Own(String),
}

/// A call with other ranks that a rank's stack shows: which number of its group it is, is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenCall {
    /// `all_reduce`.
    pub name: String,
    /// Whether it is a collective, which every member of its group must make; a message is none.
    pub is_collective: bool,
    /// Whether it is known to be one of the default group; else the group is not known.
    pub is_default_group: bool,
}

/// How a rank wants to meet the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendezvous {
    /// `env`, `tcp`, `file`, `store`.
    pub method: String,
    /// `127.0.0.1:29500`, or a file.
    pub place: String,
    /// The place that the launcher told it, if it told one.
    pub told: Option<String>,
    /// The rank it says it is.
    pub rank: u32,
    /// The size of the world it believes in.
    pub world_size: u32,
}

impl Rendezvous {
    /// Host and port, if the place has a port.
    #[must_use]
    pub fn address(&self) -> Option<(&str, u16)> {
        let (host, port) = self.place.rsplit_once(':')?;
        Some((host, port.parse().ok()?))
    }
}

/// A collective as one rank calls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collective {
    /// Its group.
    pub group: String,
    /// The group's members.
    pub members: Arc<[Rank]>,
    /// `all_reduce`.
    pub name: String,
    /// What else every member must give alike: `reduce op`, `dtype`, `elements`, `root`.
    pub nature: BTreeMap<&'static str, String>,
}

/// One side of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its group.
    pub group: String,
    /// Whether this is the sender's side.
    pub sends: bool,
    /// The other side; none: anybody.
    pub peer: Option<Rank>,
    /// The tag.
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
            Self::Init(meeting) if meeting.place.is_empty() => f.write_str("init_process_group"),
            Self::Init(meeting) => write!(f, "init_process_group at {}", meeting.place),
            Self::NewGroup(members) => write!(f, "new_group({})", list(members)),
            Self::Collective(one) => write!(f, "{one}"),
            Self::Await(group, number) => write!(f, "wait for collective {number} of {group}"),
            Self::Message(message) | Self::AwaitMessage(message, _) => {
                let verb = if message.sends {
                    "send to"
                } else {
                    "recv from"
                };
                match message.peer {
                    Some(peer) => write!(f, "{verb} rank {peer}"),
                    None => write!(f, "{verb} anybody"),
                }
            }
            Self::AwaitKeys(keys) => write!(f, "a wait for `{}` of a store", keys.join("`, `")),
            Self::Destroy(group) => write!(f, "destroy_process_group({group})"),
            Self::Seen(call) => write!(f, "{call}"),
            Self::Leave => f.write_str("leaving"),
            Self::Own(what) => f.write_str(what),
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

/// What a message of many lines begins with.
#[must_use]
pub fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// `0, 1, 5`.
#[must_use]
pub fn list(ranks: &[Rank]) -> String {
    let texts: Vec<String> = ranks.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

/// `rank 3`; `ranks 0, 1 and 5`.
#[must_use]
pub fn named(ranks: &[Rank]) -> String {
    match ranks {
        [one] => format!("rank {one}"),
        [most @ .., last] => format!("ranks {} and {last}", list(most)),
        [] => "no rank".to_owned(),
    }
}

/// The form of a verb that goes with so many ranks.
#[must_use]
pub fn verb<'a>(ranks: &[Rank], one: &'a str, several: &'a str) -> &'a str {
    if ranks.len() == 1 { one } else { several }
}
