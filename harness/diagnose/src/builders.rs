//! Builds ranks for tests of the rules, and asks for the verdict on them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::evidence::{Collective, EventKind, HangEvidence, Message, RankState};
use crate::{Process, TraceEvent, diagnose};
use allranks_model::diagnosis::{Confidence, HangKind};
use allranks_model::names::Rank;

pub(crate) fn collective(group: &str, members: &[u32]) -> EventKind {
    EventKind::Collective(Collective {
        group: group.into(),
        members: members.iter().copied().map(Rank).collect(),
        name: "all_reduce".into(),
        nature: BTreeMap::new(),
        splits: None,
    })
}

pub(crate) fn message(sends: bool, peer: u32, tag: u32) -> EventKind {
    EventKind::Message(Message {
        group: "world".into(),
        sends,
        peer: Some(Rank(peer)),
        tag,
    })
}

/// Builds a rank that has finished all these events but the last, which it is in.
pub(crate) fn rank(number: u32, events: Vec<EventKind>) -> RankState {
    rank_at(number, events.into_iter().map(|what| ("", what)))
}

/// Builds a rank that has made these calls, each from its line, and is in the last of them.
pub(crate) fn rank_at<'a>(
    number: u32,
    calls: impl IntoIterator<Item = (&'a str, EventKind)>,
) -> RankState {
    let event = |(at, what): (&str, EventKind)| TraceEvent {
        what,
        at: at.to_owned(),
    };
    let mut done: Vec<TraceEvent> = calls.into_iter().map(event).collect();
    let doing = done.pop().map(|last| (last, Duration::from_secs(1)));
    RankState {
        process: Process::Running,
        done,
        doing,
        ..RankState::unknown(Rank(number))
    }
}

/// Returns kind, culprits and confidence of the verdict on a whole world of these ranks.
pub(crate) fn verdict(ranks: Vec<RankState>) -> (HangKind, Vec<u32>, Confidence) {
    let verdict = diagnose(&HangEvidence {
        ranks,
        is_whole: true,
        ..HangEvidence::default()
    });
    let culprits = verdict.culprits.iter().map(|rank| rank.0).collect();
    (verdict.kind, culprits, verdict.confidence)
}
