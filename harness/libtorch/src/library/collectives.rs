//! Collectives on tensors.

use std::time::Duration;

use allranks_model::dtype;
use allranks_protocol::Call;
use tch::Tensor;

use super::Library;
use super::gathered::{GatheredCall, GatheredOp};
use super::groups::{Member, group_rank};
use crate::c10d::{Error, Kind, Result};

/// The timeout of a `monitored_barrier` that is given none: `default_pg_timeout` of c10d.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30 * 60);

impl Library {
    /// Makes one collective. A rank that is no member of the group does nothing, as in Python, which warns.
    pub(super) fn collective(&mut self, call: &Call, index: usize) -> Result<()> {
        match call {
            Call::AllReduce {
                group,
                tensor,
                op,
                async_op,
            } => {
                let Some(member) = self.place(group)? else {
                    return self.finish(index, *async_op, None);
                };
                self.complex_allowed("all_reduce", *op, &[*tensor])?;
                let recorded = GatheredCall {
                    what: GatheredOp::AllReduce,
                    input: self.real(*tensor)?,
                    output: None,
                    op: Some(*op),
                };
                let Some(recorded) = member.gather_up(recorded) else {
                    return Ok(());
                };
                let op = self.reduce_op(*op);
                let work = member.group.all_reduce(&[recorded.input], &op, *async_op)?;
                self.finish(index, *async_op, work)
            }
            Call::AllReduceCoalesced {
                group,
                tensors,
                op,
                async_op,
            } => {
                self.same_dtype(tensors)?;
                let Some(member) = self.place(group)? else {
                    return self.finish(index, *async_op, None);
                };
                self.complex_allowed("all_reduce", *op, tensors)?;
                let all = self.reals(tensors)?;
                let op = self.reduce_op(*op);
                let work = member.group.all_reduce_coalesced(&all, &op, *async_op)?;
                self.finish(index, *async_op, work)
            }
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
                async_op,
            } => {
                let place = self.place(group)?;
                let root = group_rank(&place, *root)?;
                let Some(member) = place else {
                    return self.finish(index, *async_op, None);
                };
                let work = member
                    .group
                    .broadcast(&self.real(*tensor)?, root, *async_op)?;
                self.finish(index, *async_op, work)
            }
            Call::Reduce {
                group,
                tensor,
                op,
                root,
                async_op,
            } => {
                let place = self.place(group)?;
                let root = group_rank(&place, *root)?;
                let Some(member) = place else {
                    return self.finish(index, *async_op, None);
                };
                let op = self.reduce_op(*op);
                let tensor = self.tensor(*tensor)?;
                let work = member.group.reduce(tensor, &op, root, *async_op)?;
                self.finish(index, *async_op, work)
            }
            Call::AllGather {
                group,
                outputs,
                input,
                async_op,
            } => {
                self.same_dtype(outputs.iter().chain([input]))?;
                let Some(member) = self.place(group)? else {
                    return self.finish(index, *async_op, None);
                };
                let (to, from) = (self.reals(outputs)?, self.real(*input)?);
                let work = member.group.all_gather(&to, &from, *async_op)?;
                self.finish(index, *async_op, work)
            }
            Call::AllGatherCoalesced {
                group,
                outputs,
                inputs,
                async_op,
            } => {
                let Some(member) = self.place(group)? else {
                    return self.finish(index, *async_op, None);
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
                let work = member.group.all_gather_coalesced(&to, &from, *async_op)?;
                self.finish(index, *async_op, work)
            }
            Call::AllGatherIntoTensor {
                group,
                output,
                input,
                async_op,
            } => {
                let Some(member) = self.place(group)? else {
                    return self.finish(index, *async_op, None);
                };
                let recorded = GatheredCall {
                    what: GatheredOp::AllGatherIntoTensor,
                    input: self.real(*input)?,
                    output: Some(self.real(*output)?),
                    op: None,
                };
                let Some(GatheredCall { input, output, .. }) = member.gather_up(recorded) else {
                    return Ok(());
                };
                let output = output.unwrap_or_default();
                let work = member
                    .group
                    .all_gather_into_tensor(&output, &input, *async_op)?;
                self.finish(index, *async_op, work)
            }
            Call::Gather {
                group,
                input,
                outputs,
                root,
                async_op,
            } => {
                let outputs = outputs.as_deref().unwrap_or_default();
                self.same_dtype([input].into_iter().chain(outputs))?;
                let place = self.place(group)?;
                let Some(member) = &place else {
                    return self.finish(index, *async_op, None);
                };
                let root = member.group_rank(*root)?;
                let to = self.pick(outputs)?;
                let to = lists(member, root, &to, "gather_list", "destination")?;
                let input = self.tensor(*input)?;
                let work = member.group.gather(input, to, root, *async_op)?;
                self.finish(index, *async_op, work)
            }
            Call::Scatter {
                group,
                output,
                inputs,
                root,
                async_op,
            } => {
                let inputs = inputs.as_deref().unwrap_or_default();
                self.same_dtype([output].into_iter().chain(inputs))?;
                let place = self.place(group)?;
                let root = group_rank(&place, *root)?;
                let Some(member) = place else {
                    return self.finish(index, *async_op, None);
                };
                let from = self.reals(inputs)?;
                let from = lists(&member, root, &from, "scatter_list", "source")?;
                let output = self.real(*output)?;
                let work = member.group.scatter(&output, from, root, *async_op)?;
                self.finish(index, *async_op, work)
            }
            Call::ReduceScatter {
                group,
                output,
                inputs,
                op,
                async_op,
            } => {
                self.same_dtype([output].into_iter().chain(inputs))?;
                let Some(member) = self.place(group)? else {
                    return self.finish(index, *async_op, None);
                };
                let from = self.pick(inputs)?;
                let op = self.reduce_op(*op);
                let output = self.tensor(*output)?;
                let work = member.group.reduce_scatter(output, &from, &op, *async_op)?;
                self.finish(index, *async_op, work)
            }
            Call::ReduceScatterTensor {
                group,
                output,
                input,
                op,
                async_op,
            } => {
                let Some(member) = self.place(group)? else {
                    return self.finish(index, *async_op, None);
                };
                let recorded = GatheredCall {
                    what: GatheredOp::ReduceScatterTensor,
                    input: self.tensor(*input)?.shallow_clone(),
                    output: Some(self.tensor(*output)?.shallow_clone()),
                    op: Some(*op),
                };
                let Some(GatheredCall { input, output, .. }) = member.gather_up(recorded) else {
                    return Ok(());
                };
                let op = self.reduce_op(*op);
                let output = output.unwrap_or_default();
                let work = member
                    .group
                    .reduce_scatter_tensor(&output, &input, &op, *async_op)?;
                self.finish(index, *async_op, work)
            }
            Call::AllToAll {
                group,
                outputs,
                inputs,
                async_op,
            } => {
                let Some(member) = self.place(group)? else {
                    return self.finish(index, *async_op, None);
                };
                self.same_dtype(outputs.iter().chain(inputs))?;
                let (to, from) = (self.reals(outputs)?, self.reals(inputs)?);
                let work = member.group.all_to_all(&to, &from, *async_op)?;
                self.finish(index, *async_op, work)
            }
            Call::AllToAllSingle {
                group,
                output,
                input,
                output_splits,
                input_splits,
                async_op,
            } => {
                let Some(member) = self.place(group)? else {
                    return self.finish(index, *async_op, None);
                };
                self.same_dtype([output, input])?;
                let splits = |given: &Option<Vec<u64>>| -> Vec<i64> {
                    let given = given.as_deref().unwrap_or_default();
                    given.iter().map(|length| *length as i64).collect()
                };
                let work = member.group.all_to_all_single(
                    &self.real(*output)?,
                    &self.real(*input)?,
                    &splits(output_splits),
                    &splits(input_splits),
                    *async_op,
                )?;
                self.finish(index, *async_op, work)
            }
            Call::Barrier { group, async_op } => {
                let Some(member) = self.place(group)? else {
                    return self.finish(index, *async_op, None);
                };
                let work = member.group.barrier(member.barrier_device(), *async_op)?;
                self.finish(index, *async_op, work)
            }
            Call::MonitoredBarrier { group } => {
                let Some(member) = self.place(group)? else {
                    return Ok(());
                };
                if member.backend != "gloo" {
                    return Err(Error::new(
                        Kind::Value,
                        "monitored_barrier is only implemented for GLOO backend.",
                    ));
                }
                member.group.monitored_barrier(DEFAULT_TIMEOUT)
            }
            _ => Err(Error::new(
                Kind::NotImplemented,
                format!("`{}` is no collective", call.name()),
            )),
        }
    }

    fn all_reduce_sparse(
        &mut self,
        group: &str,
        values: usize,
        indices: &[u64],
        output: usize,
        op: dtype::ReduceOp,
    ) -> Result<()> {
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
        if let Some(member) = self.place(group)? {
            let op = self.reduce_op(op);
            let all = [sparse.shallow_clone()];
            if let Some(work) = member.group.all_reduce(&all, &op, false)? {
                work.wait(None)?;
            }
        }
        Ok(output.f_copy_(&sparse.f_to_dense(None, false)?)?)
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
