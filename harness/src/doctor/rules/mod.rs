//! Rules: from facts to findings. Each looks at nothing but its argument; what a machine must be like for a rule to speak
//! stands beside it, in `tests`.

mod backends;
mod devices;
mod masks;
mod network;
mod platforms;
mod ports;
mod resources;
#[cfg(test)]
mod tests;
mod torch;
mod variables;

use super::{Build, Facts, Finding};

/// A rule: takes what is known of a machine, and returns what is wrong with it.
type Rule = fn(&Facts) -> Vec<Finding>;

/// Every rule, in the order of their findings; a new rule is added here.
const RULES: &[Rule] = &[
    torch::import,
    torch::version,
    torch::distributed,
    torch::wheel,
    torch::entry_points,
    backends::entry_points,
    backends::registered_twice,
    backends::devices_as_letters,
    backends::fake_is_default,
    backends::unread_entry_points,
    platforms::unusable,
    platforms::backends,
    masks::entries,
    masks::contradictions,
    variables::rank,
    variables::launchers,
    variables::rendezvous,
    variables::unread,
    variables::debug,
    variables::oneccl,
    variables::pjrt,
    variables::threads,
    network::hostname,
    network::master,
    network::interfaces,
    network::loopback,
    network::resolver,
    ports::master,
    ports::defaults,
    resources::shared_memory,
    resources::memory,
    resources::temporary,
    resources::limits,
    devices::tool,
    devices::balance,
    devices::peers,
    devices::ranks,
];

/// Applies every rule, and returns what is wrong, the worst first.
#[must_use]
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut findings: Vec<Finding> = RULES.iter().flat_map(|rule| rule(facts)).collect();
    findings.sort_by_key(|finding| finding.severity);
    findings
}

impl Facts {
    /// The torch there is, with or without what loads itself.
    fn build(&self) -> Option<&Build> {
        self.torch.as_ref()?.build()
    }

    /// A variable's value; an empty one is unset.
    fn variable(&self, name: &str) -> Option<&str> {
        let value = self.variables.get(name)?.trim();
        (!value.is_empty()).then_some(value)
    }

    /// A variable's value, if it is a number.
    fn number(&self, name: &str) -> Option<u64> {
        self.variable(name)?.parse().ok()
    }

    /// Returns true if the environment says that a job has ranks on other machines too.
    fn has_many_machines(&self) -> bool {
        let counts = ["NNODES", "GROUP_WORLD_SIZE", "SLURM_NNODES"];
        let world = self
            .number("WORLD_SIZE")
            .zip(self.number("LOCAL_WORLD_SIZE"));
        counts
            .iter()
            .any(|name| self.number(name).is_some_and(|count| count > 1))
            || world.is_some_and(|(world, local)| world > local)
    }
}
