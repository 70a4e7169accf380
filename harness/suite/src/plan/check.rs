//! A check: one assertion inside a scenario. Plain data, complete in itself: the oracle and the judge need nothing else from
//! the case.

use std::slice;
use std::sync::Arc;

use super::{ProgramCheck, Script};
use allranks_model::capability::Declared;
use allranks_model::group::Group;
use allranks_model::names::{CheckId, RequirementId};
use allranks_model::op_check::OpCheck;
use allranks_model::stack::StackCheck;

/// One assertion: an op at one point of its step's sweep, a script, or one thing that is asked of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// Unique in the run.
    pub id: CheckId,
    /// Position in the scenario as it was planned, from 0; what a filter leaves out leaves gaps.
    pub index: u32,
    /// The group whose ranks take part: that of the op, or the world.
    pub group: Arc<Group>,
    /// The requirements it covers.
    pub covers: Arc<[RequirementId]>,
    /// What the platform file says of it.
    pub declared: Declared,
    /// The sweep's axes and their values as written in the report, in order: `("dtype", "float32")`.
    pub params: Vec<(String, String)>,
    /// Where its step is written, `collectives/all_reduce/dtypes.yaml:12`.
    pub at: Arc<str>,
    /// What it asserts.
    pub kind: CheckKind,
}

/// What a check asserts.
#[derive(Clone, Debug, PartialEq)]
pub enum CheckKind {
    /// That an op, at one point of a step's sweep, is right on every rank.
    Op(OpCheck),
    /// That the moves of a script go as they must.
    Script(Arc<Script>),
    /// What is asked of a program that the ranks run.
    Program(ProgramCheck),
    /// That a layer above c10d, at one point of a step's sweep, is right on every rank.
    Stack(StackCheck),
}

impl Check {
    /// The op, if it is a point of an op's sweep.
    #[must_use]
    pub fn op(&self) -> Option<&OpCheck> {
        match &self.kind {
            CheckKind::Op(op) => Some(op),
            CheckKind::Script(_) | CheckKind::Program(_) | CheckKind::Stack(_) => None,
        }
    }

    /// What the ranks do, if it is a script.
    #[must_use]
    pub fn script(&self) -> Option<&Arc<Script>> {
        match &self.kind {
            CheckKind::Script(script) => Some(script),
            CheckKind::Op(_) | CheckKind::Program(_) | CheckKind::Stack(_) => None,
        }
    }

    /// What is asked, if the ranks run a program.
    #[must_use]
    pub fn demand(&self) -> Option<ProgramCheck> {
        match &self.kind {
            CheckKind::Program(demand) => Some(*demand),
            CheckKind::Op(_) | CheckKind::Script(_) | CheckKind::Stack(_) => None,
        }
    }

    /// The layer, if it is a point of a layer's sweep.
    #[must_use]
    pub fn stack(&self) -> Option<&StackCheck> {
        match &self.kind {
            CheckKind::Stack(stack) => Some(stack),
            CheckKind::Op(_) | CheckKind::Script(_) | CheckKind::Program(_) => None,
        }
    }

    /// Every op whose data the harness makes for it: the op itself, or those that the script issues.
    #[must_use]
    pub fn ops(&self) -> &[OpCheck] {
        match &self.kind {
            CheckKind::Op(op) => slice::from_ref(op),
            CheckKind::Script(script) => &script.checks,
            CheckKind::Program(_) | CheckKind::Stack(_) => &[],
        }
    }
}

/// A check of an op in a world of that many ranks.
#[cfg(test)]
pub(crate) fn example_check(
    op: allranks_model::op::Op,
    dtype: allranks_model::dtype::DType,
    reduce: Option<allranks_model::dtype::ReduceOp>,
    world: u32,
) -> Check {
    let group = Arc::new(Group {
        name: "world".to_owned(),
        ranks: (0..world).map(allranks_model::names::Rank).collect(),
        backend: None,
        on_host: false,
        how: allranks_model::group::Creation::default(),
    });
    Check {
        id: CheckId::from("x"),
        index: 0,
        group: Arc::clone(&group),
        covers: Arc::default(),
        declared: Declared::Supported,
        params: Vec::new(),
        at: Arc::default(),
        kind: CheckKind::Op(OpCheck {
            dtype,
            reduce,
            ..OpCheck::new(0, op, group)
        }),
    }
}
