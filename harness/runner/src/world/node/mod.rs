//! Node agents: processes on other hosts that start ranks for a run.
//!
//! A run listens ([`Nodes`]) and writes [`Credentials`]; on each host an [`agent`] connects with them, inside TLS. The agent is
//! the local launcher behind that connection: it starts the ranks of a world that are placed on its host, passes their frames,
//! tells what its host sees of them, and ends with its connection, and its ranks with it.
//!
//! | module | holds |
//! |---|---|
//! | `credentials` | what an agent must have to be admitted, and the proof that it has it |
//! | `tls` | the run's key, and what an agent trusts |
//! | `channel` | a connection that carries frames both ways and notices that the other end is gone |
//! | `engine` | what starts agents |
//! | `engine_command` | the engine's command, and its process |
//! | `node_assignment` | the number that an engine gives an agent, and so its node |
//! | `nodes` | the run's end: waits for its nodes, and starts worlds on them |
//! | `admission` | admits agents that prove that they belong to the run |
//! | `roster` | which nodes have joined, and what an agent must know to join |
//! | `rendezvous_host` | the address at which ranks on several nodes meet |
//! | `node` | one admitted agent: questions, answers, and the worlds that it has ranks of |
//! | `nodes_settings` | how a run has its nodes |
//! | `nodes_world` | a world whose ranks are on nodes |
//! | `agent` | the agent: its connection, and what it does for the run |
//! | `agent_world` | the ranks of one world on the agent's host |
//! | `reach` | finds an address at which another node is reached |
//! | `scratch` | the folder of an agent for its files |
//! | `facts` | what an agent says of its host |
//! | `inspection` | facts of all hosts, and whether each reaches each other one |
//! | `convert` | the runner's types as frames have them |

mod admission;
mod agent;
mod agent_world;
mod channel;
mod convert;
mod credentials;
mod engine;
mod engine_command;
mod facts;
mod inspection;
#[expect(clippy::module_inception, reason = "it holds one node")]
mod node;
mod node_assignment;
mod nodes;
mod nodes_settings;
mod nodes_world;
mod reach;
mod rendezvous_host;
mod roster;
mod scratch;
#[cfg(test)]
mod tests;
mod tls;

pub use agent::{AgentError, AgentOptions, agent};
pub use credentials::{CREDENTIALS, Credentials};
pub use engine::Engine;
pub use engine_command::{EngineCommand, command};
pub(crate) use facts::interfaces;
pub use inspection::{HostSeen, Inspection, PairSeen, Reach};
pub use node::NodeHold;
pub use node_assignment::{NodeAssignment, node_assignment};
pub use nodes::Nodes;
pub use nodes_settings::{ANYWHERE, NodesSettings};
pub use nodes_world::NodesWorld;
