//! The calls that a rank can be told to make: one variant for each function of `torch.distributed`, and a few others (`prepare`,
//! `sleep`, `wait`) that scenarios need.
//!
//! Tensors are indices into the step's tensors. Groups are names: `world` is the default group, others come from
//! `new_group`. Roots and peers say whether they are global or group ranks ([`RankRef`]).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use allranks_model::axes::TensorKind;
use allranks_model::dtype::ReduceOp;
use allranks_model::names::Rank;
use allranks_model::store::StoreMethod;

/// The value of the argument `device_id=`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum DeviceArgument {
    /// The device's index, a number: `3`.
    Index(u32),
    /// A `torch.device`: `"cuda:3"`.
    Device(String),
}

fn yes() -> bool {
    true
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
fn is_yes(value: &bool) -> bool {
    *value
}

/// A root or a peer, by global rank (`src=`, `dst=`) or by rank in the call's group (`group_src=`, `group_dst=`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankRef {
    /// Its rank in the world.
    Global(Rank),
    /// Its rank in the call's group.
    Group(u32),
}

/// Whether an op of `batch_isend_irecv` sends or receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// A send: `P2POp(isend, ...)`.
    Send,
    /// A receive: `P2POp(irecv, ...)`.
    Recv,
}

/// One `P2POp` of `batch_isend_irecv`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct P2pCall {
    /// Whether the op sends or receives.
    pub direction: Direction,
    /// Index of the tensor in the step.
    pub tensor: usize,
    /// The rank to send to or receive from.
    pub peer: RankRef,
    /// Tag of the message.
    #[serde(default)]
    pub tag: u32,
}

/// One call, tagged by its name in the `call` field.
///
/// The value a call returns in [`CallResult::value`](super::CallResult::value) is null unless noted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(tag = "call", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[expect(
    missing_docs,
    reason = "the fields are the library's own arguments, named in each variant's first line"
)]
pub enum Call {
    /// Imports the platform's modules; from then on, tensors are made on `device`.
    Prepare {
        /// Python modules, in order.
        import: Vec<String>,
        /// Folders put in front of `sys.path`.
        #[serde(default)]
        python_path: Vec<String>,
        /// `cpu`, or a device with an index, `cuda:1`.
        device: String,
        /// Dotted name of the function that makes the device current, called with the index, if the platform has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        set_device: Option<String>,
        /// Dotted name of the function that waits for the device, called before tensors are read back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        synchronize: Option<String>,
        /// Whether a tensor and its views stay one piece of memory there; `false`: what the tensors of a step hold is read
        /// back in place of their storages.
        #[serde(default = "yes", skip_serializing_if = "is_yes")]
        shares_memory: bool,
    },
    /// `init_process_group`. Value: `{"rank": r, "world_size": n, "backend": name}` as the library tells them afterwards.
    InitProcessGroup {
        /// Backend string, `gloo` or `cpu:gloo,cuda:nccl`.
        backend: String,
        /// How ranks find each other.
        method: StoreMethod,
        /// The URL for `tcp` and `file`; `host:port` for `store`; unused for `env`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        url: Option<String>,
        /// The rank's own number in the world.
        rank: Rank,
        /// Number of ranks in the world.
        world_size: u32,
        /// The library's own timeout in seconds.
        timeout_s: f64,
        /// `store` only: whether this rank hosts the store; absent: rank 0 does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hosts: Option<bool>,
        /// `device_id=` argument; absent: not passed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        device_id: Option<DeviceArgument>,
    },
    /// `new_group`, called on every rank. Value: `{"rank": group rank or -1, "size": n, "timeout_s": seconds}`; size 0 on
    /// non-members; no timeout there, or where the library does not tell it.
    NewGroup {
        /// Name of the group in later calls.
        name: String,
        /// Members of the group, as global ranks.
        ranks: Vec<Rank>,
        /// The group's backend; absent: the world's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        backend: Option<String>,
        /// The library's own timeout in seconds.
        timeout_s: f64,
        /// Whether to pass `use_local_synchronization=True`.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        local_sync: bool,
    },
    /// `split_group` of the world, called on every rank. Value: as of `new_group`.
    SplitGroup {
        /// Name of the group in later calls.
        name: String,
        /// Members of the group, as global ranks.
        ranks: Vec<Rank>,
        /// The library's own timeout in seconds.
        timeout_s: f64,
    },
    /// `destroy_process_group` of one group, or of all.
    DestroyProcessGroup {
        /// The group; `world` destroys everything.
        group: String,
    },
    /// Replaces tensors of the step by tensors of a kind; must be the first call of its step. Not a call of the library.
    TensorsAs {
        /// The kind of the new tensors; never `plain`.
        kind: TensorKind,
        /// Indices of the tensors to replace.
        tensors: Vec<usize>,
    },
    /// Replaces a tensor of the step by a larger one that repeats its elements `times` times. Not a call of the library.
    Grow {
        /// Index of the tensor; it has one dimension.
        tensor: usize,
        /// How many times the elements are repeated.
        times: u64,
    },
    /// Copies parts of a tensor, one after another, to another tensor. Not a call of the library.
    Windows {
        /// Index of the tensor to copy from; it has one dimension.
        tensor: usize,
        /// Index of the first element of each part.
        starts: Vec<u64>,
        /// Number of elements of each part.
        len: u64,
        /// Index of the tensor to copy to; it has as many elements as all parts together.
        output: usize,
    },
    /// Sleeps, as `time.sleep` does.
    Sleep {
        /// How long to sleep, in milliseconds.
        ms: u64,
    },
    /// Sets the factor by which `premul_sum` multiplies this rank's contribution in the calls that follow in this step; without this
    /// call it is [`PREMUL_FACTOR`](super::PREMUL_FACTOR). Exactly one of the two fields is given.
    PremulFactor {
        /// The factor as a number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        factor: Option<f64>,
        /// The factor as the index of a tensor of one element.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tensor: Option<usize>,
    },
    /// Waits for the work of an earlier call made with `async_op`. An async call's own result only says that it was issued.
    Wait {
        /// Index in the step of the call that returned the work.
        work: usize,
        /// Timeout in milliseconds, as `wait(timeout)`; absent: no argument is passed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
    },
    /// `is_completed()` of the work. Value: the answer.
    IsCompleted {
        /// Index in the step of the call that returned the work.
        work: usize,
    },
    /// `get_future().wait()` of the work. Value: whether the future says afterwards that it is done.
    Future {
        /// Index in the step of the call that returned the work.
        work: usize,
    },
    /// Drops the work without waiting for it.
    Drop {
        /// Index in the step of the call that returned the work.
        work: usize,
    },
    /// Makes a call that may raise; the step goes on either way. Value: `{"raised": null, "value": v}` or
    /// `{"raised": {"type": t, "message": m}}`.
    Attempt {
        /// The call to make.
        inner: Box<Call>,
    },
    /// Runs each list of calls on its own thread, all at the same time, and waits for all. Value: for each thread, the
    /// [`CallResult`](super::CallResult)s of its calls; the first error ends that thread. `work` indices count within the thread.
    Together {
        /// One list of calls for each thread.
        threads: Vec<Vec<Call>>,
    },
    /// Does nothing; its `enter` frame tells the harness that the rank has reached this call.
    Mark {
        /// Name of the mark in messages.
        name: String,
    },
    /// Waits for the harness's frame `go`.
    Hold {
        /// What is waited for, in messages.
        name: String,
    },
    /// Stops this process as SIGSTOP does; the harness may continue it.
    Pause,
    /// Ends this process by a signal.
    Die {
        /// Number of the signal.
        signal: i32,
    },
    /// Exits through the language's normal shutdown, with this code and without `bye`.
    Exit {
        /// Exit code of the process.
        code: i32,
    },
    /// Value: `{"files": n, "sockets": n, "threads": n, "shared_memory": n, "memory": bytes, "processes": n}` of this process, after collecting garbage:
    /// open file descriptors, sockets among them, threads, mapped shared memory, bytes of its own memory, child processes.
    Census,
    /// Value: `{"rank": r, "size": n, "backend": name}` of a group as the library tells them; rank -1 for non-members.
    WhoAmI {
        /// Name of the group.
        group: String,
    },
    /// Sets or removes an environment variable of this process.
    Setenv {
        /// Name of the variable.
        name: String,
        /// Its value; null removes it.
        value: Option<String>,
    },
    /// Calls `abort` of the group's backend.
    Abort {
        /// Name of the group.
        group: String,
    },
    /// Runs Python statements with the names `torch`, `dist`, `rank`, `world_size`, `group` (a function from names to groups) and
    /// `tensors`. Value: what they leave in `result`. For behaviour of PyTorch's Python layer.
    Python {
        /// The Python statements.
        source: String,
        /// Whether the statements have no effect on other ranks; only the harness uses this, and it is not sent to the rank.
        #[serde(skip)]
        unnoticed: bool,
    },
    /// Uses a layer above c10d, whose own code issues the collectives; Python drivers only. The layer's tensors have names;
    /// [`allranks_model::stack`] has the layers and their parameters.
    Stack {
        group: String,
        /// Name of the layer: `ddp`.
        layer: String,
        /// Indices of the step's tensors, by the layer's names for them.
        tensors: BTreeMap<String, usize>,
        /// Options of the layer on this rank.
        options: serde_json::Value,
    },
    /// `all_reduce(tensors[tensor], op)`.
    AllReduce {
        group: String,
        tensor: usize,
        op: ReduceOp,
        #[serde(default)]
        async_op: bool,
    },
    /// `all_reduce_coalesced([...], op)`.
    AllReduceCoalesced {
        group: String,
        tensors: Vec<usize>,
        op: ReduceOp,
        #[serde(default)]
        async_op: bool,
    },
    /// `all_reduce` of a sparse tensor: of the shape of `output`, with these values at these indices. Its result, made
    /// dense, is then copied to `output`.
    AllReduceSparse {
        group: String,
        values: usize,
        indices: Vec<u64>,
        output: usize,
        op: ReduceOp,
    },
    /// `broadcast(tensors[tensor], src)`.
    Broadcast {
        group: String,
        tensor: usize,
        root: RankRef,
        #[serde(default)]
        async_op: bool,
    },
    /// `reduce(tensors[tensor], dst, op)`.
    Reduce {
        group: String,
        tensor: usize,
        op: ReduceOp,
        root: RankRef,
        #[serde(default)]
        async_op: bool,
    },
    /// `all_gather(outputs, input)`.
    AllGather {
        group: String,
        outputs: Vec<usize>,
        input: usize,
        #[serde(default)]
        async_op: bool,
    },
    /// `all_gather_coalesced(output_lists, inputs)`; `outputs[i]` is the list that rank `i`'s tensors go to.
    AllGatherCoalesced {
        group: String,
        outputs: Vec<Vec<usize>>,
        inputs: Vec<usize>,
        #[serde(default)]
        async_op: bool,
    },
    /// `all_gather_into_tensor(output, input)`.
    AllGatherIntoTensor {
        group: String,
        output: usize,
        input: usize,
        #[serde(default)]
        async_op: bool,
    },
    /// `gather(input, outputs, dst)`; `outputs` is null except on the root.
    Gather {
        group: String,
        input: usize,
        outputs: Option<Vec<usize>>,
        root: RankRef,
        #[serde(default)]
        async_op: bool,
    },
    /// `scatter(output, inputs, src)`; `inputs` is null except on the root.
    Scatter {
        group: String,
        output: usize,
        inputs: Option<Vec<usize>>,
        root: RankRef,
        #[serde(default)]
        async_op: bool,
    },
    /// `reduce_scatter(output, inputs, op)`.
    ReduceScatter {
        group: String,
        output: usize,
        inputs: Vec<usize>,
        op: ReduceOp,
        #[serde(default)]
        async_op: bool,
    },
    /// `reduce_scatter_tensor(output, input, op)`.
    ReduceScatterTensor {
        group: String,
        output: usize,
        input: usize,
        op: ReduceOp,
        #[serde(default)]
        async_op: bool,
    },
    /// `all_to_all(outputs, inputs)`.
    AllToAll {
        group: String,
        outputs: Vec<usize>,
        inputs: Vec<usize>,
        #[serde(default)]
        async_op: bool,
    },
    /// `all_to_all_single(output, input, output_split_sizes, input_split_sizes)`; null splits mean equal ones.
    AllToAllSingle {
        group: String,
        output: usize,
        input: usize,
        output_splits: Option<Vec<u64>>,
        input_splits: Option<Vec<u64>>,
        #[serde(default)]
        async_op: bool,
    },
    /// `send(tensors[tensor], peer, tag)`.
    Send {
        group: String,
        tensor: usize,
        peer: RankRef,
        #[serde(default)]
        tag: u32,
    },
    /// `recv(tensors[tensor], peer, tag)`. Value: the sender's global rank as the library returns it.
    Recv {
        group: String,
        tensor: usize,
        /// None: from any source.
        peer: Option<RankRef>,
        #[serde(default)]
        tag: u32,
    },
    /// `isend(tensors[tensor], peer, tag)`; always async.
    Isend {
        group: String,
        tensor: usize,
        peer: RankRef,
        #[serde(default)]
        tag: u32,
    },
    /// `irecv(tensors[tensor], peer, tag)`; always async.
    Irecv {
        group: String,
        tensor: usize,
        peer: RankRef,
        #[serde(default)]
        tag: u32,
    },
    /// `batch_isend_irecv([P2POp...])`, then a wait on every work it returned.
    BatchIsendIrecv { group: String, ops: Vec<P2pCall> },
    /// `barrier()`.
    Barrier {
        group: String,
        #[serde(default)]
        async_op: bool,
    },
    /// `monitored_barrier()`.
    MonitoredBarrier { group: String },
    /// The given calls inside `torch.distributed._coalescing_manager(group)`.
    Coalesced {
        group: String,
        calls: Vec<Call>,
        #[serde(default)]
        async_op: bool,
    },
    /// `all_gather_object`. Value: the list received.
    AllGatherObject {
        group: String,
        object: serde_json::Value,
    },
    /// `gather_object`. Value: the list received on the root, null elsewhere.
    GatherObject {
        group: String,
        object: serde_json::Value,
        root: RankRef,
    },
    /// `broadcast_object_list`. Value: the list held afterwards.
    BroadcastObjectList {
        group: String,
        objects: Vec<serde_json::Value>,
        root: RankRef,
    },
    /// `scatter_object_list`. Value: the object received.
    ScatterObjectList {
        group: String,
        objects: Option<Vec<serde_json::Value>>,
        root: RankRef,
    },
}

impl Call {
    /// Returns the name in the `call` field.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// Returns the call's name, and those of the calls inside it.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        let inside: Vec<&Self> = match self {
            Self::Coalesced { calls, .. } => calls.iter().collect(),
            Self::Attempt { inner } => vec![inner],
            Self::Together { threads } => threads.iter().flatten().collect(),
            _ => Vec::new(),
        };
        let inside = inside.into_iter().flat_map(Self::names);
        std::iter::once(self.name()).chain(inside).collect()
    }

    /// Returns a mutable reference to each tensor index of the call and of the calls inside it.
    pub fn tensors_mut(&mut self) -> Vec<&mut usize> {
        match self {
            Self::AllReduce { tensor, .. }
            | Self::Broadcast { tensor, .. }
            | Self::Reduce { tensor, .. }
            | Self::Send { tensor, .. }
            | Self::Recv { tensor, .. }
            | Self::Isend { tensor, .. }
            | Self::Irecv { tensor, .. } => vec![tensor],
            Self::AllReduceCoalesced { tensors, .. } => tensors.iter_mut().collect(),
            Self::AllGather { outputs, input, .. } => outputs.iter_mut().chain([input]).collect(),
            Self::AllGatherCoalesced {
                outputs, inputs, ..
            } => outputs.iter_mut().flatten().chain(inputs).collect(),
            Self::AllGatherIntoTensor { output, input, .. }
            | Self::ReduceScatterTensor { output, input, .. }
            | Self::AllToAllSingle { output, input, .. } => vec![output, input],
            Self::Gather { input, outputs, .. } => {
                outputs.iter_mut().flatten().chain([input]).collect()
            }
            Self::Scatter { output, inputs, .. } => {
                inputs.iter_mut().flatten().chain([output]).collect()
            }
            Self::ReduceScatter { output, inputs, .. } => {
                inputs.iter_mut().chain([output]).collect()
            }
            Self::AllToAll {
                outputs, inputs, ..
            } => outputs.iter_mut().chain(inputs).collect(),
            Self::BatchIsendIrecv { ops, .. } => ops.iter_mut().map(|op| &mut op.tensor).collect(),
            Self::Coalesced { calls, .. } => calls.iter_mut().flat_map(Self::tensors_mut).collect(),
            Self::PremulFactor { tensor, .. } => tensor.iter_mut().collect(),
            Self::Grow { tensor, .. } => vec![tensor],
            Self::Windows { tensor, output, .. } => vec![tensor, output],
            Self::TensorsAs { tensors, .. } => tensors.iter_mut().collect(),
            Self::Stack { tensors, .. } => tensors.values_mut().collect(),
            Self::AllReduceSparse { values, output, .. } => vec![values, output],
            Self::Attempt { inner } => inner.tensors_mut(),
            Self::Together { threads } => threads
                .iter_mut()
                .flatten()
                .flat_map(Self::tensors_mut)
                .collect(),
            Self::Prepare { .. }
            | Self::InitProcessGroup { .. }
            | Self::NewGroup { .. }
            | Self::SplitGroup { .. }
            | Self::DestroyProcessGroup { .. }
            | Self::Sleep { .. }
            | Self::Wait { .. }
            | Self::IsCompleted { .. }
            | Self::Future { .. }
            | Self::Drop { .. }
            | Self::Mark { .. }
            | Self::Hold { .. }
            | Self::Pause
            | Self::Die { .. }
            | Self::Exit { .. }
            | Self::Census
            | Self::WhoAmI { .. }
            | Self::Setenv { .. }
            | Self::Abort { .. }
            | Self::Python { .. }
            | Self::Barrier { .. }
            | Self::MonitoredBarrier { .. }
            | Self::AllGatherObject { .. }
            | Self::GatherObject { .. }
            | Self::BroadcastObjectList { .. }
            | Self::ScatterObjectList { .. } => Vec::new(),
        }
    }

    /// Returns true if the call returns a work that a later `wait` may name.
    #[must_use]
    pub fn keeps_work(&self) -> bool {
        match self {
            Self::AllReduce { async_op, .. }
            | Self::AllReduceCoalesced { async_op, .. }
            | Self::Broadcast { async_op, .. }
            | Self::Reduce { async_op, .. }
            | Self::AllGather { async_op, .. }
            | Self::AllGatherCoalesced { async_op, .. }
            | Self::AllGatherIntoTensor { async_op, .. }
            | Self::Gather { async_op, .. }
            | Self::Scatter { async_op, .. }
            | Self::ReduceScatter { async_op, .. }
            | Self::ReduceScatterTensor { async_op, .. }
            | Self::AllToAll { async_op, .. }
            | Self::AllToAllSingle { async_op, .. }
            | Self::Barrier { async_op, .. }
            | Self::Coalesced { async_op, .. } => *async_op,
            Self::Isend { .. } | Self::Irecv { .. } => true,
            Self::Attempt { inner } => inner.keeps_work(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_the_tag() {
        let call = Call::MonitoredBarrier {
            group: "world".into(),
        };
        assert_eq!(serde_json::to_value(&call).unwrap()["call"], call.name());
    }
}
