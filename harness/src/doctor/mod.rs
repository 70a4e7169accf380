//! What this machine has, what is wrong with it, and how to get past it.
//!
//! Data flows one way: collectors read the machine and draw no conclusions, rules draw conclusions from [`Facts`] and read
//! nothing else, [`text`] shows both.
//!
//! ```text
//! machine ──► facts ──► rules ──► findings ──► text, JSON, exit code
//!               └─────────────────────────────► environment.json of every run
//! ```
//!
//! Of several hosts ([`fleet_findings`]) the facts come from their node agents, and from the bytes that they exchange.
//!
//! To add a rule: a function from [`Facts`] to [`Finding`]s in the file of `rules` that has its noun, an entry in
//! `rules::RULES`, and beside it a test with the fault and one without. If it needs a fact that is not there, a field in
//! the file of `facts` that has its noun. Rules see no machine, so their tests need none.

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
