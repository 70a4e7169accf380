//! Makes smaller checks from a large one. Only a trial shows whether they fail in the same way.

use std::sync::Arc;

use allranks_model::axes::{Extent, Layout};
use allranks_model::op_check::OpCheck;
use allranks_suite::plan::{Check, CheckKind, Script};

/// The numbers of elements to try, from the smallest. One element would hide bugs of strides, order and tails.
const SIZES: &[u64] = &[2, 3, 5, 8, 16, 17, 33, 67];

/// Returns the check with this number of elements; `None` if it has no such number, or cannot have this one. In a
/// script, the number is that of every op that has more.
#[must_use]
pub fn with_numel(check: &Check, numel: u64) -> Option<Check> {
    let kind = match &check.kind {
        CheckKind::Op(op) => CheckKind::Op(op_with_numel(op, numel)?),
        CheckKind::Script(script) => CheckKind::Script(Arc::new(script_with_numel(script, numel)?)),
        CheckKind::Program(_) | CheckKind::Stack(_) => return None,
    };
    Some(Check {
        kind,
        ..check.clone()
    })
}

fn script_with_numel(script: &Script, numel: u64) -> Option<Script> {
    let checks = script.checks.iter();
    let checks = checks.map(|own| match own.extent.numel() > numel {
        true => op_with_numel(own, numel).unwrap_or_else(|| own.clone()),
        false => own.clone(),
    });
    let smaller = Script {
        checks: checks.collect(),
        ..script.clone()
    };
    (smaller != *script).then_some(smaller)
}

fn op_with_numel(op: &OpCheck, numel: u64) -> Option<OpCheck> {
    let is_too_small = match op.layout {
        // Two rows and two columns.
        Layout::Transposed => numel < 4,
        // Two rows of eight.
        Layout::Expanded | Layout::ChannelsLast => numel < 16,
        Layout::Contiguous | Layout::Strided | Layout::Offset | Layout::Unaligned => false,
    };
    match op.extent {
        Extent::Flat(_) if op.op.has_tensors() && !is_too_small => Some(OpCheck {
            extent: Extent::Flat(numel),
            ..op.clone()
        }),
        Extent::Flat(_) | Extent::Scalar => None,
    }
}

/// Returns smaller checks like this check of an op, the smallest first; nothing for a script or a program.
pub fn smaller(check: &Check) -> impl Iterator<Item = Check> {
    let numel = check.op().map_or(0, |op| op.extent.numel());
    let sizes = SIZES.iter().copied().filter(move |size| *size < numel);
    sizes.filter_map(|size| with_numel(check, size))
}
