//! Smaller checks in place of a large one. Whether they fail like it, only a trial can say.

use std::sync::Arc;

use allranks_model::axes::{Extent, Layout};
use allranks_suite::plan::{Check, Script};

/// Sizes to try, from the smallest. One element hides much: strides, order, the tail.
const SIZES: [u64; 8] = [2, 3, 5, 8, 16, 17, 33, 67];

/// The check with another number of elements; none if it has no such number, or cannot have that one. Of a script, every
/// op that has more.
#[must_use]
pub fn with_numel(check: &Check, numel: u64) -> Option<Check> {
    if let Some(script) = &check.script {
        let checks = script.checks.iter();
        let checks = checks.map(|own| match own.extent.numel() > numel {
            true => with_numel(own, numel).unwrap_or_else(|| own.clone()),
            false => own.clone(),
        });
        let smaller = Script {
            checks: checks.collect(),
            ..Script::clone(script)
        };
        return (smaller != **script).then(|| Check {
            script: Some(Arc::new(smaller)),
            ..check.clone()
        });
    }
    let is_too_small = match check.layout {
        // Two rows and two columns.
        Layout::Transposed => numel < 4,
        // Two rows of eight.
        Layout::Expanded | Layout::ChannelsLast => numel < 16,
        Layout::Contiguous | Layout::Strided | Layout::Offset | Layout::Unaligned => false,
    };
    match check.extent {
        Extent::Flat(_) if check.op.has_tensors() && !is_too_small => Some(Check {
            extent: Extent::Flat(numel),
            ..check.clone()
        }),
        Extent::Flat(_) | Extent::Scalar => None,
    }
}

/// Smaller checks like this one, the smallest first.
pub fn smaller(check: &Check) -> impl Iterator<Item = Check> {
    let numel = check.extent.numel();
    let sizes = SIZES.into_iter().filter(move |size| *size < numel);
    sizes.filter_map(|size| with_numel(check, size))
}
