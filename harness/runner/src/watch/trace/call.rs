//! One call of a Python process, as its call trace has it.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use allranks_diagnose::Splits;
use allranks_model::names::Rank;

/// One call in the trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Its number among the entries of the trace.
    pub id: u64,
    /// The world that it belongs to, counted as in [`CallTrace::epoch`].
    pub epoch: u32,
    /// Where the program made it, `FILE:LINE`; may be empty.
    #[serde(default)]
    pub at: String,
    /// True for the wait on the entry's work, instead of the call that issued it.
    #[serde(default)]
    pub waits: bool,
    /// When it began, in seconds since 1970; none if that is not known.
    #[serde(default)]
    pub t: Option<f64>,
    /// When it ended, in seconds since 1970; none if it has not.
    #[serde(default)]
    pub end: Option<f64>,
    /// The stream of the device on which a collective or message was issued; none if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<i64>,
    /// True for a collective or message for which that stream does not wait by itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub async_op: bool,
    /// The error that it raised; none if it returned or has not ended.
    #[serde(default)]
    pub raised: Option<String>,
    /// True for a message whose work the program dropped before it had waited for it.
    #[serde(default)]
    pub dropped: bool,
    /// The number of the thread that made it, if that was not the main one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<u32>,
    /// True if the other ranks can meet it there. A call that raised before it issued anything is no part of the
    /// group's sequence.
    #[serde(skip, default = "yes")]
    pub is_issued: bool,
    /// The call itself.
    #[serde(flatten)]
    pub call: Call,
}

fn yes() -> bool {
    true
}

/// A call in a call trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Call {
    /// `init_process_group`.
    Init {
        /// `env`, `tcp`, `file` or `store`.
        method: String,
        /// The endpoint: host and port, or a file.
        place: String,
        /// The rank that the call names; none or negative if it names none.
        rank: Option<i64>,
        /// The world size that the call names; none or negative if it names none.
        world_size: Option<i64>,
    },
    /// `new_group`.
    NewGroup {
        /// Global ranks of the new group.
        ranks: Vec<Rank>,
    },
    /// A collective.
    Collective {
        /// Key of its group.
        group: String,
        /// Its number in the group, from 0.
        number: usize,
        /// Its name, such as `all_reduce`.
        name: String,
        /// Parameters that must be alike on all members, by name.
        nature: BTreeMap<String, String>,
        /// What it exchanges with each member; absent: no all-to-all, or of too many members.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        splits: Option<Splits>,
    },
    /// One side of a message.
    Message {
        /// Key of its group.
        group: String,
        /// True for a send, false for a receive.
        sends: bool,
        /// The other side's global rank; none if it receives from any.
        peer: Option<Rank>,
        /// The tag of the message.
        #[serde(default)]
        tag: u32,
        /// Its number among the messages of the process with this group, direction, peer and tag, from 0; none if it is not known.
        #[serde(default)]
        number: Option<usize>,
    },
    /// `destroy_process_group`.
    Destroy {
        /// `world`, or the key of a group.
        group: String,
    },
    /// The wait for keys of a store.
    Store {
        /// The keys that are waited for.
        keys: Vec<String>,
    },
    /// A call of `torch.distributed.rpc` that waits for other ranks.
    Rpc {
        /// The call, in words: `rpc_sync to server`.
        text: String,
        /// The ranks that it waits for.
        to: Vec<Rank>,
    },
    /// A call that concerns no other rank.
    Own {
        /// Its name.
        text: String,
    },
    /// The end of a call that joins or leaves the world.
    End {
        /// `init` or `destroy`.
        of: String,
        /// True if it ended without an error.
        ok: bool,
    },
}

/// The call a process is in.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Inside {
    /// The call.
    pub entry: Entry,
    /// When it was entered, in seconds since 1970.
    pub since: f64,
    /// Ids of the messages of the batch that the device carries out as one, if it is one of them.
    #[serde(skip)]
    pub batch: Vec<u64>,
}

impl Call {
    /// Returns true for a call that has its place among those of its group: a collective or a message.
    pub fn is_numbered(&self) -> bool {
        matches!(self, Self::Collective { .. } | Self::Message { .. })
    }
}

impl Inside {
    /// Returns how long the process has been in the call.
    #[must_use]
    pub fn lasts(&self) -> Duration {
        since_1970(self.since)
    }
}

/// Returns how long ago a moment was, in seconds since 1970.
pub fn since_1970(moment: f64) -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seconds = now.unwrap_or_default().as_secs_f64() - moment;
    Duration::from_secs_f64(seconds.max(0.0))
}
