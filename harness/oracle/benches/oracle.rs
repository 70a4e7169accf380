//! How fast the oracle makes and verifies data, on one core: `cargo bench --bench oracle`.
//!
//! Bytes are those of all ranks' inputs and of all ranks' outputs. The time includes making the payloads, computing the
//! expected bytes and comparing the answers; not the world in between.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use allranks_model::axes::Extent;
use allranks_model::dtype::{DType, ReduceOp};
use allranks_model::group::{Creation, Group};
use allranks_model::names::WorldSize;
use allranks_model::op::Op;
use allranks_model::op_check::OpCheck;
use allranks_oracle::{Prepared, RankReply};
use allranks_protocol::{CallResult, CallStatus, StepResult};

const WORLD: WorldSize = WorldSize(4);

fn check(op: Op, dtype: DType, reduce: Option<ReduceOp>, numel: u64) -> OpCheck {
    let group = Group {
        name: "world".to_owned(),
        ranks: WORLD.ranks().collect(),
        backend: None,
        on_host: false,
        how: Creation::default(),
    };
    OpCheck {
        dtype,
        reduce,
        extent: Extent::Flat(numel),
        ..OpCheck::new(0, op, Arc::new(group))
    }
}

/// Answers as a right backend gives them to an all_reduce: every rank holds the result.
fn replies(prepared: &Prepared, check: &OpCheck) -> Vec<RankReply> {
    let steps = prepared.steps();
    let size = check.dtype.size();
    let numel = check.extent.numel() as usize;
    let tensor = |rank: usize| steps[rank].step.tensors[0].offset as usize * size;
    let add = |a: &[u8], b: &[u8]| -> Vec<u8> {
        let float = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().expect("four bytes"));
        a.chunks_exact(4)
            .zip(b.chunks_exact(4))
            .flat_map(|(a, b)| (float(a) + float(b)).to_le_bytes())
            .collect()
    };
    let inputs = (0..steps.len()).map(|rank| {
        let at = tensor(rank);
        steps[rank].payload[at..at + numel * size].to_vec()
    });
    let result = inputs
        .reduce(|a, b| add(&a, &b))
        .expect("at least one rank");
    (0..steps.len())
        .map(|rank| {
            let mut payload = steps[rank].payload.clone();
            let at = tensor(rank);
            payload[at..at + numel * size].copy_from_slice(&result);
            let calls = steps[rank].step.calls.iter();
            RankReply {
                result: StepResult {
                    step: 0,
                    calls: calls
                        .map(|_| CallResult {
                            status: CallStatus::Ok,
                            enter: 0,
                            leave: 0,
                            value: serde_json::Value::Null,
                            error: None,
                        })
                        .collect(),
                    storages: steps[rank].step.storages.clone(),
                },
                payload,
            }
        })
        .collect()
}

/// Returns the median time of preparing and of verifying.
fn time(check: &OpCheck, rounds: usize) -> (Duration, Duration) {
    let answers = replies(
        &Prepared::new(check, WORLD, 1).expect("a check with an expected value"),
        check,
    );
    let mut prepare = Vec::new();
    let mut verify = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        let prepared = Prepared::new(check, WORLD, 1).expect("a check with an expected value");
        prepare.push(start.elapsed());
        let start = Instant::now();
        assert!(prepared.verify(&answers).is_ok(), "the answers are right");
        verify.push(start.elapsed());
    }
    prepare.sort_unstable();
    verify.sort_unstable();
    (prepare[rounds / 2], verify[rounds / 2])
}

fn main() {
    let numel = 1 << 20;
    let large = check(Op::AllReduce, DType::Float32, Some(ReduceOp::Sum), numel);
    let (prepare, verify) = time(&large, 15);
    let bytes = 2 * u64::from(WORLD.0) * numel * 4;
    let rate = bytes as f64 / (prepare + verify).as_secs_f64() / 1e9;
    println!("oracle float32 sum 4 ranks: {rate:.2} GB/s");
    println!("  prepare {prepare:.2?}, verify {verify:.2?}, numel {numel}");
    let small = check(Op::AllReduce, DType::Float32, Some(ReduceOp::Sum), 33);
    let (prepare, verify) = time(&small, 2001);
    println!("oracle float32 sum 4 ranks numel 33: prepare {prepare:.2?}, verify {verify:.2?}");
}
