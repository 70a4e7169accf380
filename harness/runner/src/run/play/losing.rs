//! A world that is lost: what still counts of it, which step it was lost in, and what is told of every rank.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::{Player, Stop};
use crate::finding::{Finding, error_text};
use crate::run::loss::{Loss, with_errors};
use crate::run::pending::{Pending, Purpose};
use crate::world::Event;
use allranks_model::capability::Declared;
use allranks_model::diagnosis::{Confidence, Diagnosis};
use allranks_model::names::Rank;
use allranks_model::outcome::Outcome;
use allranks_model::record::RankLine;

/// How long the others may take to answer what a dead rank had answered before it died.
const HEARING: Duration = Duration::from_secs(2);

impl Player<'_> {
    /// After a rank is lost: the step it was lost in is the one it has not answered. Steps before that, which it has
    /// answered, are the other ranks' to answer, and what they come to counts, unless it is an error, which may well
    /// come of the death: such a step is left open and played again in the next world. An error of this function means
    /// that the world ended before its first check.
    pub(super) async fn hear_out(&mut self, lost: Rank) -> Result<(), Stop> {
        let limit = Instant::now() + HEARING.min(self.deadline);
        self.conclude_unharmed()?;
        let has_answered = |pending: &VecDeque<Pending>, rank| {
            pending.front().is_some_and(|one| one.is_answered_by(rank))
        };
        while has_answered(&self.pending, lost)
            && !self.pending.front().is_some_and(Pending::is_answered)
        {
            match timeout_at(limit, self.world.next()).await {
                Ok(Event::Frame(rank, frame)) => {
                    if self.take(rank, frame).is_err() {
                        break;
                    }
                    self.conclude_unharmed()?;
                }
                Ok(Event::Ended(rank, end)) => self.played.ranks[rank.index()].end = Some(end),
                // Whom the step waits for is lost as well.
                Ok(Event::Broken(rank, _)) if !has_answered(&self.pending, rank) => break,
                Ok(Event::Broken(..) | Event::Hello(..) | Event::Refused(..)) => {}
                Err(_) => break,
            }
        }
        Ok(())
    }

    /// Like [`Self::conclude_answered`], up to the first check in which something raised that should not have.
    fn conclude_unharmed(&mut self) -> Result<(), Stop> {
        while let Some(pending) = self.next_answered() {
            if self.is_harmed(&pending) {
                if let Purpose::Probe(index, _) = pending.purpose {
                    // The refusal is judged with its probe: both are played again.
                    self.played.checks.remove(&index);
                }
                self.pending.push_front(pending);
                return Ok(());
            }
            self.conclude(pending)?;
        }
        Ok(())
    }

    fn is_harmed(&self, pending: &Pending) -> bool {
        let raised = pending.replies();
        let raised = raised.filter(|reply| error_text(&reply.result.calls).is_some());
        let allowed = match &pending.purpose {
            Purpose::Check(index, _) => {
                let check = &self.scenario.checks[*index];
                match check.declared {
                    Declared::Supported => 0,
                    Declared::Unsupported(_) => check.group.size(),
                }
            }
            Purpose::Probe(..) | Purpose::Script(..) => 0,
            // No check to play again: what they come to counts.
            Purpose::Imports | Purpose::Opening | Purpose::Closing => return false,
        };
        let count = raised.count();
        count != 0 && count != allowed
    }

    /// Turns a loss into findings: of the step in flight, if it is a check's, of init, or of the end.
    pub(super) fn note_loss(&mut self, loss: &Loss) {
        let (outcome, class, what) = match loss {
            Loss::Hang(told) => (Outcome::Hang, "hang", hung(told)),
            Loss::Crash(rank, why) => (Outcome::Crash, "crash", format!("rank {rank}: {why}")),
            Loss::Interrupted => {
                self.played.lost = Some("interrupted".to_owned());
                return;
            }
        };
        let mut finding = Finding::bare(outcome, Some(class), what.clone());
        finding.ranks = self.positions();
        if let Loss::Hang(told) = loss {
            finding.diagnosis = Some(told.clone());
            self.mark_stuck();
        }
        if let Some(open) = self.pending.front()
            && let Purpose::Check(..) | Purpose::Script(..) = open.purpose
        {
            finding = with_errors(finding, open);
        }
        if let Some(Purpose::Script(index, staged)) =
            self.pending.front().map(|pending| &pending.purpose)
            && let Some(hang) = staged.hang()
        {
            // As it was to be: no world is lost that was not given up beforehand.
            let told = match loss {
                Loss::Hang(told) => (**told).clone(),
                Loss::Crash(..) | Loss::Interrupted => self.diagnosis(self.pending.front()),
            };
            let finding = self.judge_hang(hang, told, finding);
            self.played.checks.insert(*index, finding);
            return;
        }
        self.played.lost = Some(what);
        match self.lost_step(loss).map(|pending| &pending.purpose) {
            Some(Purpose::Check(index, _) | Purpose::Script(index, _)) => {
                let index = *index;
                self.played.checks.insert(index, finding);
            }
            // A probe belongs to its check.
            Some(Purpose::Probe(index, _)) => {
                let index = *index;
                if let Some(refused) = self.played.checks.remove(&index) {
                    finding.summary =
                        format!("{}; afterwards {}", refused.summary, finding.summary);
                }
                self.played.checks.insert(index, finding);
            }
            Some(Purpose::Imports | Purpose::Opening) => {
                finding.outcome = Outcome::InitFailed;
                self.played.init = Some(finding);
            }
            Some(Purpose::Closing) => self.played.end = Some(finding),
            None if self.played.init.is_none() => {
                finding.outcome = Outcome::InitFailed;
                self.played.init = Some(finding);
            }
            None => self.played.end = Some(finding),
        }
    }

    /// The step in which the world was lost. Steps are sent ahead, so ranks may be in different ones: a rank that
    /// died did so in the first step it has not answered, and a world hangs in the first that not all have answered.
    /// Steps before the lost one that are still open have no finding; they are played again in the next world.
    fn lost_step(&self, loss: &Loss) -> Option<&Pending> {
        match loss {
            Loss::Crash(rank, _) => self
                .pending
                .iter()
                .find(|pending| !pending.is_answered_by(*rank)),
            Loss::Hang(_) | Loss::Interrupted => self.pending.front(),
        }
    }

    /// The call that each rank is in goes into its timeline: it will not end.
    fn mark_stuck(&mut self) {
        for (rank, story) in self.played.ranks.iter_mut().enumerate() {
            let Some((step, call, _)) = story.position else {
                continue;
            };
            let pending = self.pending.iter().find(|pending| pending.number == step);
            if let Some(pending) = pending {
                story.tell_stuck(format!(
                    "{} of {}",
                    pending.calls[rank][call], pending.label
                ));
            }
        }
    }

    /// Where every rank is, for a world that was lost.
    fn positions(&self) -> Vec<RankLine> {
        let now = Instant::now();
        let open = self.pending.front();
        self.size()
            .ranks()
            .zip(&self.played.ranks)
            .map(|(rank, story)| {
                let text = if let Some(end) = &story.end {
                    format!("its process ended: {end}")
                } else if story.said_bye.is_some() {
                    "said bye and has not ended".to_owned()
                } else if let Some(why) = &story.broken {
                    why.clone()
                } else if story.hello.is_none() {
                    "has not said hello".to_owned()
                } else if let Some((step, call, since)) = story.position {
                    let named = self
                        .pending
                        .iter()
                        .find(|pending| pending.number == step)
                        .map_or_else(String::new, |pending| {
                            format!("{} of {}", pending.calls[rank.index()][call], pending.label)
                        });
                    format!("in {named} for {:.1} s", (now - since).as_secs_f64())
                } else if open.is_some_and(|pending| pending.is_answered_by(rank)) {
                    "has done its part and waits".to_owned()
                } else {
                    format!(
                        "has answered {} steps and not begun the next",
                        story.answered
                    )
                };
                RankLine { rank, text }
            })
            .collect()
    }
}

/// What is said of a world in which nothing moves.
fn hung(told: &Diagnosis) -> String {
    let still = format!("no rank moved for {:.1} s", told.after_s);
    match told.confidence {
        Confidence::Proved | Confidence::Likely => {
            format!("{}: {} ({still})", told.kind, told.summary)
        }
        Confidence::None => still,
    }
}
