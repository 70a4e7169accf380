//! That right answers pass, and that what known bugs leave is found and called by its name.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::bytes::{Placed, encoded};
use super::class::StackClass;
use super::{StackPrepared, vacuous_stack};
use crate::RankReply;
use allranks_model::dtype::{DType, ReduceOp};
use allranks_model::group::{Creation, Group};
use allranks_model::names::{Rank, WorldSize};
use allranks_model::stack::{
    BatchNorm, Buckets, Checkpoint, Collective, ContextParallel, Ddp, Divide, Dtensor, Fault,
    Fsdp2, Functional, Hook, Layer, Mesh, Pipeline, Precision, RandomNumbers, RandomPlacement,
    Save, Sharding, Splits, StackCheck, TensorParallel, TensorPlacement, Wait, Zero,
};
use allranks_protocol::{CallResult, CallStatus, StepResult};

const SIZES: &[u32] = &[2, 3, 4, 5];

fn check(layer: Layer, size: u32) -> StackCheck {
    StackCheck {
        index: 3,
        group: Arc::new(Group {
            name: "world".to_owned(),
            ranks: (0..size).map(Rank).collect(),
            backend: None,
            on_host: false,
            how: Creation::default(),
        }),
        layer,
    }
}

/// Points of every layer, with every value of each parameter.
fn layers() -> Vec<Layer> {
    let collectives = [
        Collective::AllReduce,
        Collective::AllGatherTensor,
        Collective::ReduceScatterTensor,
        Collective::AllToAllSingle,
        Collective::Broadcast,
        Collective::AllReduceCoalesced,
        Collective::AllGatherIntoTensorCoalesced,
        Collective::ReduceScatterTensorCoalesced,
    ];
    let plain = Functional::default();
    let mut layers = Vec::new();
    for collective in collectives {
        for (op, dim, splits, backward) in [
            (ReduceOp::Sum, 0, Splits::Even, false),
            (ReduceOp::Avg, 0, Splits::Even, false),
            (ReduceOp::Sum, 1, Splits::Even, true),
            (ReduceOp::Sum, 0, Splits::Uneven, true),
            (ReduceOp::Sum, 0, Splits::Even, true),
        ] {
            layers.push(Layer::Functional(Functional {
                collective,
                op,
                dim,
                splits,
                backward,
                ..plain
            }));
        }
    }
    for dtype in [DType::Float64, DType::Float16, DType::Bfloat16] {
        layers.push(Layer::Functional(Functional {
            dtype,
            wait: Wait::Explicit,
            ..plain
        }));
        layers.push(Layer::Ddp(Ddp {
            dtype,
            passes: 2,
            ..Ddp::default()
        }));
    }
    for (passes, unused, hook) in [
        (1, false, Hook::None),
        (3, false, Hook::Fp16),
        (1, true, Hook::Bf16),
        (2, true, Hook::Allreduce),
    ] {
        layers.push(Layer::Ddp(Ddp {
            passes,
            unused,
            hook,
            buckets: Buckets::Many,
            late: true,
            ..Ddp::default()
        }));
    }
    layers.push(Layer::Pipeline(Pipeline::default()));
    layers.push(Layer::Pipeline(Pipeline {
        dtype: DType::Float64,
        microbatches: 8,
        ..Pipeline::default()
    }));
    for outer in [1, 2, 3, 4, 5] {
        layers.push(Layer::Mesh(Mesh {
            outer,
            ..Mesh::default()
        }));
    }
    let placements = [
        TensorPlacement::Rows,
        TensorPlacement::Columns,
        TensorPlacement::Replicate,
    ];
    for to in placements {
        for from in placements.into_iter().chain([TensorPlacement::Partial]) {
            let dtype = DType::Bfloat16;
            layers.push(Layer::Dtensor(Dtensor {
                dtype,
                from,
                to,
                late: true,
                ..Dtensor::default()
            }));
            for inner_from in placements.into_iter().chain([TensorPlacement::Partial]) {
                layers.push(Layer::Dtensor(Dtensor {
                    from,
                    to,
                    outer: 2,
                    inner_from,
                    ..Dtensor::default()
                }));
            }
        }
        for op in [ReduceOp::Avg, ReduceOp::Min, ReduceOp::Max] {
            layers.push(Layer::Dtensor(Dtensor {
                from: TensorPlacement::Partial,
                to,
                op,
                ..Dtensor::default()
            }));
        }
    }
    for (dtype, sharding) in [
        (DType::Float32, Sharding::Full),
        (DType::Bfloat16, Sharding::Full),
        (DType::Float64, Sharding::Hybrid),
    ] {
        layers.push(Layer::Fsdp2(Fsdp2 {
            dtype,
            sharding,
            ..Fsdp2::default()
        }));
    }
    layers.extend(more_of_fsdp2());
    layers.extend(checkpoints());
    for (dtype, is) in [(DType::Float32, false), (DType::Float64, true)] {
        layers.push(Layer::Ddp(Ddp {
            dtype,
            join: true,
            late: is,
            ..Ddp::default()
        }));
        layers.push(Layer::Ddp(Ddp {
            differs: true,
            dtype,
            ..Ddp::default()
        }));
        for bias in [false, true] {
            layers.push(Layer::TensorParallel(TensorParallel {
                dtype,
                sequence: is,
                bias,
                late: is,
            }));
        }
    }
    for dtype in [
        DType::Float32,
        DType::Float64,
        DType::Float16,
        DType::Bfloat16,
    ] {
        layers.push(Layer::Zero(Zero {
            dtype,
            ..Zero::default()
        }));
    }
    for (dtype, uneven) in [(DType::Float32, true), (DType::Float64, false)] {
        layers.push(Layer::BatchNorm(BatchNorm {
            dtype,
            uneven,
            late: uneven,
        }));
    }
    for (causal, balanced) in [(false, false), (true, false), (true, true)] {
        layers.push(Layer::ContextParallel(ContextParallel {
            causal,
            balanced,
            ..ContextParallel::default()
        }));
    }
    layers
}

/// Points of FSDP2 besides the plain ones.
fn more_of_fsdp2() -> Vec<Layer> {
    let plain = Fsdp2::default();
    let mut points = Vec::new();
    for sharding in [Sharding::Full, Sharding::Hybrid] {
        for divide in [Divide::Factor, Divide::Sum] {
            for dtype in [DType::Float32, DType::Float16] {
                points.push(Fsdp2 {
                    dtype,
                    sharding,
                    divide,
                    ..plain
                });
            }
        }
    }
    for precision in [Precision::ReduceWide, Precision::ReduceNarrow] {
        points.push(Fsdp2 { precision, ..plain });
    }
    points.push(Fsdp2 {
        clip: true,
        ..plain
    });
    points.into_iter().map(Layer::Fsdp2).collect()
}

/// Checkpoints of every placement, way to save, and fault.
fn checkpoints() -> Vec<Layer> {
    let placements = [
        TensorPlacement::Rows,
        TensorPlacement::Columns,
        TensorPlacement::Replicate,
    ];
    let plain = Checkpoint::default();
    let mut points = Vec::new();
    for from in placements {
        for to in placements {
            for (fewer, save) in [(false, Save::Now), (true, Save::Later)] {
                points.push(Checkpoint {
                    from,
                    to,
                    fewer,
                    save,
                    ..plain
                });
            }
        }
    }
    for fault in [Fault::Key, Fault::File] {
        points.push(Checkpoint { fault, ..plain });
    }
    points.into_iter().map(Layer::Checkpoint).collect()
}

/// The worlds in which a layer has a meaning.
fn sizes(layer: &Layer) -> impl Iterator<Item = u32> {
    SIZES
        .iter()
        .copied()
        .filter(|size| layer.unsupported_reason(*size).is_none())
}

/// Every layer in every world, made ready.
fn prepared() -> Vec<(String, StackPrepared)> {
    let mut all = Vec::new();
    for layer in layers() {
        for size in sizes(&layer) {
            let name = format!("{layer:?} in a world of {size}");
            let check = check(layer.clone(), size);
            all.push((
                name,
                StackPrepared::new(&check, WorldSize(size), 1).unwrap(),
            ));
        }
    }
    all
}

/// What ranks answer that do everything right.
fn right(prepared: &StackPrepared) -> Vec<RankReply> {
    let ranks = prepared.steps.iter().zip(&prepared.ranks);
    ranks
        .map(|(step, tensors)| {
            let mut payload = step.payload.clone();
            for placed in tensors {
                if let Some(numbers) = &placed.entry.after {
                    payload[placed.range.clone()]
                        .copy_from_slice(&encoded(prepared.dtype, numbers));
                }
            }
            RankReply {
                result: StepResult {
                    step: 0,
                    calls: vec![CallResult {
                        status: CallStatus::Ok,
                        enter: 1,
                        leave: 2,
                        value: serde_json::Value::Null,
                        error: None,
                    }],
                    storages: step.step.storages.clone(),
                },
                payload,
            }
        })
        .collect()
}

fn class_of(prepared: &StackPrepared, replies: &[RankReply]) -> String {
    prepared.verify(replies).unwrap_err().class
}

/// What ranks answer that have a known bug.
fn spoilt(prepared: &StackPrepared, class: StackClass) -> Vec<RankReply> {
    let mut replies = right(prepared);
    for (reply, tensors) in replies.iter_mut().zip(&prepared.ranks) {
        for placed in tensors {
            let mut guesses = placed.entry.guesses.iter();
            if let Some((_, numbers)) = guesses.find(|(own, _)| *own == class) {
                reply.payload[placed.range.clone()]
                    .copy_from_slice(&encoded(prepared.dtype, numbers));
            }
        }
    }
    replies
}

#[test]
fn right_answers_pass_and_every_rank_has_something_to_check() {
    for (name, prepared) in prepared() {
        let checked = prepared.verify(&right(&prepared)).unwrap();
        assert!(checked.iter().all(|elements| *elements > 0), "{name}");
    }
}

#[test]
fn every_known_bug_is_called_by_its_name() {
    let mut seen = BTreeSet::new();
    for (name, prepared) in prepared() {
        let entries = || prepared.ranks.iter().flatten().map(|placed| &placed.entry);
        let classes: BTreeSet<StackClass> = entries()
            .flat_map(|entry| entry.guesses.iter().map(|(class, _)| *class))
            .collect();
        let mut earlier: Vec<(StackClass, Vec<Vec<u8>>)> = Vec::new();
        for class in classes {
            let replies = spoilt(&prepared, class);
            let bytes: Vec<_> = replies.iter().map(|reply| reply.payload.clone()).collect();
            // In a world of two some bugs leave the very same: which it was no one can tell.
            let same = earlier.iter().find(|(_, other)| *other == bytes);
            let meant = same.map_or(class, |(class, _)| *class);
            assert_eq!(class_of(&prepared, &replies), meant.name(), "{name}");
            seen.insert(meant.name());
            earlier.push((class, bytes));
        }
    }
    assert!(seen.len() >= 12, "{seen:?}");
}

#[test]
fn elements_that_are_zero_where_nothing_says_why_are_said_to_be_so() {
    let check = check(Layer::Dtensor(Dtensor::default()), 3);
    let prepared = StackPrepared::new(&check, WorldSize(3), 1).unwrap();
    let zeroed = |elements: std::ops::Range<usize>| {
        let mut replies = right(&prepared);
        for (reply, tensors) in replies.iter_mut().zip(&prepared.ranks) {
            let mut tensors = tensors.iter();
            let placed = tensors
                .find(|placed| placed.entry.name == "result")
                .unwrap();
            let from = placed.range.start;
            reply.payload[from + 4 * elements.start..from + 4 * elements.end].fill(0);
        }
        class_of(&prepared, &replies)
    };
    assert_eq!(zeroed(3..9), "part-zero");
    assert_eq!(zeroed(0..35), "zero-output");
}

#[test]
fn a_tail_that_is_not_reduced_is_told_from_a_whole_that_is_not() {
    let check = check(Layer::Ddp(Ddp::default()), 3);
    let prepared = StackPrepared::new(&check, WorldSize(3), 1).unwrap();
    let mut replies = right(&prepared);
    for (reply, tensors) in replies.iter_mut().zip(&prepared.ranks) {
        let placed = tensors
            .iter()
            .find(|placed| placed.entry.name == "gradient.1.0");
        let placed = placed.unwrap();
        let (_, own) = &placed.entry.guesses[0];
        let bytes = encoded(prepared.dtype, own);
        let last = bytes.len() - 8;
        let from = placed.range.start + last;
        reply.payload[from..placed.range.end].copy_from_slice(&bytes[last..]);
    }
    let mismatch = prepared.verify(&replies).unwrap_err();
    assert_eq!(mismatch.class, "tail-not-reduced");
    let difference = mismatch.difference.unwrap();
    assert_eq!(difference.buffer, "gradient.1.0");
    assert_eq!(difference.index, 31);
    assert_eq!(difference.wrong, 6);
}

#[test]
fn inputs_guards_and_untouched_outputs_are_compared() {
    let point = Functional::default();
    let check = check(Layer::Functional(point), 2);
    let prepared = StackPrepared::new(&check, WorldSize(2), 1).unwrap();
    let of = |name: &str| {
        let placed = prepared.ranks[1]
            .iter()
            .find(|placed| placed.entry.name == name);
        placed.unwrap()
    };
    for (at, class) in [
        (of("input.1.0").range.start, "input-modified"),
        (of("result.0.0").range.end, "guard-overwritten"),
        (of("result.0.0").range.start - 1, "guard-overwritten"),
        (of("result.0.0").range.start, "unclassified"),
    ] {
        let mut replies = right(&prepared);
        replies[1].payload[at] ^= 1;
        assert_eq!(class_of(&prepared, &replies), class);
    }
    let mut replies = right(&prepared);
    for (reply, step) in replies.iter_mut().zip(&prepared.steps) {
        reply.payload.clone_from(&step.payload);
    }
    assert_eq!(class_of(&prepared, &replies), "stale-sentinel");
}

#[test]
fn a_parameter_that_all_ranks_left_out_must_have_no_gradient() {
    let point = Ddp {
        unused: true,
        ..Ddp::default()
    };
    let check = check(Layer::Ddp(point), 3);
    let prepared = StackPrepared::new(&check, WorldSize(3), 1).unwrap();
    let mut replies = right(&prepared);
    let placed = prepared.ranks[0].iter();
    let unused: Vec<_> = placed
        .filter(|placed| placed.entry.name.starts_with("gradient.0.2"))
        .collect();
    assert_eq!(unused.len(), 1);
    replies[0].payload[unused[0].range.clone()].fill(0);
    assert_eq!(class_of(&prepared, &replies), "unused-mistaken");
}

#[test]
fn a_rank_without_inputs_adds_nothing_and_the_division_stays() {
    let point = Ddp {
        join: true,
        ..Ddp::default()
    };
    let check = check(Layer::Ddp(point), 3);
    let prepared = StackPrepared::new(&check, WorldSize(3), 1).unwrap();
    let numbers = |rank: usize, name: &str| {
        let mut tensors = prepared.ranks[rank].iter();
        let placed = tensors.find(|placed| placed.entry.name == name);
        placed.map(|placed| {
            let entry = &placed.entry;
            entry.after.clone().or(entry.before.clone()).unwrap()
        })
    };
    // The first rank has one step, the second two, the last three.
    assert_eq!(numbers(0, "gradient.1.0"), None);
    assert_eq!(numbers(1, "gradient.2.0"), None);
    let inputs = [1, 2].map(|rank| numbers(rank, "input.1.0.0").unwrap());
    let gradient = numbers(2, "gradient.1.0").unwrap();
    assert_eq!(numbers(1, "gradient.1.0").unwrap(), gradient);
    for (index, number) in gradient.iter().enumerate() {
        assert_eq!(*number, (inputs[0][index] + inputs[1][index]) / 3.0);
    }
    let last = numbers(2, "input.2.0.0").unwrap();
    let gradient = numbers(2, "gradient.2.0").unwrap();
    assert_eq!(gradient[0], last[0] / 3.0);
    // Buffers are those of the last rank, the only one that has inputs for all steps.
    assert_eq!(
        numbers(0, "synced.0").unwrap(),
        numbers(2, "buffer.0").unwrap()
    );
}

#[test]
fn mixed_precision_leaves_what_the_other_type_does_not() {
    for (precision, is_narrow) in [
        (Precision::ReduceWide, false),
        (Precision::ReduceNarrow, true),
    ] {
        let point = Fsdp2 {
            precision,
            ..Fsdp2::default()
        };
        let check = check(Layer::Fsdp2(point), 2);
        let prepared = StackPrepared::new(&check, WorldSize(2), 1).unwrap();
        let entries = prepared.ranks[0].iter().map(|placed| &placed.entry);
        let gradients = entries.filter(|entry| entry.name.starts_with("gradient"));
        let has_every_digit = |number: &f64| half::bf16::from_f64(*number).to_f64() == *number;
        let mut numbers = gradients.flat_map(|entry| entry.after.clone().unwrap());
        match is_narrow {
            true => assert!(numbers.all(|number| has_every_digit(&number))),
            false => assert!(numbers.any(|number| !has_every_digit(&number))),
        }
    }
}

#[test]
fn no_seed_makes_data_that_hide_a_known_bug() {
    for layer in layers() {
        for size in sizes(&layer) {
            for seed in [1, 7] {
                let check = check(layer.clone(), size);
                assert_eq!(
                    vacuous_stack(&check, WorldSize(size), seed),
                    None,
                    "{layer:?}"
                );
            }
        }
    }
}

#[test]
fn a_layer_is_for_all_ranks_of_a_world_of_two_at_least() {
    let layer = Layer::Ddp(Ddp::default());
    assert!(vacuous_stack(&check(layer.clone(), 1), WorldSize(1), 1).is_some());
    assert!(vacuous_stack(&check(layer, 2), WorldSize(3), 1).is_some());
}

/// What ranks answer that draw numbers by a rule: from a rank and the number of the draw to the byte that all elements have.
fn drawing(prepared: &StackPrepared, byte: impl Fn(u32, u32) -> u8) -> Vec<RankReply> {
    let mut replies = right(prepared);
    for (rank, (reply, tensors)) in (0..).zip(replies.iter_mut().zip(&prepared.ranks)) {
        for placed in tensors {
            let drawn = placed.entry.drawn.unwrap();
            reply.payload[placed.range.clone()].fill(byte(rank, drawn));
        }
    }
    replies
}

#[test]
fn replicas_must_draw_the_same_and_shards_must_not() {
    let prepared = |placement| {
        let point = RandomNumbers {
            placement,
            ..RandomNumbers::default()
        };
        let check = check(Layer::RandomNumbers(point), 4);
        assert_eq!(vacuous_stack(&check, WorldSize(4), 1), None);
        StackPrepared::new(&check, WorldSize(4), 1).unwrap()
    };
    let by_rank = |rank: u32, _| rank as u8;
    let all_the_same = |_, _| 7;
    let as_they_must = |_, drawn: u32| drawn as u8;
    for (placement, of_ranks, of_none) in [
        (RandomPlacement::Rows, None, Some("shards-alike")),
        (RandomPlacement::Replicate, Some("replicas-differ"), None),
        (
            RandomPlacement::Hybrid,
            Some("replicas-differ"),
            Some("shards-alike"),
        ),
    ] {
        let prepared = prepared(placement);
        let said = |replies: &[RankReply]| {
            let mismatch = prepared.verify(replies).err();
            mismatch.map(|mismatch| mismatch.class)
        };
        assert_eq!(said(&drawing(&prepared, as_they_must)), None);
        assert_eq!(said(&drawing(&prepared, by_rank)).as_deref(), of_ranks);
        assert_eq!(said(&drawing(&prepared, all_the_same)).as_deref(), of_none);
        assert_eq!(said(&right(&prepared)).as_deref(), Some("stale-sentinel"));
    }
}

#[test]
fn what_is_not_exact_may_be_off_by_little_only() {
    let check = check(Layer::BatchNorm(BatchNorm::default()), 2);
    let prepared = StackPrepared::new(&check, WorldSize(2), 1).unwrap();
    let outputs = prepared.ranks[1].iter();
    let mut placed = outputs.filter(|placed| placed.entry.name == "output.1");
    let placed = placed.next_back().unwrap();
    let first = placed.entry.after.as_ref().unwrap()[0];
    let moved = |by: f64| {
        let mut replies = right(&prepared);
        let start = placed.range.start;
        let number = (first + by * placed.entry.within) as f32;
        replies[1].payload[start..start + 4].copy_from_slice(&number.to_le_bytes());
        prepared
            .verify(&replies)
            .err()
            .map(|mismatch| mismatch.class)
    };
    assert_eq!(moved(0.9), None);
    assert_eq!(moved(-0.9), None);
    assert_eq!(moved(1.1).as_deref(), Some("unclassified"));
    assert_eq!(moved(f64::NAN).as_deref(), Some("unclassified"));
}

/// Averages as a backend makes them that multiplies by the rounded inverse in a fused multiply-add.
#[test]
fn an_average_over_three_ranks_may_be_rounded_and_one_over_four_must_be_exact() {
    let point = Functional {
        op: ReduceOp::Avg,
        ..Functional::default()
    };
    let said = |size: u32, inverse: f32| {
        let prepared =
            StackPrepared::new(&check(Layer::Functional(point), size), WorldSize(size), 1);
        let prepared = prepared.unwrap();
        let mut replies = right(&prepared);
        let (mut rounded, mut of) = (0, 0);
        for call in 0..2 {
            let named = |name: &str| {
                let name = format!("{name}.{call}.0");
                let of_rank = |tensors: &Vec<Placed>| {
                    tensors
                        .iter()
                        .find(|placed| placed.entry.name == name)
                        .cloned()
                        .unwrap()
                };
                prepared.ranks.iter().map(of_rank).collect::<Vec<_>>()
            };
            let inputs: Vec<Vec<f64>> = (named("input").into_iter())
                .map(|placed| placed.entry.before.unwrap())
                .collect();
            for (placed, reply) in named("result").iter().zip(&mut replies) {
                let after = placed.entry.after.as_ref().unwrap();
                for (index, bytes) in reply.payload[placed.range.clone()]
                    .chunks_exact_mut(4)
                    .enumerate()
                {
                    let terms = inputs.iter().map(|numbers| numbers[index] as f32);
                    let average = terms.fold(0.0, |sum: f32, term| term.mul_add(inverse, sum));
                    (rounded, of) = (
                        rounded + usize::from(f64::from(average) != after[index]),
                        of + 1,
                    );
                    bytes.copy_from_slice(&average.to_le_bytes());
                }
            }
        }
        let class = prepared
            .verify(&replies)
            .err()
            .map(|mismatch| mismatch.class);
        (class, rounded as f64 / f64::from(of))
    };
    let (class, rounded) = said(3, 1.0 / 3.0);
    assert_eq!(class, None);
    // On NCCL 2.28.9 it was 27 of 180.
    assert!(rounded > 0.05, "{rounded}");
    assert_eq!(said(4, 0.25), (None, 0.0));
    let nearly = said(4, 0.25 * (1.0 + f32::EPSILON));
    assert_eq!(nearly.0.as_deref(), Some("unclassified"));
    let sum = said(3, 1.0);
    assert_eq!(sum.0.as_deref(), Some("avg-did-sum"));
    let off = said(3, 1.0 / 3.0 * (1.0 + 8.0 * f32::EPSILON));
    assert_eq!(off.0.as_deref(), Some("unclassified"));
}

/// Gradients of FSDP2 as NCCL averages them over three ranks.
#[test]
fn gradients_over_three_ranks_may_be_off_in_their_last_places_only() {
    let said = |size: u32, by: f64| {
        let layer = Layer::Fsdp2(Fsdp2::default());
        let prepared = StackPrepared::new(&check(layer, size), WorldSize(size), 1).unwrap();
        let mut replies = right(&prepared);
        let mut tensors = prepared.ranks[0].iter();
        let placed = tensors
            .rfind(|placed| placed.entry.name == "gradient.0.0")
            .unwrap();
        let first = placed.entry.after.as_ref().unwrap()[0];
        let start = placed.range.start;
        let number = (first + by) as f32;
        replies[0].payload[start..start + 4].copy_from_slice(&number.to_le_bytes());
        prepared
            .verify(&replies)
            .err()
            .map(|mismatch| mismatch.class)
    };
    // As seen on NCCL 2.28.9: 433.00003.
    assert_eq!(said(3, 3e-5), None);
    assert_eq!(said(3, 0.01).as_deref(), Some("unclassified"));
    assert_eq!(said(2, 6e-5).as_deref(), Some("unclassified"));
    assert_eq!(said(4, 6e-5).as_deref(), Some("unclassified"));
}
