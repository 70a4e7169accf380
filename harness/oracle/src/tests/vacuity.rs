//! Checks that could not fail are distinguished from those that could.

use super::*;
use crate::vacuous;

#[test]
fn no_sensible_check_is_vacuous() {
    for ranks in SIZES {
        for op in Op::ALL.iter().copied() {
            for dtype in DType::ALL.iter().copied() {
                for reduce in ReduceOp::ALL.iter().copied() {
                    if !reduce.is_defined_for(dtype)
                        || (!op.reduces() && reduce != ReduceOp::ALL[3])
                    {
                        continue;
                    }
                    for numel in [0, 1, 2, 3, 33] {
                        let check = OpCheck {
                            dtype,
                            reduce: op.reduces().then_some(reduce),
                            extent: Extent::Flat(numel),
                            ..check(op, ranks)
                        };
                        let vacuous = vacuous(&check, WorldSize(ranks), 42);
                        assert_eq!(vacuous, None, "{check:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn checks_that_no_bug_could_fail_are_vacuous() {
    // 200 ranks leave int8 no room for a sum but zero.
    let zeros = OpCheck {
        dtype: DType::Int8,
        ..check(Op::AllReduce, 200)
    };
    assert_eq!(
        vacuous(&zeros, WorldSize(200), 42).as_deref(),
        Some("the data do not distinguish no call at all from the right result")
    );
    let undefined = OpCheck {
        reduce: Some(ReduceOp::Band),
        ..check(Op::AllReduce, 2)
    };
    assert_eq!(
        vacuous(&undefined, WorldSize(2), 42).as_deref(),
        Some("band is not defined on float32")
    );
}

#[test]
fn spoilt_data_are_found_out() {
    let spoilt = |op: Op, spoil: fn(&mut Prepared)| {
        let mut prepared = Prepared::new(&check(op, 3), WorldSize(3), 42).unwrap();
        assert_eq!(
            prepared.collision(super::super::vacuity::Breadth::SomeRank),
            None
        );
        spoil(&mut prepared);
        prepared
            .collision(super::super::vacuity::Breadth::SomeRank)
            .unwrap_or_default()
    };
    let zeros = spoilt(Op::AllReduce, |prepared| {
        for step in &mut prepared.steps {
            step.payload.fill(0);
        }
        prepared.results[0].fill(0);
    });
    assert!(zeros.contains("no call at all"), "{zeros}");
    let constant = spoilt(Op::AllReduce, |prepared| prepared.results[0].fill(0x3f));
    assert!(constant.contains("reversal"), "{constant}");
    let equal = spoilt(Op::AllGather, |prepared| {
        let first = prepared.steps[0].payload.clone();
        for step in &mut prepared.steps {
            step.payload.clone_from(&first);
        }
    });
    assert!(equal.contains("own times world size"), "{equal}");
}

/// Preparing is deterministic, and depends on everything it should depend on.
#[test]
fn data_follow_from_seed_and_call() {
    let payload = |check: &OpCheck, seed: u64| {
        let prepared = Prepared::new(check, WorldSize(3), seed).unwrap();
        prepared.steps()[1].payload.clone()
    };
    let first = check(Op::AllReduce, 3);
    let next = OpCheck {
        index: 4,
        ..first.clone()
    };
    assert_eq!(payload(&first, 1), payload(&first, 1));
    assert_ne!(payload(&first, 1), payload(&first, 2));
    assert_ne!(payload(&first, 1), payload(&next, 1));
}
