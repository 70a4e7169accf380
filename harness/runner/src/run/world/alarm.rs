//! Works out when a world must act although there was no event.
//!
//! In: when something moved last, what is under way, which ranks are stopped. Out: the first [`Alarm`], and its time.

use std::time::Duration;

use super::phase::Phase;
use super::phase::Wait;
use super::state::WorldState;
use crate::check_result::error_text;
use crate::run::pending::{Pending, Purpose};
use crate::run::rank_run::RankRun;
use allranks_model::outcome::Outcome;

/// How long nothing may move while a step is under way that is expected to hang, or is expected to fail and has raised
/// on some rank. If the hang has been fixed, the step ends much sooner; a step that merely takes longer than this
/// counts as the known failure for one more run.
const KNOWN_PATIENCE: Duration = Duration::from_secs(5);

/// What must be done if no event comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// A rank that a script stopped must be told to go on.
    Resume,
    /// Hang evidence must be gathered.
    HangCheck,
    /// Nothing has moved for the longest time allowed.
    Limit,
}

impl WorldState<'_> {
    /// Returns the first alarm that is due while ranks are at work, and its time.
    pub(super) fn next_alarm(&self) -> (Duration, Alarm) {
        let limit = match &self.phase {
            Phase::HostEntering { until, .. } => *until,
            _ => self.limit(),
        };
        let resume = self.script_events.next_resume();
        let check = self.next_hang_check();
        let mut first = (limit, Alarm::Limit);
        for (when, alarm) in [(check, Alarm::HangCheck), (resume, Alarm::Resume)] {
            if let Some(when) = when
                && when < limit
                && when <= first.0
            {
                first = (when, alarm);
            }
        }
        first
    }

    /// Returns the time by which something must move. Before the shorter limit of known hangs that is this limit
    /// itself; when it has come, expectations decide whether it counts.
    fn limit(&self) -> Duration {
        let known = self.progress + self.plan.deadline().min(KNOWN_PATIENCE);
        match self.now < known || self.is_known_to_stay() {
            true => known,
            false => self.progress + self.patience(),
        }
    }

    /// Returns how long nothing may move while ranks import; none if they do not, or this has not passed.
    pub(super) fn import_limit(&self) -> Option<Duration> {
        let is_importing = matches!(self.phase, Phase::Connecting | Phase::Importing);
        let (_, alarm) = self.next_alarm();
        (is_importing && alarm == Alarm::Limit && self.wait.is_none()).then(|| self.patience())
    }

    /// Returns when something moved last, and how long nothing may move from then on, while ranks initialise, make checks or tear
    /// down; none in all other phases, while the host is asked, and in a script that demands a verdict, whose ranks are to hang.
    pub(super) fn quiet_limit(&self) -> Option<(Duration, Duration)> {
        let is_at_work = match self.phase {
            Phase::Opening | Phase::Checks | Phase::Closing => true,
            Phase::Script => !self.pending.front().is_some_and(Pending::demands_a_verdict),
            _ => false,
        };
        (is_at_work && self.wait.is_none()).then(|| (self.progress, self.patience()))
    }

    /// Begins the limit anew that is due: how long nothing may move, or how long the end of a process may take.
    pub(super) fn restart_limit(&mut self, now: Duration) {
        self.now = now;
        let patience = self.awaited_end().map(|(_, patience)| patience);
        match (&mut self.wait, patience) {
            (Some(Wait::RankExit { until, .. }), Some(patience)) => *until = now + patience,
            _ => self.progress = now,
        }
    }

    /// Returns how long nothing may move. Imports take longer than communication, and much longer from a network file
    /// system in a world of many ranks.
    fn patience(&self) -> Duration {
        match self.result.ranks.iter().all(RankRun::has_imported) {
            true => self.plan.deadline(),
            false => self.plan.deadline().max(self.plan.import_patience),
        }
    }

    /// Returns true if an expectation says that the first open step hangs, or fails and some rank has already raised.
    /// The world then waits [`KNOWN_PATIENCE`] and not the case's deadline.
    fn is_known_to_stay(&self) -> bool {
        let Some(open) = self.pending.front() else {
            return false;
        };
        let is_expected = |outcome| {
            let ranks = &self.result.ranks;
            self.plan.is_expected(ranks, open.check(), outcome)
        };
        match open.purpose {
            Purpose::Imports | Purpose::Opening => is_expected(Outcome::InitFailed),
            Purpose::Check(..) | Purpose::Script(..) => {
                let mut replies = open.replies();
                let has_raised = replies.any(|reply| error_text(&reply.result.calls).is_some());
                is_expected(Outcome::Hang) || has_raised && is_expected(Outcome::Error)
            }
            Purpose::GroupTestAfter(..) | Purpose::GroupTestBefore(..) | Purpose::Closing => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::world::event::Event;
    use crate::run::world::fixture::expectations;
    use crate::run::world::fixture::ms;
    use crate::run::world::fixture::outcomes;
    use crate::run::world::fixture::planned;
    use crate::run::world::simulation::Simulation;
    use allranks_suite::expectation::Expectations;

    const TWO: &str = "{size: 2, deadline_s: 20}";
    const LATE: Duration = ms(600_000);

    #[test]
    fn a_world_hangs_when_nothing_has_moved_for_its_deadline() {
        let (scenario, known) = (planned(TWO, "  - barrier: {}\n"), Expectations::default());
        let mut world = Simulation::opened(&scenario, &known);
        // An event of any rank is progress.
        world.pass(ms(19_000));
        world.enter(1);
        assert_eq!(world.wake_until_killed(LATE), ms(20_000));
        let result = world.reaped();
        assert_eq!(outcomes(&result), [(0, Outcome::Hang)]);
        let lost = result.lost.unwrap();
        assert!(lost.contains("no rank moved for 20.0 s"), "{lost}");
        let check_result = &result.checks[&0];
        assert!(check_result.diagnosis.is_some());
        assert_eq!(
            check_result.ranks[1].text,
            "in barrier of 0.barrier.late-0 for 20.0 s"
        );
        assert_eq!(
            check_result.ranks[0].text,
            "has answered 2 steps and not begun the next"
        );
    }

    #[test]
    fn a_script_is_given_time_by_what_its_ranks_compute_unless_they_are_to_hang() {
        let script = |hang: &str| {
            let steps = format!(
                "  - script: {{name: s{hang}, moves: [{{barrier: {{}}}}, {{barrier: {{}}}}]}}\n"
            );
            planned(TWO, &steps)
        };
        let known = Expectations::default();
        let limit = |hang: &str| {
            let scenario = script(hang);
            let mut world = Simulation::opened(&scenario, &known);
            world.pass(ms(1000));
            world.enter(1);
            world.state.quiet_limit()
        };
        assert_eq!(limit("").map(|(_, most)| most), Some(ms(20_000)));
        assert_eq!(limit(", hang: {kind: slow, culprit: last}"), None);
    }

    #[test]
    fn a_call_that_outlasts_its_timeout_is_what_is_wrong_not_the_rank_that_holds() {
        let script = "  - script:
      name: s
      afterwards: abandon
      moves:
        - hold: {name: given-up}
          on: last
        - all_reduce: {with: {numel: 3}}
          on: first
          expect: {raises: \".\", not_before_s: 1.8, within_s: 9}
        - mark: {name: given-up}
          on: first
";
        let known = Expectations::default();
        let scenario = planned("{size: 2, timeout_s: 2, deadline_s: 20}", script);
        let mut world = Simulation::opened(&scenario, &known);
        (0..2).for_each(|rank| world.enter(rank));
        world.wake_until_killed(LATE);
        let result = world.reaped();
        let check_result = &result.checks[&0];
        assert_eq!(check_result.outcome, Outcome::Hang, "{check_result:?}");
        assert_eq!(check_result.class.as_deref(), Some("timeout-not-honoured"));
        let begins = "timeout of 2 s not honoured: rank 0 has been in all_reduce";
        assert!(check_result.summary.starts_with(begins), "{check_result:?}");
        assert!(
            check_result.summary.ends_with(" for 20.0 s"),
            "{check_result:?}"
        );
        let diagnosis = check_result.diagnosis.as_ref().unwrap();
        assert!(diagnosis.culprits.is_empty(), "{diagnosis:?}");
    }

    #[test]
    fn a_deadline_that_has_not_come_changes_nothing() {
        let (scenario, known) = (planned(TWO, "  - barrier: {}\n"), Expectations::default());
        let mut world = Simulation::opened(&scenario, &known);
        world.pass(ms(500));
        world.handle(Event::Deadline);
        assert!(world.queries.is_empty() && !world.is_killed());
    }

    #[test]
    fn imports_may_take_longer() {
        let (scenario, known) = (planned(TWO, "  - barrier: {}\n"), Expectations::default());
        let mut world = Simulation::new(&scenario, &known);
        assert_eq!(world.wake_until_killed(LATE), ms(120_000));
        let result = world.reaped();
        assert_eq!(result.init.unwrap().outcome, Outcome::InitFailed);
        let mut world = Simulation::new(&scenario, &known);
        world.hello_all();
        world.answer(0);
        assert_eq!(world.wake_until_killed(LATE), ms(120_000));
    }

    #[test]
    fn a_hang_that_is_known_is_not_waited_for_as_long() {
        let (scenario, known) = (
            planned(TWO, "  - barrier: {}\n"),
            known_of("barrier", "hang"),
        );
        let mut world = Simulation::opened(&scenario, &known);
        assert_eq!(world.wake_until_killed(LATE), KNOWN_PATIENCE);
        // The expectation is about another op.
        let known = known_of("broadcast", "hang");
        let mut world = Simulation::opened(&scenario, &known);
        assert_eq!(world.wake_until_killed(LATE), ms(20_000));
    }

    #[test]
    fn a_known_error_is_decided_once_a_rank_has_raised() {
        let (scenario, known) = (
            planned(TWO, "  - barrier: {}\n"),
            known_of("barrier", "error"),
        );
        let mut world = Simulation::opened(&scenario, &known);
        assert_eq!(world.wake_until_killed(LATE), ms(20_000));
        let mut world = Simulation::opened(&scenario, &known);
        world.raise(0, "oops");
        assert_eq!(world.wake_until_killed(LATE), KNOWN_PATIENCE);
        let result = world.reaped();
        let check_result = &result.checks[&0];
        assert_eq!(check_result.outcome, Outcome::Error);
        assert_eq!(check_result.class.as_deref(), Some("raised-on-some-ranks"));
        let begin = "1 of 2 ranks raised RuntimeError: oops; then ";
        assert!(
            check_result.summary.starts_with(begin),
            "{}",
            check_result.summary
        );
    }

    fn known_of(op: &str, outcome: &str) -> Expectations {
        expectations(&format!(
            "- match: {{backend: gloo, op: {op}}}\n  outcome: {outcome}\n  reason: It is for this test.\n  local: true\n"
        ))
    }

    #[test]
    fn a_teardown_that_hangs_is_the_end_s() {
        let (scenario, known) = (planned(TWO, "  - barrier: {}\n"), Expectations::default());
        let mut world = Simulation::opened(&scenario, &known);
        world.answer_all();
        world.answer(0);
        world.enter(1);
        assert_eq!(world.wake_until_killed(LATE), ms(20_000));
        let result = world.reaped();
        assert_eq!(outcomes(&result), [(0, Outcome::Pass)]);
        let end = result.end.unwrap();
        assert_eq!(end.outcome, Outcome::Hang);
        assert_eq!(
            end.ranks[1].text,
            "in destroy_process_group of teardown for 20.0 s"
        );
        assert_eq!(end.ranks[0].text, "has done its part and waits");
    }
}
