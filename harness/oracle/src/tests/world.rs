//! A second, slow implementation of every op: runs the steps of all ranks on plain bytes, sharing no code with the
//! oracle, and can be given a bug.

use std::collections::{HashMap, VecDeque};

use serde_json::{Value, json};

use super::bug::Bug;
use super::scalar;
use crate::{RankReply, RankStep};
use allranks_model::group::Group;
use allranks_protocol::{Call, CallResult, CallStatus, Direction, RankRef, StepResult, Tensor};

pub type Elements = Vec<Vec<u8>>;

pub struct World<'a> {
    pub steps: &'a [RankStep],
    pub group: &'a Group,
    pub bug: Bug,
    storages: Vec<Vec<Vec<u8>>>,
    results: Vec<Vec<CallResult>>,
    pub clock: Vec<u64>,
    sent: HashMap<(usize, usize, u32), VecDeque<Elements>>,
    wanted: Vec<(usize, usize, u32, usize)>,
    /// What each rank multiplies by in `premul_sum`.
    pub factors: Vec<f64>,
}

/// Runs a check's steps.
pub fn run(steps: &[RankStep], group: &Group, bug: Bug) -> Vec<RankReply> {
    let storages = steps
        .iter()
        .map(|step| {
            let mut rest = step.payload.as_slice();
            step.step
                .storages
                .iter()
                .map(|len| {
                    let (storage, after) = rest.split_at(*len as usize);
                    rest = after;
                    storage.to_vec()
                })
                .collect()
        })
        .collect();
    let mut world = World {
        steps,
        group,
        bug,
        storages,
        results: vec![Vec::new(); steps.len()],
        clock: vec![1_000_000; steps.len()],
        sent: HashMap::new(),
        wanted: Vec::new(),
        factors: vec![3.0; steps.len()],
    };
    world.run();
    let World {
        storages, results, ..
    } = world;
    let mut replies: Vec<RankReply> = steps
        .iter()
        .zip(storages.into_iter().zip(results))
        .map(|(step, (storages, calls))| RankReply {
            result: StepResult {
                step: 0,
                calls,
                storages: step.step.storages.clone(),
            },
            payload: storages.concat(),
        })
        .collect();
    bug.spoil(steps, group, &mut replies);
    replies
}

/// Storage elements of a view, in row-major order.
pub fn addresses(tensor: &Tensor) -> Vec<usize> {
    let mut addresses = vec![tensor.offset as usize];
    for (size, stride) in tensor.shape.iter().zip(&tensor.strides) {
        addresses = addresses
            .iter()
            .flat_map(|base| (0..*size).map(move |i| base + (i * stride) as usize))
            .collect();
    }
    addresses
}

impl World<'_> {
    pub fn call(&self, rank: usize) -> Option<&Call> {
        self.steps[rank].step.calls.get(self.results[rank].len())
    }

    pub fn tensor(&self, rank: usize, index: usize) -> &Tensor {
        &self.steps[rank].step.tensors[index]
    }

    pub fn read(&self, rank: usize, index: usize) -> Elements {
        let tensor = self.tensor(rank, index);
        let size = tensor.dtype.size();
        let storage = &self.storages[rank][tensor.storage];
        let mut addresses = addresses(tensor);
        if self.bug == Bug::ReadDense || self.bug == Bug::ReadAndWriteDense {
            addresses = (0..addresses.len())
                .map(|i| tensor.offset as usize + i)
                .collect();
        }
        addresses
            .into_iter()
            .map(|at| storage[at * size..(at + 1) * size].to_vec())
            .collect()
    }

    pub fn write(&mut self, rank: usize, index: usize, elements: &[Vec<u8>]) {
        let tensor = self.tensor(rank, index).clone();
        let size = tensor.dtype.size();
        let mut addresses = addresses(&tensor);
        assert_eq!(addresses.len(), elements.len());
        let dense = addresses
            .iter()
            .zip(addresses.iter().skip(1))
            .all(|(a, b)| a + 1 == *b);
        match self.bug {
            Bug::WriteLost if !dense => return,
            Bug::WriteDense | Bug::WriteDenseMixed | Bug::ReadAndWriteDense => {
                addresses = (0..addresses.len())
                    .map(|i| tensor.offset as usize + i)
                    .collect();
            }
            _ => {}
        }
        let elements = self.bug.written(tensor.dtype, elements);
        let storage = &mut self.storages[rank][tensor.storage];
        for (at, element) in addresses.into_iter().zip(elements) {
            if let Some(element) = element {
                storage[at * size..][..element.len()].copy_from_slice(&element);
            }
        }
    }

    pub fn resolve(&self, reference: RankRef) -> usize {
        match reference {
            RankRef::Global(rank) => rank.index(),
            RankRef::Group(rank) => self.group.ranks[rank as usize].index(),
        }
    }

    pub fn root(&self, reference: RankRef) -> usize {
        match self.bug {
            Bug::WrongRoot(rank) => rank,
            _ => self.resolve(reference),
        }
    }

    fn done(&mut self, rank: usize, value: Value) {
        let enter = self.clock[rank];
        self.clock[rank] += 1000;
        self.finish(rank, enter, self.clock[rank], value);
    }

    pub fn finish(&mut self, rank: usize, enter: u64, leave: u64, value: Value) {
        self.results[rank].push(CallResult {
            status: CallStatus::Ok,
            enter,
            leave,
            value,
            error: None,
        });
    }

    fn run(&mut self) {
        loop {
            let mut moved = false;
            for rank in 0..self.steps.len() {
                moved |= self.advance(rank);
            }
            if (0..self.steps.len()).all(|rank| self.call(rank).is_none()) {
                break;
            }
            assert!(moved, "deadlock");
        }
        for (from, to, tag, tensor) in std::mem::take(&mut self.wanted) {
            let queue = self
                .sent
                .get_mut(&(from, to, tag))
                .expect("a message was sent");
            let elements = if self.bug == Bug::MessagesSwapped {
                queue.pop_back()
            } else {
                queue.pop_front()
            };
            self.write(
                to,
                tensor,
                &elements.expect("as many messages sent as received"),
            );
        }
        assert!(
            self.sent.values().all(VecDeque::is_empty),
            "no rank received a message"
        );
    }

    fn advance(&mut self, rank: usize) -> bool {
        let Some(call) = self.call(rank).cloned() else {
            return false;
        };
        match call {
            Call::PremulFactor { factor, tensor } => {
                self.factors[rank] = match (factor, tensor) {
                    (Some(factor), None) => factor,
                    (None, Some(tensor)) => {
                        let dtype = self.tensor(rank, tensor).dtype;
                        match scalar::decode(dtype, &self.read(rank, tensor)[0]) {
                            scalar::Scalar::Float(value) | scalar::Scalar::Complex(value, _) => {
                                value
                            }
                            scalar::Scalar::Whole(_) => unreachable!("integers have no premul_sum"),
                        }
                    }
                    other => panic!("{other:?}"),
                };
                self.done(rank, Value::Null);
            }
            Call::Sleep { ms } => {
                self.clock[rank] += ms * 1_000_000;
                self.done(rank, Value::Null);
            }
            Call::Wait { work, .. } => {
                assert!(work < self.results[rank].len());
                self.done(rank, Value::Null);
            }
            Call::TensorsAs { .. } => {
                assert!(self.results[rank].is_empty(), "it comes first");
                self.done(rank, Value::Null);
            }
            Call::Isend {
                tensor, peer, tag, ..
            } => {
                self.post(rank, Direction::Send, tensor, peer, tag);
                self.done(rank, Value::Null);
            }
            Call::Irecv {
                tensor, peer, tag, ..
            } => {
                self.post(rank, Direction::Recv, tensor, peer, tag);
                self.done(rank, Value::Null);
            }
            Call::BatchIsendIrecv { ops, .. } => {
                for op in ops {
                    self.post(rank, op.direction, op.tensor, op.peer, op.tag);
                }
                self.done(rank, Value::Null);
            }
            // A blocking send returns when its message is received: the receiver does both.
            Call::Send { .. } => return false,
            Call::Recv {
                tensor, peer, tag, ..
            } => {
                let from = self.resolve(peer.expect("no check receives from any source"));
                let Some(Call::Send {
                    tensor: sent,
                    peer: to,
                    tag: sent_tag,
                    ..
                }) = self.call(from).cloned()
                else {
                    return false;
                };
                if self.resolve(to) != rank || sent_tag != tag {
                    return false;
                }
                let elements = self.read(from, sent);
                self.write(rank, tensor, &elements);
                self.done(from, Value::Null);
                let named = if self.bug == Bug::SenderMisnamed {
                    from + 1
                } else {
                    from
                };
                self.done(rank, json!(named));
            }
            _ => return self.collective(rank),
        }
        true
    }

    fn post(&mut self, rank: usize, direction: Direction, tensor: usize, peer: RankRef, tag: u32) {
        let peer = self.resolve(peer);
        match direction {
            Direction::Send => {
                let elements = self.read(rank, tensor);
                self.sent
                    .entry((rank, peer, tag))
                    .or_default()
                    .push_back(elements);
            }
            Direction::Recv => self.wanted.push((peer, rank, tag, tensor)),
        }
    }
}
