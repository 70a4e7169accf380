//! A second, slow implementation of every op: runs the steps of all ranks on plain bytes, sharing no code with the
//! oracle, and can be told to get something wrong.

use std::collections::{HashMap, VecDeque};

use serde_json::{Value, json};

use super::bug::Bug;
use super::scalar;
use crate::dtype::{DType, ReduceOp};
use crate::oracle::{RankReply, RankStep};
use crate::plan::Group;
use crate::protocol::{Call, CallResult, CallStatus, Direction, RankRef, StepResult, Tensor};

type Elements = Vec<Vec<u8>>;

pub struct World<'a> {
    pub steps: &'a [RankStep],
    pub group: &'a Group,
    pub bug: Bug,
    storages: Vec<Vec<Vec<u8>>>,
    results: Vec<Vec<CallResult>>,
    clock: Vec<u64>,
    sent: HashMap<(usize, usize, u32), VecDeque<Elements>>,
    wanted: Vec<(usize, usize, u32, usize)>,
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
    fn call(&self, rank: usize) -> Option<&Call> {
        self.steps[rank].step.calls.get(self.results[rank].len())
    }

    fn tensor(&self, rank: usize, index: usize) -> &Tensor {
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
            Bug::WriteDense | Bug::ReadAndWriteDense => {
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
                storage[at * size..(at + 1) * size].copy_from_slice(&element);
            }
        }
    }

    fn resolve(&self, reference: RankRef) -> usize {
        match reference {
            RankRef::Global(rank) => rank.index(),
            RankRef::Group(rank) => self.group.ranks[rank as usize].index(),
        }
    }

    fn root(&self, reference: RankRef) -> usize {
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

    fn finish(&mut self, rank: usize, enter: u64, leave: u64, value: Value) {
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
            "nobody received a message"
        );
    }

    fn advance(&mut self, rank: usize) -> bool {
        let Some(call) = self.call(rank).cloned() else {
            return false;
        };
        match call {
            Call::Sleep { ms } => {
                self.clock[rank] += ms * 1_000_000;
                self.done(rank, Value::Null);
            }
            Call::Wait { work } => {
                assert!(work < self.results[rank].len());
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
                let from = self.resolve(peer);
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

    /// Runs a collective if every member has come to it.
    fn collective(&mut self, rank: usize) -> bool {
        let members: Vec<usize> = self.group.ranks.iter().map(|rank| rank.index()).collect();
        assert!(members.contains(&rank), "a non-member makes a call");
        let calls: Option<Vec<Call>> = members
            .iter()
            .map(|rank| self.call(*rank).cloned())
            .collect();
        let Some(calls) = calls else { return false };
        let kind = |call: &Call| serde_json::to_value(call).unwrap()["call"].clone();
        if calls.iter().any(|call| kind(call) != kind(&calls[0])) {
            return false;
        }
        let enter = members.iter().map(|rank| self.clock[*rank]).max().unwrap();
        let values = self.perform(&members, &calls);
        for (rank, value) in members.iter().zip(values) {
            let entered = self.clock[*rank];
            self.clock[*rank] = match self.bug {
                Bug::EarlyLeave => entered + 1,
                _ => enter + 1000,
            };
            self.finish(*rank, entered, self.clock[*rank], value);
        }
        true
    }

    fn reduced(&self, dtype: DType, op: ReduceOp, me: usize, blocks: &[Elements]) -> Elements {
        (0..blocks[0].len())
            .map(|index| {
                let elements: Vec<Vec<u8>> =
                    blocks.iter().map(|block| block[index].clone()).collect();
                self.bug
                    .reduced(dtype, op, me, index, blocks[0].len(), elements)
            })
            .collect()
    }

    /// Every member's `pick` of its call's tensors.
    fn reads(
        &self,
        members: &[usize],
        calls: &[Call],
        pick: impl Fn(&Call) -> usize,
    ) -> Vec<Elements> {
        let mut blocks: Vec<Elements> = members
            .iter()
            .zip(calls)
            .map(|(rank, call)| self.read(*rank, pick(call)))
            .collect();
        if self.bug == Bug::World {
            for rank in (0..self.steps.len()).filter(|rank| !members.contains(rank)) {
                blocks.push(self.read(rank, 0));
            }
        }
        blocks
    }

    fn perform(&mut self, members: &[usize], calls: &[Call]) -> Vec<Value> {
        let everyone = 0..members.len();
        let mut values = vec![Value::Null; members.len()];
        let at = |rank: usize| {
            members
                .iter()
                .position(|member| *member == rank)
                .unwrap_or(0)
        };
        match &calls[0] {
            Call::Coalesced { calls: first, .. } => {
                for index in 0..first.len() {
                    let inner: Vec<Call> = calls
                        .iter()
                        .map(|call| match call {
                            Call::Coalesced { calls, .. } => calls[index].clone(),
                            _ => unreachable!(),
                        })
                        .collect();
                    self.perform(members, &inner);
                }
            }
            Call::AllReduce { op, .. } => {
                let op = *op;
                let pick = |call: &Call| match call {
                    Call::AllReduce { tensor, .. } => *tensor,
                    _ => unreachable!(),
                };
                self.all_reduce(members, calls, op, pick);
            }
            Call::AllReduceCoalesced { tensors, op, .. } => {
                let op = *op;
                for index in 0..tensors.len() {
                    self.all_reduce(members, calls, op, |call| match call {
                        Call::AllReduceCoalesced { tensors, .. } => tensors[index],
                        _ => unreachable!(),
                    });
                }
            }
            Call::Broadcast { root, .. } => {
                let root = self.root(*root);
                let pick = |call: &Call| match call {
                    Call::Broadcast { tensor, .. } => *tensor,
                    _ => unreachable!(),
                };
                let tensor = if members.contains(&root) {
                    pick(&calls[at(root)])
                } else {
                    0
                };
                let data = self.read(root, tensor);
                for (rank, call) in members.iter().zip(calls) {
                    if *rank != root {
                        self.write(*rank, pick(call), &data);
                    }
                }
            }
            Call::Reduce { op, root, .. } => {
                let (op, root) = (*op, self.root(*root));
                let pick = |call: &Call| match call {
                    Call::Reduce { tensor, .. } => *tensor,
                    _ => unreachable!(),
                };
                let blocks = self.reads(members, calls, pick);
                let dtype = self.tensor(members[0], pick(&calls[0])).dtype;
                for (rank, call) in members.iter().zip(calls) {
                    if *rank == root || self.bug == Bug::NonRootWritten {
                        let result = self.reduced(dtype, op, at(*rank), &blocks);
                        self.write(*rank, pick(call), &result);
                    }
                }
            }
            Call::AllGather { .. } | Call::AllGatherCoalesced { .. } | Call::Gather { .. } => {
                self.gather(members, calls);
            }
            Call::AllGatherIntoTensor { .. } => {
                let blocks = self.reads(members, calls, |call| match call {
                    Call::AllGatherIntoTensor { input, .. } => *input,
                    _ => unreachable!(),
                });
                for me in everyone {
                    let Call::AllGatherIntoTensor { output, .. } = calls[me] else {
                        unreachable!()
                    };
                    let len = self.read(members[me], output).len() / members.len();
                    let mut out = Vec::new();
                    for from in 0..members.len() {
                        let from = self.bug.source(me, from, members.len());
                        out.extend(blocks[from][..len].iter().cloned());
                    }
                    self.write(members[me], output, &out);
                }
            }
            Call::Scatter { root, .. } => {
                let root = self.resolve(*root);
                let Call::Scatter {
                    inputs: Some(inputs),
                    ..
                } = &calls[at(root)]
                else {
                    panic!("the root has no inputs")
                };
                let blocks: Vec<Elements> =
                    inputs.iter().map(|input| self.read(root, *input)).collect();
                for me in everyone {
                    let Call::Scatter { output, .. } = calls[me] else {
                        unreachable!()
                    };
                    let to = self.bug.destination(me, members.len());
                    self.write(members[me], output, &blocks[to]);
                }
            }
            Call::ReduceScatter { op, .. } => {
                let op = *op;
                let inputs: Vec<Vec<Elements>> = self.lists(members, calls);
                for me in everyone {
                    let Call::ReduceScatter { output, .. } = calls[me] else {
                        unreachable!()
                    };
                    let to = self.bug.destination(me, members.len());
                    let blocks: Vec<Elements> =
                        inputs.iter().map(|list| list[to].clone()).collect();
                    let dtype = self.tensor(members[me], output).dtype;
                    let result = self.reduced(dtype, op, me, &blocks);
                    self.write(members[me], output, &result);
                }
            }
            Call::ReduceScatterTensor { op, .. } => {
                let op = *op;
                let inputs = self.reads(members, calls, |call| match call {
                    Call::ReduceScatterTensor { input, .. } => *input,
                    _ => unreachable!(),
                });
                for me in everyone {
                    let Call::ReduceScatterTensor { output, .. } = calls[me] else {
                        unreachable!()
                    };
                    let len = inputs[me].len() / members.len();
                    let to = self.bug.destination(me, members.len());
                    let blocks: Vec<Elements> = inputs
                        .iter()
                        .map(|input| input[to * len..(to + 1) * len].to_vec())
                        .collect();
                    let dtype = self.tensor(members[me], output).dtype;
                    let result = self.reduced(dtype, op, me, &blocks);
                    self.write(members[me], output, &result);
                }
            }
            Call::AllToAll { .. } => {
                let inputs: Vec<Vec<Elements>> = self.lists(members, calls);
                for me in everyone {
                    let Call::AllToAll { outputs, .. } = &calls[me] else {
                        unreachable!()
                    };
                    for (from, output) in outputs.iter().enumerate() {
                        let from = self.bug.source(me, from, members.len());
                        let to = self.bug.destination(me, members.len());
                        self.write(members[me], *output, &inputs[from][to]);
                    }
                }
            }
            Call::AllToAllSingle { .. } => self.all_to_all_single(members, calls),
            Call::Barrier { .. } | Call::MonitoredBarrier { .. } => {}
            Call::AllGatherObject { .. } | Call::GatherObject { .. } => {
                let objects: Vec<Value> = calls
                    .iter()
                    .map(|call| match call {
                        Call::AllGatherObject { object, .. }
                        | Call::GatherObject { object, .. } => object.clone(),
                        _ => unreachable!(),
                    })
                    .collect();
                for me in everyone {
                    match &calls[me] {
                        Call::GatherObject { root, .. } if self.resolve(*root) != members[me] => {}
                        _ => values[me] = self.bug.objects(objects.clone()),
                    }
                }
            }
            Call::BroadcastObjectList { root, .. } => {
                let root = at(self.resolve(*root));
                let Call::BroadcastObjectList { objects, .. } = &calls[root] else {
                    unreachable!()
                };
                for value in &mut values {
                    *value = self.bug.objects(objects.clone());
                }
            }
            Call::ScatterObjectList { root, .. } => {
                let root = at(self.resolve(*root));
                let Call::ScatterObjectList {
                    objects: Some(objects),
                    ..
                } = &calls[root]
                else {
                    panic!("the root has no objects")
                };
                for me in everyone {
                    values[me] = objects[self.bug.destination(me, members.len())].clone();
                }
            }
            other => panic!("the second implementation does not know {other:?}"),
        }
        values
    }

    fn all_reduce(
        &mut self,
        members: &[usize],
        calls: &[Call],
        op: ReduceOp,
        pick: impl Fn(&Call) -> usize,
    ) {
        let blocks = self.reads(members, calls, &pick);
        let dtype = self.tensor(members[0], pick(&calls[0])).dtype;
        for me in 0..members.len() {
            let result = self.reduced(dtype, op, me, &blocks);
            self.write(members[me], pick(&calls[me]), &result);
        }
    }

    fn lists(&self, members: &[usize], calls: &[Call]) -> Vec<Vec<Elements>> {
        members
            .iter()
            .zip(calls)
            .map(|(rank, call)| match call {
                Call::ReduceScatter { inputs, .. } | Call::AllToAll { inputs, .. } => inputs
                    .iter()
                    .map(|input| self.read(*rank, *input))
                    .collect(),
                _ => unreachable!(),
            })
            .collect()
    }

    fn gather(&mut self, members: &[usize], calls: &[Call]) {
        let inputs = |call: &Call| match call {
            Call::AllGather { input, .. } | Call::Gather { input, .. } => vec![*input],
            Call::AllGatherCoalesced { inputs, .. } => inputs.clone(),
            _ => unreachable!(),
        };
        for item in 0..inputs(&calls[0]).len() {
            let blocks = self.reads(members, calls, |call| inputs(call)[item]);
            for me in 0..members.len() {
                let outputs: Vec<usize> = match &calls[me] {
                    Call::AllGather { outputs, .. } => outputs.clone(),
                    Call::AllGatherCoalesced { outputs, .. } => {
                        outputs.iter().map(|list| list[item]).collect()
                    }
                    Call::Gather { outputs, root, .. } => {
                        let is_root = self.resolve(*root) == members[me];
                        assert_eq!(outputs.is_some(), is_root);
                        outputs.clone().unwrap_or_default()
                    }
                    _ => unreachable!(),
                };
                for (from, output) in outputs.into_iter().enumerate() {
                    if self.bug == Bug::Missing(from) {
                        continue;
                    }
                    let from = self.bug.source(me, from, members.len());
                    self.write(members[me], output, &blocks[from]);
                }
            }
        }
    }

    fn all_to_all_single(&mut self, members: &[usize], calls: &[Call]) {
        let size = members.len();
        let mut inputs = Vec::new();
        let mut cuts = Vec::new();
        for (rank, call) in members.iter().zip(calls) {
            let Call::AllToAllSingle {
                input,
                input_splits,
                ..
            } = call
            else {
                unreachable!()
            };
            let data = self.read(*rank, *input);
            let rows = self.tensor(*rank, *input).shape[0] as usize;
            let row = data.len().checked_div(rows).unwrap_or(1);
            let splits: Vec<usize> = match input_splits {
                Some(splits) => splits.iter().map(|split| *split as usize * row).collect(),
                None => vec![data.len() / size; size],
            };
            assert_eq!(splits.iter().sum::<usize>(), data.len());
            inputs.push(data);
            cuts.push(splits);
        }
        for me in 0..size {
            let Call::AllToAllSingle {
                output,
                output_splits,
                ..
            } = &calls[me]
            else {
                unreachable!()
            };
            let mut out = Vec::new();
            for from in 0..size {
                let to = self.bug.destination(me, size);
                let from = self.bug.source(me, from, size);
                let start: usize = cuts[from][..to].iter().sum();
                out.extend(inputs[from][start..start + cuts[from][to]].iter().cloned());
            }
            if let Some(splits) = output_splits {
                let rows = self.tensor(members[me], *output).shape[0];
                assert_eq!(splits.iter().sum::<u64>(), rows);
            }
            self.write(members[me], *output, &out);
        }
    }
}
