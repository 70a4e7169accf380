//! `allranks doctor`: what this machine has, what is wrong with it, and the fixes.
//!
//! Data flows one way: collectors read the machine and draw no conclusions, rules draw conclusions from [`Facts`] and read
//! nothing else, [`text`] shows both.
//!
//! ```text
//! machine ──► facts ──► rules ──► findings ──► text, JSON, exit code
//!               └─────────────────────────────► environment.json of every run
//! ```
//!
//! For several hosts ([`fleet_findings`]) the facts come from node agents, and from the bytes that these exchange.
//!
//! To add a rule, write a function from [`Facts`] to [`Finding`]s in the file of `rules` for its subject, an entry in
//! `rules::RULES`, and a row in its tests. If a fact is missing, add a field in the file of `facts` for its subject. Rules read
//! nothing but facts, so their tests need no machine.

mod facts;
mod finding;
mod fleet;
mod rules;
pub mod text;

pub use facts::{
    Build, Depth, Device, DeviceUser, Facts, FactsQuery, FileSystem, Import, Interface, Leftover,
    Limits, Lookup, Memory, Network, PlatformFacts, Plugin, Port, ProcessEnd, TorchFacts, collect,
    platforms,
};
pub use finding::{Finding, Severity};
pub use fleet::fleet_findings;
pub use rules::findings;
