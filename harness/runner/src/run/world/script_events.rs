//! What goes on in a script besides calls: marks that are waited for, ranks that are stopped for a while, ranks that leave on
//! purpose, and what becomes of the world afterwards.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::checks::short;
use super::event::Action;
use super::hang_check::HangChecks;
use super::phase::Phase;
use super::phase::Stop;
use super::state::WorldState;
use allranks_suite::case::Afterwards;
use allranks_model::diagnosis::Kind;
use crate::finding::Finding;
use allranks_model::outcome::Outcome;
use allranks_model::names::Rank;
use allranks_suite::plan::Hang;
use allranks_suite::plan::Script;
use allranks_protocol::ToRank;
use crate::run::pending::Purpose;
use crate::script::Answer;
use crate::script::Cue;
use crate::script::Staged;
use crate::world::End;

/// A stopped rank is told to go on again and again: the first time may come before it has stopped.
pub const RESUME_AGAIN: Duration = Duration::from_millis(100);

/// What is going on in a script besides calls.
#[derive(Debug, Default)]
pub struct ScriptEvents {
    /// The ranks that have made each mark.
    marked: BTreeMap<String, BTreeSet<Rank>>,
    /// Ranks that hold, and the mark each waits for.
    holding: Vec<(Rank, String)>,
    /// Stopped ranks, and when each is to go on.
    paused: Vec<(Rank, Duration)>,
}

impl ScriptEvents {
    /// Whether the rank is stopped only for a while.
    pub fn is_paused(&self, rank: Rank) -> bool {
        self.paused.iter().any(|(paused, _)| *paused == rank)
    }

    /// When the next stopped rank is to go on.
    pub fn next_resume(&self) -> Option<Duration> {
        self.paused.iter().map(|(_, when)| *when).min()
    }

    /// Ranks whose time to go on has come; each comes again until it has gone on.
    fn due(&mut self, now: Duration) -> Vec<Rank> {
        let due = self.paused.iter_mut().filter(|(_, when)| *when <= now);
        due.map(|(rank, when)| {
            *when = now + RESUME_AGAIN;
            *rank
        })
        .collect()
    }

    /// Takes away the ranks that hold for a mark that every rank has made that must.
    fn released(&mut self, script: &Staged) -> Vec<Rank> {
        let marked = &self.marked;
        let is_free = |(_, name): &mut (Rank, String)| script.is_marked(name, marked);
        let free = self.holding.extract_if(.., is_free);
        free.map(|(rank, _)| rank).collect()
    }
}

impl WorldState<'_> {
    /// Sends a script. Nothing else is under way meanwhile.
    pub(super) fn send_script(&mut self, index: usize, script: &Arc<Script>) {
        let check = &self.plan.scenario.checks[index];
        let label = short(check).to_owned();
        let staged = Staged::new(
            self.plan.scenario,
            check,
            script,
            &self.plan.points,
            self.plan.seed,
        );
        let mut staged = match staged {
            Ok(staged) => staged,
            // The suite's tests stage every script; reaching this is the harness's own mistake.
            Err(why) => return self.leave_out(index, Outcome::HarnessError, why),
        };
        self.script_events = ScriptEvents::default();
        self.hang_checks = HangChecks::default();
        let steps = std::mem::take(&mut staged.steps);
        if let Some(why) = self.lacking(&steps) {
            return self.leave_out(index, Outcome::NotRun, why);
        }
        self.send(label, Purpose::Script(index, Box::new(staged)), steps);
        self.phase = Phase::Script;
    }

    /// A script is over: its finding, and the world's fate.
    pub(super) fn end_script(&mut self, index: usize, finding: Finding) -> Result<(), Stop> {
        let passed = finding.outcome == Outcome::Pass;
        let fate =
            self.plan.scenario.checks[index]
                .script
                .as_ref()
                .map_or(Afterwards::GoOn, |script| match &script.hang {
                    // The rank that is late comes.
                    Some(Hang {
                        kind: Kind::Slow, ..
                    })
                    | None => script.afterwards,
                    Some(_) => Afterwards::Abandon,
                });
        self.result.checks.insert(index, finding);
        match fate {
            Afterwards::GoOn if passed => Ok(()),
            Afterwards::GoOn => {
                self.result.lost = Some("a script did not go as it must".to_owned());
                Err(Stop::Decided)
            }
            Afterwards::Abandon => Err(Stop::Decided),
            Afterwards::Leave => Err(Stop::Leave(index)),
        }
    }

    /// A rank enters a call: does what the script says is to be done then.
    pub(super) fn cue(&mut self, rank: Rank, call: usize) {
        let events = &mut self.script_events;
        // It has gone on.
        events.paused.retain(|(paused, _)| *paused != rank);
        let Some(script) = self.pending.front().and_then(|pending| pending.script()) else {
            return;
        };
        let Some(cue) = script.cue(rank, call) else {
            return;
        };
        let mut has_left = false;
        match cue {
            Cue::Mark(name) => {
                events.marked.entry(name.clone()).or_default().insert(rank);
            }
            Cue::Hold(name) => events.holding.push((rank, name.clone())),
            Cue::Pause(time) => events.paused.push((rank, self.now + *time)),
            Cue::Freeze => has_left = true,
        }
        for free in events.released(script) {
            self.act(Action::Send(free, ToRank::Go, Vec::new()));
        }
        if has_left {
            self.note_left(rank, Some(call), None);
        }
    }

    /// Lets every stopped rank go on whose time has come.
    pub(super) fn resume(&mut self) {
        for rank in self.script_events.due(self.now) {
            self.act(Action::Resume(rank));
        }
    }

    /// Whether the script under way wants the rank to leave.
    pub(super) fn is_to_leave(&self, rank: Rank) -> bool {
        self.pending
            .front()
            .filter(|pending| !pending.is_answered_by(rank))
            .and_then(|pending| pending.script())
            .is_some_and(|script| script.departure(rank).is_some())
    }

    /// A rank has left in the middle of a script: in which call, and how its process ended, if that is known.
    pub(super) fn note_left(&mut self, rank: Rank, call: Option<usize>, end: Option<End>) {
        if let Some(pending) = self.pending.front_mut() {
            pending.answers[rank.index()] = Some(Answer::Left(call, end));
        }
    }
}
