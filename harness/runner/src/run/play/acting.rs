//! Playing a script: cues, ranks that leave on purpose, and what becomes of the world afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::diagnosing::Looks;
use super::{Player, Stop, short};
use crate::finding::Finding;
use crate::run::pending::Purpose;
use crate::script::{Answer, Cue, Staged};
use allranks_model::diagnosis::Kind;
use allranks_model::names::Rank;
use allranks_model::outcome::Outcome;
use allranks_protocol::ToRank;
use allranks_suite::case::Afterwards;
use allranks_suite::plan::{Hang, Script};

/// A stopped rank is told to go on again and again: the first time may come before it has stopped.
const NUDGE: Duration = Duration::from_millis(100);

/// What is going on in a script besides calls.
#[derive(Debug, Default)]
pub(super) struct Acting {
    /// Who has made which mark.
    marked: BTreeMap<String, BTreeSet<Rank>>,
    /// Who holds for which.
    holding: Vec<(Rank, String)>,
    /// Stopped ranks, and when each is to go on.
    paused: Vec<(Rank, Instant)>,
}

impl Player<'_> {
    /// Plays a script from its first move to its judgement. Nothing else is under way meanwhile.
    pub(super) async fn play_script(
        &mut self,
        index: usize,
        script: &Arc<Script>,
    ) -> Result<(), Stop> {
        self.drain(0).await?;
        let check = &self.scenario.checks[index];
        let label = short(check).to_owned();
        let staged = Staged::new(
            self.scenario,
            check,
            script,
            &self.points,
            self.shared.settings.seed,
        );
        let mut staged = match staged {
            Ok(staged) => staged,
            Err(why) => {
                // The suite's tests stage every script; reaching this is the harness's own mistake.
                let finding = Finding::bare(Outcome::HarnessError, None, why);
                self.played.checks.insert(index, finding);
                return Ok(());
            }
        };
        self.acting = Acting::default();
        self.looks = Looks::default();
        let steps = std::mem::take(&mut staged.steps);
        if self.leaves_out(index, &steps) {
            return Ok(());
        }
        self.send(label, Purpose::Script(index, Box::new(staged)), steps);
        self.drain(0).await
    }

    /// A script is over: its finding, and the world's fate.
    pub(super) fn end_script(&mut self, index: usize, finding: Finding) -> Result<(), Stop> {
        let passed = finding.outcome == Outcome::Pass;
        let fate = self.scenario.checks[index]
            .script
            .as_ref()
            .map_or(Afterwards::GoOn, |script| match &script.hang {
                // Whoever is late comes.
                Some(Hang {
                    kind: Kind::Slow, ..
                })
                | None => script.afterwards,
                Some(_) => Afterwards::Abandon,
            });
        self.played.checks.insert(index, finding);
        match fate {
            Afterwards::GoOn if passed => Ok(()),
            Afterwards::GoOn => {
                self.played.lost = Some("a script did not go as it must".to_owned());
                Err(Stop::Decided)
            }
            Afterwards::Abandon => Err(Stop::Decided),
            Afterwards::Leave => Err(Stop::Leave(index)),
        }
    }

    /// A rank enters a call: is there anything to be done?
    pub(super) fn cue(&mut self, rank: Rank, call: usize) {
        // It has gone on.
        self.acting.paused.retain(|(paused, _)| *paused != rank);
        let Some(cue) = self
            .pending
            .front()
            .and_then(|pending| pending.script())
            .and_then(|script| script.cue(rank, call))
            .cloned()
        else {
            return;
        };
        match cue {
            Cue::Mark(name) => {
                self.acting.marked.entry(name).or_default().insert(rank);
            }
            Cue::Hold(name) => self.acting.holding.push((rank, name)),
            Cue::Pause(time) => self.acting.paused.push((rank, Instant::now() + time)),
            Cue::Freeze => self.note_left(rank, Some(call), None),
        }
        self.let_go();
    }

    /// Those whose marks have all been made go on.
    fn let_go(&mut self) {
        let Some(script) = self.pending.front().and_then(|pending| pending.script()) else {
            return;
        };
        let marked = &self.acting.marked;
        let (free, held): (Vec<_>, Vec<_>) = std::mem::take(&mut self.acting.holding)
            .into_iter()
            .partition(|(_, name)| script.is_marked(name, marked));
        self.acting.holding = held;
        for (rank, _) in free {
            self.world.send(rank, ToRank::Go, Vec::new());
        }
    }

    /// Whether the rank is stopped only for a while.
    pub(super) fn is_paused(&self, rank: Rank) -> bool {
        self.acting.paused.iter().any(|(paused, _)| *paused == rank)
    }

    /// When the next stopped rank is to go on.
    pub(super) fn next_nudge(&self) -> Option<Instant> {
        self.acting.paused.iter().map(|(_, when)| *when).min()
    }

    /// Lets every rank go on whose time has come.
    pub(super) fn nudge(&mut self) {
        let now = Instant::now();
        for (rank, when) in &mut self.acting.paused {
            if *when <= now {
                self.world.resume(*rank);
                *when = now + NUDGE;
            }
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

    /// A rank has left in the middle of a script.
    pub(super) fn note_left(
        &mut self,
        rank: Rank,
        call: Option<usize>,
        end: Option<crate::world::End>,
    ) {
        if let Some(pending) = self.pending.front_mut() {
            pending.answers[rank.index()] = Some(Answer::Left(call, end));
        }
    }
}
