//! Collectives and messages: a group's methods, each one call of `c10d::ProcessGroup`.
//!
//! They bear the names of `torch.distributed` and fail with c10d's errors. Roots and peers are ranks in the group. A backend may return no work; then there is nothing to wait for.

use std::ptr;
use std::time::Duration;

use allranks_model::dtype;
use tch::Tensor;

use super::error::check;
use super::store::millis;
use super::tensor::pointer;
use super::{Group, Result, Work, c_string, sys};

/// A reduce operator, with the factor of `premul_sum`.
#[derive(Debug)]
pub struct ReduceOp<'a> {
    /// The operator.
    pub op: dtype::ReduceOp,
    /// The factor of `premul_sum`, unless there is a tensor.
    pub factor: f64,
    /// The factor, as a tensor of one element.
    pub tensor: Option<&'a Tensor>,
}

impl ReduceOp<'_> {
    /// Returns the operator with the number that c10d gives it (torch/csrc/distributed/c10d/Types.hpp).
    fn raw(&self) -> sys::ArOp {
        let number = match self.op {
            dtype::ReduceOp::Sum => 0,
            dtype::ReduceOp::Avg => 1,
            dtype::ReduceOp::Product => 2,
            dtype::ReduceOp::Min => 3,
            dtype::ReduceOp::Max => 4,
            dtype::ReduceOp::Band => 5,
            dtype::ReduceOp::Bor => 6,
            dtype::ReduceOp::Bxor => 7,
            dtype::ReduceOp::PremulSum => 8,
        };
        sys::ArOp {
            number,
            factor: self.factor,
            tensor: self.tensor.map_or(ptr::null_mut(), pointer),
        }
    }
}

/// Pointers to tensors, valid as long as the tensors are.
struct Pointers(Vec<sys::ArTensor>);

impl Pointers {
    fn of(tensors: &[Tensor]) -> Self {
        Self(tensors.iter().map(pointer).collect())
    }

    fn list(&self) -> sys::ArList {
        sys::ArList {
            tensors: self.0.as_ptr(),
            length: self.0.len(),
        }
    }
}

/// Makes one call of the shim, which writes its work where the argument points. Returns the work, if there is one.
fn made(call: impl FnOnce(*mut *mut sys::ArWork) -> *mut sys::ArError) -> Result<Option<Work>> {
    let mut made = ptr::null_mut();
    check(call(&raw mut made))?;
    Ok(Work::own(made))
}

#[expect(
    unsafe_code,
    reason = "calls of the shim: a group's pointer is valid from its making to its drop, tensors and lists of them outlive \
              their call, and libtorch counts its own references to what it goes on using"
)]
impl Group {
    pub fn all_reduce(
        &self,
        tensors: &[Tensor],
        op: &ReduceOp<'_>,
        is_async: bool,
    ) -> Result<Option<Work>> {
        let list = Pointers::of(tensors);
        // SAFETY: see the reason above.
        made(|out| unsafe {
            sys::ar_all_reduce(self.as_ptr(), list.list(), op.raw(), is_async.into(), out)
        })
    }

    pub fn all_reduce_coalesced(
        &self,
        tensors: &[Tensor],
        op: &ReduceOp<'_>,
        is_async: bool,
    ) -> Result<Option<Work>> {
        let list = Pointers::of(tensors);
        // SAFETY: see the reason above.
        made(|out| unsafe {
            sys::ar_all_reduce_coalesced(self.as_ptr(), list.list(), op.raw(), is_async.into(), out)
        })
    }

    pub fn broadcast(&self, tensor: &Tensor, root: i64, is_async: bool) -> Result<Option<Work>> {
        // SAFETY: see the reason above.
        made(|out| unsafe {
            sys::ar_broadcast(self.as_ptr(), pointer(tensor), root, is_async.into(), out)
        })
    }

    pub fn reduce(
        &self,
        tensor: &Tensor,
        op: &ReduceOp<'_>,
        root: i64,
        is_async: bool,
    ) -> Result<Option<Work>> {
        // SAFETY: see the reason above.
        made(|out| unsafe {
            sys::ar_reduce(
                self.as_ptr(),
                pointer(tensor),
                op.raw(),
                root,
                is_async.into(),
                out,
            )
        })
    }

    pub fn all_gather(
        &self,
        outputs: &[Tensor],
        input: &Tensor,
        is_async: bool,
    ) -> Result<Option<Work>> {
        let list = Pointers::of(outputs);
        // SAFETY: see the reason above.
        made(|out| unsafe {
            sys::ar_all_gather(
                self.as_ptr(),
                list.list(),
                pointer(input),
                is_async.into(),
                out,
            )
        })
    }

    pub fn all_gather_coalesced(
        &self,
        outputs: &[Vec<Tensor>],
        inputs: &[Tensor],
        is_async: bool,
    ) -> Result<Option<Work>> {
        let rows: Vec<Pointers> = outputs.iter().map(|row| Pointers::of(row)).collect();
        let lists: Vec<sys::ArList> = rows.iter().map(Pointers::list).collect();
        let from = Pointers::of(inputs);
        // SAFETY: see the reason above.
        made(|out| unsafe {
            sys::ar_all_gather_coalesced(
                self.as_ptr(),
                lists.as_ptr(),
                lists.len(),
                from.list(),
                is_async.into(),
                out,
            )
        })
    }

    pub fn all_gather_into_tensor(
        &self,
        output: &Tensor,
        input: &Tensor,
        is_async: bool,
    ) -> Result<Option<Work>> {
        // SAFETY: see the reason above.
        made(|out| unsafe {
            sys::ar_all_gather_into_tensor(
                self.as_ptr(),
                pointer(output),
                pointer(input),
                is_async.into(),
                out,
            )
        })
    }

    pub fn all_gather_into_tensor_coalesced(
        &self,
        outputs: &[Tensor],
        inputs: &[Tensor],
    ) -> Result<Option<Work>> {
        let (to, from) = (Pointers::of(outputs), Pointers::of(inputs));
        // SAFETY: see the reason above.
        made(|out| unsafe {
            sys::ar_all_gather_into_tensor_coalesced(self.as_ptr(), to.list(), from.list(), out)
        })
    }

    pub fn gather(
        &self,
        input: &Tensor,
        outputs: Option<&[Tensor]>,
        root: i64,
        is_async: bool,
    ) -> Result<Option<Work>> {
        let row = outputs.map(Pointers::of);
        let list = row.as_ref().map(Pointers::list);
        let list = list.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: see the reason above.
        made(|out| unsafe {
            sys::ar_gather(
                self.as_ptr(),
                pointer(input),
                list,
                root,
                is_async.into(),
                out,
            )
        })
    }

    pub fn scatter(
        &self,
        output: &Tensor,
        inputs: Option<&[Tensor]>,
        root: i64,
        is_async: bool,
    ) -> Result<Option<Work>> {
        let row = inputs.map(Pointers::of);
        let list = row.as_ref().map(Pointers::list);
        let list = list.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: see the reason above.
        made(|out| unsafe {
            sys::ar_scatter(
                self.as_ptr(),
                pointer(output),
                list,
                root,
                is_async.into(),
                out,
            )
        })
    }

    pub fn reduce_scatter(
        &self,
        output: &Tensor,
        inputs: &[Tensor],
        op: &ReduceOp<'_>,
        is_async: bool,
    ) -> Result<Option<Work>> {
        let list = Pointers::of(inputs);
        // SAFETY: see the reason above.
        made(|out| unsafe {
            sys::ar_reduce_scatter(
                self.as_ptr(),
                pointer(output),
                list.list(),
                op.raw(),
                is_async.into(),
                out,
            )
        })
    }

    pub fn reduce_scatter_tensor(
        &self,
        output: &Tensor,
        input: &Tensor,
        op: &ReduceOp<'_>,
        is_async: bool,
    ) -> Result<Option<Work>> {
        // SAFETY: see the reason above.
        made(|out| unsafe {
            sys::ar_reduce_scatter_tensor(
                self.as_ptr(),
                pointer(output),
                pointer(input),
                op.raw(),
                is_async.into(),
                out,
            )
        })
    }

    pub fn reduce_scatter_tensor_coalesced(
        &self,
        outputs: &[Tensor],
        inputs: &[Tensor],
        op: &ReduceOp<'_>,
        is_async: bool,
    ) -> Result<Option<Work>> {
        let (to, from) = (Pointers::of(outputs), Pointers::of(inputs));
        // SAFETY: see the reason above.
        made(|out| unsafe {
            sys::ar_reduce_scatter_tensor_coalesced(
                self.as_ptr(),
                to.list(),
                from.list(),
                op.raw(),
                is_async.into(),
                out,
            )
        })
    }

    pub fn all_to_all(
        &self,
        outputs: &[Tensor],
        inputs: &[Tensor],
        is_async: bool,
    ) -> Result<Option<Work>> {
        let (to, from) = (Pointers::of(outputs), Pointers::of(inputs));
        // SAFETY: see the reason above.
        made(|out| unsafe {
            sys::ar_all_to_all(self.as_ptr(), to.list(), from.list(), is_async.into(), out)
        })
    }

    pub fn all_to_all_single(
        &self,
        output: &Tensor,
        input: &Tensor,
        output_splits: &[i64],
        input_splits: &[i64],
        is_async: bool,
    ) -> Result<Option<Work>> {
        // SAFETY: see the reason above.
        made(|out| unsafe {
            sys::ar_all_to_all_single(
                self.as_ptr(),
                pointer(output),
                pointer(input),
                output_splits.as_ptr(),
                output_splits.len(),
                input_splits.as_ptr(),
                input_splits.len(),
                is_async.into(),
                out,
            )
        })
    }

    pub fn barrier(&self, device: &str, is_async: bool) -> Result<Option<Work>> {
        let device = c_string(device)?;
        // SAFETY: see the reason above.
        made(|out| unsafe { sys::ar_barrier(self.as_ptr(), device.as_ptr(), is_async.into(), out) })
    }

    pub fn monitored_barrier(&self, timeout: Duration) -> Result<()> {
        // SAFETY: see the reason above.
        check(unsafe { sys::ar_monitored_barrier(self.as_ptr(), millis(timeout)) })
    }

    pub fn send(&self, tensor: &Tensor, peer: i32, tag: u32) -> Result<Option<Work>> {
        // SAFETY: see the reason above.
        made(|out| unsafe { sys::ar_send(self.as_ptr(), pointer(tensor), peer, tag as i32, out) })
    }

    pub fn recv(&self, tensor: &Tensor, peer: i32, tag: u32) -> Result<Option<Work>> {
        // SAFETY: see the reason above.
        made(|out| unsafe { sys::ar_recv(self.as_ptr(), pointer(tensor), peer, tag as i32, out) })
    }

    pub fn recv_any(&self, tensor: &Tensor, tag: u32) -> Result<Option<Work>> {
        // SAFETY: see the reason above.
        made(|out| unsafe { sys::ar_recv_any(self.as_ptr(), pointer(tensor), tag as i32, out) })
    }
}
