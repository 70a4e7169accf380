//! One point of an op's sweep: whether it has a meaning, and what the platform declares of it.

use std::sync::Arc;

use super::axes::Axes;
use super::context::ScenarioContext;
use crate::case::SweepSpec;
use allranks_model::axes::{
    Extent, Factor, Joined, Layout, LayoutOf, Pairs, Placement, Splits, TensorKind,
};
use allranks_model::capability::Declared;
use allranks_model::dtype::{DTypeKind, ReduceOp};
use allranks_model::group::Group;
use allranks_model::op::Op;
use allranks_model::op_check::OpCheck;

/// Returns the first point of a step's sweep, and whether the platform file declares it.
///
/// # Errors
///
/// The reason why it is left out: a list with several values, a point that is not meaningful.
pub(super) fn single(
    place: &ScenarioContext<'_>,
    step: &SweepSpec,
    group: &Arc<Group>,
    index: u32,
) -> Result<(OpCheck, Declared), String> {
    let axes = Axes::new(step, group, place.backend.promises);
    let lengths = axes.lengths();
    if lengths.iter().any(|length| *length > 1) && step.op.has_tensors() {
        return Err("a move has one value for each parameter".to_owned());
    }
    let point = vec![0; lengths.len()];
    let mut check = axes.check(&point, index);
    if step.op.is_barrier() {
        // The script says which rank is late.
        check.late = None;
    }
    if let Some(reason) = unsupported_reason(&check, place.platform.is_on_device()) {
        return Err(reason);
    }
    let declared = declared(place, &check);
    Ok((check, declared))
}

/// Returns whether the platform file declares a check. What no backend can do must be refused, whatever is declared.
pub(super) fn declared(place: &ScenarioContext<'_>, check: &OpCheck) -> Declared {
    if check.layout == Layout::Expanded && check.layout_of != LayoutOf::Input {
        let reason = "an output whose elements share memory can hold no result";
        return Declared::Unsupported(reason.to_owned());
    }
    place.backend.declares(check)
}

/// Returns why a point of a sweep is left out: it has no defined result, there is no such tensor, or it equals another
/// point. `None` if it is checked. `is_on_device`: the platform's tensors lie on a device.
pub(super) fn unsupported_reason(check: &OpCheck, is_on_device: bool) -> Option<String> {
    if let Some(reduce) = check.reduce
        && !reduce.is_defined_for(check.dtype)
    {
        return Some(format!("{reduce} is not defined on {}", check.dtype));
    }
    if check.factor != Factor::Scalar && check.reduce != Some(ReduceOp::PremulSum) {
        return Some("only premul_sum has a factor".to_owned());
    }
    if let Some(reason) = check.values.are_undefined(check.dtype, check.reduce) {
        return Some(reason);
    }
    if check.is_large() {
        let made = matches!(
            check.op,
            Op::AllReduce | Op::Broadcast | Op::AllGatherIntoTensor | Op::SendRecv
        );
        let plain = check.layout == Layout::Contiguous
            && check.tensor == TensorKind::Plain
            && check.joined == Joined::Cat
            && check.placement == Placement::OutOfPlace;
        if !made || !plain {
            return Some("tensors that large are made for the plain forms of few ops".to_owned());
        }
    }
    if check.op == Op::AllReduceSparse && check.reduce != Some(ReduceOp::Sum) {
        return Some("what is left out of a sparse tensor counts in sums only".to_owned());
    }
    if let Some(reason) = no_such_layout(check) {
        return Some(reason.to_owned());
    }
    match check.tensor {
        TensorKind::RequiresGrad
            if !matches!(check.dtype.kind(), DTypeKind::Float | DTypeKind::Complex) =>
        {
            return Some("only floats and complex numbers have gradients".to_owned());
        }
        TensorKind::Pinned if !is_on_device => {
            return Some("only a platform with a device has pinned memory".to_owned());
        }
        _ => {}
    }
    if check.op.has_pairs() && check.group.size() < 2 {
        match check.pairs {
            Pairs::Ring => return Some("a ring needs two ranks".to_owned()),
            Pairs::All => return Some("a pair needs two ranks".to_owned()),
            Pairs::Own | Pairs::Link { .. } => {}
        }
    }
    None
}

/// Returns why a layout does not exist for the check's tensors, or equals that of another point; `None` if it is one
/// of its own.
fn no_such_layout(check: &OpCheck) -> Option<&'static str> {
    if check.op.takes("splits") && check.extent == Extent::Scalar && check.splits != Splits::Even {
        return Some("0-dim tensors are of one size");
    }
    if check.layout == Layout::Contiguous {
        return (check.layout_of != LayoutOf::All).then_some("contiguous is the other layout");
    }
    if check.extent == Extent::Scalar {
        return Some("a 0-dim tensor has one layout only");
    }
    let numel = check.extent.numel();
    let one_sided_output = check.op == Op::Gather && check.layout_of != LayoutOf::Input;
    match check.layout {
        Layout::Contiguous | Layout::Strided | Layout::Offset => {}
        Layout::Transposed if numel < 4 => {
            return Some("a transposed tensor needs two rows and two columns");
        }
        Layout::ChannelsLast if numel < 16 => return Some("channels-last takes two images"),
        Layout::Expanded if numel < 16 => return Some("an expanded tensor needs two rows"),
        Layout::Expanded if check.layout_of == LayoutOf::OddRanks => {
            return Some("what some ranks cannot hold the others cannot refuse");
        }
        // Only the root has outputs.
        Layout::Expanded if one_sided_output => {
            return Some("what some ranks cannot hold the others cannot refuse");
        }
        Layout::Expanded if check.placement == Placement::InPlace => {
            return Some("in place, an expanded tensor is an output");
        }
        Layout::Unaligned if check.dtype.size() >= 16 => {
            return Some("elements of 16 bytes are always aligned");
        }
        Layout::Transposed | Layout::ChannelsLast | Layout::Expanded | Layout::Unaligned => {}
    }
    let read_and_written = matches!(
        check.op,
        Op::AllReduce
            | Op::AllReduceCoalesced
            | Op::CoalescedAllReduce
            | Op::Broadcast
            | Op::Reduce
    );
    match check.layout_of {
        LayoutOf::All => None,
        LayoutOf::OddRanks => {
            (check.group.size() < 2).then_some("there is no odd rank in a group of one")
        }
        LayoutOf::Input | LayoutOf::Output => {
            read_and_written.then_some("its one tensor is both input and output")
        }
    }
}
