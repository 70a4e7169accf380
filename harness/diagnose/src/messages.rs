//! The messages between ranks, and which two calls are the two sides of one.

use super::evidence::{EventKind, Message, RankState};
use allranks_model::names::Rank;

/// The message that an event is one side of; none if it is something else.
pub(crate) fn as_message(what: &EventKind) -> Option<&Message> {
    match what {
        EventKind::Message(message) => Some(message),
        _ => None,
    }
}

/// Every message of which a rank has begun its own side, in order.
pub(crate) fn messages(state: &RankState) -> impl Iterator<Item = &Message> {
    state.entered().filter_map(|event| as_message(&event.what))
}

/// A rank's messages of the same kind, to or from the same peer.
pub(crate) fn sides<'a>(
    state: &'a RankState,
    like: &'a Message,
) -> impl Iterator<Item = &'a Message> + 'a {
    messages(state).filter(move |one| *one == like)
}

/// Returns true if `own` is the other side of `other`, a message of `rank`.
pub(crate) fn answers(own: &Message, other: &Message, rank: Rank) -> bool {
    own.group == other.group
        && own.sends != other.sends
        && own.tag == other.tag
        && own.peer.is_none_or(|peer| peer == rank)
}
