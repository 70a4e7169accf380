//! Which check is sent next, and whether it can be.
//!
//! Checks are sent ahead of the answers, as far as there is room; a script is alone.

use std::sync::Arc;

use super::event::Action;
use super::phase::Phase;
use super::phase::Wait;
use super::sending::bare;
use super::state::WorldState;
use allranks_suite::case::Starts;
use crate::finding::Finding;
use allranks_model::outcome::Outcome;
use allranks_oracle::Prepared;
use allranks_oracle::RankStep;
use allranks_suite::plan::Check;
use crate::run::pending::Purpose;
use crate::run::probe::probe_after;
use crate::run::setup::closing;

/// Steps a rank may be ahead of the slowest.
pub const AHEAD: usize = 16;
/// Bytes of storages in flight for one rank, at most, unless a single step is larger.
pub const BYTES_AHEAD: usize = 32 << 20;

impl WorldState<'_> {
    /// Whether the next check can be sent, or, after the last, the teardown: before a script and after the last check there
    /// is a fence.
    pub(super) fn can_go_on(&self) -> bool {
        let Some(index) = self.todo.front() else {
            return self.pending.is_empty();
        };
        let bytes: usize = self.pending.iter().map(|pending| pending.bytes).sum();
        let is_script = self.plan.scenario.checks[*index].script.is_some();
        let has_room = !is_script && self.pending.len() < AHEAD && bytes < BYTES_AHEAD;
        self.pending.is_empty() || has_room
    }

    /// Sends the next check, or, after the last, the teardown.
    pub(super) fn send_next(&mut self) {
        let Some(index) = self.todo.pop_front() else {
            return self.close();
        };
        let check = &self.plan.scenario.checks[index];
        if let Some(script) = &check.script {
            let script = Arc::clone(script);
            self.send_script(index, &script);
        } else if check.is_large() {
            self.wait = Some(Wait::Memory(index));
            self.act(Action::AskMemory);
        } else {
            self.send_check(index);
        }
    }

    /// Sends a check with large tensors, if there is memory for it.
    pub(super) fn send_large_check(&mut self, index: usize, available: Option<u64>) {
        match lacks_memory(&self.plan.scenario.checks[index], available) {
            Some(why) => self.leave_out(index, Outcome::NotRun, why),
            None => self.send_check(index),
        }
    }

    fn send_check(&mut self, index: usize) {
        let check = &self.plan.scenario.checks[index];
        let label = short(check).to_owned();
        let prepared = match Prepared::new(check, self.size(), self.plan.seed) {
            Ok(prepared) => prepared,
            // The plan refuses such checks before a run; reaching this is the harness's own mistake.
            Err(error) => {
                return self.leave_out(index, Outcome::HarnessError, error.to_string());
            }
        };
        let steps = prepared.steps().to_vec();
        if let Some(why) = self.lacking(&steps) {
            return self.leave_out(index, Outcome::NotRun, why);
        }
        self.send(label.clone(), Purpose::Check(index, prepared), steps);
        if let Some(probe) = probe_after(check)
            && let Ok(prepared) = Prepared::new(&probe, self.size(), self.plan.seed)
        {
            let steps = prepared.steps().to_vec();
            let label = format!("{label} (probe)");
            self.send(label, Purpose::Probe(index, prepared), steps);
        }
    }

    /// Notes why a check is not made.
    pub(super) fn leave_out(&mut self, index: usize, outcome: Outcome, why: String) {
        let finding = Finding::bare(outcome, None, why);
        self.result.checks.insert(index, finding);
    }

    /// Which call of these steps some rank's driver has not got, if there is one.
    pub(super) fn lacking(&self, steps: &[RankStep]) -> Option<String> {
        let mut stories = self.result.ranks.iter().zip(steps);
        stories.find_map(|(story, own)| story.lacks(&own.step))
    }

    /// Every check has been made: sends the teardown.
    fn close(&mut self) {
        let count = self.size().count();
        if self.plan.scenario.case.world.starts == Starts::Bare {
            // Nothing is left to be destroyed.
            self.result.end = Some(Finding::passed(vec![1; count]));
            return self.shut_down();
        }
        let steps = vec![bare(closing()); count];
        self.send("teardown".to_owned(), Purpose::Closing, steps);
        self.phase = Phase::Closing;
    }
}

/// The check's id without the scenario.
pub fn short(check: &Check) -> &str {
    check
        .id
        .as_str()
        .split_once('#')
        .map_or("", |(_, rest)| rest)
}

/// Why a check with large tensors cannot be made now, if so many bytes are available: a host gives it half of them.
fn lacks_memory(check: &Check, available: Option<u64>) -> Option<String> {
    let (needed, usable) = (check.memory(), available? / 2);
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    (needed > usable).then(|| {
        format!(
            "it needs {:.1} GiB of memory, and {:.1} GiB can be used",
            gib(needed),
            gib(usable)
        )
    })
}
