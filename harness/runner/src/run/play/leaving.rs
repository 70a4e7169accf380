//! The end of a world: every rank's farewell, or its death, until no process is left.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::{Player, Stop};
use crate::finding::{Finding, error_text};
use crate::world::Event;
use allranks_model::names::Rank;
use allranks_model::outcome::Outcome;
use allranks_model::record::RankLine;
use allranks_oracle::RankReply;
use allranks_protocol::ToRank;

/// How long killed processes may take to be reaped.
const REAPING: Duration = Duration::from_secs(10);

impl Player<'_> {
    /// Sends every rank away and waits for its token and its end.
    pub(super) async fn part(&mut self) -> Result<(), Stop> {
        let everyone: Vec<Rank> = self.size().ranks().collect();
        let mut wrong = self.say_goodbye(&everyone).await?;
        let left_behind = self.world.sweep().len();
        if left_behind > 0 {
            wrong.push(RankLine {
                rank: Rank(0),
                text: format!("ranks left {left_behind} processes running"),
            });
        }
        if let Some(finding) = bad_end(wrong) {
            self.played.end = Some(finding);
        }
        Ok(())
    }

    /// Sends those ranks away that a script has not, and waits for their tokens and their ends. Nothing was destroyed
    /// before; what goes wrong is the script's.
    pub(super) async fn leave(&mut self, index: usize) -> Result<(), Stop> {
        let staying: Vec<Rank> = self
            .size()
            .ranks()
            .filter(|rank| self.played.ranks[rank.index()].broken.is_none())
            .collect();
        let wrong = self.say_goodbye(&staying).await?;
        if let Some(finding) = bad_end(wrong)
            && let Some(known) = self.played.checks.get_mut(&index)
            && known.outcome == Outcome::Pass
        {
            *known = finding;
        }
        Ok(())
    }

    /// Sends ranks away and waits until each has said goodbye and ended; what is wrong with how they did.
    async fn say_goodbye(&mut self, leaving: &[Rank]) -> Result<Vec<RankLine>, Stop> {
        for rank in leaving {
            self.world.send(*rank, ToRank::Finish, Vec::new());
        }
        while leaving.iter().any(|rank| {
            let story = &self.played.ranks[rank.index()];
            story.said_bye.is_none() || story.end.is_none()
        }) {
            self.step().await?;
        }
        let fault = |rank: &Rank| {
            let text = self.played.ranks[rank.index()].farewell_fault(self.next_step)?;
            Some(RankLine { rank: *rank, text })
        };
        Ok(leaving.iter().filter_map(fault).collect())
    }

    /// Kills what still runs and waits until all of it is gone.
    pub(super) async fn clear(&mut self) {
        for rank in self.size().ranks() {
            let story = &mut self.played.ranks[rank.index()];
            if story.end.is_none() {
                story.killed = true;
                self.world.kill(rank);
            }
        }
        let limit = Instant::now() + REAPING;
        while self.played.ranks.iter().any(|rank| rank.end.is_none()) {
            match timeout_at(limit, self.world.next()).await {
                Ok(Event::Ended(rank, end)) => self.played.ranks[rank.index()].end = Some(end),
                Ok(_) => {}
                Err(_) => break,
            }
        }
        let _ = self.world.sweep();
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
pub(super) fn judge_closing(replies: &[RankReply]) -> Finding {
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
