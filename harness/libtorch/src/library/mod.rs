//! The calls of `torch.distributed`, on c10d: what PyTorch's Python layer does between a program and c10d, in Rust.
//!
//! That layer finds the group, turns global ranks into the group's, shows complex tensors to c10d as pairs of reals,
//! gathers what a coalescing manager gathers, waits for what is not asynchronous, and refuses a few arguments itself. All
//! of it is done here as `torch/distributed/distributed_c10d.py` of torch 2.11 does it, and nothing more: nothing is caught,
//! retried or repaired.
//!
//! In: [`Call`]s of the protocol. Out: their values, or a typed [`Error`].

mod coalescing;
mod collectives;
mod gathered;
mod groups;
mod messages;
mod other_calls;

pub use other_calls::not_reached;

use std::collections::HashMap;

use allranks_model::dtype;
use allranks_model::dtype::DType;
use allranks_protocol::{Call, CallResult, CallStatus, PREMUL_FACTOR};
use serde_json::Value;
use tch::{Device, Tensor};

use crate::c10d::{Error, InferenceMode, Kind, ReduceOp, Result, Work};
use crate::clock;
use groups::{Groups, Membership};

/// The calls this driver can make; `hello` says so. Not among them: what is Python's alone (`python`, `stack`, and collectives on
/// pickled objects), and `split_group`, which needs a device's backend.
pub const CALLS: &[&str] = &[
    "prepare",
    "init_process_group",
    "new_group",
    "destroy_process_group",
    "tensors_as",
    "grow",
    "windows",
    "sleep",
    "premul_factor",
    "wait",
    "is_completed",
    "future",
    "drop",
    "attempt",
    "together",
    "mark",
    "hold",
    "pause",
    "die",
    "exit",
    "census",
    "who_am_i",
    "setenv",
    "abort",
    "all_reduce",
    "all_reduce_coalesced",
    "all_reduce_sparse",
    "broadcast",
    "reduce",
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "gather",
    "scatter",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "all_to_all",
    "all_to_all_single",
    "send",
    "recv",
    "isend",
    "irecv",
    "batch_isend_irecv",
    "barrier",
    "monitored_barrier",
    "coalesced",
];

/// The works that one asynchronous call left to wait for: one, several of a coalescing manager, or none.
#[derive(Debug, Default)]
pub struct Works(Vec<Work>);

impl Works {
    fn of(work: Option<Work>) -> Self {
        Self(work.into_iter().collect())
    }
}

/// The factor of `premul_sum`.
#[derive(Debug)]
enum Factor {
    Number(f64),
    Tensor(usize),
}

/// The state that calls leave for later calls: groups, tensors, works, the device.
#[derive(Debug)]
pub struct Library {
    groups: Groups,
    /// The device on which tensors are made.
    device: Device,
    /// The name of the device to wait for before storages are read back.
    synchronize: Option<String>,
    /// The step's tensors, and their dtypes: tch has no names for all of them.
    tensors: Vec<Tensor>,
    dtypes: Vec<DType>,
    /// Works of the step, by index of the call that returned them.
    works: HashMap<usize, Works>,
    factor: Factor,
    /// The mode that the step's tensors asked for: entered by one call, left when the step is over.
    mode: Option<InferenceMode>,
    /// The exit code, once a call has asked to leave.
    pub leaving: Option<i32>,
}

/// The state with which a thread of a script begins.
#[derive(Debug)]
struct Seed {
    groups: Groups,
    device: Device,
    tensors: Vec<Tensor>,
    dtypes: Vec<DType>,
}

/// The services of a rank that a call may use.
pub trait Rank {
    /// Waits for the frame `go` of the harness.
    ///
    /// # Errors
    /// Another frame came, or the connection is closed.
    fn wait_for_go(&mut self) -> Result<()>;
    /// Makes the step's tensors anew. Fails on threads other than the main one.
    fn remake(&mut self, device: Device, is_pinned: bool) -> Result<Vec<Tensor>>;
}

impl Default for Library {
    fn default() -> Self {
        Self {
            groups: Groups::default(),
            device: Device::Cpu,
            synchronize: None,
            tensors: Vec::new(),
            dtypes: Vec::new(),
            works: HashMap::new(),
            factor: Factor::Number(PREMUL_FACTOR),
            mode: None,
            leaving: None,
        }
    }
}

impl Library {
    /// Forgets what calls of the last step left for its later calls.
    pub fn begin_step(&mut self, tensors: Vec<Tensor>, dtypes: Vec<DType>) {
        self.end_step();
        self.tensors = tensors;
        self.dtypes = dtypes;
        self.factor = Factor::Number(PREMUL_FACTOR);
    }

    /// Forgets tensors and works before the next step waits: a work kept alive is a buffer kept busy.
    pub fn end_step(&mut self) {
        self.mode = None;
        self.works.clear();
        self.tensors.clear();
        self.dtypes.clear();
    }

    /// Returns the device on which tensors are made.
    #[must_use]
    pub fn device(&self) -> Device {
        self.device
    }

    /// Waits for the device, where the platform says that there is something to wait for.
    ///
    /// # Errors
    /// What went wrong on the device.
    pub fn wait_for_device(&self) -> Result<()> {
        self.synchronize
            .as_deref()
            .map_or(Ok(()), crate::c10d::synchronize)
    }

    /// Makes one call. Returns how it went, as the protocol has it.
    pub fn try_call(&mut self, rank: &mut dyn Rank, call: &Call, index: usize) -> CallResult {
        let enter = clock::now();
        let made = self.make(rank, call, index);
        let leave = clock::now();
        let (status, value, error) = match made {
            Ok(value) => (CallStatus::Ok, value, None),
            Err(error) => (CallStatus::Error, Value::Null, Some(error.describe())),
        };
        CallResult {
            status,
            enter,
            leave,
            value,
            error,
        }
    }

    /// Makes one call, and returns its value.
    fn make(&mut self, rank: &mut dyn Rank, call: &Call, index: usize) -> Result<Value> {
        match call {
            Call::Coalesced {
                group,
                calls,
                async_op,
            } => self
                .coalesced(rank, group, calls, *async_op, index)
                .map(|()| Value::Null),
            Call::Send { .. }
            | Call::Recv { .. }
            | Call::Isend { .. }
            | Call::Irecv { .. }
            | Call::BatchIsendIrecv { .. } => self.message(call, index),
            Call::AllReduce { .. }
            | Call::AllReduceCoalesced { .. }
            | Call::AllReduceSparse { .. }
            | Call::Broadcast { .. }
            | Call::Reduce { .. }
            | Call::AllGather { .. }
            | Call::AllGatherCoalesced { .. }
            | Call::AllGatherIntoTensor { .. }
            | Call::Gather { .. }
            | Call::Scatter { .. }
            | Call::ReduceScatter { .. }
            | Call::ReduceScatterTensor { .. }
            | Call::AllToAll { .. }
            | Call::AllToAllSingle { .. }
            | Call::Barrier { .. }
            | Call::MonitoredBarrier { .. } => self.collective(call, index).map(|()| Value::Null),
            Call::SplitGroup { .. }
            | Call::Python { .. }
            | Call::Stack { .. }
            | Call::AllGatherObject { .. }
            | Call::GatherObject { .. }
            | Call::BroadcastObjectList { .. }
            | Call::ScatterObjectList { .. } => Err(Error::new(
                Kind::NotImplemented,
                format!("the libtorch driver has no call `{}`", call.name()),
            )),
            _ => self.other_call(rank, call, index),
        }
    }

    /// Returns a tensor of the step.
    fn tensor(&self, index: usize) -> Result<&Tensor> {
        self.tensors
            .get(index)
            .ok_or_else(|| Error::new(Kind::Index, format!("the step has no tensor {index}")))
    }

    fn pick(&self, indices: &[usize]) -> Result<Vec<Tensor>> {
        indices
            .iter()
            .map(|index| self.tensor(*index).map(Tensor::shallow_clone))
            .collect()
    }

    /// Returns a tensor of the step as c10d gets it: complex numbers as pairs of reals.
    fn real(&self, index: usize) -> Result<Tensor> {
        let tensor = self.tensor(index)?;
        Ok(match self.dtypes[index].kind() {
            dtype::DTypeKind::Complex => tensor.f_view_as_real()?,
            _ => tensor.shallow_clone(),
        })
    }

    fn reals(&self, indices: &[usize]) -> Result<Vec<Tensor>> {
        indices.iter().map(|index| self.real(*index)).collect()
    }

    /// Refuses tensors of several dtypes; complex numbers go with reals of their parts' kind.
    fn same_dtype<'a>(&self, indices: impl IntoIterator<Item = &'a usize>) -> Result<()> {
        let mut last: Option<DType> = None;
        for index in indices {
            self.tensor(*index)?;
            let own = self.dtypes[*index];
            let part = match own {
                DType::Complex64 => DType::Float32,
                DType::Complex128 => DType::Float64,
                other => other,
            };
            if let Some(last) = last.filter(|last| *last != part) {
                return Err(Error::new(
                    Kind::Value,
                    format!(
                        "Invalid usage of tensors with different dtypesFound torch.{} and  torch.{}",
                        last.name(),
                        own.name()
                    ),
                ));
            }
            last = Some(part);
        }
        Ok(())
    }

    /// Returns an operator as c10d takes it.
    fn reduce_op(&self, op: dtype::ReduceOp) -> ReduceOp<'_> {
        let (factor, tensor) = match self.factor {
            Factor::Number(factor) => (factor, None),
            Factor::Tensor(index) => (PREMUL_FACTOR, self.tensors.get(index)),
        };
        ReduceOp { op, factor, tensor }
    }

    /// Refuses operators that mean nothing on complex numbers, which c10d would apply to the parts.
    fn complex_allowed(&self, call: &str, op: dtype::ReduceOp, indices: &[usize]) -> Result<()> {
        let is_complex = indices
            .iter()
            .filter_map(|index| self.dtypes.get(*index))
            .any(|dtype| dtype.kind() == dtype::DTypeKind::Complex);
        let is_linear = match op {
            dtype::ReduceOp::Sum | dtype::ReduceOp::Avg | dtype::ReduceOp::PremulSum => true,
            dtype::ReduceOp::Product
            | dtype::ReduceOp::Min
            | dtype::ReduceOp::Max
            | dtype::ReduceOp::Band
            | dtype::ReduceOp::Bor
            | dtype::ReduceOp::Bxor => false,
        };
        if is_complex && !is_linear {
            return Err(Error::new(
                Kind::Value,
                format!("{call} does not support {op:?} on complex tensors"),
            ));
        }
        Ok(())
    }

    /// Keeps the work of an asynchronous call, or waits for that of another.
    fn finish(&mut self, index: usize, is_async: bool, work: Option<Work>) -> Result<()> {
        if is_async {
            self.works.insert(index, Works::of(work));
        } else if let Some(work) = work {
            work.wait(None)?;
        }
        Ok(())
    }

    /// Returns this rank's membership of the group that a call names.
    fn membership(&self, group: &str) -> Result<Membership> {
        self.groups.find(group)
    }

    /// Returns the state with which a thread of a script begins.
    fn seed(&self) -> Seed {
        Seed {
            groups: self.groups.clone(),
            device: self.device,
            tensors: self.tensors.iter().map(Tensor::shallow_clone).collect(),
            dtypes: self.dtypes.clone(),
        }
    }

    /// Returns the library of a thread of a script: it shares the groups with the rank, and has works of its own.
    fn on_thread(seed: Seed) -> Self {
        Self {
            groups: seed.groups,
            device: seed.device,
            tensors: seed.tensors,
            dtypes: seed.dtypes,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Unreleased;

    impl Rank for Unreleased {
        fn wait_for_go(&mut self) -> Result<()> {
            Err(Error::new(Kind::Runtime, "no release from a fence"))
        }

        fn remake(&mut self, _: Device, _: bool) -> Result<Vec<Tensor>> {
            Ok(Vec::new())
        }
    }

    fn call(text: &str) -> Call {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_call_that_is_not_offered_is_not_made() {
        let python = call(r#"{"call":"python","source":"result = 1"}"#);
        assert!(!CALLS.contains(&python.name()));
        let refused = Library::default().try_call(&mut Unreleased, &python, 0);
        assert_eq!(refused.error.unwrap().kind, "NotImplementedError");
    }

    /// The calls of the protocol's tables: words in the first cell of their rows, from §5 on.
    fn calls_of_the_protocol() -> Vec<String> {
        let page = include_str!("../../../doc/reference/protocol.md");
        let (_, tables) = page.split_once("## 5. Calls").unwrap();
        let (tables, _) = tables.split_once("## 6.").unwrap();
        tables
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split(" |").next())
            .flat_map(|cell| cell.trim_matches('`').split("`, `"))
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn every_call_is_offered_or_its_lack_has_a_reason() {
        let list = include_str!("../../../../fixtures/drivers/libtorch.yaml");
        let lacking: Vec<&str> = list
            .lines()
            .filter_map(|line| line.trim().strip_prefix("- calls: [")?.strip_suffix(']'))
            .flat_map(|names| names.split(", "))
            .collect();
        let calls = calls_of_the_protocol();
        assert!(calls.len() > 40, "{calls:?}");
        for call in &calls {
            let is_offered = CALLS.contains(&call.as_str());
            assert_ne!(is_offered, lacking.contains(&call.as_str()), "{call}");
        }
        for call in CALLS {
            assert!(calls.iter().any(|known| known == call), "{call}");
        }
    }

    #[test]
    fn mixed_dtypes_are_refused_but_for_complex_ones_with_their_parts() {
        let mut library = Library::default();
        let made = || Tensor::zeros([1], (tch::Kind::Float, Device::Cpu));
        library.begin_step(
            vec![made(), made(), made()],
            vec![DType::Float32, DType::Complex64, DType::Int32],
        );
        assert!(library.same_dtype(&[0, 1]).is_ok());
        let refused = library.same_dtype(&[1, 2]).unwrap_err();
        assert!(
            refused.message.contains("torch.float32 and  torch.int32"),
            "{refused}"
        );
    }

    #[test]
    fn an_attempt_goes_on() {
        let attempt = call(r#"{"call":"attempt","inner":{"call":"barrier","group":"world"}}"#);
        let went = Library::default().try_call(&mut Unreleased, &attempt, 0);
        assert_eq!(went.status, CallStatus::Ok);
        assert_eq!(went.value["raised"]["type"], "ValueError");
    }
}
