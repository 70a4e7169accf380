//! Checks: single assertions inside a scenario. Plain data and complete: the oracle and the judge need nothing else
//! from the case.

use std::slice;
use std::sync::Arc;

use super::{ProgramCheck, Script};
use allranks_model::capability::Declared;
use allranks_model::group::Group;
use allranks_model::names::{CheckId, RequirementId};
use allranks_model::op_check::OpCheck;
use allranks_model::stack::StackCheck;

/// One assertion: an op or a layer at one point of its step's sweep, a script, or one thing that a program is checked
/// for.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// Its id, unique in the run: `collectives/all_reduce/dtypes@cpu.gloo.ws4#0.all_reduce.float32.sum.33`.
    pub id: CheckId,
    /// Its position in the scenario as planned, from 0. Filters leave gaps.
    pub index: u32,
    /// The group whose ranks take part: that of the op, or the world.
    pub group: Arc<Group>,
    /// The requirements it covers: the case's and the step's.
    pub covers: Arc<[RequirementId]>,
    /// Whether the platform file declares it as supported.
    pub declared: Declared,
    /// The parameters that reports show, in order, each with its value: `("dtype", "float32")`.
    pub params: Vec<(String, String)>,
    /// The place of its step, `collectives/all_reduce/dtypes.yaml:12`.
    pub at: Arc<str>,
    /// What it asserts, and the data for that.
    pub kind: CheckKind,
}

/// What a check asserts, with all that is needed to make it.
#[derive(Clone, Debug, PartialEq)]
pub enum CheckKind {
    /// An op, at one point of a step's sweep, is right on every rank.
    Op(OpCheck),
    /// The moves of a script go as they must.
    Script(Arc<Script>),
    /// A program that the ranks run meets one thing that it is checked for.
    Program(ProgramCheck),
    /// A layer above c10d, at one point of a step's sweep, is right on every rank.
    Stack(StackCheck),
}

impl Check {
    /// Returns the op at its point; `None` if the check is not about a single op.
    #[must_use]
    pub fn op(&self) -> Option<&OpCheck> {
        match &self.kind {
            CheckKind::Op(op) => Some(op),
            CheckKind::Script(_) | CheckKind::Program(_) | CheckKind::Stack(_) => None,
        }
    }

    /// Returns the script; `None` if the check is not one.
    #[must_use]
    pub fn script(&self) -> Option<&Arc<Script>> {
        match &self.kind {
            CheckKind::Script(script) => Some(script),
            CheckKind::Op(_) | CheckKind::Program(_) | CheckKind::Stack(_) => None,
        }
    }

    /// Returns what the program is checked for; `None` if the ranks run none.
    #[must_use]
    pub fn program_check(&self) -> Option<ProgramCheck> {
        match &self.kind {
            CheckKind::Program(program_check) => Some(*program_check),
            CheckKind::Op(_) | CheckKind::Script(_) | CheckKind::Stack(_) => None,
        }
    }

    /// Returns the layer at its point; `None` if the check is not about a layer.
    #[must_use]
    pub fn stack(&self) -> Option<&StackCheck> {
        match &self.kind {
            CheckKind::Stack(stack) => Some(stack),
            CheckKind::Op(_) | CheckKind::Script(_) | CheckKind::Program(_) => None,
        }
    }

    /// Returns every op whose data the harness makes: the op itself, or those that the script issues.
    #[must_use]
    pub fn ops(&self) -> &[OpCheck] {
        match &self.kind {
            CheckKind::Op(op) => slice::from_ref(op),
            CheckKind::Script(script) => &script.checks,
            CheckKind::Program(_) | CheckKind::Stack(_) => &[],
        }
    }
}

/// Returns a check of an op in a world of that many ranks.
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
