//! Collects the facts of all nodes of a fleet, their clocks, and whether each node reaches each other one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::{Instant as Deadline, timeout_at};

use super::agent::now_us;
use super::node::Node;
use super::nodes::Nodes;
use super::rendezvous_host::candidates;
use crate::world::control_server::token;
use allranks_protocol::{FromNode, NodeFacts, ToNode};

/// How often the word of a node is repeated in an exchange, so that it exceeds one packet: some paths carry small packets only.
const REPEATED: usize = 512;

/// What was seen of a fleet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inspection {
    /// Why not all nodes came; none if they did.
    pub missing: Option<String>,
    /// The nodes that came.
    pub hosts: Vec<HostSeen>,
    /// Each node's attempt to reach each other one; in both directions.
    pub pairs: Vec<PairSeen>,
}

/// What was seen of one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostSeen {
    /// Its name in reports.
    pub name: String,
    /// What it says of itself.
    pub facts: NodeFacts,
    /// How far its clock is ahead of this machine's, at least, in microseconds; negative: behind. 0 if the time that asking
    /// took leaves room for no difference.
    pub clock_ahead_us: i64,
    /// Why it was lost meanwhile; none if it was not.
    pub lost: Option<String>,
}

/// One node's attempt to reach another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairSeen {
    /// The node that connects, as an index into the hosts.
    pub from: usize,
    /// The node that listens.
    pub to: usize,
    /// Its result; `None` if there was no time for it, or a node was lost.
    pub reached: Option<Reach>,
}

/// The result of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The address at which the other node answered; none if it did at none.
    pub address: Option<String>,
    /// Why it did not answer at the addresses before.
    pub failures: Vec<String>,
    /// How long the exchange at that address took, in microseconds.
    pub took_us: u64,
}

impl Nodes {
    /// Waits for the nodes, and inspects those that join. Pairs that are not tried within `limit` are left out.
    pub async fn inspect(&self, limit: Duration) -> Inspection {
        let missing = self.assemble().await;
        let nodes = self.present();
        let deadline = Deadline::now() + limit;
        let clocks = clocks(&nodes, deadline).await;
        let pairs = exchange(&nodes, deadline).await;
        let hosts = nodes
            .iter()
            .zip(clocks)
            .map(|(node, clock_ahead_us)| HostSeen {
                name: node.name.clone(),
                facts: node.facts.clone(),
                clock_ahead_us,
                lost: node.lost(),
            });
        Inspection {
            missing,
            hosts: hosts.collect(),
            pairs,
        }
    }

    /// Returns why the first `count` nodes cannot make a world, if some of them do not reach each other: the first such pair,
    /// with what it tried. `None` if all do, or nothing is known after `limit`.
    pub(crate) async fn unreached(&self, count: usize, limit: Duration) -> Option<String> {
        let mut nodes = self.present();
        nodes.truncate(count);
        let pairs = exchange(&nodes, Deadline::now() + limit).await;
        pairs.into_iter().find_map(|pair| {
            let reach = pair.reached.filter(|reach| reach.address.is_none())?;
            // The loss of an agent is reported elsewhere.
            let (from, to) = (&nodes[pair.from], &nodes[pair.to]);
            let is_lost = from.lost().is_some() || to.lost().is_some();
            (!is_lost).then(|| {
                let failures = reach.failures.join("; ");
                format!(
                    "node {} does not reach node {}: {failures}",
                    from.name, to.name
                )
            })
        })
    }
}

/// Asks each node for its time.
async fn clocks(nodes: &[Arc<Node>], deadline: Deadline) -> Vec<i64> {
    let mut asked = JoinSet::new();
    for (place, node) in nodes.iter().enumerate() {
        let node = Arc::clone(node);
        asked.spawn(async move {
            let before = now_us();
            let answer = timeout_at(deadline, node.ask(|ask| ToNode::Confirm { ask })).await;
            let after = now_us();
            match answer {
                Ok(Ok(FromNode::Alive { clock_us, .. })) => (place, ahead(before, clock_us, after)),
                _ => (place, 0),
            }
        });
    }
    let mut clocks = vec![0; nodes.len()];
    for (place, ahead) in asked.join_all().await {
        clocks[place] = ahead;
    }
    clocks
}

/// Returns how far a clock that was read between two moments is outside of them, in microseconds.
fn ahead(before: u64, told: u64, after: u64) -> i64 {
    let difference = |later: u64, earlier: u64| i64::try_from(later - earlier).unwrap_or(i64::MAX);
    match told {
        // An agent that does not tell.
        0 => 0,
        _ if told < before => -difference(before, told),
        _ if told > after => difference(told, after),
        _ => 0,
    }
}

/// Lets each node reach each other one, in rounds in which each node is in one pair at most.
async fn exchange(nodes: &[Arc<Node>], deadline: Deadline) -> Vec<PairSeen> {
    let mut listening = JoinSet::new();
    for (place, node) in nodes.iter().enumerate() {
        let node = Arc::clone(node);
        listening.spawn(async move {
            // A word of its own, so that no other process is taken for this node.
            let word = token().ok()?.repeat(REPEATED);
            let said = word.clone();
            let answer = node.ask(|ask| ToNode::Listen { ask, word: said });
            match timeout_at(deadline, answer).await {
                Ok(Ok(FromNode::Listening { ports, .. })) => Some((place, ports, word)),
                _ => None,
            }
        });
    }
    let mut listeners = vec![None; nodes.len()];
    for (place, ports, word) in listening.join_all().await.into_iter().flatten() {
        listeners[place] = Some((ports, word));
    }
    let mut pairs = Vec::new();
    for round in rounds(nodes.len()) {
        let mut trying = JoinSet::new();
        for (one, other) in round {
            for (from, to) in [(one, other), (other, one)] {
                let (node, listener) = (Arc::clone(&nodes[from]), listeners[to].clone());
                let addresses = candidates(&nodes[to]);
                trying.spawn(async move {
                    let reached = match listener {
                        Some((ports, word)) => {
                            attempt(&node, addresses, ports, word, deadline).await
                        }
                        None => None,
                    };
                    PairSeen { from, to, reached }
                });
            }
        }
        pairs.extend(trying.join_all().await);
    }
    pairs.sort_by_key(|pair| (pair.from, pair.to));
    pairs
}

async fn attempt(
    node: &Node,
    addresses: Vec<String>,
    ports: Vec<u16>,
    word: String,
    deadline: Deadline,
) -> Option<Reach> {
    let began = Instant::now();
    let answer = node.ask(|ask| ToNode::Reach {
        ask,
        addresses,
        ports,
        word,
    });
    match timeout_at(deadline, answer).await {
        Ok(Ok(FromNode::Reached {
            address,
            failures,
            took_us,
            ..
        })) => Some(Reach {
            address,
            failures,
            // An agent that does not tell: with the way of the question.
            took_us: match took_us {
                0 => began.elapsed().as_micros() as u64,
                told => told,
            },
        }),
        _ => None,
    }
}

/// Returns all pairs of `count` nodes in rounds; no node is twice in a round, and there are at most `count` rounds.
fn rounds(count: usize) -> Vec<Vec<(usize, usize)>> {
    // The circle method: one stays, the others go round. With an odd count, one rests in each round.
    let seats = count + count % 2;
    let turns = seats.saturating_sub(1);
    let mut rounds = Vec::new();
    for turn in 0..turns {
        let at = |seat: usize| match seat {
            0 => 0,
            _ => (seat - 1 + turn) % turns + 1,
        };
        let round = (0..seats / 2).map(|seat| (at(seat), at(seats - 1 - seat)));
        let round = round.filter(|(one, other)| *one < count && *other < count);
        rounds.push(round.collect());
    }
    rounds
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_pair_is_in_one_round_and_no_node_twice_in_one() {
        for count in 0..9 {
            let mut seen = BTreeSet::new();
            for round in rounds(count) {
                let mut busy = BTreeSet::new();
                for (one, other) in round {
                    assert!(busy.insert(one) && busy.insert(other), "{count}");
                    assert!(seen.insert((one.min(other), one.max(other))), "{count}");
                }
            }
            assert_eq!(seen.len(), count * count.saturating_sub(1) / 2, "{count}");
            assert!(rounds(count).len() <= count);
        }
    }

    #[test]
    fn a_clock_is_wrong_only_by_what_asking_cannot_explain() {
        assert_eq!(ahead(100, 150, 200), 0);
        assert_eq!(ahead(100, 70, 200), -30);
        assert_eq!(ahead(100, 230, 200), 30);
        assert_eq!(ahead(100, 0, 200), 0);
    }
}
