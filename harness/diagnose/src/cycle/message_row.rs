//! Blames a cycle on a row of messages: one rank waits for the next message, and the other rank has gone on to a collective.

use std::collections::BTreeSet;

use crate::conclude;
use crate::evidence::as_collective;
use crate::evidence::{Collective, HangEvidence, Message, RankState};
use crate::messages::{answers, as_message, awaited, messages};
use allranks_model::diagnosis::{Confidence, Diagnosis, HangKind};
use allranks_model::names::Rank;

/// The fewest messages between two ranks that make a row.
const ROW: usize = 2;

/// One rank of a cycle that waits for the next message of a row, and the other side of it.
struct Row<'a> {
    waiting: &'a RankState,
    message: &'a Message,
    peer: &'a RankState,
    /// The collective that the peer waits in, and the waiting rank has not come to.
    here: &'a Collective,
    /// The messages of the row of which the peer has begun its side.
    issued: usize,
}

/// Finds two ranks of a cycle of which one waits for the next message of a row, while the other one has gone on to a collective that
/// waits for it. Either a message is missing or one is expected too many. How many there were between collectives before may show
/// which, or a last round of messages to or from several ranks in turn, which lacks the waiting rank alone. If it does not, those that wait for as many messages to or from the waiting rank speak for that one, and those that are in
/// that collective too for the one that has gone on; without either, both ranks are blamed. `None` if these are not the facts, or
/// hold for several pairs.
#[must_use]
pub fn broken(evidence: &HangEvidence, cycle: &[Rank]) -> Option<Diagnosis> {
    let states = || cycle.iter().filter_map(|rank| evidence.rank(*rank));
    let mut rows = states().filter_map(|waiting| {
        let (message, nth) = awaited(waiting)?;
        let peer = states().find(|state| Some(state.rank) == message.peer)?;
        let here = as_collective(peer.now()?).filter(|one| one.members.contains(&waiting.rank))?;
        let own = messages(peer).filter(|own| answers(own, message, waiting.rank));
        let issued = own.count();
        (issued >= ROW && issued + 1 == nth).then_some(Row {
            waiting,
            message,
            peer,
            here,
            issued,
        })
    });
    let row = rows.next()?;
    if rows.next().is_some() {
        return None;
    }
    let culprits = culprits(evidence, &row)?;
    let (verb, direction) = match row.message.sends {
        true => ("received", "to"),
        false => ("sent", "from"),
    };
    let summary = format!(
        "rank {} waits for message number {} {direction} rank {}, which has {verb} {} and gone on to {}",
        row.waiting.rank,
        row.issued + 1,
        row.peer.rank,
        row.issued,
        row.here,
    );
    let facts = states().map(RankState::place_of_rank);
    let verdict = conclude(
        evidence,
        HangKind::MessageUnmatched,
        Confidence::Likely,
        culprits,
        summary,
    );
    Some(verdict.because(facts.collect()))
}

/// Returns the ranks to blame for a row that breaks; `None` if either may be right.
fn culprits(evidence: &HangEvidence, row: &Row<'_>) -> Option<Vec<Rank>> {
    let (waiting, peer) = (row.waiting, row.peer);
    let group = &row.here.group;
    let of_peer = Counts::of(peer, group, |own| answers(own, row.message, waiting.rank));
    let of_waiting = Counts::of(waiting, group, |own| own == row.message);
    let has_fewer = of_peer.usual().is_some_and(|usual| of_peer.now < usual);
    let has_more = (of_waiting.usual()).is_some_and(|usual| of_waiting.now > usual);
    let is_there = |state: &RankState| {
        state.rank != peer.rank && state.now().and_then(as_collective) == Some(row.here)
    };
    let expects_as_many = |state: &RankState| {
        awaited(state).is_some_and(|(one, nth)| one.peer == Some(waiting.rank) && nth > row.issued)
    };
    let any = |is_so: &dyn Fn(&RankState) -> bool| evidence.ranks.iter().any(is_so);
    match (has_fewer, has_more) {
        (true, false) => Some(vec![peer.rank]),
        (false, true) => Some(vec![waiting.rank]),
        _ if lacks_in_round(evidence, row) => Some(vec![peer.rank]),
        _ if is_relayed(evidence, row) => Some(vec![waiting.rank]),
        _ if any(&is_there) => None,
        _ if any(&expects_as_many) => Some(vec![peer.rank]),
        _ => {
            let mut both = vec![waiting.rank, peer.rank];
            both.sort_unstable();
            Some(both)
        }
    }
}

/// The fewest messages that a rank has passed on one by one.
const RELAYED: usize = 8;

/// Returns true if the peer passes messages on: each of the row came right after one that it had from a third rank (or went right before
/// one to it), and that third rank has gone on to the collective that the peer is in. If one more message were due, both would have left
/// theirs out.
fn is_relayed(evidence: &HangEvidence, row: &Row<'_>) -> bool {
    let own: Vec<&Message> = messages(row.peer).collect();
    let is_of_row = |own: &Message| answers(own, row.message, row.waiting.rank);
    let of_row = own.iter().enumerate().filter(|(_, own)| is_of_row(own));
    let beside = |number: usize| match row.message.sends {
        // What the peer has received it passes on.
        true => own.get(number + 1),
        false => number.checked_sub(1).and_then(|before| own.get(before)),
    };
    let others: Option<Vec<&Message>> = of_row.map(|(number, _)| beside(number).copied()).collect();
    let Some(others) = others.filter(|others| others.len() >= RELAYED) else {
        return false;
    };
    let Some(first) = others
        .first()
        .filter(|first| first.sends == row.message.sends)
    else {
        return false;
    };
    let third = first.peer.filter(|third| *third != row.waiting.rank);
    let is_there = third
        .and_then(|third| evidence.rank(third))
        .is_some_and(|third| third.now().and_then(as_collective) == Some(row.here));
    // Each message of the third rank's is passed on, and no other.
    let are_all = own.iter().filter(|one| *one == first).count() == others.len();
    is_there && are_all && others.iter().all(|one| one == first)
}

/// Returns true if the peer has had messages of this kind with several ranks in turn, twice at least, and has begun one more round that
/// lacks the waiting rank alone, while all others of the round are in the collective that the peer is in.
fn lacks_in_round(evidence: &HangEvidence, row: &Row<'_>) -> bool {
    let is_of_kind = |own: &&Message| {
        Message {
            peer: None,
            ..(*own).clone()
        } == Message {
            peer: None,
            sends: !row.message.sends,
            ..row.message.clone()
        }
    };
    let peers: Option<Vec<Rank>> = messages(row.peer)
        .filter(is_of_kind)
        .map(|own| own.peer)
        .collect();
    let Some(peers) = peers else { return false };
    let waiting = row.waiting.rank;
    let has_come = |rank: &Rank| {
        let there = evidence
            .rank(*rank)
            .and_then(RankState::now)
            .and_then(as_collective);
        there == Some(row.here)
    };
    let is_so = |period: usize| {
        let rounds = peers.chunks_exact(period);
        let (round, last) = (&peers[..period], rounds.remainder());
        let without: Vec<Rank> = round
            .iter()
            .copied()
            .filter(|rank| *rank != waiting)
            .collect();
        let others: BTreeSet<Rank> = without.iter().copied().collect();
        without.len() < round.len()
            && others.len() > 1
            && last == without
            && others.iter().all(has_come)
            && rounds.clone().all(|one| one == round)
    };
    (1..=peers.len() / ROW).any(is_so)
}

/// The numbers of messages of a row that a rank has issued between one collective of a group and the next.
struct Counts {
    /// Messages before each collective that the rank has come out of, since the one before it; in order.
    before: Vec<usize>,
    /// Messages after the last of these collectives.
    now: usize,
}

impl Counts {
    /// Counts what a rank has issued, and the message that it is in.
    fn of(state: &RankState, group: &str, is_of_row: impl Fn(&Message) -> bool) -> Self {
        let is_of_row = |what| as_message(what).is_some_and(&is_of_row);
        let (mut before, mut now) = (Vec::new(), 0);
        for event in &state.done {
            if as_collective(&event.what).is_some_and(|one| one.group == group) {
                before.push(std::mem::take(&mut now));
            } else if is_of_row(&event.what) {
                now += 1;
            }
        }
        now += usize::from(state.now().is_some_and(is_of_row));
        Self { before, now }
    }

    /// Returns how many messages there usually are at this point, at least one: `before` ends in the same numbers twice, and the first
    /// of them is due again. Of several such periods the shortest counts. `None` if nothing repeats.
    fn usual(&self) -> Option<usize> {
        let counts = &self.before;
        let repeats = |period: usize| {
            let latest = &counts[counts.len() - period..];
            latest == &counts[counts.len() - 2 * period..counts.len() - period]
        };
        (1..=counts.len() / 2)
            .filter(|period| repeats(*period))
            .map(|period| counts[counts.len() - period])
            .find(|usual| *usual > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EventKind;
    use crate::builders::{collective, message, rank, verdict};

    fn world() -> EventKind {
        collective("world", &[0, 1, 2])
    }

    const NOBODY: (HangKind, Vec<u32>, Confidence) =
        (HangKind::CyclicWait, vec![], Confidence::Proved);

    fn unmatched(ranks: &[u32]) -> (HangKind, Vec<u32>, Confidence) {
        (
            HangKind::MessageUnmatched,
            ranks.to_vec(),
            Confidence::Likely,
        )
    }

    #[test]
    fn a_row_of_which_nothing_is_known_but_its_length_is_laid_to_both_ends() {
        let ranks = |sent: usize, last: EventKind| {
            vec![
                rank(0, [vec![message(true, 1, 0); sent], vec![world()]].concat()),
                rank(1, vec![message(false, 0, 0); sent + 1]),
                rank(2, vec![last]),
            ]
        };
        assert_eq!(verdict(ranks(3, message(false, 1, 0))), unmatched(&[0, 1]));
        // The first message of all may have a collective before it, on either side.
        assert_eq!(verdict(ranks(0, message(false, 1, 0))), NOBODY);
        // Two are in the collective.
        assert_eq!(verdict(ranks(3, world())), NOBODY);
    }

    #[test]
    fn a_rank_that_expects_as_many_messages_speaks_for_the_one_that_waits() {
        // A pipeline: each passes on what it gets. The first stage has had enough after some.
        let inner = (0..3).flat_map(|_| [message(false, 0, 0), message(true, 2, 0)]);
        let ranks = vec![
            rank(0, [vec![message(true, 1, 0); 3], vec![world()]].concat()),
            rank(1, inner.chain([message(false, 0, 0)]).collect()),
            rank(2, vec![message(false, 1, 0); 4]),
        ];
        assert_eq!(verdict(ranks), unmatched(&[0]));
        // The last stage has had enough: of the circles, some go through the two last ones alone.
        let inner = (0..4).flat_map(|_| [message(false, 0, 0), message(true, 2, 0)]);
        let ranks = vec![
            rank(0, vec![message(true, 1, 0); 5]),
            rank(1, inner.collect()),
            rank(2, [vec![message(false, 1, 0); 3], vec![world()]].concat()),
        ];
        assert_eq!(verdict(ranks), unmatched(&[2]));
    }

    /// Builds a receiver and two senders that have had `steps` steps of several messages from each and then two collectives, and then
    /// the receiver waits for `expected` from rank 1, which sends `sent`.
    fn rounds(steps: usize, expected: usize, sent: usize) -> Vec<RankState> {
        let step = |of: Vec<EventKind>| [of, vec![world(), world()]].concat();
        let received = |count: usize| vec![message(false, 1, 0); count];
        let sent_to_first = |count: usize| vec![message(true, 0, 0); count];
        let from_second = vec![message(false, 2, 0); 4];
        let of_first = vec![step([received(4), from_second.clone()].concat()); steps].concat();
        let of_sender = vec![step(sent_to_first(4)); steps].concat();
        vec![
            rank(0, [of_first, from_second, received(expected)].concat()),
            rank(
                1,
                [of_sender.clone(), sent_to_first(sent), vec![world()]].concat(),
            ),
            rank(2, [of_sender, sent_to_first(4), vec![world()]].concat()),
        ]
    }

    /// Builds a learner that tells three actors something in turn, each time with an answer, `rounds` times, and then tells those
    /// of `last` to stop; the others go on.
    fn told(rounds: usize, last: &[u32]) -> Vec<RankState> {
        let everyone = || collective("world", &[0, 1, 2, 3]);
        let tell = (1..4).map(|to| message(true, to, 0));
        let hear = (1..4).map(|from| message(false, from, 1));
        let round: Vec<EventKind> = tell.chain(hear).collect();
        let stop = last.iter().map(|to| message(true, *to, 0));
        let stop = stop.chain([everyone()]).collect();
        let learner = rank(0, [vec![round; rounds].concat(), stop].concat());
        let actor = |number: u32| {
            let round = vec![message(false, 0, 0), message(true, 0, 1)];
            let mut events = vec![round; rounds].concat();
            events.push(message(false, 0, 0));
            if last.contains(&number) {
                events.push(everyone());
            }
            rank(number, events)
        };
        [vec![learner], (1..4).map(actor).collect()].concat()
    }

    #[test]
    fn a_round_that_lacks_one_rank_is_the_fault_of_who_began_it() {
        assert_eq!(verdict(told(4, &[1, 2])), unmatched(&[0]));
        // One round may be all that rank 3 was to have.
        assert_eq!(verdict(told(1, &[1, 2])), NOBODY);
    }

    /// Builds three stages: each batch of `steps` steps of four goes through all and comes back; then the last one expects one more.
    fn relayed(steps: usize) -> Vec<RankState> {
        let up = |number: u32| {
            let takes = (number > 0).then(|| message(false, number - 1, 0));
            takes
                .into_iter()
                .chain((number < 2).then(|| message(true, number + 1, 0)))
        };
        let down = |number: u32| {
            let takes = (number < 2).then(|| message(false, number + 1, 0));
            takes
                .into_iter()
                .chain((number > 0).then(|| message(true, number - 1, 0)))
        };
        let stage = |number: u32, last: EventKind| {
            let step = (0..4)
                .flat_map(|_| up(number))
                .chain((0..4).flat_map(|_| down(number)));
            let step: Vec<EventKind> = step.collect();
            rank(number, [vec![step; steps].concat(), vec![last]].concat())
        };
        vec![
            stage(0, world()),
            stage(1, world()),
            stage(2, message(false, 1, 0)),
        ]
    }

    #[test]
    fn a_rank_that_expects_more_than_a_rank_had_to_pass_on_is_named() {
        assert_eq!(verdict(relayed(3)), unmatched(&[2]));
        // The stage before may have had something of its own to send.
        assert_eq!(verdict(relayed(1)), NOBODY);
    }

    #[test]
    fn the_end_that_breaks_a_habit_is_named_alone() {
        assert_eq!(verdict(rounds(2, 4, 3)), unmatched(&[1]));
        assert_eq!(verdict(rounds(2, 5, 4)), unmatched(&[0]));
        // Without a habit the others in the collective speak for the one that has come there.
        assert_eq!(verdict(rounds(0, 5, 4)), NOBODY);
        assert_eq!(verdict(rounds(1, 4, 3)), NOBODY);
    }
}
