//! Ends a world: every rank's `bye` and exit, or its death, until no process is left.

use std::time::Duration;

use super::event::Action;
use super::phase::Phase;
use super::phase::Wait;
use super::state::WorldState;
use crate::check_result::CheckResult;
use crate::check_result::error_text;
use crate::world::Orphan;
use allranks_model::names::Rank;
use allranks_model::outcome::Outcome;
use allranks_model::record::RankLine;
use allranks_oracle::RankReply;
use allranks_protocol::ToRank;

/// How long killed processes may take to end.
pub const REAP_TIMEOUT: Duration = Duration::from_secs(10);

impl WorldState<'_> {
    /// Sends `finish` to every rank.
    pub(super) fn shut_down(&mut self) {
        let leaving = self.size().ranks().collect();
        self.send_finish(leaving, None);
    }

    /// Sends `finish` to the ranks that the script has not made leave. Their groups were not destroyed before, so what
    /// goes wrong is part of the script's result.
    pub(super) fn leave(&mut self, index: usize) {
        let is_here = |rank: &Rank| self.result.ranks[rank.index()].broken.is_none();
        let leaving = self.size().ranks().filter(is_here).collect();
        self.send_finish(leaving, Some(index));
    }

    fn send_finish(&mut self, leaving: Vec<Rank>, script: Option<usize>) {
        for rank in &leaving {
            self.act(Action::Send(*rank, ToRank::Finish, Vec::new()));
        }
        self.phase = Phase::Shutdown { leaving, script };
    }

    /// Returns true if each of these ranks has said `bye` and its process has ended.
    pub(super) fn have_left(&self, leaving: &[Rank]) -> bool {
        leaving.iter().all(|rank| {
            let rank_run = &self.result.ranks[rank.index()];
            rank_run.said_bye.is_some() && rank_run.end.is_some()
        })
    }

    /// Returns the ranks that are to leave and of whose end there is no report yet; none while no rank is to leave.
    pub(super) fn unreported_ends(&self) -> Vec<Rank> {
        let Phase::Shutdown { leaving, .. } = &self.phase else {
            return Vec::new();
        };
        let is_unreported = |rank: &&Rank| self.result.ranks[rank.index()].end.is_none();
        leaving.iter().filter(is_unreported).copied().collect()
    }

    /// Notes the faults in how the ranks left. They count for the script that made them leave; at the world's own end they count,
    /// together with processes left behind, for `teardown`.
    pub(super) fn note_exit_faults(&mut self) {
        let Phase::Shutdown { leaving, script } = &self.phase else {
            return;
        };
        let fault = |rank: &Rank| {
            let text = self.result.ranks[rank.index()].exit_fault(self.steps)?;
            Some(RankLine { rank: *rank, text })
        };
        let wrong: Vec<RankLine> = leaving.iter().filter_map(fault).collect();
        let Some(index) = *script else {
            self.wait = Some(Wait::Orphans(wrong));
            return self.act(Action::ReapOrphans);
        };
        if let Some(check_result) = bad_end(wrong)
            && let Some(known) = self.result.checks.get_mut(&index)
            && known.outcome == Outcome::Pass
        {
            *known = check_result;
        }
        self.reap();
    }

    /// Records the result of the world's own end.
    pub(super) fn end_shutdown(&mut self, mut wrong: Vec<RankLine>, processes: &[Orphan]) {
        let ranks: Vec<Rank> = self.size().ranks().collect();
        wrong.extend(left_behind(processes, &ranks));
        if let Some(check_result) = bad_end(wrong) {
            self.result.end = Some(check_result);
        }
        self.reap();
    }

    /// Kills every process that still runs.
    pub(super) fn reap(&mut self) {
        self.wait = None;
        self.deferred.clear();
        for rank in self.size().ranks() {
            let rank_run = self.rank_run(rank);
            if rank_run.end.is_none() {
                rank_run.killed = true;
                self.act(Action::Kill(rank));
            }
        }
        self.phase = Phase::Reaping {
            until: self.now + REAP_TIMEOUT,
        };
    }

    /// Returns true if every process has ended.
    pub(super) fn have_ended(&self) -> bool {
        self.result.ranks.iter().all(|rank| rank.end.is_some())
    }

    /// Finishes the world with its result.
    pub(super) fn finish(&mut self) {
        self.phase = Phase::Finished;
        let result = std::mem::take(&mut self.result);
        self.act(Action::Finish(Box::new(result)));
    }
}

/// Returns one line for each rank that left some of these processes behind. Every rank gets a line if their tokens name
/// none of the ranks.
fn left_behind(processes: &[Orphan], ranks: &[Rank]) -> Vec<RankLine> {
    let line = |rank: &Rank| {
        let is_own = |process: &&Orphan| process.rank == Some(*rank);
        let count = processes.iter().filter(is_own).count();
        (count > 0).then(|| RankLine {
            rank: *rank,
            text: format!("it left {count} processes running"),
        })
    };
    let is_strange = |process: &&Orphan| process.rank.is_none_or(|rank| !ranks.contains(&rank));
    let strange = processes.iter().filter(is_strange).count();
    let lines = ranks.iter().filter_map(line);
    let of_all = ranks.iter().filter(|_| strange > 0).map(|rank| RankLine {
        rank: *rank,
        text: format!("{strange} processes were left running whose token names no rank"),
    });
    lines.chain(of_all).collect()
}

/// Returns the check result for ranks that ended badly; none if `wrong` is empty.
fn bad_end(wrong: Vec<RankLine>) -> Option<CheckResult> {
    let first = wrong.first()?;
    let summary = format!("rank {}: {}", first.rank, first.text);
    Some(CheckResult {
        ranks: wrong,
        ..CheckResult::bare(Outcome::Crash, Some("bad-end"), summary)
    })
}

/// Returns the result of the teardown step: its calls must have returned on every rank.
pub fn closing_result(replies: &[RankReply]) -> CheckResult {
    let mut ranks = Vec::new();
    for (rank, reply) in replies.iter().enumerate() {
        let text = error_text(&reply.result.calls);
        ranks.extend(text.map(|text| RankLine {
            rank: Rank(rank as u32),
            text,
        }));
    }
    match ranks.first() {
        None => CheckResult::passed(vec![1; replies.len()]),
        Some(first) => CheckResult {
            summary: format!("rank {} did not tear down: {}", first.rank, first.text),
            ranks,
            ..CheckResult::bare(Outcome::Error, Some("teardown-failed"), "")
        },
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::getpid;

    use super::*;
    use crate::run::world::event::Event;
    use crate::run::world::fixture::exit;
    use crate::run::world::fixture::ms;
    use crate::run::world::fixture::outcomes;
    use crate::run::world::fixture::planned;
    use crate::run::world::simulation::Simulation;
    use crate::world::RankExit;
    use allranks_model::diagnosis::HangKind;
    use allranks_suite::expectation::Expectations;
    use allranks_suite::plan::Scenario;

    fn barrier() -> Scenario {
        planned("{size: 2, deadline_s: 20}", "  - barrier: {}\n")
    }

    /// Returns a world that has torn down and whose ranks have been sent `finish`.
    fn finishing<'a>(scenario: &'a Scenario, known: &'a Expectations) -> Simulation<'a> {
        let mut world = Simulation::opened(scenario, known);
        world.answer_all();
        world.answer_all();
        assert_eq!(world.take_done(), ["finish 0", "finish 1"]);
        world
    }

    #[test]
    fn the_rank_that_a_token_names_is_blamed() {
        let of = |rank: Option<u32>| Orphan {
            pid: getpid(),
            rank: rank.map(Rank),
        };
        let blamed = |processes: &[Orphan]| -> Vec<(u32, String)> {
            let lines = left_behind(processes, &[Rank(0), Rank(1), Rank(2)]);
            lines
                .into_iter()
                .map(|line| (line.rank.0, line.text))
                .collect()
        };
        assert_eq!(blamed(&[]), Vec::new());
        let two = "it left 2 processes running".to_owned();
        assert_eq!(blamed(&[of(Some(1)), of(Some(1))]), [(1, two)]);
        let ranks: Vec<u32> = blamed(&[of(None)]).iter().map(|line| line.0).collect();
        assert_eq!(ranks, [0, 1, 2]);
    }

    #[test]
    fn a_world_is_over_when_every_rank_has_said_bye_and_ended_and_nothing_is_left() {
        let (scenario, known) = (barrier(), Expectations::default());
        let mut world = finishing(&scenario, &known);
        world.bye(0, 4);
        world.end(0, exit(0));
        world.end(1, exit(0));
        assert_eq!(world.take_done(), [""; 0], "rank 1 has not said bye");
        world.bye(1, 4);
        assert_eq!(world.take_done(), ["reap"]);
        assert!(world.result.is_none());
        world.handle(Event::OrphansReaped(Vec::new()));
        let result = world.result.unwrap();
        assert_eq!(result.end.unwrap().outcome, Outcome::Pass);
        assert!(result.ranks.iter().all(|rank| !rank.killed));
    }

    #[test]
    fn each_way_to_end_badly_is_told() {
        let (scenario, known) = (barrier(), Expectations::default());
        let left_behind = RankExit::Exited {
            code: 0,
            left_behind: 2,
        };
        for (steps, end, swept, summary) in [
            (
                3,
                exit(0),
                0,
                "rank 1: it says it finished 3 steps; it was given 4",
            ),
            (4, exit(5), 0, "rank 1: its process ended: exit 5"),
            (
                4,
                RankExit::Signalled(11),
                0,
                "rank 1: its process ended: signal 11 (SIGSEGV)",
            ),
            (4, left_behind, 0, "rank 1: it left 2 processes running"),
            (4, exit(0), 3, "rank 1: it left 3 processes running"),
        ] {
            let mut world = finishing(&scenario, &known);
            world.bye(0, 4);
            world.end(0, exit(0));
            world.bye(1, steps);
            world.end(1, end);
            let of_rank_1 = Orphan {
                pid: getpid(),
                rank: Some(Rank(1)),
            };
            world.handle(Event::OrphansReaped(vec![of_rank_1; swept]));
            let result = world.result.unwrap();
            assert_eq!(outcomes(&result), [(0, Outcome::Pass)]);
            let found = result.end.unwrap();
            assert_eq!(found.class.as_deref(), Some("bad-end"));
            assert_eq!(
                (found.outcome, found.summary.as_str()),
                (Outcome::Crash, summary)
            );
        }
    }

    #[test]
    fn a_farewell_with_another_token_is_a_bad_end() {
        let (scenario, known) = (barrier(), Expectations::default());
        let mut world = finishing(&scenario, &known);
        world.bye(0, 4);
        world.end(0, exit(0));
        let token = "another".to_owned();
        world.header(1, allranks_protocol::FromRank::Bye { steps: 4, token });
        world.close(1);
        world.end(1, exit(0));
        world.handle(Event::OrphansReaped(Vec::new()));
        let found = world.result.unwrap().end.unwrap();
        assert_eq!(
            found.summary,
            "rank 1: its farewell carries another run's token"
        );
    }

    #[test]
    fn a_rank_that_says_bye_and_never_ends_hangs() {
        let (scenario, known) = (barrier(), Expectations::default());
        let mut world = finishing(&scenario, &known);
        assert_eq!(world.state.unreported_ends(), [Rank(0), Rank(1)]);
        world.bye(0, 4);
        world.end(0, exit(0));
        world.bye(1, 4);
        assert_eq!(world.state.unreported_ends(), [Rank(1)]);
        assert_eq!(world.wake_until_killed(ms(60_000)), ms(20_000));
        assert_eq!(world.take_done(), ["kill 1"]);
        let result = world.reaped();
        let end = result.end.unwrap();
        assert_eq!(end.outcome, Outcome::Hang);
        assert_eq!(end.ranks[1].text, "said bye and has not ended");
        let diagnosis = end.diagnosis.unwrap();
        assert_eq!(
            (
                diagnosis.kind,
                diagnosis.culprits.as_slice(),
                diagnosis.victims.as_slice()
            ),
            (HangKind::TeardownStuck, &[Rank(1)][..], &[][..])
        );
        assert_eq!(
            diagnosis.summary,
            "rank 1 was told to end, and its process goes on"
        );
        assert_eq!(diagnosis.evidence, ["rank 1 in leaving for 20.0 s"]);
        assert!(result.ranks[1].killed && !result.ranks[0].killed);
    }

    #[test]
    fn a_rank_that_ends_without_bye_has_crashed() {
        let (scenario, known) = (barrier(), Expectations::default());
        let mut world = finishing(&scenario, &known);
        world.close(1);
        world.end(1, exit(0));
        let result = world.reaped();
        assert_eq!(outcomes(&result), [(0, Outcome::Pass)]);
        let end = result.end.unwrap();
        assert_eq!(end.outcome, Outcome::Crash);
        assert_eq!(end.summary, "rank 1: its process ended: exit 0");
    }

    #[test]
    fn a_teardown_that_raises_is_told_and_the_world_ends_as_ever() {
        let (scenario, known) = (barrier(), Expectations::default());
        let mut world = Simulation::opened(&scenario, &known);
        world.answer_all();
        world.answer(0);
        world.raise(1, "it is stuck");
        assert_eq!(world.take_done(), ["finish 0", "finish 1"]);
        world.shut_down();
        let end = world.result.unwrap().end.unwrap();
        assert_eq!(end.outcome, Outcome::Error);
        assert_eq!(
            end.summary,
            "rank 1 did not tear down: RuntimeError: it is stuck"
        );
    }

    #[test]
    fn a_process_that_cannot_be_killed_is_given_up() {
        let (scenario, known) = (barrier(), Expectations::default());
        let mut world = Simulation::opened(&scenario, &known);
        world.handle(Event::Interrupted);
        assert_eq!(world.take_done(), ["kill 0", "kill 1"]);
        world.end(0, RankExit::Signalled(9));
        world.enter(1);
        assert!(world.result.is_none());
        assert_eq!(world.wake(), REAP_TIMEOUT);
        let result = world.result.unwrap();
        assert!(result.ranks[1].end.is_none() && result.ranks[1].killed);
    }

    #[test]
    fn an_interrupt_ends_a_world_wherever_it_is_and_judges_nothing() {
        let (scenario, known) = (barrier(), Expectations::default());
        let worlds = [
            Simulation::new(&scenario, &known),
            Simulation::opened(&scenario, &known),
            finishing(&scenario, &known),
        ];
        for mut world in worlds {
            world.take_done();
            let before = outcomes(&world.state.result);
            world.handle(Event::Interrupted);
            assert_eq!(world.take_done(), ["kill 0", "kill 1"]);
            let result = world.reaped();
            assert_eq!(result.lost.as_deref(), Some("interrupted"));
            assert_eq!(outcomes(&result), before);
        }
    }

    #[test]
    fn an_interrupt_waits_for_what_the_host_is_asked() {
        let (scenario, known) = (barrier(), Expectations::default());
        let mut world = Simulation::opened(&scenario, &known);
        world.wake();
        world.handle(Event::Interrupted);
        assert!(!world.is_killed());
        world.tell_host(&[]);
        assert!(world.is_killed());
    }

    #[test]
    fn a_script_after_which_ranks_leave_is_judged_by_how_they_do() {
        let script = "  - script: {name: s, afterwards: leave, moves: [{sleep: {ms: 1}}]}\n";
        let scenario = planned("{size: 2, deadline_s: 20}", script);
        let known = Expectations::default();
        for code in [0, 7] {
            let mut world = Simulation::opened(&scenario, &known);
            world.answer_all();
            let steps = world.state.steps;
            for rank in 0..2 {
                world.bye(rank, steps);
                world.end(rank, exit(code));
            }
            // Processes left behind are not searched for.
            assert_eq!(world.take_done(), ["finish 0", "finish 1"]);
            let result = world.result.unwrap();
            let check_result = &result.checks[&0];
            match code {
                0 => assert_eq!(check_result.outcome, Outcome::Pass),
                _ => assert_eq!(check_result.summary, "rank 0: its process ended: exit 7"),
            }
            assert_eq!(result.end, None);
        }
    }
}
