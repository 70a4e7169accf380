//! The frames between a run and its node agents.
//!
//! A node agent (`allranks node`) starts ranks on its host for a run elsewhere. One connection, inside TLS, carries the frames of
//! all its ranks. Both ends send [`ToNode::Beat`] or [`FromNode::Beat`] when they have nothing else to send, and take an end from
//! which nothing came for some time as lost.
//!
//! Messages with an `ask` are questions; each answer repeats the number. A world is named by a number that the run never uses
//! twice.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{FromRank, Hello, MAX_HEADER, RankExit, ToRank};
use allranks_model::names::Rank;

/// The version of these frames. Run and agents are the same binary, and an agent of another version is refused.
pub const NODE_VERSION: u32 = 4;
/// The longest header of a frame before the agent is admitted, in bytes; such frames have no payload.
pub const MAX_GREETING: usize = 64 << 10;
/// The longest header of any other frame, in bytes: that of a rank's, and what is around it.
pub const MAX_NODE_HEADER: usize = MAX_HEADER + (64 << 10);

/// A header that a run sends to a node agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case")]
pub enum ToNode {
    /// The first frame: prove with this number, used once, that you have the run's token. Answered by [`FromNode::Join`].
    Challenge {
        /// The run's [`NODE_VERSION`].
        version: u32,
        /// Random, in hexadecimal.
        nonce: String,
    },
    /// The agent is not admitted. The connection ends.
    Refused {
        /// The reason, for the agent's user.
        reason: String,
    },
    /// The agent is admitted.
    Welcome(Welcome),
    /// The run is alive, and has nothing else to say.
    Beat,
    /// Say that you are alive. Answered by [`FromNode::Alive`].
    Confirm {
        /// Number of the question.
        ask: u64,
    },
    /// Listen at a port of the system's choice, as backends do, and at one that is leased as for a rendezvous, for connections that send
    /// `word`, and send it back to each, until the run ends. Answered by [`FromNode::Listening`].
    Listen {
        /// Number of the question.
        ask: u64,
        /// Random text without spaces or line ends.
        word: String,
    },
    /// Find an address at which another node is reached. Answered by [`FromNode::Reached`].
    Reach {
        /// Number of the question.
        ask: u64,
        /// The other node's addresses, without ports, most suitable first.
        addresses: Vec<String>,
        /// The ports at which it listens; it must answer at all of them at the same address.
        ports: Vec<u16>,
        /// What it sends back.
        word: String,
    },
    /// Lease ports for a world whose ranks are to meet on this node. Answered by [`FromNode::Reserved`].
    Reserve {
        /// Number of the question.
        ask: u64,
        /// The world.
        world: u64,
        /// Number of ports.
        ports: usize,
    },
    /// Start these ranks. Answered by [`FromNode::Launched`].
    Launch {
        /// Number of the question.
        ask: u64,
        /// The ranks that the node must start, and how.
        launch: NodeWorld,
    },
    /// Pass this frame, with the payload, to a rank.
    Rank {
        /// The rank's world.
        world: u64,
        /// The rank.
        rank: Rank,
        /// The frame's header.
        message: ToRank,
    },
    /// Send a signal to a rank and everything that it started.
    Signal {
        /// The rank's world.
        world: u64,
        /// The rank.
        rank: Rank,
        /// Number of the signal.
        signal: i32,
    },
    /// Tell what the host sees of a world. Answered by [`FromNode::Seen`].
    Look {
        /// Number of the question.
        ask: u64,
        /// The world.
        world: u64,
        /// What is asked.
        query: NodeQuery,
    },
    /// Kill what ranks left behind; all of them have ended. Answered by [`FromNode::Swept`].
    Sweep {
        /// Number of the question.
        ask: u64,
        /// The world.
        world: u64,
    },
    /// Kill all ranks of a world. Answered by [`FromNode::Closed`] when none is left.
    Close {
        /// The world.
        world: u64,
    },
    /// Give back what was leased for a world. No answer.
    Release {
        /// The world.
        world: u64,
    },
    /// The run has ended: end with exit code 0.
    Finish,
}

/// What an agent is told when it is admitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The name of the node in reports: its host name, with a number if other nodes of the run have the same.
    pub name: String,
    /// Number of nodes that the run waits for.
    pub nodes: usize,
    /// The driver that its ranks run.
    pub driver: NodeDriver,
    /// Seconds that importing torch may take.
    pub import_patience_s: u64,
    /// Milliseconds after which an end that has nothing to send sends a beat.
    pub beat_ms: u64,
    /// Milliseconds without a byte after which the other end is lost.
    pub patience_ms: u64,
}

/// The driver that the ranks of an agent run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeDriver {
    /// The Python driver, with the agent's own Python.
    Python,
    /// The libtorch driver that the agent finds.
    Libtorch,
    /// A program and its arguments, at the same path on every node.
    Command(Vec<String>),
}

/// The ranks of a world on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeWorld {
    /// The world.
    pub world: u64,
    /// Whether ranks are forked from a process that has imported torch, if the driver can.
    pub fork: bool,
    /// Whether that process imports the layers above c10d too.
    pub layers: bool,
    /// Variables of every rank that neither the agent's environment nor the rank's own has.
    pub defaults: BTreeMap<String, String>,
    /// The ranks.
    pub ranks: Vec<NodeRank>,
}

/// A rank to be started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRank {
    /// The rank.
    pub rank: Rank,
    /// Variables that its environment has besides those of the agent, or in their place.
    pub env: BTreeMap<String, String>,
}

/// What an agent is asked about a world in which nothing moves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeQuery {
    /// Processes of ranks on this node to look at, each with its rank.
    pub processes: Vec<(Rank, u32)>,
    /// Ports at which ranks want to meet on this node.
    pub ports: Vec<u16>,
    /// Ranks 0 on this node that are in init.
    #[serde(rename = "meetings")]
    pub rendezvous: Vec<NodeRendezvous>,
}

/// A rank 0 that is in init, where others are to connect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRendezvous {
    /// The id of the process.
    pub pid: u32,
    /// The endpoint, `host:port`.
    pub place: String,
    /// The endpoint's host.
    pub host: String,
    /// The endpoint's port.
    pub port: u16,
}

/// What an agent's host sees of a world.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeObservation {
    /// What the processes of the query do, each with its rank; those of which the host does not tell are left out.
    pub processes: Vec<(Rank, NodeProcess)>,
    /// Processes that are no ranks and listen at the query's ports.
    #[serde(rename = "strangers")]
    pub foreign_listeners: Vec<NodeListener>,
    /// Endpoints at which no rank can be reached, each with the reason.
    pub endpoints_without_listener: Vec<(String, String)>,
    /// Bytes available to programs; none if the host does not report it.
    pub memory: Option<u64>,
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeProcess {
    /// It runs or waits, and has used this processor time, in clock ticks.
    Alive(u64),
    /// A signal or a debugger has stopped it.
    Stopped,
    /// It has ended.
    Gone,
}

/// A process that is no rank and listens at a port at which ranks want to meet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeListener {
    /// The port.
    pub port: u16,
    /// The process in words.
    pub owner: String,
    /// Whether it accepts connections and never answers.
    pub is_silent: bool,
}

/// A header that a node agent sends to its run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case")]
pub enum FromNode {
    /// The answer to the challenge.
    Join(Box<Join>),
    /// The agent is alive, and has nothing else to say.
    Beat,
    /// The agent is alive, and has read the question.
    Alive {
        /// Number of the question.
        ask: u64,
        /// The node's clock when it had read the question, in microseconds since 1970.
        clock_us: u64,
    },
    /// The node listens.
    Listening {
        /// Number of the question.
        ask: u64,
        /// The ports, without one at which the node cannot listen.
        ports: Vec<u16>,
    },
    /// Where the other node was reached.
    Reached {
        /// Number of the question.
        ask: u64,
        /// The first of the addresses at which it was; none if it was at none of them.
        address: Option<String>,
        /// This node's interface through which it was; none if that is not known.
        interface: Option<String>,
        /// Why it was not reached at the addresses before, in words.
        failures: Vec<String>,
        /// How long the exchange at that address took, in microseconds.
        took_us: u64,
    },
    /// Ports are leased, until [`ToNode::Release`].
    Reserved {
        /// Number of the question.
        ask: u64,
        /// The ports; empty if there is an error.
        ports: Vec<u16>,
        /// A folder of this node for the world's files.
        folder: PathBuf,
        /// Why none are leased.
        error: Option<String>,
    },
    /// The ranks are being started.
    Launched {
        /// Number of the question.
        ask: u64,
        /// Why none is.
        error: Option<String>,
    },
    /// A rank connected and said hello.
    Hello {
        /// The rank's world.
        world: u64,
        /// The rank.
        rank: Rank,
        /// What it said; its token is the agent's own, not the run's.
        hello: Hello,
    },
    /// A rank connected and was refused.
    Refused {
        /// The rank's world.
        world: u64,
        /// The rank.
        rank: Rank,
        /// Why.
        reason: String,
    },
    /// A rank sent this frame, with the payload.
    Rank {
        /// The rank's world.
        world: u64,
        /// The rank.
        rank: Rank,
        /// The frame's header.
        message: FromRank,
    },
    /// A rank's connection has ended.
    Broken {
        /// The rank's world.
        world: u64,
        /// The rank.
        rank: Rank,
        /// Why.
        reason: String,
    },
    /// A rank's process has ended. The payload is what it wrote to its log.
    Ended {
        /// The rank's world.
        world: u64,
        /// The rank.
        rank: Rank,
        /// How.
        end: RankExit,
    },
    /// What the host sees.
    Seen {
        /// Number of the question.
        ask: u64,
        /// The facts.
        #[serde(rename = "sight")]
        observation: NodeObservation,
    },
    /// What ranks had left behind is killed.
    Swept {
        /// Number of the question.
        ask: u64,
        /// Each process found, and the rank that it belongs to; none if that is not known.
        left: Vec<(i32, Option<Rank>)>,
    },
    /// Nothing of a world is left on this node.
    Closed {
        /// The world.
        world: u64,
    },
}

/// How an agent proves that it belongs to the run, and what it says of its host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// The agent's [`NODE_VERSION`].
    pub version: u32,
    /// The run that it wants to join.
    pub run: String,
    /// HMAC-SHA256 of the challenge's nonce under the run's token, in hexadecimal.
    pub proof: String,
    /// The host.
    pub facts: NodeFacts,
}

/// What an agent says of its host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// Name of the host.
    pub host: String,
    /// The version of allranks.
    pub allranks: String,
    /// Operating system and processor architecture, such as `linux x86_64`.
    pub system: String,
    /// Number of processors that the agent may use.
    pub cores: usize,
    /// Bytes available to programs; none if the host does not report it.
    pub memory: Option<u64>,
    /// Path of the Python that is to have torch.
    pub python: String,
    /// Version of the torch that this Python has; none if it has none.
    pub torch: Option<String>,
    /// Version of the NCCL package that this Python has; none if it has none.
    pub nccl: Option<String>,
    /// Version of the NVIDIA driver; none if there is none.
    pub driver: Option<String>,
    /// Free bytes of `/dev/shm`; none if there is none.
    pub shm_free: Option<u64>,
    /// Free bytes of the folder for temporary files; none if the system does not tell.
    pub disk_free: Option<u64>,
    /// Whether the host's own name stands for a loopback address and for no other.
    pub name_is_loopback: bool,
    /// Interfaces that are up, and an address of each; an interface is here once for each address.
    pub interfaces: Vec<(String, String)>,
    /// The agent's own address of its connection to the run.
    pub address: String,
    /// The node's number that the engine gave, from 0; none: nodes are numbered as they come.
    pub place: Option<usize>,
    /// Number of agents that the engine started; none if people did.
    pub count: Option<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Headers inside headers: the tag of the one must not be taken for that of the other.
    #[test]
    fn a_rank_s_frame_survives_its_way_through_an_agent() {
        let to = ToNode::Rank {
            world: 7,
            rank: Rank(3),
            message: ToRank::Finish,
        };
        let from = FromNode::Rank {
            world: u64::MAX,
            rank: Rank(3),
            message: FromRank::Enter {
                step: 1,
                call: 2,
                ns: u64::MAX,
            },
        };
        let there = serde_json::to_string(&to).unwrap();
        assert_eq!(serde_json::from_str::<ToNode>(&there).unwrap(), to);
        let back = serde_json::to_string(&from).unwrap();
        assert_eq!(serde_json::from_str::<FromNode>(&back).unwrap(), from);
    }
}
