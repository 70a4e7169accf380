//! What is asked of a group after it refused a check: does it still work?

use allranks_model::axes::{
    Extent, Joined, Layout, LayoutOf, Mode, Placement, Splits, TensorKind, Values,
};
use allranks_model::capability::Declared;
use allranks_model::dtype::{DType, ReduceOp};
use allranks_model::op::Op;
use allranks_suite::plan::Check;

/// A small sum on the same group, after a refusal. A sum of one changes nothing, so it would not show whether it was made:
/// a group of one gathers.
pub fn probe(check: &Check) -> Check {
    let is_alone = check.group.ranks.len() == 1;
    Check {
        op: if is_alone {
            Op::AllGatherIntoTensor
        } else {
            Op::AllReduce
        },
        dtype: DType::Float32,
        reduce: (!is_alone).then_some(ReduceOp::Sum),
        extent: Extent::Flat(5),
        root: None,
        layout: Layout::Contiguous,
        layout_of: LayoutOf::All,
        tensor: TensorKind::Plain,
        joined: Joined::Cat,
        splits: Splits::Even,
        mode: Mode::Sync,
        placement: Placement::OutOfPlace,
        late: None,
        values: Values::Exact,
        declared: Declared::Supported,
        // Its own data: no other check has such a number.
        index: check.index | 1 << 31,
        ..check.clone()
    }
}

/// The probe that must follow a check: one that must be refused is not over before the group has worked again.
pub fn probe_after(check: &Check) -> Option<Check> {
    match check.declared {
        Declared::Supported => None,
        Declared::Unsupported(_) => Some(probe(check)),
    }
}
