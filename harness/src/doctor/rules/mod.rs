//! Rules: functions from facts to findings, which read nothing but their argument. `tests` has for each rule a machine with the
//! fault.

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

/// A rule: takes the facts of a machine, and returns findings.
type Rule = fn(&Facts) -> Vec<Finding>;

/// All rules, in the order of their findings; a new rule is added here.
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

/// Applies all rules, and returns the findings, the most severe first.
#[must_use]
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut findings: Vec<Finding> = RULES.iter().flat_map(|rule| rule(facts)).collect();
    findings.sort_by_key(|finding| finding.severity);
    findings
}

impl Facts {
    /// Returns the torch that was imported, with or without entry points; `None` if there is none.
    fn build(&self) -> Option<&Build> {
        self.torch.as_ref()?.build()
    }

    /// Returns the value of a variable; `None` if it is unset or empty.
    fn variable(&self, name: &str) -> Option<&str> {
        let value = self.variables.get(name)?.trim();
        (!value.is_empty()).then_some(value)
    }

    /// Returns the value of a variable as a number; `None` if it is not one.
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
