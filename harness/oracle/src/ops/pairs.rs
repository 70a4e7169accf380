//! Point to point: every pair of the pattern, `count` messages each.
//!
//! All ranks walk one global list of messages, each taking part in its own. Blocking calls then never wait for each
//! other in a circle, even if `send` returns only when the message is received.

use crate::rank_plan::{Answer, Fill, Origin, PlanBuilder, Role};
use allranks_model::axes::Pairs;
use allranks_model::names::Rank;
use allranks_model::op::Op;
use allranks_protocol::{Call, Direction, P2pCall};

/// Returns ordered pairs of positions, in the order in which every rank takes them up.
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

pub(super) fn exchange(builder: &mut PlanBuilder<'_>) {
    let me = builder.position;
    let (mut sent, mut received) = (0, 0);
    let mut batch = Vec::new();
    for (from, to) in pairs(builder.check.pairs, builder.ranks()) {
        for message in 0..builder.check.count {
            let slot = message * builder.ranks() + to;
            if from == me {
                let own = Fill::Own(slot);
                let tensor = builder.tensor(Role::Input, Some(sent), 0, own, Origin::Keep);
                sent += 1;
                message_call(builder, &mut batch, Direction::Send, tensor, to);
            }
            if to == me {
                let rank = builder.member(from);
                let after = Origin::Copy { rank, slot };
                let tensor = builder.tensor(Role::Output, Some(received), 0, Fill::Sentinel, after);
                received += 1;
                message_call(builder, &mut batch, Direction::Recv, tensor, from);
            }
        }
    }
    match builder.check.op {
        Op::IsendIrecv => {
            let is_message = |call: &Call| matches!(call, Call::Isend { .. } | Call::Irecv { .. });
            for work in 0..builder.work.calls.len() {
                if is_message(&builder.work.calls[work]) {
                    builder.work.calls.push(Call::Wait {
                        work,
                        timeout_ms: None,
                    });
                }
            }
        }
        Op::BatchIsendIrecv if !batch.is_empty() => {
            let group = builder.group();
            builder
                .work
                .calls
                .push(Call::BatchIsendIrecv { group, ops: batch });
        }
        _ => {}
    }
}

fn message_call(
    builder: &mut PlanBuilder<'_>,
    batch: &mut Vec<P2pCall>,
    direction: Direction,
    tensor: usize,
    other: u32,
) {
    let group = builder.group();
    let peer = builder.rank_ref(other, builder.check.peer_by);
    let tag = builder.check.tag;
    match (builder.check.op, direction) {
        (Op::BatchIsendIrecv, _) => batch.push(P2pCall {
            direction,
            tensor,
            peer,
            tag,
        }),
        (Op::IsendIrecv, Direction::Send) => builder.work.calls.push(Call::Isend {
            group,
            tensor,
            peer,
            tag,
        }),
        (Op::IsendIrecv, Direction::Recv) => builder.work.calls.push(Call::Irecv {
            group,
            tensor,
            peer,
            tag,
        }),
        (_, Direction::Send) => builder.work.calls.push(Call::Send {
            group,
            tensor,
            peer,
            tag,
        }),
        (_, Direction::Recv) => {
            let sender = Answer::Sender(Rank(builder.member(other)));
            let call = Call::Recv {
                group,
                tensor,
                peer: Some(peer),
                tag,
            };
            builder.ask(call, sender);
        }
    }
}
