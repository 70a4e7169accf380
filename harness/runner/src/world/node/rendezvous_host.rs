//! Finds where ranks meet that are on several nodes.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use super::node::Node;
use crate::world::LOOPBACK;
use crate::world::control_server::token;
use allranks_protocol::{FromNode, ToNode};

/// Where ranks meet that are on several nodes: an address of the first node.
#[derive(Clone, Debug)]
pub struct RendezvousHost {
    pub address: String,
    /// For each node, the interface that leads there.
    pub interfaces: Vec<Option<String>>,
}

impl RendezvousHost {
    /// Finds an address of the first node that all others reach.
    ///
    /// # Errors
    /// Says why there is none.
    pub async fn find(nodes: &[Arc<Node>]) -> Result<Self, String> {
        let Some((first, others)) = nodes.split_first() else {
            return Err("the run has no nodes".to_owned());
        };
        if others.is_empty() {
            return Ok(Self {
                address: LOOPBACK.to_owned(),
                interfaces: vec![None],
            });
        }
        let word = token().map_err(|error| error.to_string())?;
        let said = word.clone();
        let answer = first.ask(|ask| ToNode::Listen { ask, word: said }).await;
        let answer = answer.map_err(|error| error.to_string())?;
        let FromNode::Listening { ports, .. } = answer else {
            return Err(format!("node {} cannot listen", first.name));
        };
        let mut candidates = candidates(first);
        let mut interfaces = vec![None; nodes.len()];
        // The second time all are asked of the one address that the last of them has found.
        for last in [false, true] {
            if last {
                candidates.truncate(1);
            }
            for (place, node) in others.iter().enumerate() {
                let answer = node.ask(|ask| ToNode::Reach {
                    ask,
                    addresses: candidates.clone(),
                    ports: ports.clone(),
                    word: word.clone(),
                });
                let (address, interface, failures) =
                    match answer.await.map_err(|error| error.to_string())? {
                        FromNode::Reached {
                            address,
                            interface,
                            failures,
                            ..
                        } => (address, interface, failures),
                        _ => return Err(node.unexpected_answer().to_string()),
                    };
                let found = |address| candidates.iter().position(|one| *one == address);
                let Some(at) = address.and_then(found) else {
                    let failures = failures.join("; ");
                    return Err(format!(
                        "node {} does not reach node {} at an address at which the others do: {failures}",
                        node.name, first.name
                    ));
                };
                candidates.drain(..at);
                interfaces[place + 1] = interface;
            }
        }
        let address = candidates.swap_remove(0);
        let mut own = first.facts.interfaces.iter();
        interfaces[0] = own
            .find(|(_, one)| *one == address)
            .map(|(name, _)| name.clone());
        Ok(Self {
            address,
            interfaces,
        })
    }
}

/// Returns the addresses of a node at which others may reach it, most suitable first: the one of its connection, unless that is
/// loopback, then the others, loopback last.
pub(super) fn candidates(node: &Node) -> Vec<String> {
    let facts = &node.facts;
    let is_loopback = |address: &String| {
        address
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
    };
    let mut all = vec![facts.address.clone()];
    all.extend(facts.interfaces.iter().map(|(_, address)| address.clone()));
    let mut seen = HashSet::new();
    all.retain(|address| seen.insert(address.clone()));
    all.sort_by_key(is_loopback);
    all
}
