//! The end of a world: every rank's farewell, or its death, until no process is left.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::{Player, Stop};
use crate::finding::{Finding, error_text};
use crate::world::{Event, Remnant};
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
        wrong.extend(left_behind(&self.world.sweep(), &everyone));
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

/// What is wrong with the ranks that left these processes. Where a token names none of them, every rank is told of it.
fn left_behind(processes: &[Remnant], ranks: &[Rank]) -> Vec<RankLine> {
    let line = |rank: &Rank| {
        let is_own = |process: &&Remnant| process.rank == Some(*rank);
        let count = processes.iter().filter(is_own).count();
        (count > 0).then(|| RankLine {
            rank: *rank,
            text: format!("it left {count} processes running"),
        })
    };
    let is_strange = |process: &&Remnant| process.rank.is_none_or(|rank| !ranks.contains(&rank));
    let strange = processes.iter().filter(is_strange).count();
    let lines = ranks.iter().filter_map(line);
    let of_all = ranks.iter().filter(|_| strange > 0).map(|rank| RankLine {
        rank: *rank,
        text: format!("{strange} processes were left running whose token names no rank"),
    });
    lines.chain(of_all).collect()
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

#[cfg(test)]
mod tests {
    use rustix::process::getpid;

    use super::*;

    #[test]
    fn the_rank_that_a_token_names_is_blamed() {
        let of = |rank: Option<u32>| Remnant {
            pid: getpid(),
            rank: rank.map(Rank),
        };
        let blamed = |processes: &[Remnant]| -> Vec<(u32, String)> {
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
}
