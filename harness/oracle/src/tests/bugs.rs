//! Wrong answers are classified: one bug at a time, injected into the second implementation.

use super::*;

/// The class and the sentence of what a bug makes of a check.
fn verdict(check: &OpCheck, world: u32, bug: Bug) -> (String, String) {
    match outcome(check, world, bug) {
        Ok(_) => panic!("{bug:?} goes unnoticed in {check:?}"),
        Err(mismatch) => (mismatch.class, mismatch.sentence),
    }
}

#[track_caller]
fn is(check: &OpCheck, world: u32, bug: Bug, class: &str) {
    let (found, sentence) = verdict(check, world, bug);
    assert_eq!(found, class, "{sentence}: {bug:?} in {check:?}");
}

fn with(op: Op, ranks: u32, dtype: DType, reduce: ReduceOp) -> OpCheck {
    OpCheck {
        dtype,
        reduce: Some(reduce),
        ..check(op, ranks)
    }
}

const REDUCING: [Op; 4] = [
    Op::AllReduce,
    Op::ReduceScatter,
    Op::ReduceScatterTensor,
    Op::AllReduceCoalesced,
];

const FLOATS: [DType; 6] = [
    DType::Float64,
    DType::Float32,
    DType::Float16,
    DType::Bfloat16,
    DType::Float8E4m3fn,
    DType::Float8E5m2,
];

#[test]
fn nothing_written() {
    is(&check(Op::AllReduce, 4), 4, Bug::NoOp, "no-op");
    is(&check(Op::Broadcast, 3), 3, Bug::NoOp, "no-op");
    is(&check(Op::Reduce, 3), 3, Bug::NoOp, "no-op");
    for op in [
        Op::AllGather,
        Op::AllGatherIntoTensor,
        Op::Gather,
        Op::Scatter,
        Op::ReduceScatter,
        Op::AllToAll,
        Op::AllToAllSingle,
        Op::SendRecv,
        Op::BatchIsendIrecv,
        Op::AllGatherCoalesced,
    ] {
        is(&check(op, 3), 3, Bug::NoOp, "stale-sentinel");
    }
}

#[test]
fn no_communication() {
    for op in REDUCING
        .into_iter()
        .chain([Op::AllGather, Op::AllGatherIntoTensor])
    {
        is(&check(op, 4), 4, Bug::OwnTimesWorld, "own-times-world");
    }
    for dtype in [
        DType::Int8,
        DType::Uint64,
        DType::Bfloat16,
        DType::Complex128,
    ] {
        let check = with(Op::AllReduce, 5, dtype, ReduceOp::Sum);
        is(&check, 5, Bug::OwnTimesWorld, "own-times-world");
    }
}

#[test]
fn averages_that_are_none() {
    for ranks in [2, 3, 4, 5, 8] {
        for dtype in FLOATS
            .into_iter()
            .chain([DType::Int8, DType::Int64, DType::Complex64])
        {
            for op in [Op::AllReduce, Op::ReduceScatterTensor] {
                let avg = with(op, ranks, dtype, ReduceOp::Avg);
                is(&avg, ranks, Bug::AvgTwice, "avg-divided-twice");
                is(&avg, ranks, Bug::AvgDidSum, "avg-did-sum");
                let sum = with(op, ranks, dtype, ReduceOp::Sum);
                is(&sum, ranks, Bug::SumDidAvg, "sum-did-avg");
            }
        }
    }
}

#[test]
fn averages_over_another_number_of_ranks() {
    for (ranks, number) in [(3, 2), (3, 4), (5, 4), (4, 3)] {
        let avg = with(Op::AllReduce, ranks, DType::Float32, ReduceOp::Avg);
        let class = "avg-divided-by-another-number";
        is(&avg, ranks, Bug::AvgBy(number), class);
    }
}

#[test]
fn own_contributions_that_are_left_out() {
    for op in [Op::AllReduce, Op::ReduceScatter, Op::ReduceScatterTensor] {
        for ranks in [2, 3, 5] {
            is(&check(op, ranks), ranks, Bug::OwnDropped, "own-dropped");
        }
    }
}

#[test]
fn own_contributions_that_nothing_is_combined_with() {
    for op in [Op::ReduceScatter, Op::ReduceScatterTensor] {
        for ranks in [2, 3, 5] {
            is(&check(op, ranks), ranks, Bug::OwnOnly, "own-only");
        }
    }
    // In place nothing has changed.
    is(&check(Op::AllReduce, 3), 3, Bug::OwnOnly, "no-op");
}

#[test]
fn bits_that_are_taken_for_another_type() {
    let sum = with(Op::AllReduce, 2, DType::Bfloat16, ReduceOp::Sum);
    is(&sum, 2, Bug::AsFloat16, "combined-as-other-type");
}

#[test]
fn parts_that_change_places() {
    for op in [Op::AllGather, Op::Broadcast, Op::AllReduce] {
        let check = with(op, 3, DType::Complex64, ReduceOp::Sum);
        is(&check, 3, Bug::PartsSwapped, "parts-swapped");
    }
}

#[test]
fn averages_divided_twice_at_every_small_size() {
    for numel in 1..=67 {
        let check = OpCheck {
            extent: Extent::Flat(numel),
            ..with(Op::AllReduce, 3, DType::Float32, ReduceOp::Avg)
        };
        is(&check, 3, Bug::AvgTwice, "avg-divided-twice");
    }
}

#[test]
fn another_operator() {
    let ops = [ReduceOp::Product, ReduceOp::Min, ReduceOp::Max];
    for dtype in [
        DType::Float32,
        DType::Float64,
        DType::Float16,
        DType::Int32,
        DType::Uint8,
    ] {
        for right in ops {
            let check = with(Op::AllReduce, 4, dtype, right);
            is(&check, 4, Bug::DidOp(ReduceOp::Sum), "op-did-sum");
            let wrong = if right == ReduceOp::Min {
                ReduceOp::Max
            } else {
                ReduceOp::Min
            };
            is(&check, 4, Bug::DidOp(wrong), &format!("did-{wrong}"));
        }
    }
    for (right, wrong) in [
        (ReduceOp::Band, ReduceOp::Bor),
        (ReduceOp::Bor, ReduceOp::Bxor),
        (ReduceOp::Bxor, ReduceOp::Band),
    ] {
        let check = with(Op::AllReduce, 4, DType::Int16, right);
        is(&check, 4, Bug::DidOp(wrong), &format!("did-{wrong}"));
    }
    let premul = with(Op::AllReduce, 4, DType::Float32, ReduceOp::PremulSum);
    is(&premul, 4, Bug::DidOp(ReduceOp::Sum), "op-did-sum");
}

#[test]
fn a_rank_too_few_or_too_many() {
    for ranks in [3, 4, 5] {
        for dtype in [
            DType::Float32,
            DType::Bfloat16,
            DType::Int8,
            DType::Complex64,
        ] {
            for reduce in [ReduceOp::Sum, ReduceOp::Avg] {
                for position in 0..ranks {
                    let check = with(Op::AllReduce, ranks, dtype, reduce);
                    let position = position as usize;
                    let (class, sentence) = verdict(&check, ranks, Bug::Doubled(position));
                    assert_eq!(class, "rank-doubled", "{check:?}");
                    assert_eq!(
                        sentence,
                        format!("rank {position}'s contribution counts twice")
                    );
                    if reduce == ReduceOp::Sum {
                        let (class, sentence) = verdict(&check, ranks, Bug::Dropped(position));
                        assert_eq!(class, "rank-dropped", "{check:?}");
                        assert_eq!(
                            sentence,
                            format!("rank {position}'s contribution is missing")
                        );
                    }
                }
            }
        }
    }
    for op in [Op::Gather, Op::AllGather, Op::AllGatherCoalesced] {
        let (class, sentence) = verdict(&check(op, 4), 4, Bug::Missing(3));
        assert_eq!(class, "rank-dropped");
        assert!(sentence.starts_with("rank 3's"), "{sentence}");
    }
}

#[test]
fn every_rank_matters_even_where_few_carry() {
    for (dtype, reduce) in [
        (DType::Float8E5m2, ReduceOp::Sum),
        (DType::Float8E5m2, ReduceOp::Avg),
        (DType::Float8E4m3fn, ReduceOp::Avg),
        (DType::Bfloat16, ReduceOp::Avg),
        (DType::Int8, ReduceOp::Product),
        (DType::Float8E5m2, ReduceOp::Product),
        (DType::Bool, ReduceOp::Band),
        (DType::Bool, ReduceOp::Max),
        (DType::Float16, ReduceOp::Min),
    ] {
        for ranks in [5, 11] {
            for position in 0..ranks as usize {
                let check = with(Op::AllReduce, ranks, dtype, reduce);
                let dropped = outcome(&check, ranks, Bug::Dropped(position));
                assert!(dropped.is_err(), "{dtype} {reduce} {ranks} {position}");
            }
        }
    }
}

#[test]
fn comparisons_that_begin_with_zero() {
    for op in REDUCING {
        for dtype in FLOATS.into_iter().chain([DType::Int8, DType::Int64]) {
            for reduce in [ReduceOp::Min, ReduceOp::Max] {
                let check = with(op, 2, dtype, reduce);
                is(&check, 2, Bug::BeginsAtZero, "wrong-identity");
            }
        }
    }
}

#[test]
fn cut_within_an_element() {
    for dtype in [DType::Complex64, DType::Float32, DType::Int16] {
        let check = OpCheck {
            dtype,
            ..check(Op::Broadcast, 3)
        };
        is(&check, 3, Bug::HalfPrefix(16), "prefix-only");
    }
}

#[test]
fn blocks_of_the_wrong_rank() {
    for op in [Op::AllGather, Op::AllGatherIntoTensor, Op::Gather] {
        let (class, sentence) = verdict(&check(op, 4), 4, Bug::SourceShifted(3));
        assert_eq!(class, "chunk-shifted");
        assert!(sentence.contains("3 further on"), "{sentence}");
        is(&check(op, 4), 4, Bug::SourcesReversed, "blocks-permuted");
    }
    for op in [
        Op::ReduceScatter,
        Op::ReduceScatterTensor,
        Op::CoalescedReduceScatterTensor,
        Op::Scatter,
    ] {
        is(
            &check(op, 4),
            4,
            Bug::DestinationShifted(1),
            "chunk-shifted",
        );
        is(
            &check(op, 4),
            4,
            Bug::DestinationPairs,
            "destination-swapped",
        );
        is(&check(op, 4), 4, Bug::Slice0, "all-peers-got-slice-0");
    }
    for op in [Op::AllToAll, Op::AllToAllSingle] {
        is(&check(op, 4), 4, Bug::Slice0, "all-peers-got-slice-0");
        is(&check(op, 4), 4, Bug::SourceShifted(1), "chunk-shifted");
        is(
            &check(op, 4),
            4,
            Bug::DestinationPairs,
            "destination-swapped",
        );
    }
}

#[test]
fn elements_at_the_wrong_place() {
    for op in [
        Op::AllReduce,
        Op::Broadcast,
        Op::AllGather,
        Op::ReduceScatterTensor,
        Op::AllGatherIntoTensor,
    ] {
        is(&check(op, 3), 3, Bug::Reversed, "order-reversed");
        is(&check(op, 3), 3, Bug::Rotated(1), "elements-shifted");
    }
}

#[test]
fn tails() {
    for op in [Op::AllReduce, Op::ReduceScatter] {
        let (class, sentence) = verdict(&check(op, 4), 4, Bug::Tail(1));
        assert_eq!(class, "tail-not-reduced");
        assert!(sentence.contains("from element 32 on"), "{sentence}");
        is(&check(op, 4), 4, Bug::Tail(5), "tail-not-reduced");
    }
    is(
        &check(Op::AllReduce, 4),
        4,
        Bug::Prefix(2),
        "tail-not-reduced",
    );
    for op in [
        Op::AllGather,
        Op::AllGatherIntoTensor,
        Op::AllToAllSingle,
        Op::ReduceScatter,
    ] {
        is(&check(op, 4), 4, Bug::Prefix(2), "prefix-only");
    }
    is(
        &check(Op::AllReduce, 4),
        4,
        Bug::LastGarbage,
        "last-element",
    );
}

#[test]
fn roots() {
    for op in [Op::Broadcast, Op::Reduce] {
        let (class, sentence) = verdict(&check(op, 4), 4, Bug::WrongRoot(1));
        assert_eq!(class, "wrong-root");
        assert!(sentence.starts_with("rank 1 was taken"), "{sentence}");
        is(&check(op, 4), 4, Bug::WrongRoot(0), "root-ignored");
    }
    let unspecified = OpCheck {
        non_root: NonRoot::Unspecified,
        ..check(Op::Reduce, 4)
    };
    is(&unspecified, 4, Bug::WrongRoot(1), "wrong-root");
    is(&unspecified, 4, Bug::NoOp, "no-op");
    assert!(outcome(&unspecified, 4, Bug::NonRootWritten).is_ok());
    let side = OpCheck {
        group: group([1, 3]),
        root: Some(Root {
            group_rank: 1,
            by: RootBy::Global,
        }),
        ..check(Op::Broadcast, 2)
    };
    is(&side, 4, Bug::WrongRoot(2), "wrong-root");
    for dtype in [DType::Float32, DType::Bool, DType::Float8E5m2] {
        let check = OpCheck {
            dtype,
            reduce: Some(if dtype == DType::Bool {
                ReduceOp::Max
            } else {
                ReduceOp::Sum
            }),
            ..check(Op::Reduce, 4)
        };
        is(&check, 4, Bug::NonRootWritten, "non-root-written");
    }
}

#[test]
fn strides_ignored() {
    for op in [
        Op::AllReduce,
        Op::Broadcast,
        Op::AllGather,
        Op::ReduceScatterTensor,
        Op::AllToAllSingle,
    ] {
        for layout in [Layout::Strided, Layout::Transposed, Layout::ChannelsLast] {
            let check = OpCheck {
                layout,
                ..check(op, 3)
            };
            is(&check, 3, Bug::ReadDense, "non-contiguous-read-as-dense");
            is(&check, 3, Bug::WriteDense, "only-dense-part-written");
            is(&check, 3, Bug::WriteLost, "strided-output-lost");
            if layout == Layout::Strided {
                is(
                    &check,
                    3,
                    Bug::ReadAndWriteDense,
                    "non-contiguous-read-as-dense",
                );
            }
        }
    }
}

/// Gloo's reduce_scatter writes without strides what it has combined partly without strides; its reduce leaves partial
/// results on the other ranks, too.
#[test]
fn strides_ignored_in_part() {
    let strided = |op: Op| OpCheck {
        layout: Layout::Strided,
        ..check(op, 3)
    };
    let check = strided(Op::ReduceScatter);
    is(&check, 3, Bug::WriteDenseMixed, "only-dense-part-written");
    for non_root in [NonRoot::Unspecified, NonRoot::Untouched] {
        let check = OpCheck {
            non_root,
            ..strided(Op::Reduce)
        };
        is(
            &check,
            3,
            Bug::ReadAndWriteDense,
            "non-contiguous-read-as-dense",
        );
    }
}

#[test]
fn memory_that_is_not_the_ops() {
    for op in [Op::AllReduce, Op::AllGather, Op::ReduceScatter] {
        let (class, sentence) = verdict(&check(op, 3), 3, Bug::GuardAfter);
        assert_eq!(class, "guard-overwritten");
        assert!(sentence.contains("4 bytes after it"), "{sentence}");
        assert!(sentence.ends_with("(on rank 2 only)"), "{sentence}");
        is(&check(op, 3), 3, Bug::GuardBefore, "guard-overwritten");
    }
    for op in [
        Op::AllGather,
        Op::ReduceScatter,
        Op::AllToAllSingle,
        Op::Gather,
    ] {
        is(&check(op, 3), 3, Bug::InputModified, "input-modified");
    }
    let side = OpCheck {
        group: group([1, 3]),
        ..check(Op::AllReduce, 2)
    };
    is(&side, 4, Bug::BystanderWritten, "bystander-written");
    let empty = OpCheck {
        extent: Extent::Flat(0),
        ..side
    };
    is(&empty, 4, Bug::GuardAfter, "guard-overwritten");
    is(&check(Op::AllReduce, 3), 3, Bug::Short, "malformed-reply");
}

#[test]
fn the_world_in_place_of_the_group() {
    for op in [Op::AllReduce, Op::Reduce] {
        let side = OpCheck {
            group: group([1, 3]),
            ..check(op, 2)
        };
        is(&side, 4, Bug::World, "got-world-instead-of-group");
    }
}

#[test]
fn rounding() {
    for dtype in [
        DType::Float32,
        DType::Float64,
        DType::Float16,
        DType::Complex64,
    ] {
        let check = with(Op::AllReduce, 4, dtype, ReduceOp::Sum);
        is(&check, 4, Bug::Ulp, "off-by-one-ulp");
    }
    for dtype in [DType::Float32, DType::Float64] {
        let check = with(Op::AllReduce, 4, dtype, ReduceOp::Sum);
        is(&check, 4, Bug::LowPrecision, "low-precision-accumulation");
    }
    for ranks in [3, 5] {
        let check = with(Op::AllReduce, ranks, DType::Float32, ReduceOp::Avg);
        is(&check, ranks, Bug::Disagree, "ranks-disagree");
        // Rounding is no mistake where a right backend may round.
        assert!(outcome(&check, ranks, Bug::Ulp).is_ok());
    }
}

#[test]
fn values_that_are_no_result() {
    for op in [Op::AllReduce, Op::AllGather, Op::ReduceScatter] {
        is(&check(op, 3), 3, Bug::Zero, "zero-output");
        is(&check(op, 3), 3, Bug::Nan, "nan-output");
        is(&check(op, 3), 3, Bug::Garbage, "unclassified");
    }
}

#[test]
fn messages_objects_and_barriers() {
    let messages = OpCheck {
        count: 2,
        ..check(Op::IsendIrecv, 3)
    };
    is(&messages, 3, Bug::MessagesSwapped, "message-order-swapped");
    is(
        &check(Op::SendRecv, 3),
        3,
        Bug::SenderMisnamed,
        "wrong-sender",
    );
    for op in [
        Op::AllGatherObject,
        Op::GatherObject,
        Op::BroadcastObjectList,
    ] {
        is(&check(op, 3), 3, Bug::WrongObject, "wrong-object");
    }
    is(
        &check(Op::ScatterObjectList, 3),
        3,
        Bug::DestinationShifted(1),
        "wrong-object",
    );
    for op in [Op::Barrier, Op::MonitoredBarrier] {
        let (class, sentence) = verdict(&check(op, 3), 3, Bug::EarlyLeave);
        assert_eq!(class, "early-leave");
        assert!(sentence.ends_with("before rank 0 entered it"), "{sentence}");
    }
}
