//! Right answers verify, on every rank, with something compared.

use super::*;
use crate::RankReply;
use allranks_protocol::{CallResult, CallStatus, StepResult};

/// Verifies a right answer and sees to it that every rank votes.
fn passes(check: &OpCheck, world: u32) {
    match outcome(check, world, Bug::None) {
        Ok(checked) => {
            assert_eq!(checked.len(), world as usize);
            assert!(
                checked.iter().all(|count| *count > 0),
                "{checked:?} {check:?}"
            );
        }
        Err(mismatch) => panic!("{mismatch:#?}\n{check:?} in a world of {world}"),
    }
}

fn tensor_ops() -> impl Iterator<Item = Op> {
    Op::ALL.iter().copied().filter(|op| op.has_tensors())
}

/// Returns true if the plan would have such a check.
fn has_meaning(check: &OpCheck) -> bool {
    let two_layouts = check.extent == Extent::Scalar && check.layout != Layout::Contiguous;
    let no_pair = check.op.has_pairs() && check.group.size() < 2 && check.pairs != Pairs::Own;
    let exchanges = matches!(check.op, Op::AllToAll | Op::AllToAllSingle);
    let aliased = exchanges && check.placement == Placement::InPlace;
    // Alone, a rank has nothing to reduce, and the factor of `premul_sum` nothing to be applied to.
    let alone = check.op == Op::AllReduceSparse && check.group.size() == 1;
    !two_layouts && !no_pair && !aliased && !alone
}

#[test]
fn every_dtype_and_reduce_op_in_every_op_and_world() {
    for ranks in SIZES {
        for op in tensor_ops() {
            for dtype in DType::ALL.iter().copied() {
                for reduce in ReduceOp::ALL.iter().copied() {
                    if !reduce.is_defined_for(dtype)
                        || (!op.reduces() && reduce != ReduceOp::ALL[3])
                    {
                        continue;
                    }
                    let check = OpCheck {
                        dtype,
                        reduce: op.reduces().then_some(reduce),
                        ..check(op, ranks)
                    };
                    if has_meaning(&check) {
                        passes(&check, ranks);
                    }
                }
            }
        }
    }
}

#[test]
fn every_extent_layout_placement_and_mode() {
    let extents = [0, 1, 2, 4, 7, 300].map(Extent::Flat);
    for ranks in SIZES {
        for op in tensor_ops() {
            for extent in extents.into_iter().chain([Extent::Scalar]) {
                for layout in [
                    Layout::Contiguous,
                    Layout::Strided,
                    Layout::Transposed,
                    Layout::Offset,
                ] {
                    for placement in [Placement::OutOfPlace, Placement::InPlace] {
                        for mode in [Mode::Sync, Mode::Async] {
                            let check = OpCheck {
                                extent,
                                layout,
                                placement,
                                mode,
                                dtype: DType::Complex64,
                                ..check(op, ranks)
                            };
                            if has_meaning(&check) {
                                passes(&check, ranks);
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn every_layout_of_some_tensors_and_every_kind_and_form_of_them() {
    for ranks in SIZES {
        for op in tensor_ops() {
            for layout in [
                Layout::Strided,
                Layout::Transposed,
                Layout::Unaligned,
                Layout::ChannelsLast,
                Layout::Expanded,
            ] {
                for layout_of in [
                    LayoutOf::All,
                    LayoutOf::Input,
                    LayoutOf::Output,
                    LayoutOf::OddRanks,
                ] {
                    if layout == Layout::Expanded && layout_of != LayoutOf::Input {
                        continue;
                    }
                    for joined in [Joined::Cat, Joined::Stack] {
                        let check = OpCheck {
                            layout,
                            layout_of,
                            joined,
                            tensor: TensorKind::Inference,
                            extent: Extent::Flat(50),
                            ..check(op, ranks)
                        };
                        if has_meaning(&check) {
                            passes(&check, ranks);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn lists_of_tensors_of_different_sizes() {
    for ranks in SIZES {
        for op in [Op::AllGather, Op::Gather, Op::Scatter, Op::ReduceScatter] {
            for splits in [Splits::Uneven, Splits::WithZero, Splits::AllZero] {
                for placement in [Placement::OutOfPlace, Placement::InPlace] {
                    for layout in [Layout::Contiguous, Layout::Transposed] {
                        let check = OpCheck {
                            splits: splits.clone(),
                            placement,
                            layout,
                            ..check(op, ranks)
                        };
                        passes(&check, ranks);
                    }
                }
            }
        }
    }
}

/// A tensor that is written to and lies twice in one place is wrong whatever it holds.
#[test]
fn nothing_is_right_in_an_output_that_overlaps() {
    for op in tensor_ops() {
        let check = OpCheck {
            layout: Layout::Expanded,
            ..check(op, 3)
        };
        let class = outcome(&check, 3, Bug::None)
            .expect_err("it must be refused")
            .class;
        assert_eq!(class, "overlapping-output-accepted", "{op:?}");
    }
}

#[test]
fn every_root_named_either_way_and_groups_in_any_order() {
    for members in [
        vec![0, 1, 2],
        vec![1, 3],
        vec![4, 2, 0],
        vec![3],
        vec![4, 1, 3, 0, 2],
    ] {
        for op in Op::ALL.iter().copied() {
            for root in 0..members.len() as u32 {
                for by in [RootBy::Global, RootBy::Group] {
                    let plain = check(op, members.len() as u32);
                    let check = OpCheck {
                        group: group(members.iter().copied()),
                        root: op.has_root().then_some(Root {
                            group_rank: root,
                            by,
                        }),
                        peer_by: by,
                        late: op.is_barrier().then_some(root),
                        ..plain
                    };
                    if has_meaning(&check) {
                        passes(&check, 5);
                    }
                }
            }
        }
    }
}

#[test]
fn every_split() {
    for ranks in SIZES {
        let matrix = (0..u64::from(ranks))
            .map(|i| {
                (0..u64::from(ranks))
                    .map(|j| 2 * (i * 7 + j * 3) % 10)
                    .collect()
            })
            .collect();
        for splits in [
            Splits::Even,
            Splits::Uneven,
            Splits::WithZero,
            Splits::AllZero,
            Splits::Explicit(matrix),
        ] {
            for op in [Op::AllToAll, Op::AllToAllSingle] {
                for layout in [Layout::Contiguous, Layout::Strided, Layout::Transposed] {
                    for numel in [0, 1, 8] {
                        let check = OpCheck {
                            splits: splits.clone(),
                            layout,
                            extent: Extent::Flat(numel),
                            ..check(op, ranks)
                        };
                        passes(&check, ranks);
                    }
                }
            }
        }
    }
}

#[test]
fn every_pair_and_object() {
    for ranks in SIZES {
        for op in [Op::SendRecv, Op::IsendIrecv, Op::BatchIsendIrecv] {
            for pairs in [Pairs::Ring, Pairs::All, Pairs::Own] {
                for count in [1, 4] {
                    let check = OpCheck {
                        pairs,
                        count,
                        tag: 5,
                        ..check(op, ranks)
                    };
                    // A blocking send to oneself cannot return.
                    if has_meaning(&check) && (pairs != Pairs::Own || op != Op::SendRecv) {
                        passes(&check, ranks);
                    }
                }
            }
        }
        for op in Op::ALL.iter().copied().filter(|op| op.has_objects()) {
            for object in [ObjectKind::Small, ObjectKind::Large, ObjectKind::Mixed] {
                let check = OpCheck {
                    object,
                    ..check(op, ranks)
                };
                passes(&check, ranks);
            }
        }
        for op in [Op::Barrier, Op::MonitoredBarrier] {
            for late in (0..ranks).map(Some).chain([None]) {
                passes(
                    &OpCheck {
                        late,
                        ..check(op, ranks)
                    },
                    ranks,
                );
            }
        }
    }
}

#[test]
fn what_a_refused_call_wrote_is_found_on_every_rank_and_around_its_tensors() {
    let raised = CallResult {
        status: CallStatus::Error,
        enter: 0,
        leave: 0,
        value: serde_json::Value::Null,
        error: None,
    };
    for (op, layout) in [
        (Op::AllReduce, Layout::Strided),
        (Op::Scatter, Layout::Contiguous),
        (Op::AllGather, Layout::Offset),
    ] {
        let check = OpCheck {
            layout,
            ..check(op, 3)
        };
        let prepared = Prepared::new(&check, WorldSize(4), 42).unwrap();
        let sent: Vec<RankReply> = prepared
            .steps()
            .iter()
            .map(|own| RankReply {
                result: StepResult {
                    step: 0,
                    calls: vec![raised.clone(); own.step.calls.len()],
                    storages: own.step.storages.clone(),
                },
                payload: own.payload.clone(),
            })
            .collect();
        assert_eq!(prepared.written(&sent), None, "{op:?}");
        for rank in 0..4 {
            for byte in [
                0,
                sent[rank].payload.len() / 2,
                sent[rank].payload.len() - 1,
            ] {
                let mut replies = sent.clone();
                replies[rank].payload[byte] ^= 1;
                let written = prepared.written(&replies);
                let written = written.unwrap_or_else(|| panic!("{op:?}, rank {rank}, {byte}"));
                assert_eq!(written.class, "refused-and-written");
                let difference = written.difference.unwrap();
                assert_eq!(difference.ranks, [Rank(rank as u32)]);
                assert_eq!(difference.wrong, 1);
                assert_ne!(difference.expected, difference.actual);
            }
        }
    }
}

#[test]
fn a_few_elements_that_fit_a_bug_by_chance_do_not_prove_it() {
    let check = check(Op::AllReduce, 3);
    let prepared = Prepared::new(&check, WorldSize(3), 42).unwrap();
    let right = world::run(prepared.steps(), &check.group, Bug::None);
    let tensor = &prepared.steps()[1].step.tensors[0];
    let at = |index: u64| {
        let first = (tensor.offset + index) as usize * 4;
        first..first + 4
    };
    // One element of 33 that holds what lies at its place if the order were reversed.
    let mut replies = right;
    let mirrored = replies[1].payload[at(30)].to_vec();
    replies[1].payload[at(2)].copy_from_slice(&mirrored);
    let mismatch = prepared.verify(&replies).unwrap_err();
    assert_eq!(mismatch.class, "elements-permuted", "{}", mismatch.sentence);
    let told = "element 2 of tensor on rank 1 holds what belongs to block 0, index 30";
    assert!(mismatch.sentence.contains(told), "{}", mismatch.sentence);
    // What belongs nowhere has no name, but a place.
    replies[1].payload[at(2)].copy_from_slice(&1.25_f32.to_le_bytes());
    let mismatch = prepared.verify(&replies).unwrap_err();
    assert_eq!(mismatch.class, "unclassified");
    let told = "1 of 33 elements; on rank 1 in tensor: 2";
    assert!(mismatch.sentence.contains(told), "{}", mismatch.sentence);
}
