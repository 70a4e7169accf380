//! How a run has its nodes: what starts the agents, how many there are, and where it listens for them.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::engine::Engine;
use super::engine_command::EngineCommand;

/// The address that means all addresses of this machine, with any port.
pub const ANYWHERE: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);

/// How a run has its nodes.
#[derive(Clone, Debug)]
pub struct NodesSettings {
    /// What starts the agents.
    pub engine: Engine,
    /// The engine's command; none if people start the agents.
    pub command: Option<EngineCommand>,
    /// What people do who start the agents, in words that follow `waiting for 2 node(s); `.
    pub to_join: String,
    /// File for the output of engine and agents.
    pub engine_log: PathBuf,
    /// The number of nodes that the run waits for.
    pub count: usize,
    /// Where to listen; port 0 is any.
    pub listen: SocketAddr,
    /// File for the credentials. It must not exist, and is removed when the run ends.
    pub credentials: PathBuf,
    /// How long the run waits for its nodes.
    pub join_patience: Duration,
    /// Time without a byte from an agent, after which its node is lost.
    pub lost_after: Duration,
}
