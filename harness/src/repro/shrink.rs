//! Smaller checks in place of a large one. Whether they fail like it, only a trial can say.

use crate::plan::{Check, Extent, Layout};

/// Sizes to try, from the smallest. One element hides much: strides, order, the tail.
const SIZES: [u64; 8] = [2, 3, 5, 8, 16, 17, 33, 67];

/// The check with another number of elements; none if it has no such number, or cannot have that one.
#[must_use]
pub fn with_numel(check: &Check, numel: u64) -> Option<Check> {
    let is_too_small = match check.layout {
        // Two rows and two columns.
        Layout::Transposed => numel < 4,
        // Two rows of eight.
        Layout::Expanded | Layout::ChannelsLast => numel < 16,
        Layout::Contiguous | Layout::Strided | Layout::Offset | Layout::Unaligned => false,
    };
    match check.extent {
        Extent::Flat(_) if check.op.has_tensors() && check.script.is_none() && !is_too_small => Some(Check {
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
