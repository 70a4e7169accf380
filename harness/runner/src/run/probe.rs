//! What is asked of a group after it refused a check: does it still work?

use allranks_model::axes::{
    Extent, Joined, Layout, LayoutOf, Mode, Placement, Splits, TensorKind, Values,
};
use allranks_model::capability::Declared;
use allranks_model::dtype::{DType, ReduceOp};
use allranks_model::op::Op;
use allranks_model::op_check::OpCheck;
use allranks_suite::plan::{Check, CheckKind};

/// A small sum on the same group, after a refusal of an op. A sum of one changes nothing, so it would not show whether it was
/// made: a group of one gathers.
fn probe(check: &Check, refused: &OpCheck) -> Check {
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
            // Its own data: no other check has such a number.
            index: refused.index | 1 << 31,
            ..refused.clone()
        }),
        ..check.clone()
    }
}

/// The probe that must follow a check: one that must be refused is not over before the group has worked again.
pub fn probe_after(check: &Check) -> Option<Check> {
    match check.declared {
        Declared::Supported => None,
        Declared::Unsupported(_) => check.op().map(|refused| probe(check, refused)),
    }
}
