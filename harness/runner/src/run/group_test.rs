//! The group test: a small collective that shows whether a group works. It is made before the first check on a group that must be
//! refused, and after each such check.

use allranks_model::axes::{
    Extent, Joined, Layout, LayoutOf, Mode, Placement, Splits, TensorKind, Values,
};
use allranks_model::capability::Declared;
use allranks_model::dtype::{DType, ReduceOp};
use allranks_model::op::Op;
use allranks_model::op_check::OpCheck;
use allranks_suite::plan::{Check, CheckKind};

/// Bits in the indices of group tests, so that their input data differ from those of all checks.
const AFTER: u32 = 1 << 31;
const BEFORE: u32 = 1 << 30;

/// Returns a small all_reduce on the group of the refused op. In a group of one rank it is an all_gather instead: a sum
/// over one rank changes nothing, so it would not show that the call was made.
fn group_test(check: &Check, refused: &OpCheck, apart: u32) -> Check {
    let is_alone = refused.group.ranks.len() == 1;
    Check {
        declared: Declared::Supported,
        kind: CheckKind::Op(OpCheck {
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
            index: refused.index | apart,
            ..refused.clone()
        }),
        ..check.clone()
    }
}

/// Returns the group test after a check that is declared unsupported; none for a supported one. Such a check is over
/// only when the group has worked again.
pub fn group_test_after(check: &Check) -> Option<Check> {
    match check.declared {
        Declared::Supported => None,
        Declared::Unsupported(_) => check.op().map(|refused| group_test(check, refused, AFTER)),
    }
}

/// Returns the group test before a check that is declared unsupported; none for a supported one. It is made once for each
/// group of a world: a group in which it fails was not broken by a refusal.
pub fn group_test_before(check: &Check) -> Option<Check> {
    match check.declared {
        Declared::Supported => None,
        Declared::Unsupported(_) => check.op().map(|refused| group_test(check, refused, BEFORE)),
    }
}
