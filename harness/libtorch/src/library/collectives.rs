//! Collectives on tensors.

use std::time::Duration;

use allranks_model::dtype::ReduceOp;
use allranks_protocol::{Call, RankRef};
use tch::Tensor;

use super::Library;
use super::gathered::{GatheredCall, GatheredOp};
use super::groups::{Member, group_rank};
use crate::c10d::{Error, Kind, Result, Work};

/// The timeout of a `monitored_barrier` that is given none: `default_pg_timeout` of c10d.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// What has become of a collective.
enum Issued {
    /// It was issued, and this is its work: none if the call came back without one, and on a rank that is no member of the group.
    Call(Option<Work>),
    /// A coalescing manager keeps it for later.
    Gathered,
}

/// A rank that is no member of the group issues nothing.
const NOT_A_MEMBER: Issued = Issued::Call(None);

impl Library {
    /// Makes one collective. A rank that is no member of the group does nothing, as in Python, which warns.
    pub(super) fn collective(&mut self, call: &Call, index: usize) -> Result<()> {
        match self.issue(call)? {
            Issued::Call(work) => self.finish(index, call.keeps_work(), work),
            Issued::Gathered => Ok(()),
        }
    }

    /// Issues a collective, by its op.
    fn issue(&self, call: &Call) -> Result<Issued> {
        let is_async = call.keeps_work();
        match call {
            Call::AllReduce {
                group, tensor, op, ..
            } => self.all_reduce(group, *tensor, *op, is_async),
            Call::AllReduceCoalesced {
                group, tensors, op, ..
            } => self.all_reduce_coalesced(group, tensors, *op, is_async),
            Call::AllReduceSparse {
                group,
                values,
                indices,
                output,
                op,
            } => self.all_reduce_sparse(group, *values, indices, *output, *op),
            Call::Broadcast {
                group,
                tensor,
                root,
                ..
            } => self.broadcast(group, *tensor, *root, is_async),
            Call::Reduce {
                group,
                tensor,
                op,
                root,
                ..
            } => self.reduce(group, *tensor, *op, *root, is_async),
            Call::AllGather {
                group,
                outputs,
                input,
                ..
            } => self.all_gather(group, outputs, *input, is_async),
            Call::AllGatherCoalesced {
                group,
                outputs,
                inputs,
                ..
            } => self.all_gather_coalesced(group, outputs, inputs, is_async),
            Call::AllGatherIntoTensor {
                group,
                output,
                input,
                ..
            } => self.all_gather_into_tensor(group, *output, *input, is_async),
            Call::Gather {
                group,
                input,
                outputs,
                root,
                ..
            } => self.gather(group, *input, outputs.as_deref(), *root, is_async),
            Call::Scatter {
                group,
                output,
                inputs,
                root,
                ..
            } => self.scatter(group, *output, inputs.as_deref(), *root, is_async),
            Call::ReduceScatter {
                group,
                output,
                inputs,
                op,
                ..
            } => self.reduce_scatter(group, *output, inputs, *op, is_async),
            Call::ReduceScatterTensor {
                group,
                output,
                input,
                op,
                ..
            } => self.reduce_scatter_tensor(group, *output, *input, *op, is_async),
            Call::AllToAll {
                group,
                outputs,
                inputs,
                ..
            } => self.all_to_all(group, outputs, inputs, is_async),
            Call::AllToAllSingle {
                group,
                output,
                input,
                output_splits,
                input_splits,
                ..
            } => {
                let splits = [output_splits.as_deref(), input_splits.as_deref()];
                self.all_to_all_single(group, *output, *input, splits, is_async)
            }
            Call::Barrier { group, .. } => self.barrier(group, is_async),
            Call::MonitoredBarrier { group } => self.monitored_barrier(group),
            _ => Err(Error::new(
                Kind::NotImplemented,
                format!("`{}` is no collective", call.name()),
            )),
        }
    }

    fn all_reduce(
        &self,
        group: &str,
        tensor: usize,
        op: ReduceOp,
        is_async: bool,
    ) -> Result<Issued> {
        let Some(member) = self.membership(group)? else {
            return Ok(NOT_A_MEMBER);
        };
        self.complex_allowed("all_reduce", op, &[tensor])?;
        let recorded = GatheredCall {
            what: GatheredOp::AllReduce,
            input: self.real(tensor)?,
            output: None,
            op: Some(op),
        };
        let Some(recorded) = member.gather_up(recorded) else {
            return Ok(Issued::Gathered);
        };
        let op = self.reduce_op(op);
        let work = member.group.all_reduce(&[recorded.input], &op, is_async)?;
        Ok(Issued::Call(work))
    }

    fn all_reduce_coalesced(
        &self,
        group: &str,
        tensors: &[usize],
        op: ReduceOp,
        is_async: bool,
    ) -> Result<Issued> {
        self.same_dtype(tensors)?;
        let Some(member) = self.membership(group)? else {
            return Ok(NOT_A_MEMBER);
        };
        self.complex_allowed("all_reduce", op, tensors)?;
        let all = self.reals(tensors)?;
        let op = self.reduce_op(op);
        let work = member.group.all_reduce_coalesced(&all, &op, is_async)?;
        Ok(Issued::Call(work))
    }

    fn broadcast(
        &self,
        group: &str,
        tensor: usize,
        root: RankRef,
        is_async: bool,
    ) -> Result<Issued> {
        let membership = self.membership(group)?;
        let root = group_rank(&membership, root)?;
        let Some(member) = membership else {
            return Ok(NOT_A_MEMBER);
        };
        let work = member
            .group
            .broadcast(&self.real(tensor)?, root, is_async)?;
        Ok(Issued::Call(work))
    }

    fn reduce(
        &self,
        group: &str,
        tensor: usize,
        op: ReduceOp,
        root: RankRef,
        is_async: bool,
    ) -> Result<Issued> {
        let membership = self.membership(group)?;
        let root = group_rank(&membership, root)?;
        let Some(member) = membership else {
            return Ok(NOT_A_MEMBER);
        };
        let op = self.reduce_op(op);
        let tensor = self.tensor(tensor)?;
        let work = member.group.reduce(tensor, &op, root, is_async)?;
        Ok(Issued::Call(work))
    }

    fn all_gather(
        &self,
        group: &str,
        outputs: &[usize],
        input: usize,
        is_async: bool,
    ) -> Result<Issued> {
        self.same_dtype(outputs.iter().chain([&input]))?;
        let Some(member) = self.membership(group)? else {
            return Ok(NOT_A_MEMBER);
        };
        let (to, from) = (self.reals(outputs)?, self.real(input)?);
        let work = member.group.all_gather(&to, &from, is_async)?;
        Ok(Issued::Call(work))
    }

    fn all_gather_coalesced(
        &self,
        group: &str,
        outputs: &[Vec<usize>],
        inputs: &[usize],
        is_async: bool,
    ) -> Result<Issued> {
        let Some(member) = self.membership(group)? else {
            return Ok(NOT_A_MEMBER);
        };
        self.same_dtype(inputs)?;
        for row in outputs {
            self.same_dtype(row)?;
        }
        let to = outputs
            .iter()
            .map(|row| self.reals(row))
            .collect::<Result<Vec<_>>>()?;
        let from = self.reals(inputs)?;
        let work = member.group.all_gather_coalesced(&to, &from, is_async)?;
        Ok(Issued::Call(work))
    }

    fn all_gather_into_tensor(
        &self,
        group: &str,
        output: usize,
        input: usize,
        is_async: bool,
    ) -> Result<Issued> {
        let Some(member) = self.membership(group)? else {
            return Ok(NOT_A_MEMBER);
        };
        let recorded = GatheredCall {
            what: GatheredOp::AllGatherIntoTensor,
            input: self.real(input)?,
            output: Some(self.real(output)?),
            op: None,
        };
        let Some(GatheredCall { input, output, .. }) = member.gather_up(recorded) else {
            return Ok(Issued::Gathered);
        };
        let output = output.unwrap_or_default();
        let work = member
            .group
            .all_gather_into_tensor(&output, &input, is_async)?;
        Ok(Issued::Call(work))
    }

    fn gather(
        &self,
        group: &str,
        input: usize,
        outputs: Option<&[usize]>,
        root: RankRef,
        is_async: bool,
    ) -> Result<Issued> {
        let outputs = outputs.unwrap_or_default();
        self.same_dtype([&input].into_iter().chain(outputs))?;
        let membership = self.membership(group)?;
        let Some(member) = &membership else {
            return Ok(NOT_A_MEMBER);
        };
        let root = member.group_rank(root)?;
        let to = self.pick(outputs)?;
        let to = lists(member, root, &to, "gather_list", "destination")?;
        let input = self.tensor(input)?;
        let work = member.group.gather(input, to, root, is_async)?;
        Ok(Issued::Call(work))
    }

    fn scatter(
        &self,
        group: &str,
        output: usize,
        inputs: Option<&[usize]>,
        root: RankRef,
        is_async: bool,
    ) -> Result<Issued> {
        let inputs = inputs.unwrap_or_default();
        self.same_dtype([&output].into_iter().chain(inputs))?;
        let membership = self.membership(group)?;
        let root = group_rank(&membership, root)?;
        let Some(member) = membership else {
            return Ok(NOT_A_MEMBER);
        };
        let from = self.reals(inputs)?;
        let from = lists(&member, root, &from, "scatter_list", "source")?;
        let output = self.real(output)?;
        let work = member.group.scatter(&output, from, root, is_async)?;
        Ok(Issued::Call(work))
    }

    fn reduce_scatter(
        &self,
        group: &str,
        output: usize,
        inputs: &[usize],
        op: ReduceOp,
        is_async: bool,
    ) -> Result<Issued> {
        self.same_dtype([&output].into_iter().chain(inputs))?;
        let Some(member) = self.membership(group)? else {
            return Ok(NOT_A_MEMBER);
        };
        let from = self.pick(inputs)?;
        let op = self.reduce_op(op);
        let output = self.tensor(output)?;
        let work = member.group.reduce_scatter(output, &from, &op, is_async)?;
        Ok(Issued::Call(work))
    }

    fn reduce_scatter_tensor(
        &self,
        group: &str,
        output: usize,
        input: usize,
        op: ReduceOp,
        is_async: bool,
    ) -> Result<Issued> {
        let Some(member) = self.membership(group)? else {
            return Ok(NOT_A_MEMBER);
        };
        let recorded = GatheredCall {
            what: GatheredOp::ReduceScatterTensor,
            input: self.tensor(input)?.shallow_clone(),
            output: Some(self.tensor(output)?.shallow_clone()),
            op: Some(op),
        };
        let Some(GatheredCall { input, output, .. }) = member.gather_up(recorded) else {
            return Ok(Issued::Gathered);
        };
        let op = self.reduce_op(op);
        let output = output.unwrap_or_default();
        let work = member
            .group
            .reduce_scatter_tensor(&output, &input, &op, is_async)?;
        Ok(Issued::Call(work))
    }

    fn all_to_all(
        &self,
        group: &str,
        outputs: &[usize],
        inputs: &[usize],
        is_async: bool,
    ) -> Result<Issued> {
        let Some(member) = self.membership(group)? else {
            return Ok(NOT_A_MEMBER);
        };
        self.same_dtype(outputs.iter().chain(inputs))?;
        let (to, from) = (self.reals(outputs)?, self.reals(inputs)?);
        let work = member.group.all_to_all(&to, &from, is_async)?;
        Ok(Issued::Call(work))
    }

    /// `splits` are those of the output and of the input; none for even ones.
    fn all_to_all_single(
        &self,
        group: &str,
        output: usize,
        input: usize,
        splits: [Option<&[u64]>; 2],
        is_async: bool,
    ) -> Result<Issued> {
        let Some(member) = self.membership(group)? else {
            return Ok(NOT_A_MEMBER);
        };
        self.same_dtype(&[output, input])?;
        let [output_splits, input_splits] = splits.map(|given| -> Vec<i64> {
            let given = given.unwrap_or_default();
            given.iter().map(|length| *length as i64).collect()
        });
        let work = member.group.all_to_all_single(
            &self.real(output)?,
            &self.real(input)?,
            &output_splits,
            &input_splits,
            is_async,
        )?;
        Ok(Issued::Call(work))
    }

    fn barrier(&self, group: &str, is_async: bool) -> Result<Issued> {
        let Some(member) = self.membership(group)? else {
            return Ok(NOT_A_MEMBER);
        };
        let work = member.group.barrier(member.barrier_device(), is_async)?;
        Ok(Issued::Call(work))
    }

    fn monitored_barrier(&self, group: &str) -> Result<Issued> {
        let Some(member) = self.membership(group)? else {
            return Ok(NOT_A_MEMBER);
        };
        if member.backend != "gloo" {
            return Err(Error::new(
                Kind::Value,
                "monitored_barrier is only implemented for GLOO backend.",
            ));
        }
        member.group.monitored_barrier(DEFAULT_TIMEOUT)?;
        Ok(Issued::Call(None))
    }

    /// All-reduces a sparse tensor of these values and indices, and writes the dense result to `output`.
    fn all_reduce_sparse(
        &self,
        group: &str,
        values: usize,
        indices: &[u64],
        output: usize,
        op: ReduceOp,
    ) -> Result<Issued> {
        let (values, mut output) = (
            self.tensor(values)?.shallow_clone(),
            self.tensor(output)?.shallow_clone(),
        );
        let indices: Vec<i64> = indices.iter().map(|index| *index as i64).collect();
        let indices = Tensor::f_from_slice(&indices)?
            .f_reshape([1, -1])?
            .f_to_device(values.device())?;
        let kind = values.f_kind()?;
        let sparse = Tensor::f_sparse_coo_tensor_indices_size(
            &indices,
            &values,
            output.size(),
            (kind, values.device()),
            false,
        )?;
        if let Some(member) = self.membership(group)? {
            let op = self.reduce_op(op);
            let all = [sparse.shallow_clone()];
            if let Some(work) = member.group.all_reduce(&all, &op, false)? {
                work.wait(None)?;
            }
        }
        output.f_copy_(&sparse.f_to_dense(None, false)?)?;
        Ok(Issued::Call(None))
    }
}

/// Returns the list of tensors of a root; `None` on another rank. Fails if it is missing there, or given on another rank.
fn lists<'a>(
    member: &Member,
    root: i64,
    given: &'a [Tensor],
    name: &str,
    end: &str,
) -> Result<Option<&'a [Tensor]>> {
    let is_root = root == i64::from(member.rank);
    match (is_root, given.is_empty()) {
        (true, false) => Ok(Some(given)),
        (false, true) => Ok(None),
        (true, true) => Err(Error::new(
            Kind::Value,
            format!("Argument ``{name}`` must be specified on {end} rank."),
        )),
        (false, false) => Err(Error::new(
            Kind::Value,
            format!("Argument ``{name}`` must NOT be specified on non-{end} ranks."),
        )),
    }
}
