//! The end of a world: every rank's farewell, or its death, until no process is left.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::{Player, Stop};
use crate::judge::{Finding, Outcome, error_text};
use crate::names::Rank;
use crate::oracle::RankReply;
use crate::protocol::ToRank;
use crate::report::RankLine;
use crate::world::Event;

/// How long killed processes may take to be reaped.
const REAPING: Duration = Duration::from_secs(10);

impl Player<'_> {
    /// Sends every rank away and waits for its token and its end.
    pub(super) async fn part(&mut self) -> Result<(), Stop> {
        for rank in self.size().ranks() {
            self.world.send(rank, ToRank::Finish, Vec::new());
        }
        while self
            .played
            .ranks
            .iter()
            .any(|rank| rank.said_bye.is_none() || rank.end.is_none())
        {
            self.step().await?;
        }
        let left_behind = self.world.sweep();
        let mut wrong = Vec::new();
        for (rank, story) in self.size().ranks().zip(&self.played.ranks) {
            let text = story.farewell_fault(self.next_step);
            wrong.extend(text.map(|text| RankLine { rank, text }));
        }
        if left_behind > 0 {
            wrong.push(RankLine {
                rank: Rank(0),
                text: format!("ranks left {left_behind} processes running"),
            });
        }
        if let Some(first) = wrong.first() {
            let summary = format!("rank {}: {}", first.rank, first.text);
            self.played.end = Some(Finding {
                ranks: wrong,
                ..Finding::bare(Outcome::Crash, Some("bad-end"), summary)
            });
        }
        Ok(())
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
    let checked = vec![1; replies.len()];
    match ranks.first() {
        None => Finding {
            checked,
            ..Finding::bare(Outcome::Pass, None, "")
        },
        Some(first) => Finding {
            summary: format!("rank {} did not tear down: {}", first.rank, first.text),
            ranks,
            ..Finding::bare(Outcome::Error, Some("teardown-failed"), "")
        },
    }
}
