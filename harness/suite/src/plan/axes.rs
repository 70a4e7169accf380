//! Turns a step's lists into the values of every axis for one group, and makes the check at each point of them.

use std::sync::Arc;

use crate::case::{OneOrMany, SweepSpec};
use allranks_model::capability::Promises;
use allranks_model::group::Group;
use allranks_model::op::Op;
use allranks_model::op_check::OpCheck;
use allranks_model::written::Written;

/// Defines [`Axes`] from the table of axes.
macro_rules! axes {
    ($($(#[$about:meta])* $field:ident: $value:ty {
        key: $key:ident, $($rest:tt)*
    })*) => {
        /// The values of every axis of one step in one group. An axis that the step does not give has its neutral
        /// value alone.
        pub(super) struct Axes {
            /// A check with the neutral value of every axis.
            neutral: OpCheck,
            $($field: Vec<$value>,)*
            late: Vec<Option<u32>>,
        }

        impl Axes {
            /// Computes the values that the lists of a step stand for in this group.
            pub fn new(step: &SweepSpec, group: &Arc<Group>, promises: Promises) -> Self {
                let op = step.op;
                let size = group.size() as u32;
                let neutral = OpCheck {
                    promises,
                    ..OpCheck::new(0, op, Arc::clone(group))
                };
                let late = match op.is_barrier() {
                    true => (0..size).map(Some).collect(),
                    false => vec![None],
                };
                Self {
                    $($field: values(step.params.$key.as_ref(), &neutral.$field, op, size),)*
                    late,
                    neutral,
                }
            }

            /// Returns the number of values of each axis, in the order of the table; the rank that is late is the last
            /// axis.
            pub fn lengths(&self) -> Vec<usize> {
                vec![$(self.$field.len(),)* self.late.len()]
            }

            /// Returns the check at a point: the place of a value for each of [`lengths`](Self::lengths).
            ///
            /// # Panics
            ///
            /// The point has fewer places.
            pub fn check(&self, point: &[usize], index: u32) -> OpCheck {
                let mut check = OpCheck {
                    index,
                    ..self.neutral.clone()
                };
                let mut places = point.iter().copied();
                let mut place = || places.next().expect("one entry for each axis");
                $(check.$field.clone_from(&self.$field[place()]);)*
                check.late = self.late[place()];
                if let Some(root) = &mut check.root {
                    root.by = check.peer_by;
                }
                check
            }
        }
    };
}

allranks_model::for_each_axis!(axes);

/// Returns the values that a list stands for; without a list, the neutral value.
fn values<Value: Clone, W: Written<Value>>(
    given: Option<&OneOrMany<W>>,
    neutral: &Value,
    op: Op,
    group_size: u32,
) -> Vec<Value> {
    given.map_or_else(
        || vec![neutral.clone()],
        |list| W::values(list.as_slice(), op, group_size),
    )
}
