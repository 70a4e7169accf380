//! The end of a world: every rank's `bye` and exit, or its death, until no process is left.

use std::time::Duration;

use super::event::Action;
use super::phase::Phase;
use super::phase::Wait;
use super::state::WorldState;
use crate::finding::Finding;
use allranks_model::outcome::Outcome;
use crate::finding::error_text;
use allranks_model::names::Rank;
use allranks_oracle::RankReply;
use allranks_protocol::ToRank;
use allranks_model::record::RankLine;

/// How long killed processes may take to be reaped.
pub const REAPING: Duration = Duration::from_secs(10);

impl WorldState<'_> {
    /// Sends `finish` to every rank.
    pub(super) fn shut_down(&mut self) {
        let leaving = self.size().ranks().collect();
        self.send_finish(leaving, None);
    }

    /// Sends `finish` to those ranks that a script has not sent away. Nothing was destroyed before; what goes wrong is the
    /// script's.
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

    /// Whether each of these ranks has said `bye` and ended.
    pub(super) fn have_left(&self, leaving: &[Rank]) -> bool {
        leaving.iter().all(|rank| {
            let story = &self.result.ranks[rank.index()];
            story.said_bye.is_some() && story.end.is_some()
        })
    }

    /// Ranks have left: what is wrong with how they did is the script's, or, with what they left behind, the world's.
    pub(super) fn judge_shutdown(&mut self) {
        let Phase::Shutdown { leaving, script } = &self.phase else {
            return;
        };
        let fault = |rank: &Rank| {
            let text = self.result.ranks[rank.index()].farewell_fault(self.steps)?;
            Some(RankLine { rank: *rank, text })
        };
        let wrong: Vec<RankLine> = leaving.iter().filter_map(fault).collect();
        let Some(index) = *script else {
            self.wait = Some(Wait::Sweep(wrong));
            return self.act(Action::Sweep);
        };
        if let Some(finding) = bad_end(wrong)
            && let Some(known) = self.result.checks.get_mut(&index)
            && known.outcome == Outcome::Pass
        {
            *known = finding;
        }
        self.reap();
    }

    /// The world has come to its own end.
    pub(super) fn end_shutdown(&mut self, mut wrong: Vec<RankLine>, left_behind: u32) {
        if left_behind > 0 {
            wrong.push(RankLine {
                rank: Rank(0),
                text: format!("ranks left {left_behind} processes running"),
            });
        }
        if let Some(finding) = bad_end(wrong) {
            self.result.end = Some(finding);
        }
        self.reap();
    }

    /// Kills what still runs.
    pub(super) fn reap(&mut self) {
        self.wait = None;
        self.deferred.clear();
        for rank in self.size().ranks() {
            let story = self.story(rank);
            if story.end.is_none() {
                story.killed = true;
                self.act(Action::Kill(rank));
            }
        }
        self.phase = Phase::Reaping {
            until: self.now + REAPING,
        };
    }

    /// Whether no process is left.
    pub(super) fn have_ended(&self) -> bool {
        self.result.ranks.iter().all(|rank| rank.end.is_some())
    }

    /// Gives the result.
    pub(super) fn finish(&mut self) {
        self.phase = Phase::Finished;
        let result = std::mem::take(&mut self.result);
        self.act(Action::Finish(result));
    }
}

/// The finding of ranks that did not end as they must, if there are any.
fn bad_end(wrong: Vec<RankLine>) -> Option<Finding> {
    let first = wrong.first()?;
    let summary = format!("rank {}: {}", first.rank, first.text);
    Some(Finding {
        ranks: wrong,
        ..Finding::bare(Outcome::Crash, Some("bad-end"), summary)
    })
}

/// Of the teardown step: every rank must have come through it.
pub fn judge_closing(replies: &[RankReply]) -> Finding {
    let mut ranks = Vec::new();
    for (rank, reply) in replies.iter().enumerate() {
        let text = error_text(&reply.result.calls);
        ranks.extend(text.map(|text| RankLine {
            rank: Rank(rank as u32),
            text,
        }));
    }
    match ranks.first() {
        None => Finding::passed(vec![1; replies.len()]),
        Some(first) => Finding {
            summary: format!("rank {} did not tear down: {}", first.rank, first.text),
            ranks,
            ..Finding::bare(Outcome::Error, Some("teardown-failed"), "")
        },
    }
}
