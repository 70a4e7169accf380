//! The loss of a world, and what is told of it.

use super::pending::Pending;
use crate::finding::{Finding, error_text};
use allranks_model::diagnosis::Diagnosis;
use allranks_model::names::Rank;
use allranks_model::outcome::Outcome;
use allranks_model::record::RankLine;

/// Why a world is lost.
pub enum Loss {
    /// Nothing moved for the whole deadline, or it is proved that nothing will; what is known of it.
    Hang(Box<Diagnosis>),
    /// A rank died, closed its connection, or broke the protocol.
    Crash(Rank, String),
    /// The run is being interrupted.
    Interrupted,
}

/// A loss in a step in which some ranks raised. If the others then wait for ever, the errors are the cause. If one died,
/// the death may be the cause of the errors as well as the other way round: it stays a crash, and the errors are told.
pub fn with_errors(loss: Finding, open: &Pending) -> Finding {
    let mut first = None;
    let mut count = 0;
    let ranks = loss
        .ranks
        .iter()
        .map(|line| {
            let reply = open.reply_of(line.rank);
            let Some(error) = reply.and_then(|reply| error_text(&reply.result.calls)) else {
                return line.clone();
            };
            count += 1;
            let text = format!("raised {error}");
            first.get_or_insert(error);
            RankLine {
                text,
                ..line.clone()
            }
        })
        .collect();
    let Some(first) = first else {
        return loss;
    };
    let first = first.lines().next().unwrap_or_default();
    let all = open.answers.len();
    let raised = format!("{count} of {all} ranks raised {first}");
    let told = match loss.outcome {
        Outcome::Hang => Finding::bare(
            Outcome::Error,
            Some("raised-on-some-ranks"),
            format!("{raised}; then {}", loss.summary),
        ),
        _ => Finding {
            summary: format!("{}; {raised}", loss.summary),
            ..loss
        },
    };
    Finding { ranks, ..told }
}
