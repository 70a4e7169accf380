//! The wrong elements of tensors on one rank, and the changed bytes outside them.

use super::comparison::ElementRef;

/// Bytes outside a tensor that are not as they were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Damage {
    /// The number of bytes before the tensor's first element.
    pub before: usize,
    /// The number of bytes after its last element.
    pub after: usize,
    /// The number of bytes between its elements.
    pub between: usize,
    /// The first one: its position in the storage, what it must be, what it is.
    pub first: Option<(usize, u8, u8)>,
}

/// What is wrong on a rank.
#[derive(Clone, Debug, Default)]
pub(super) struct Wrong<'a> {
    /// The wrong elements.
    pub elements: Vec<ElementRef<'a>>,
    /// The wrong bytes outside tensors.
    pub damage: Damage,
}

impl Wrong<'_> {
    /// Returns true if nothing is wrong.
    pub(super) fn is_empty(&self) -> bool {
        self.elements.is_empty() && self.damage.first.is_none()
    }
}
