//! Tests of random reals, special values, integer extremes and factors: right answers verify, wrong ones are classified, and
//! observations are correct.

use super::*;
use allranks_model::capability::{Accumulation, Promises};

fn with(values: Values, op: Op, ranks: u32, dtype: DType, reduce: ReduceOp) -> OpCheck {
    OpCheck {
        values,
        dtype,
        reduce: op.reduces().then_some(reduce),
        extent: Extent::Flat(u64::from(20 * ranks)),
        ..check(op, ranks)
    }
}

#[track_caller]
fn is(check: &OpCheck, bug: Bug, class: &str) {
    let ranks = check.group.size() as u32;
    match outcome(check, ranks, bug) {
        Ok(_) => panic!("{bug:?} goes unnoticed in {check:?}"),
        Err(mismatch) => assert_eq!(mismatch.class, class, "{}: {check:?}", mismatch.sentence),
    }
}

const ALL_REDUCE: Op = Op::AllReduce;

/// Every check with these kinds of values that has a meaning.
fn checks() -> impl Iterator<Item = OpCheck> {
    let kinds = [Values::Random, Values::Special, Values::Extremes];
    let ops = Op::ALL.iter().copied().filter(|op| op.takes("values"));
    ops.flat_map(move |op| {
        SIZES.into_iter().flat_map(move |ranks| {
            kinds.into_iter().flat_map(move |values| {
                DType::ALL.iter().copied().flat_map(move |dtype| {
                    let reduces = ReduceOp::ALL
                        .iter()
                        .copied()
                        .filter(move |reduce| op.reduces() || *reduce == ReduceOp::Sum)
                        .filter(move |reduce| !op.reduces() || reduce.is_defined_for(dtype));
                    reduces.map(move |reduce| with(values, op, ranks, dtype, reduce))
                })
            })
        })
    })
    .filter(|check| {
        check
            .values
            .are_undefined(check.dtype, check.reduce)
            .is_none()
    })
    .filter(|check| !check.op.has_pairs() || check.group.size() > 1)
}

#[test]
fn right_answers_verify() {
    for check in checks() {
        for numel in [1, 20 * check.group.size() as u64] {
            let check = OpCheck {
                extent: Extent::Flat(numel),
                ..check.clone()
            };
            let ranks = check.group.size() as u32;
            if let Err(mismatch) = outcome(&check, ranks, Bug::None) {
                panic!("{mismatch:#?}\n{check:?}");
            }
        }
    }
}

/// Rounding at every hop is right, too, where values are random.
#[test]
fn rounding_in_the_dtype_is_within_the_bound() {
    for check in checks().filter(|check| check.values == Values::Random) {
        if check.dtype.kind() != allranks_model::dtype::DTypeKind::Float
            || check.reduce == Some(ReduceOp::Avg)
        {
            continue;
        }
        let ranks = check.group.size() as u32;
        if let Err(mismatch) = outcome(&check, ranks, Bug::InDtype) {
            panic!("{mismatch:#?}\n{check:?}");
        }
    }
}

#[test]
fn rounding_that_no_order_explains() {
    let sum = |dtype| with(Values::Random, ALL_REDUCE, 4, dtype, ReduceOp::Sum);
    is(&sum(DType::Float32), Bug::Sloppy, "error-beyond-bound");
    is(
        &sum(DType::Float32),
        Bug::LowPrecision,
        "low-precision-accumulation",
    );
    is(&sum(DType::Float32), Bug::Compressed, "compressed-inputs");
    let exact = OpCheck {
        values: Values::Exact,
        ..sum(DType::Float32)
    };
    is(&exact, Bug::Compressed, "compressed-inputs");
    for dtype in [
        DType::Float32,
        DType::Float64,
        DType::Float16,
        DType::Bfloat16,
    ] {
        is(&sum(dtype), Bug::Dropped(1), "rank-dropped");
        is(&sum(dtype), Bug::Doubled(2), "rank-doubled");
        is(&sum(dtype), Bug::NoOp, "no-op");
        is(&sum(dtype), Bug::OwnTimesWorld, "own-times-world");
    }
}

/// A sum of two has one rounding, whose result is known; of more, the signs of errors tell.
#[test]
fn rounding_to_one_side() {
    for dtype in [DType::Float32, DType::Float16, DType::Bfloat16] {
        for op in [Op::AllReduce, Op::Reduce, Op::ReduceScatterTensor] {
            for reduce in [ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Product] {
                for ranks in [2, 4, 8] {
                    let check = OpCheck {
                        extent: Extent::Flat(1025),
                        ..with(Values::Random, op, ranks, dtype, reduce)
                    };
                    is(&check, Bug::Truncates, "one-sided-rounding");
                    let two = ranks == 2;
                    if two && reduce != ReduceOp::Product {
                        is(&check, Bug::HalvesTowardZero, "one-sided-rounding");
                    }
                    if let Err(mismatch) = outcome(&check, ranks, Bug::RoundsStochastically) {
                        panic!("{mismatch:#?}: {check:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn stochastic_rounding_is_observed() {
    let check = OpCheck {
        extent: Extent::Flat(1025),
        ..with(
            Values::Random,
            ALL_REDUCE,
            2,
            DType::Bfloat16,
            ReduceOp::Sum,
        )
    };
    let prepared = Prepared::new(&check, WorldSize(2), 42).unwrap();
    let seen = |bug| prepared.observe(&world::run(prepared.steps(), &check.group, bug));
    let rounds = seen(Bug::RoundsStochastically);
    assert_eq!(
        rounds.get("rounds").map(String::as_str),
        Some("stochastically")
    );
    for bug in [
        Bug::None,
        Bug::InDtype,
        Bug::Truncates,
        Bug::HalvesTowardZero,
    ] {
        assert_eq!(seen(bug).get("rounds"), None, "{bug:?}");
    }
}

#[test]
fn special_values_that_get_lost() {
    for dtype in [
        DType::Float32,
        DType::Float64,
        DType::Float16,
        DType::Bfloat16,
    ] {
        let special = |reduce| with(Values::Special, ALL_REDUCE, 3, dtype, reduce);
        is(&special(ReduceOp::Sum), Bug::NanDropped, "nan-dropped");
        is(
            &special(ReduceOp::Min),
            Bug::Compares,
            "nan-depends-on-rank",
        );
        is(
            &special(ReduceOp::Max),
            Bug::Compares,
            "nan-depends-on-rank",
        );
        is(&special(ReduceOp::Sum), Bug::PlusZero, "negative-zero-lost");
        if dtype != DType::Float64 {
            is(&special(ReduceOp::Sum), Bug::NoInfinity, "inf-flushed");
        }
        for reduce in [ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min] {
            is(&special(reduce), Bug::Flushes, "denormal-flushed");
        }
        for position in 0..3 {
            is(
                &special(ReduceOp::Sum),
                Bug::Dropped(position),
                "rank-dropped",
            );
        }
        let moved = with(Values::Special, Op::AllGather, 3, dtype, ReduceOp::Sum);
        is(&moved, Bug::QuietNan, "nan-bits-changed");
        is(&moved, Bug::Flushes, "denormal-flushed");
        is(&moved, Bug::Added, "denormal-flushed");
    }
    let bools = with(
        Values::Special,
        Op::Broadcast,
        3,
        DType::Bool,
        ReduceOp::Sum,
    );
    is(&bools, Bug::CleanBool, "bool-normalised");
}

/// IEEE 754 lets MIN and MAX skip a NaN as long as they always do, and says nothing of a NaN's bits.
#[test]
fn what_is_left_open_is_not_judged() {
    for reduce in [ReduceOp::Min, ReduceOp::Max] {
        let check = with(Values::Special, ALL_REDUCE, 4, DType::Float32, reduce);
        // The second implementation skips them.
        assert!(outcome(&check, 4, Bug::None).is_ok());
    }
    let check = with(
        Values::Special,
        ALL_REDUCE,
        4,
        DType::Float32,
        ReduceOp::Sum,
    );
    assert!(outcome(&check, 4, Bug::QuietNan).is_ok());
}

#[test]
fn integers_wrap_around() {
    for dtype in [DType::Int8, DType::Int64, DType::Uint8, DType::Uint32] {
        let check = with(Values::Extremes, ALL_REDUCE, 3, dtype, ReduceOp::Sum);
        is(&check, Bug::Saturates, "saturated-instead-of-wrapped");
    }
}

#[test]
fn integers_are_no_floats() {
    for ranks in [2, 3] {
        let check = with(
            Values::Extremes,
            ALL_REDUCE,
            ranks,
            DType::Int64,
            ReduceOp::Sum,
        );
        is(&check, Bug::InDouble, "through-float");
    }
}

#[test]
fn factors_differ_and_count_once() {
    for factor in [Factor::Scalar, Factor::Tensor, Factor::PerRank] {
        for values in [Values::Exact, Values::Random] {
            for dtype in [
                DType::Float32,
                DType::Float64,
                DType::Float16,
                DType::Bfloat16,
            ] {
                for op in [
                    ALL_REDUCE,
                    Op::Reduce,
                    Op::ReduceScatter,
                    Op::ReduceScatterTensor,
                ] {
                    let check = OpCheck {
                        factor,
                        ..with(values, op, 3, dtype, ReduceOp::PremulSum)
                    };
                    if let Err(mismatch) = outcome(&check, 3, Bug::None) {
                        panic!("{mismatch:#?}\n{check:?}");
                    }
                    is(&check, Bug::DidOp(ReduceOp::Sum), "op-did-sum");
                }
            }
        }
    }
    let first_for_all = OpCheck {
        factor: Factor::PerRank,
        ..with(
            Values::Exact,
            ALL_REDUCE,
            3,
            DType::Float32,
            ReduceOp::PremulSum,
        )
    };
    assert!(outcome(&first_for_all, 3, Bug::DidOp(ReduceOp::PremulSum)).is_err());
}

fn seen(check: &OpCheck, bug: Bug) -> crate::Observations {
    let ranks = check.group.size() as u32;
    let prepared = Prepared::new(check, WorldSize(ranks), 42).unwrap();
    prepared.observe(&world::run(prepared.steps(), &check.group, bug))
}

#[test]
fn accumulation_and_repetition_are_observed() {
    for dtype in [DType::Float16, DType::Bfloat16] {
        for ranks in [3, 4, 5, 8] {
            let check = OpCheck {
                extent: Extent::Flat(257),
                ..with(Values::Random, ALL_REDUCE, ranks, dtype, ReduceOp::Sum)
            };
            assert_eq!(
                seen(&check, Bug::None)["accumulates"],
                "float32",
                "{check:?}"
            );
            assert_eq!(
                seen(&check, Bug::InDtype)["accumulates"],
                "dtype",
                "{check:?}"
            );
        }
    }
    let check = with(
        Values::Random,
        ALL_REDUCE,
        2,
        DType::Bfloat16,
        ReduceOp::Sum,
    );
    let of_two = seen(&check, Bug::None);
    assert_eq!(
        of_two.get("accumulates"),
        None,
        "two ranks round once either way"
    );
    assert_eq!(of_two["deterministic"], "yes");
    // Of 257 elements and of 302, only the latter is even.
    let check = OpCheck {
        extent: Extent::Flat(257),
        ..with(
            Values::Random,
            ALL_REDUCE,
            4,
            DType::Bfloat16,
            ReduceOp::Sum,
        )
    };
    assert_eq!(seen(&check, Bug::Capricious)["stable-across-sizes"], "no");
    assert_eq!(seen(&check, Bug::None)["stable-across-sizes"], "yes");
    assert!(seen(&super::check(ALL_REDUCE, 4), Bug::None).is_empty());
}

#[test]
fn promises_are_kept() {
    let promising = |promises| OpCheck {
        promises,
        extent: Extent::Flat(257),
        ..with(
            Values::Random,
            ALL_REDUCE,
            4,
            DType::Bfloat16,
            ReduceOp::Sum,
        )
    };
    let narrow = promising(Promises {
        accumulates: Some(Accumulation::Dtype),
        deterministic: Some(true),
    });
    assert!(outcome(&narrow, 4, Bug::InDtype).is_ok());
    is(&narrow, Bug::None, "accumulated-otherwise");
    let wide = promising(Promises {
        accumulates: Some(Accumulation::Float32),
        deterministic: None,
    });
    assert!(outcome(&wide, 4, Bug::None).is_ok());
    is(&wide, Bug::InDtype, "accumulated-otherwise");
    let never_twice = promising(Promises {
        accumulates: None,
        deterministic: Some(false),
    });
    is(&never_twice, Bug::None, "not-deterministic");
}
