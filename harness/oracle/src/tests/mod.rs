//! The oracle against a second implementation: right answers verify, wrong ones are classified.

mod bug;
mod bugs;
mod collectives;
mod data;
mod distinct;
mod right;
mod scalar;
mod vacuity;
mod value_kinds;
mod world;

use std::sync::Arc;

use self::bug::Bug;
use super::{Mismatch, Prepared};
use allranks_model::axes::{
    Extent, Factor, Joined, Layout, LayoutOf, Mode, NonRoot, ObjectKind, Pairs, Placement, Root,
    RootBy, Splits, TensorKind, Values,
};
use allranks_model::dtype::{DType, ReduceOp};
use allranks_model::group::{Creation, Group};
use allranks_model::names::{CheckId, Rank, WorldSize};
use allranks_model::op::Op;
use allranks_model::op_check::OpCheck;

/// A check of the whole world with everything neutral.
fn check(op: Op, ranks: u32) -> OpCheck {
    OpCheck {
        reduce: op.reduces().then_some(ReduceOp::Sum),
        root: op.has_root().then_some(Root {
            group_rank: ranks / 2,
            by: RootBy::Global,
        }),
        non_root: NonRoot::Untouched,
        late: op.is_barrier().then_some(0),
        ..OpCheck::new(3, op, group(0..ranks))
    }
}

fn group(ranks: impl IntoIterator<Item = u32>) -> Arc<Group> {
    Arc::new(Group {
        name: "group".into(),
        ranks: ranks.into_iter().map(Rank).collect(),
        backend: None,
        on_host: false,
        how: Creation::default(),
    })
}

/// Prepares a check, has the second implementation run it, and verifies the answers.
fn outcome(check: &OpCheck, world: u32, bug: Bug) -> Result<Vec<u64>, Box<Mismatch>> {
    let prepared = Prepared::new(check, WorldSize(world), 42)
        .unwrap_or_else(|error| panic!("{check:?}: {error}"));
    let replies = world::run(prepared.steps(), &check.group, bug);
    prepared.verify(&replies).map_err(Box::new)
}

const SIZES: [u32; 6] = [1, 2, 3, 4, 5, 8];
