//! The axes of an op's sweep: one table, and all that follows from it. The keys of a step in a case file, their schema, which
//! op takes which, the sweep, the fields of an [`OpCheck`], and what ids and records show of it.

use std::fmt::Write;

use crate::op::Op;
use crate::op_check::OpCheck;

/// Calls a macro with the table, a row for each axis, in the order in which sweeps combine axes and ids show them.
///
/// ```text
/// /// DOC                         the field of OpCheck that holds a point's value, and its type
/// FIELD: VALUE {
///     key: KEY, WRITTEN, DOC;     the key in case files and in records, and what it lists: VALUEs, or what stands for
///                                 them in a group of some size (see Written)
///     ops: OP -> BOOL;            the ops that take the key
///     neutral: OP -> VALUE;       the value of an op that does not take it, and of a step that does not give it
///     shown: SHOWN, IN_ID;        when ids and records show it, and how ids do (see Shown and InId)
///     text: CHECK -> TEXT;        a point's value as they show it; none: not at all
/// }
/// ```
///
/// A macro that is called with it names the columns that it needs, and takes the others as `$($rest:tt)*`.
#[macro_export]
macro_rules! for_each_axis {
    ($apply:ident) => {
        $apply! {
            /// Element type; object collectives and barriers have no use for it.
            dtype: $crate::dtype::DType {
                key: dtype, $crate::dtype::DType, "Element types of the tensors: `[float32, int8]`. Absent: `float32`.";
                ops: Op::has_tensors;
                neutral: $crate::op_check::OpCheck::neutral_dtype;
                shown: Always, Value;
                text: |check| Some(check.dtype.to_string());
            }
            /// Reduce operator, for ops that reduce.
            reduce: Option<$crate::dtype::ReduceOp> {
                key: op, $crate::dtype::ReduceOp, "Reduce operators: `[sum, max]`. Absent: `sum`.";
                ops: Op::reduces;
                neutral: |op| op.reduces().then_some($crate::dtype::ReduceOp::Sum);
                shown: Always, Value;
                text: |check| check.reduce.map(|reduce| reduce.to_string());
            }
            /// Size of one rank's contribution.
            extent: $crate::axes::Extent {
                key: numel, $crate::written::Numel, "Numbers of elements of one rank's contribution: `[0, 1, \"3..9\", scalar]`. Absent: 33.";
                ops: Op::has_tensors;
                neutral: |_| $crate::axes::Extent::Flat(33);
                shown: Always, Value;
                text: |check| Some(check.extent.to_string());
            }
            /// Root, for ops that have one.
            root: Option<$crate::axes::Root> {
                key: root, $crate::written::RootSpec, "Roots, as group ranks: `[0, last]`. Absent: 0.";
                ops: Op::has_root;
                neutral: |op| op.has_root().then_some($crate::axes::Root::FIRST);
                shown: Always, KeyAndValue;
                text: |check| check.root.map(|root| root.group_rank.to_string());
            }
            /// How peers are named in point-to-point ops. The root has its own.
            peer_by: $crate::axes::RootBy {
                key: by, $crate::axes::RootBy, "How the call names the root or the peer.";
                ops: |op| op.has_root() || op.has_pairs();
                neutral: |_| $crate::axes::RootBy::Global;
                shown: IfGiven, Value;
                text: |check| Some(format!("by_{}", word(check.peer_by)));
            }
            /// How tensors lie in their storages.
            layout: $crate::axes::Layout {
                key: layout, $crate::axes::Layout, "How tensors lie in their storages. Absent: `contiguous`.";
                ops: Op::has_dense_tensors;
                neutral: |_| $crate::axes::Layout::Contiguous;
                shown: IfGiven, Value;
                text: |check| Some(word(check.layout).to_owned());
            }
            /// Which tensors have the layout; the others are contiguous.
            layout_of: $crate::axes::LayoutOf {
                key: layout_of, $crate::axes::LayoutOf, "Which tensors have the layout; the others are contiguous.";
                ops: Op::has_dense_tensors;
                neutral: |_| $crate::axes::LayoutOf::All;
                shown: IfGiven, Value;
                text: |check| Some(format!("of_{}", word(check.layout_of)));
            }
            /// What kind of tensors they are to torch.
            tensor: $crate::axes::TensorKind {
                key: tensor, $crate::axes::TensorKind, "What kind of tensors they are to torch. Absent: `plain`.";
                ops: Op::has_dense_tensors;
                neutral: |_| $crate::axes::TensorKind::Plain;
                shown: IfGiven, Value;
                text: |check| Some(word(check.tensor).to_owned());
            }
            /// For ops with one tensor for all ranks' contributions: its shape.
            joined: $crate::axes::Joined {
                key: joined, $crate::axes::Joined, "The shape of a tensor that holds all ranks' contributions.";
                ops: |op| matches!(op, Op::AllGatherIntoTensor | Op::ReduceScatterTensor);
                neutral: |_| $crate::axes::Joined::Cat;
                shown: IfGiven, Value;
                text: |check| Some(word(check.joined).to_owned());
            }
            /// Sync or async.
            mode: $crate::axes::Mode {
                key: mode, $crate::axes::Mode, "Whether the call is made with `async_op=True`. Absent: `sync`.";
                ops: |op| op == Op::Barrier || (op.has_dense_tensors() && !op.has_pairs());
                neutral: |_| $crate::axes::Mode::Sync;
                shown: IfGiven, Value;
                text: |check| Some(word(check.mode).to_owned());
            }
            /// Whether input and output share memory.
            placement: $crate::axes::Placement {
                key: placement, $crate::axes::Placement, "Whether input and output share memory. Absent: `out_of_place`.";
                ops: Op::has_input_and_output;
                neutral: |_| $crate::axes::Placement::OutOfPlace;
                shown: IfGiven, Value;
                text: |check| Some(word(check.placement).to_owned());
            }
            /// For `reduce`: what is asked of the buffers of ranks that receive nothing.
            non_root: $crate::axes::NonRoot {
                key: non_root, $crate::axes::NonRoot, "What is asked of `reduce`'s buffers on the ranks that receive nothing.";
                ops: |op| op == Op::Reduce;
                neutral: |_| $crate::axes::NonRoot::Unspecified;
                shown: IfGiven, Value;
                text: |check| Some(format!("non_root_{}", word(check.non_root)));
            }
            /// For all_to_all, and ops on lists: the sizes of slices.
            splits: $crate::axes::Splits {
                key: splits, $crate::written::SplitsSpec, "Split sizes of `all_to_all_single`; sizes of the tensors in lists.";
                ops: Op::has_slices;
                neutral: |_| $crate::axes::Splits::Even;
                shown: IfGiven, Value;
                text: |check| Some(check.splits.word().to_owned());
            }
            /// For point-to-point ops: which rank sends to which.
            pairs: $crate::axes::Pairs {
                key: pairs, $crate::axes::Pairs, "Which ranks send to which. Absent: `ring`.";
                ops: Op::has_pairs;
                neutral: |_| $crate::axes::Pairs::Ring;
                shown: Always, Value;
                text: |check| Some(word(check.pairs).to_owned());
            }
            /// Number of tensors (coalesced ops) or of messages for each pair (point-to-point).
            count: u32 {
                key: count, u32, "Numbers of tensors in a coalesced op, or of messages for each pair, 1 to 10000.";
                ops: |op| op.has_pairs() || op.is_coalesced();
                neutral: $crate::op_check::OpCheck::neutral_count;
                shown: IfGiven, KeyAndValue;
                text: |check| Some(check.count.to_string());
            }
            /// Message tag (point-to-point).
            tag: u32 {
                key: tag, u32, "Tags of the messages: `[0, 7]`.";
                ops: Op::has_pairs;
                neutral: |_| 0;
                shown: IfGiven, KeyAndValue;
                text: |check| Some(check.tag.to_string());
            }
            /// For object collectives: the kind of object.
            object: $crate::axes::ObjectKind {
                key: object, $crate::axes::ObjectKind, "Kinds of Python objects, for object collectives.";
                ops: Op::has_objects;
                neutral: |_| $crate::axes::ObjectKind::Small;
                shown: Always, Value;
                text: |check| Some(word(check.object).to_owned());
            }
            /// What values its tensors hold.
            values: $crate::axes::Values {
                key: values, $crate::axes::Values, "What values the tensors hold.";
                ops: Op::has_dense_tensors;
                neutral: |_| $crate::axes::Values::Exact;
                shown: IfGiven, Value;
                text: |check| Some(word(check.values).to_owned());
            }
            /// What `premul_sum` multiplies by.
            factor: $crate::axes::Factor {
                key: factor, $crate::axes::Factor, "What `premul_sum` multiplies by.";
                ops: |op| op.reduces() && op.has_dense_tensors();
                neutral: |_| $crate::axes::Factor::Scalar;
                shown: IfGiven, KeyAndValue;
                text: |check| Some(word(check.factor).to_owned());
            }
        }
    };
}

/// One row of the table, without its types.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// The key in case files, and the name of the parameter in records.
    pub key: &'static str,
    /// Whether an op takes it.
    pub is_of: fn(Op) -> bool,
    /// When ids and records show it.
    pub shown: Shown,
    /// How ids show it.
    pub in_id: InId,
    /// A point's value as ids and records show it; none if they do not.
    pub text: fn(&OpCheck) -> Option<String>,
}

/// When ids and records show an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Of every op that takes it: it is part of what the check is.
    Always,
    /// If the step gives it.
    IfGiven,
}

/// How an id shows the value of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InId {
    /// `float32`.
    Value,
    /// `tag-3`: a value that says nothing by itself.
    KeyAndValue,
}

/// Makes [`AXES`].
macro_rules! descriptors {
    ($($(#[$about:meta])* $field:ident: $value:ty {
        key: $key:ident, $written:ty, $described:literal;
        ops: $ops:expr;
        neutral: $neutral:expr;
        shown: $shown:ident, $in_id:ident;
        text: $text:expr;
    })*) => {
        /// Every axis, in the order of the table.
        pub const AXES: &[Axis] = &[$(Axis {
            key: stringify!($key),
            is_of: $ops,
            shown: Shown::$shown,
            in_id: InId::$in_id,
            text: $text,
        }),*];
    };
}

for_each_axis!(descriptors);

/// Returns the name of a unit variant in files.
fn word(value: impl Into<&'static str>) -> &'static str {
    value.into()
}

impl Axis {
    /// Returns true if ids and records show it of a check; `is_given`: whether its step gives it.
    #[must_use]
    pub fn is_shown(&self, op: Op, is_given: bool) -> bool {
        match self.shown {
            Shown::Always => (self.is_of)(op),
            Shown::IfGiven => is_given,
        }
    }

    /// Appends a value to an id.
    pub fn add_to_id(&self, id: &mut String, text: &str) {
        let _ = match self.in_id {
            InId::Value => write!(id, ".{text}"),
            InId::KeyAndValue => write!(id, ".{}-{text}", self.key),
        };
    }
}

/// The keys of a step that every op takes and that are no axes.
const EVERY: &[&str] = &["group", "sweep", "covers", "profile"];

impl Op {
    /// Returns true if a key of a step means something to it.
    #[must_use]
    pub fn takes(self, key: &str) -> bool {
        let mut axes = AXES.iter();
        EVERY.contains(&key) || axes.any(|axis| axis.key == key && (axis.is_of)(self))
    }

    /// Returns every key that it takes, those of every op first.
    #[must_use]
    pub fn keys(self) -> Vec<&'static str> {
        let axes = AXES.iter().filter(|axis| (axis.is_of)(self));
        EVERY
            .iter()
            .copied()
            .chain(axes.map(|axis| axis.key))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_axis_is_of_some_op_and_has_a_name_of_its_own() {
        let keys: BTreeSet<&str> = AXES.iter().map(|axis| axis.key).collect();
        assert_eq!(keys.len(), AXES.len());
        for axis in AXES {
            let takes = |op: &&Op| op.takes(axis.key);
            assert!(Op::ALL.iter().any(|op| takes(&op)), "{}", axis.key);
            assert!(!EVERY.contains(&axis.key), "{}", axis.key);
        }
    }
}
