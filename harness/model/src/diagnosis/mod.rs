//! The verdict on a job that hangs, as data and as text.

pub mod rank_set;
mod text;

pub use text::{headline, lines};

use serde::{Deserialize, Serialize};

use crate::names::Rank;
use crate::rank_line::RankLine;

/// What is wrong with a job that hangs, or that goes on although its ranks contradict each other.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
    strum::Display,
    strum::IntoStaticStr,
    strum::EnumIter,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
#[schemars(rename = "Kind")]
pub enum HangKind {
    /// Ranks meet at different ports of one host.
    PortMismatch,
    /// Ranks meet at different hosts, files, or by different methods.
    PlaceMismatch,
    /// Another process has the port, and the rank that should listen there cannot.
    PortInUse,
    /// Another process has the port, takes connections, and never answers.
    SilentListener,
    /// Nobody can be reached where the ranks want to meet.
    MasterUnreachable,
    /// Some ranks made a world of their own.
    SplitWorld,
    /// A rank never comes to the meeting.
    MissingRank,
    /// Two processes say that they are the same rank.
    DuplicateRank,
    /// Ranks believe in worlds of different sizes.
    WorldSizeDisagreement,
    /// A rank lacks a variable it needs.
    EnvironmentMissing,
    /// Ranks make their groups in different orders.
    GroupOrder,
    /// A rank does not make a group that the others make.
    GroupSkipped,
    /// Ranks make a group with different members.
    GroupMembersDiffer,
    /// A member leaves out a collective.
    CollectiveSkipped,
    /// Members call different collectives, or the same one with other arguments.
    CollectiveMismatch,
    /// Ranks wait for each other in a circle.
    CyclicWait,
    /// One side of a message has no other side.
    MessageUnmatched,
    /// A rank that others wait for is gone.
    PeerDead,
    /// A rank that others wait for is stopped.
    PeerStopped,
    /// A rank raised an error, and the others wait for it.
    PeerRaised,
    /// A group has no backend for the device its ranks use.
    DeviceBinding,
    /// A rank does not have the backend.
    BackendMissing,
    /// A rank does not come out of tearing down.
    TeardownStuck,
    /// One member does not come out of a collective that all have entered and others have left.
    StuckInCall,
    /// A rank has not come to where the others wait, and nobody saw what keeps it.
    Behind,
    /// Somebody is late, and on the way: no hang.
    Slow,
    /// The evidence proves nothing.
    Unknown,
}

/// How sure a verdict is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Confidence {
    /// The evidence leaves nothing else.
    Proved,
    /// It fits the evidence best.
    Likely,
    /// A statement of what is known, no accusation.
    None,
}

/// The verdict on a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// What is wrong.
    pub kind: HangKind,
    /// Seconds since the last progress when it was given.
    pub after_s: f64,
    /// How sure that is.
    pub confidence: Confidence,
    /// Who caused it.
    pub culprits: Vec<Rank>,
    /// Who waits because of them.
    pub victims: Vec<Rank>,
    /// One line: who, where, what.
    pub summary: String,
    /// The facts it follows from.
    pub evidence: Vec<String>,
    /// What would show that it is wrong.
    pub refuted_by: String,
    /// What to do about it.
    pub advice: Vec<String>,
    /// Where every rank is.
    pub places: Vec<RankLine>,
}

impl Diagnosis {
    /// The same verdict with the facts that it follows from, in place of those it had.
    #[must_use]
    pub fn because(mut self, facts: Vec<String>) -> Self {
        self.evidence = facts;
        self
    }
}
