//! The inputs themselves: exact in any order, and never of the kinds that hide bugs.

use super::scalar::{self, Scalar};
use super::*;

/// Each member's block of a slot, as elements' bytes.
fn blocks(prepared: &Prepared, slot: usize) -> Vec<Vec<Vec<u8>>> {
    let members = prepared.facts.members.iter();
    members
        .map(|rank| {
            let held = prepared.block_index[*rank as usize][slot].unwrap();
            let payload = &prepared.steps[*rank as usize].payload;
            (0..held.len)
                .map(|index| payload[held.place().range(index)].to_vec())
                .collect()
        })
        .collect()
}

fn prepare(check: &OpCheck) -> Prepared {
    Prepared::new(check, WorldSize(check.group.size() as u32), 42).unwrap()
}

/// Every check that reduces, at every dtype and operator, in worlds up to 16.
fn reductions(numel: u64) -> impl Iterator<Item = OpCheck> {
    [1, 2, 3, 4, 5, 7, 8, 16]
        .into_iter()
        .flat_map(move |ranks| {
            DType::ALL.iter().copied().flat_map(move |dtype| {
                ReduceOp::ALL
                    .iter()
                    .copied()
                    .filter(move |reduce| reduce.is_defined_for(dtype))
                    .map(move |reduce| OpCheck {
                        dtype,
                        reduce: Some(reduce),
                        extent: Extent::Flat(numel),
                        ..check(Op::AllReduce, ranks)
                    })
            })
        })
}

/// Combines in pairs, rounding to the dtype after every step, from a rotated start.
fn tree(dtype: DType, op: ReduceOp, elements: &[Vec<u8>], turn: usize) -> Vec<u8> {
    let mut elements = elements.to_vec();
    elements.rotate_left(turn);
    while elements.len() > 1 {
        elements = elements
            .chunks(2)
            .map(|pair| scalar::reduce(dtype, op, 1, pair))
            .collect();
    }
    elements.remove(0)
}

#[test]
fn sums_and_products_do_not_depend_on_the_order() {
    for check in reductions(65) {
        let (dtype, reduce) = (check.dtype, check.reduce.unwrap());
        // Averages are rounded once, at the end; complex products may differ in the sign of a zero.
        let op = match reduce {
            ReduceOp::Avg if dtype == DType::Bfloat16 || dtype.size() == 1 => continue,
            ReduceOp::Avg => ReduceOp::Sum,
            ReduceOp::PremulSum => ReduceOp::Sum,
            ReduceOp::Product if dtype.kind() == allranks_model::dtype::DTypeKind::Complex => {
                continue;
            }
            op => op,
        };
        let blocks = blocks(&prepare(&check), 0);
        for index in 0..65 {
            let elements: Vec<Vec<u8>> = blocks.iter().map(|block| block[index].clone()).collect();
            let first = tree(dtype, op, &elements, 0);
            let one_by_one = elements[1..]
                .iter()
                .fold(elements[0].clone(), |sum, element| {
                    scalar::reduce(dtype, op, 1, &[sum, element.clone()])
                });
            assert_eq!(first, one_by_one, "{dtype} {op} {index}");
            for turn in 1..elements.len() {
                assert_eq!(
                    first,
                    tree(dtype, op, &elements, turn),
                    "{dtype} {op} {index}"
                );
            }
        }
    }
}

#[test]
fn integer_sums_do_not_wrap_and_averages_are_whole() {
    for check in reductions(65) {
        let (dtype, reduce) = (check.dtype, check.reduce.unwrap());
        if !matches!(reduce, ReduceOp::Sum | ReduceOp::Avg | ReduceOp::Product) {
            continue;
        }
        let blocks = blocks(&prepare(&check), 0);
        for index in 0..65 {
            let values: Vec<i128> = blocks
                .iter()
                .filter_map(|block| match scalar::decode(dtype, &block[index]) {
                    Scalar::Whole(value) => Some(value),
                    _ => None,
                })
                .collect();
            if values.is_empty() {
                continue;
            }
            let magnitudes = values.iter().map(|value| value.abs());
            let largest: i128 = match reduce {
                ReduceOp::Product => magnitudes.product(),
                _ => magnitudes.sum(),
            };
            let bits = 8 * dtype.size() as u32;
            let signed = u32::from(dtype.kind() == allranks_model::dtype::DTypeKind::Signed);
            assert!(
                largest < 1 << (bits - signed),
                "{dtype} {reduce} {values:?}"
            );
            if reduce == ReduceOp::Avg {
                assert_eq!(
                    values.iter().sum::<i128>() % values.len() as i128,
                    0,
                    "{values:?}"
                );
            }
        }
    }
}

#[test]
fn averages_have_sums_that_are_multiples_of_the_world() {
    for check in reductions(65).filter(|check| check.reduce == Some(ReduceOp::Avg)) {
        let ranks = check.group.size();
        // Two and three bits of mantissa hold no multiple of every number.
        if check.dtype.size() == 1 && ranks > 7 {
            continue;
        }
        let blocks = blocks(&prepare(&check), 0);
        for index in 0..65 {
            let sum: f64 = blocks
                .iter()
                .map(|block| match scalar::decode(check.dtype, &block[index]) {
                    Scalar::Float(value) | Scalar::Complex(value, _) => value,
                    Scalar::Whole(value) => value as f64,
                })
                .sum();
            let average = Scalar::Float(sum / ranks as f64);
            if let DType::Float32 | DType::Float16 | DType::Bfloat16 | DType::Float8E4m3fn =
                check.dtype
            {
                let bytes = scalar::encode(check.dtype, average);
                assert_eq!(
                    scalar::decode(check.dtype, &bytes),
                    average,
                    "{} {ranks}",
                    check.dtype
                );
            }
        }
    }
}

#[test]
fn no_block_is_constant_or_made_of_powers_of_two_or_equal_to_another() {
    let numel = 65;
    for check in reductions(numel).filter(|check| check.group.size() > 1) {
        let blocks = blocks(&prepare(&check), 0);
        let bool = check.dtype == DType::Bool;
        for (rank, block) in blocks.iter().enumerate() {
            assert!(
                block.iter().any(|element| *element != block[0]),
                "{check:?}"
            );
            assert!(
                blocks[..rank].iter().all(|other| other != block),
                "{check:?}"
            );
        }
        let plain = |element: &Vec<u8>| match scalar::decode(check.dtype, element) {
            Scalar::Whole(value) => value.unsigned_abs().is_power_of_two() || value == 0,
            Scalar::Float(value) => value.to_bits() << 12 == 0,
            Scalar::Complex(re, im) => (re.to_bits() | im.to_bits()) << 12 == 0,
        };
        // Three bits of significand hold 3 times 2 and no more.
        let narrow = (check.dtype, check.reduce) == (DType::Float8E5m2, Some(ReduceOp::PremulSum));
        assert!(
            bool || narrow || !blocks.iter().flatten().all(plain),
            "{check:?}"
        );
    }
}

#[test]
fn moved_data_have_every_kind_of_bits() {
    for dtype in [
        DType::Float64,
        DType::Float32,
        DType::Float16,
        DType::Bfloat16,
    ] {
        let check = OpCheck {
            dtype,
            extent: Extent::Flat(1000),
            ..check(Op::AllGather, 2)
        };
        let values: Vec<f64> = blocks(&prepare(&check), 0)[1]
            .iter()
            .map(|element| match scalar::decode(dtype, element) {
                Scalar::Float(value) => value,
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(values.iter().any(|value| value.is_nan()));
        assert!(values.iter().any(|value| *value < 0.0) && values.iter().any(|value| *value > 0.0));
        assert!(
            values
                .iter()
                .any(|value| *value != 0.0 && value.abs() < 1e-37 || dtype == DType::Float16)
        );
    }
    let bools = OpCheck {
        dtype: DType::Bool,
        ..check(Op::Broadcast, 2)
    };
    assert!(
        blocks(&prepare(&bools), 0)
            .iter()
            .flatten()
            .all(|element| element[0] <= 1)
    );
}

#[test]
fn destinations_have_data_of_their_own() {
    for op in [Op::ReduceScatter, Op::AllToAllSingle, Op::Scatter] {
        let prepared = prepare(&check(op, 4));
        let root = &prepared.block_index[2];
        let payload = &prepared.steps[2].payload;
        let block =
            |slot: usize| payload[root[slot].unwrap().place().dense_range(33).unwrap()].to_vec();
        for slot in 1..4 {
            assert_ne!(block(0), block(slot), "{op:?}");
        }
    }
}

#[test]
fn sentinels_are_never_what_must_come_of_them() {
    for dtype in DType::ALL.iter().copied() {
        for op in [Op::AllGather, Op::ReduceScatter, Op::AllToAllSingle] {
            let reduce = if dtype == DType::Bool {
                ReduceOp::Max
            } else {
                ReduceOp::Sum
            };
            let check = OpCheck {
                dtype,
                reduce: op.reduces().then_some(reduce),
                extent: Extent::Flat(2000),
                ..check(op, 3)
            };
            let prepared = prepare(&check);
            let comparison = crate::comparison::Comparison {
                prepared: &prepared,
                replies: &[],
            };
            for rank in 0..3 {
                for element in comparison.elements(rank) {
                    if element.piece.before == crate::rank_plan::Fill::Sentinel {
                        assert_ne!(
                            comparison.before(&element),
                            comparison.expected(&element),
                            "{check:?}"
                        );
                    }
                }
            }
        }
    }
}

/// Checks are prepared on many threads at once.
#[test]
fn prepared_checks_travel_between_threads() {
    fn travels<T: Send + Sync>() {}
    travels::<Prepared>();
}

/// What group rank i sends to group rank j: the lengths of its input's pieces.
fn sizes(splits: Splits, ranks: u32) -> Vec<Vec<usize>> {
    let check = OpCheck {
        splits,
        ..check(Op::AllToAllSingle, ranks)
    };
    let prepared = prepare(&check);
    let input = |work: &crate::rank_plan::RankPlan| {
        work.buffers[0]
            .pieces
            .iter()
            .map(|piece| piece.len)
            .collect()
    };
    prepared.works.iter().map(input).collect()
}

#[test]
fn uneven_splits_differ_for_every_pair_and_some_are_zero_where_asked() {
    for ranks in SIZES {
        let mut uneven = sizes(Splits::Uneven, ranks).concat();
        uneven.sort_unstable();
        uneven.dedup();
        assert_eq!(uneven.len() as u32, ranks * ranks);
        let some_zero = sizes(Splits::WithZero, ranks);
        assert!(ranks == 1 || some_zero.concat().contains(&0));
        assert!(some_zero.concat().iter().any(|len| *len > 0));
        let silent = some_zero
            .iter()
            .filter(|row| row.iter().all(|len| *len == 0));
        assert_eq!(silent.count(), usize::from(ranks > 2));
    }
}
