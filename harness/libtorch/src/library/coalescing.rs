//! `_coalescing_manager`: calls that are gathered, then made as one.

use std::sync::PoisonError;

use allranks_protocol::Call;
use tch::Tensor;

use super::gathered::{GatheredCall, GatheredOp};
use super::groups::Member;
use super::{Library, Rank, Works};
use crate::c10d::{Error, Kind, ReduceOp, Result, Work};

impl Member {
    /// Gathers a call if a coalescing manager is open; otherwise returns it.
    pub fn gather_up(&self, recorded: GatheredCall) -> Option<GatheredCall> {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        match gathered.as_mut() {
            Some(calls) => {
                calls.push(recorded);
                None
            }
            None => Some(recorded),
        }
    }

    fn replace_gathered(&self, with: Option<Vec<GatheredCall>>) -> Option<Vec<GatheredCall>> {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *gathered, with)
    }
}

impl Library {
    /// Makes calls inside a coalescing manager. With `is_async`, the manager is what is waited for.
    pub(super) fn coalesced(
        &mut self,
        rank: &mut dyn Rank,
        group: &str,
        calls: &[Call],
        is_async: bool,
        index: usize,
    ) -> Result<()> {
        let Some(member) = self.groups.find(group)? else {
            // A call on a group without this rank does nothing, so there is nothing to wait for.
            self.works.insert(index, Works::default());
            return Ok(());
        };
        member.replace_gathered(Some(Vec::new()));
        let made = calls
            .iter()
            .try_for_each(|call| self.make(rank, call, index).map(drop));
        let gathered = member.replace_gathered(None).unwrap_or_default();
        made?;
        let work = self.make_gathered(&member, &gathered, is_async)?;
        if is_async {
            self.works.insert(index, Works::of(work));
        } else if let Some(work) = work {
            work.wait(None)?;
        }
        Ok(())
    }

    /// Makes the gathered calls by one function, which the first of them chooses, as in Python.
    fn make_gathered(
        &self,
        member: &Member,
        gathered: &[GatheredCall],
        is_async: bool,
    ) -> Result<Option<Work>> {
        let Some(first) = gathered.first() else {
            return Ok(None);
        };
        let inputs: Vec<Tensor> = gathered
            .iter()
            .map(|one| one.input.shallow_clone())
            .collect();
        let outputs = || {
            gathered
                .iter()
                .map(|one| one.output.as_ref().map(Tensor::shallow_clone))
                .collect::<Option<Vec<_>>>()
                .ok_or_else(|| Error::new(Kind::Runtime, "a gathered call has no output"))
        };
        let op = ReduceOp {
            op: first.op.unwrap_or(allranks_model::dtype::ReduceOp::Sum),
            ..self.reduce_op(allranks_model::dtype::ReduceOp::Sum)
        };
        let group = &member.group;
        match first.what {
            GatheredOp::AllReduce => group.all_reduce_coalesced(&inputs, &op, is_async),
            GatheredOp::AllGatherIntoTensor => {
                group.all_gather_into_tensor_coalesced(&outputs()?, &inputs)
            }
            GatheredOp::ReduceScatterTensor => {
                group.reduce_scatter_tensor_coalesced(&outputs()?, &inputs, &op, is_async)
            }
        }
    }
}
