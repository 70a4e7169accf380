//! Recognises failed initialisations that say nothing about the backend: the machine ran out of files or processes or was too
//! busy, nodes do not reach each other, or another process took the port.

use std::path::PathBuf;
use std::time::Duration;

use super::Shared;
use super::logs::end_of;
use super::taken_port::taken_port;
use crate::check_result::CheckResult;
use crate::world::names_exhaustion;
use allranks_model::outcome::Outcome;
use allranks_suite::plan::Scenario;

/// Turns a failed initialisation into a fault of the machine, if a rank reports that no more open files, threads or processes
/// were available. The backend cannot have used them up, because it has not started yet.
pub fn excuse_exhaustion(shared: &Shared, logs: &[PathBuf], init: &mut CheckResult) {
    if init.outcome != Outcome::InitFailed {
        return;
    }
    let is_said = texts(init).any(names_exhaustion);
    if is_said
        || logs
            .iter()
            .any(|log| names_exhaustion(&end_of(shared, log)))
    {
        blame_machine(init, "out of open files, threads or processes");
    }
}

/// Turns a failed initialisation on several nodes into one that was not run, if some of the nodes do not reach each other.
/// Returns which nodes and why; `None` if all reach each other.
pub async fn excuse_network(
    shared: &Shared,
    scenario: &Scenario,
    init: &mut CheckResult,
) -> Option<String> {
    if !matches!(init.outcome, Outcome::InitFailed | Outcome::Hang) {
        return None;
    }
    let nodes = scenario.placement.nodes();
    let why = shared.launcher.unreached(nodes).await?;
    mark_not_run(init, &why);
    Some(why)
}

/// Iterates over the texts of an initialisation's result: its summary, and the line of each rank.
fn texts(init: &CheckResult) -> impl Iterator<Item = &str> {
    let lines = init.ranks.iter().map(|line| line.text.as_str());
    std::iter::once(init.summary.as_str()).chain(lines)
}

/// Turns a failed initialisation into one that was not run, for this reason.
pub fn mark_not_run(init: &mut CheckResult, why: &str) {
    init.outcome = Outcome::NotRun;
    init.class = None;
    init.summary = format!("{why}; {}", init.summary);
}

/// Turns a failed initialisation into a fault of the machine.
pub fn blame_machine(init: &mut CheckResult, why: &str) {
    init.outcome = Outcome::HarnessError;
    init.class = Some("machine".to_owned());
    init.summary = format!("{why}: {}", init.summary);
}

/// Returns the port of the world that another process had taken, if a rank whose initialisation failed reports that.
pub fn lost_port(
    shared: &Shared,
    logs: &[PathBuf],
    init: &CheckResult,
    ports: &[u16],
) -> Option<u16> {
    if init.outcome != Outcome::InitFailed {
        return None;
    }
    let said = texts(init).find_map(|text| taken_port(text, ports));
    said.or_else(|| {
        let mut logs = logs.iter();
        logs.find_map(|log| taken_port(&end_of(shared, log), ports))
    })
}

/// Returns why the machine is to blame for a failed initialisation: a rank reports a timeout, and some rank waited for a
/// processor for at least half of `timeout_s` seconds. `waited` is the longest such wait; `None`: not known. Returns `None` if
/// the machine is not to blame.
pub fn late_machine(
    init: &CheckResult,
    timeout_s: f64,
    waited: Option<Duration>,
) -> Option<String> {
    let waited = waited?.as_secs_f64();
    let is_timeout = texts(init).any(|text| {
        let text = text.to_lowercase();
        text.contains("timed out") || text.contains("timeout")
    });
    let is_late = init.outcome == Outcome::InitFailed && waited >= timeout_s / 2.0;
    (is_late && is_timeout).then(|| {
        format!(
            "the machine is too busy: a rank was ready to run for {waited:.1} s without being let, and its timeout is {timeout_s} s"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_timeout_of_ranks_that_were_not_let_run_is_the_machine_s() {
        let failed = |text: &str| CheckResult::bare(Outcome::InitFailed, None, text.to_owned());
        let late = |init: &CheckResult, waited_s: f64| {
            let waited = Duration::from_secs_f64(waited_s);
            late_machine(init, 2.0, Some(waited)).is_some()
        };
        let timeout = failed("2 of 2 ranks raised DistStoreError: Timed out after 3 seconds");
        assert!(late(&timeout, 1.0));
        assert!(!late(&timeout, 0.9));
        assert!(!late(&failed("Connection refused"), 1.5));
        assert_eq!(late_machine(&timeout, 2.0, None), None);
        let hung = CheckResult::bare(Outcome::Hang, None, "timed out".to_owned());
        assert!(!late(&hung, 1.5));
    }
}
