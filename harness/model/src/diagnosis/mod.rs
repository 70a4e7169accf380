//! The verdict on a job that hangs, as data and as text.

pub mod rank_set;
mod text;

pub use text::{headline, lines};

use serde::{Deserialize, Serialize};

use crate::names::Rank;
use crate::rank_line::RankLine;

/// The kind of a hang verdict: what is wrong with a job that hangs, or that makes progress although its ranks contradict each
/// other.
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
    strum::EnumMessage,
    strum::EnumString,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
#[schemars(rename = "Kind")]
pub enum HangKind {
    /// Ranks use different ports of one host for their rendezvous.
    PortMismatch,
    /// Ranks use different hosts, files or methods for their rendezvous.
    PlaceMismatch,
    /// A process outside the job listens at the port, and the rank that should listen there cannot.
    PortInUse,
    /// A process outside the job listens at the port, accepts connections, and never answers.
    SilentListener,
    /// No process answers at the address of the ranks' rendezvous.
    MasterUnreachable,
    /// Some ranks made a world of their own.
    SplitWorld,
    /// A rank never joins the rendezvous.
    MissingRank,
    /// Two processes claim the same rank.
    DuplicateRank,
    /// Ranks were given different world sizes.
    WorldSizeDisagreement,
    /// A rank lacks an environment variable that its rendezvous needs.
    EnvironmentMissing,
    /// Ranks create their process groups in different orders.
    GroupOrder,
    /// A rank does not create a process group that the others create.
    GroupSkipped,
    /// Ranks create a process group with different members.
    GroupMembersDiffer,
    /// A member of a group does not call a collective that the other members call.
    CollectiveSkipped,
    /// Members call different collectives, or the same one with other arguments.
    CollectiveMismatch,
    /// Ranks wait for each other in a circle.
    CyclicWait,
    /// A send has no matching receive, or a receive no matching send.
    MessageUnmatched,
    /// A rank that others wait for has ended.
    PeerDead,
    /// A rank that others wait for is stopped by a signal or a debugger.
    PeerStopped,
    /// A rank raised an error, and the others wait for it.
    PeerRaised,
    /// A group has no backend for the device its ranks use.
    DeviceBinding,
    /// A rank's torch lacks the backend.
    BackendMissing,
    /// A rank does not return from its teardown.
    TeardownStuck,
    /// One member does not return from a collective that all members have entered and others have left.
    StuckInCall,
    /// A rank has not reached the call in which the others wait, and the evidence does not show why.
    Behind,
    /// A rank is late but makes progress: no hang.
    Slow,
    /// The evidence supports no verdict.
    Unknown,
}

impl HangKind {
    /// Returns what is wrong with a job of this kind, in one sentence.
    #[must_use]
    pub fn meaning(self) -> String {
        let text = strum::EnumMessage::get_documentation(&self);
        text.unwrap_or_default().replace('\n', " ")
    }
}

/// How well the evidence supports a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Confidence {
    /// The evidence allows no other verdict.
    Proved,
    /// The verdict fits the evidence better than any other.
    Likely,
    /// The verdict states what is known and accuses no rank.
    None,
}

/// The verdict on a job that hangs, with its evidence and advice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// The kind of the verdict.
    pub kind: HangKind,
    /// Seconds from the job's last progress to the verdict.
    pub after_s: f64,
    /// How well the evidence supports the verdict.
    pub confidence: Confidence,
    /// The ranks that caused the hang; with [`Confidence::None`], the ranks that are waited for.
    pub culprits: Vec<Rank>,
    /// The ranks that wait because of the culprits.
    pub victims: Vec<Rank>,
    /// One line: which rank, where, and what.
    pub summary: String,
    /// The facts from which the verdict follows, one line each.
    pub evidence: Vec<String>,
    /// The observation that would refute the verdict.
    pub refuted_by: String,
    /// What to try, one suggestion each.
    pub advice: Vec<String>,
    /// What each rank is doing.
    pub places: Vec<RankLine>,
}

impl Diagnosis {
    /// Returns the verdict with its evidence replaced by `facts`.
    #[must_use]
    pub fn because(mut self, facts: Vec<String>) -> Self {
        self.evidence = facts;
        self
    }
}
