//! Compares random numbers that ranks drew. Their values are not known, only which ranks must have drawn the same numbers and
//! which different ones.

use std::collections::BTreeMap;

use super::bytes::Placed;
use super::class::StackClass;
use crate::{RankReply, RankStep};

/// What is wrong with the random numbers of a tensor.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WrongDraw {
    /// What it looks like.
    pub class: StackClass,
    /// The tensor's name.
    pub name: String,
}

/// Returns what is wrong with the first tensor whose random numbers differ on ranks that must have the same ones, or agree on
/// ranks that must have different ones; `None` if no tensor is wrong.
pub(super) fn wrong(
    ranks: &[Vec<Placed>],
    steps: &[RankStep],
    replies: &[RankReply],
) -> Option<WrongDraw> {
    let mut by_number: BTreeMap<(&str, u32), &[u8]> = BTreeMap::new();
    let mut by_bytes: BTreeMap<(&str, &[u8]), u32> = BTreeMap::new();
    for ((tensors, step), reply) in ranks.iter().zip(steps).zip(replies) {
        for placed in tensors {
            let (name, Some(number)) = (placed.entry.name.as_str(), placed.entry.drawn) else {
                continue;
            };
            let got = &reply.payload[placed.range.clone()];
            let is_untouched = step.payload[placed.range.clone()] == *got;
            let same = *by_number.entry((name, number)).or_insert(got);
            let owner = *by_bytes.entry((name, got)).or_insert(number);
            let class = match () {
                () if is_untouched => StackClass::StaleSentinel,
                () if same != got => StackClass::ReplicasDiffer,
                () if owner != number => StackClass::ShardsAlike,
                () => continue,
            };
            let name = name.to_owned();
            return Some(WrongDraw { class, name });
        }
    }
    None
}
