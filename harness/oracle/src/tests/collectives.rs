//! Collectives of the second implementation: run when every member has entered the call.

use serde_json::Value;

use super::bug::Bug;
use super::scalar;
use super::world::{Elements, World};
use allranks_model::dtype::{DType, ReduceOp};
use allranks_protocol::Call;

impl World<'_> {
    /// Runs a collective if every member has entered it.
    pub fn collective(&mut self, rank: usize) -> bool {
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

    /// Every index is the reduction of what the members that have it hold there.
    fn all_reduce_sparse(&mut self, members: &[usize], calls: &[Call], op: ReduceOp) {
        let mut held: std::collections::BTreeMap<u64, Elements> = Default::default();
        let mut dtype = DType::Float32;
        for (rank, call) in members.iter().zip(calls) {
            if let Call::AllReduceSparse {
                values, indices, ..
            } = call
            {
                dtype = self.tensor(*rank, *values).dtype;
                for (index, value) in indices.iter().zip(self.read(*rank, *values)) {
                    held.entry(*index).or_default().push(value);
                }
            }
        }
        for (me, (rank, call)) in members.iter().zip(calls).enumerate() {
            let dense: Elements = held
                .values()
                .map(|values| match values.as_slice() {
                    [only] => only.clone(),
                    values => {
                        let blocks: Vec<Elements> =
                            values.iter().map(|value| vec![value.clone()]).collect();
                        self.reduced(dtype, op, me, &blocks).remove(0)
                    }
                })
                .collect();
            if let Call::AllReduceSparse { output, .. } = call {
                self.write(*rank, *output, &dense);
            }
        }
    }

    fn reduced(&self, dtype: DType, op: ReduceOp, me: usize, blocks: &[Elements]) -> Elements {
        let weighed = op == ReduceOp::PremulSum && !matches!(self.bug, Bug::DidOp(_));
        let op = if weighed { ReduceOp::Sum } else { op };
        (0..blocks[0].len())
            .map(|index| {
                let mut elements: Vec<Vec<u8>> =
                    blocks.iter().map(|block| block[index].clone()).collect();
                if weighed {
                    for (element, rank) in elements.iter_mut().zip(&self.group.ranks) {
                        let value = scalar::decode(dtype, element);
                        let factor = self.factors[rank.index()];
                        *element = scalar::encode(dtype, scalar::scale(value, factor));
                    }
                }
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
            Call::AllReduceSparse { op, .. } => {
                let op = *op;
                self.all_reduce_sparse(members, calls, op);
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
