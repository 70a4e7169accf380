//! Point to point: every pair of the pattern, `count` messages each.
//!
//! All ranks walk one global list of messages, each taking part in its own. Blocking calls then never wait for each
//! other in a circle, even if `send` returns only when the message is received.

use crate::rank_plan::{Answer, Fill, Origin, PlanBuilder, Role};
use allranks_model::axes::Pairs;
use allranks_model::names::Rank;
use allranks_model::op::Op;
use allranks_protocol::{Call, Direction, P2pCall};

/// Ordered pairs of positions, in the order in which every rank takes them up.
fn pairs(pattern: Pairs, ranks: u32) -> Vec<(u32, u32)> {
    match pattern {
        Pairs::Ring => (0..ranks).map(|from| (from, (from + 1) % ranks)).collect(),
        Pairs::Link { from, to } => vec![(from, to)],
        Pairs::Own => (0..ranks).map(|rank| (rank, rank)).collect(),
        Pairs::All => (0..ranks)
            .flat_map(|from| (0..ranks).map(move |to| (from, to)))
            .filter(|(from, to)| from != to)
            .collect(),
    }
}

pub(super) fn exchange(desk: &mut PlanBuilder<'_>) {
    let me = desk.position;
    let (mut sent, mut received) = (0, 0);
    let mut batch = Vec::new();
    for (from, to) in pairs(desk.check.pairs, desk.ranks()) {
        for message in 0..desk.check.count {
            let slot = message * desk.ranks() + to;
            if from == me {
                let own = Fill::Own(slot);
                let tensor = desk.tensor(Role::Input, Some(sent), 0, own, Origin::Keep);
                sent += 1;
                message_call(desk, &mut batch, Direction::Send, tensor, to);
            }
            if to == me {
                let rank = desk.member(from);
                let after = Origin::Copy { rank, slot };
                let tensor = desk.tensor(Role::Output, Some(received), 0, Fill::Sentinel, after);
                received += 1;
                message_call(desk, &mut batch, Direction::Recv, tensor, from);
            }
        }
    }
    match desk.check.op {
        Op::IsendIrecv => {
            let is_message = |call: &Call| matches!(call, Call::Isend { .. } | Call::Irecv { .. });
            for work in 0..desk.work.calls.len() {
                if is_message(&desk.work.calls[work]) {
                    desk.work.calls.push(Call::Wait {
                        work,
                        timeout_ms: None,
                    });
                }
            }
        }
        Op::BatchIsendIrecv if !batch.is_empty() => {
            let group = desk.group();
            desk.work
                .calls
                .push(Call::BatchIsendIrecv { group, ops: batch });
        }
        _ => {}
    }
}

fn message_call(
    desk: &mut PlanBuilder<'_>,
    batch: &mut Vec<P2pCall>,
    direction: Direction,
    tensor: usize,
    other: u32,
) {
    let group = desk.group();
    let peer = desk.rank_ref(other, desk.check.peer_by);
    let tag = desk.check.tag;
    match (desk.check.op, direction) {
        (Op::BatchIsendIrecv, _) => batch.push(P2pCall {
            direction,
            tensor,
            peer,
            tag,
        }),
        (Op::IsendIrecv, Direction::Send) => desk.work.calls.push(Call::Isend {
            group,
            tensor,
            peer,
            tag,
        }),
        (Op::IsendIrecv, Direction::Recv) => desk.work.calls.push(Call::Irecv {
            group,
            tensor,
            peer,
            tag,
        }),
        (_, Direction::Send) => desk.work.calls.push(Call::Send {
            group,
            tensor,
            peer,
            tag,
        }),
        (_, Direction::Recv) => {
            let sender = Answer::Sender(Rank(desk.member(other)));
            let call = Call::Recv {
                group,
                tensor,
                peer: Some(peer),
                tag,
            };
            desk.ask(call, sender);
        }
    }
}
