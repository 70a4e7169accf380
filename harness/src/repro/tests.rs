//! Scripts say what the oracle says.

use std::path::Path;
use std::sync::Arc;

use super::{Notes, Subject, reproducer, with_numel};
use allranks_model::axes::Values;
use allranks_model::capability::Declared;
use allranks_model::op_check::OpCheck;
use allranks_oracle::{After, Answer, Prepared, RankReply};
use allranks_protocol::{CallResult, CallStatus, StepResult};
use allranks_suite::case;
use allranks_suite::plan::{Check, Plan, Selection, Target, plan};
use allranks_suite::platform;

fn checkout(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn whole(sizes: &[u32]) -> Plan {
    let platforms = platform::load(&[checkout("fixtures/platforms/cpu.yaml")]).unwrap();
    let target = Target {
        platform: Arc::new(platforms[0].clone()),
        backend: "gloo".to_owned(),
        devices: None,
    };
    let selection = Selection {
        world_sizes: sizes.to_vec(),
        ..Selection::default()
    };
    plan(
        &case::load(&[checkout("cases")]).unwrap().cases,
        &[target],
        &selection,
    )
}

/// What a rank would send back if all was as the expected tensors say.
fn reply(prepared: &Prepared, rank: allranks_model::names::Rank) -> RankReply {
    let step = &prepared.steps()[rank.index()];
    let mut payload = step.payload.clone();
    let mut start = 0;
    let starts: Vec<usize> = step
        .step
        .storages
        .iter()
        .map(|length| {
            let here = start;
            start += *length as usize;
            here
        })
        .collect();
    for expected_tensor in prepared.expected_tensors(rank) {
        let After::Elements { bytes, .. } = &expected_tensor.after else {
            continue;
        };
        let (view, size) = (&expected_tensor.view, expected_tensor.view.dtype.size());
        for (index, element) in bytes.chunks_exact(size).enumerate() {
            // The view's own order: the last dimension runs fastest.
            let (mut rest, mut at) = (index as u64, view.offset);
            for (length, stride) in view.shape.iter().zip(&view.strides).rev() {
                at += rest % length * stride;
                rest /= length;
            }
            let at = starts[view.storage] + at as usize * size;
            payload[at..at + size].copy_from_slice(element);
        }
    }
    let mut calls = vec![
        CallResult {
            status: CallStatus::Ok,
            enter: 1,
            leave: 2,
            value: serde_json::Value::Null,
            error: None,
        };
        step.step.calls.len()
    ];
    for (call, answer) in prepared.answers(rank) {
        calls[call].value = match answer {
            Answer::Sender(rank) => rank.0.into(),
            Answer::Objects(value) => value.clone(),
        };
    }
    RankReply {
        result: StepResult {
            step: 0,
            calls,
            storages: step.step.storages.clone(),
        },
        payload,
    }
}

#[test]
fn ranks_that_hold_what_the_exhibits_say_pass() {
    let plan = whole(&[2, 3]);
    let mut checks = 0;
    for scenario in &plan.scenarios {
        let plain = scenario
            .checks
            .iter()
            .filter_map(|check| Some((check, check.op()?)));
        for (check, op) in plain
            .step_by(3)
            .filter(|(check, op)| is_small(op) && can_pass(check, op))
        {
            let prepared = Prepared::new(op, scenario.world_size, 7).unwrap();
            let ranks = scenario.world_size.ranks();
            let replies: Vec<_> = ranks.map(|rank| reply(&prepared, rank)).collect();
            if let Err(mismatch) = prepared.verify(&replies) {
                panic!("{}: {}", check.id, mismatch.sentence);
            }
            checks += 1;
        }
    }
    assert!(checks > 500, "only {checks}");
}

#[test]
fn every_check_has_a_reproducer_without_allranks_in_its_code() {
    for scenario in &whole(&[2]).scenarios {
        let plain = scenario
            .checks
            .iter()
            .filter_map(|check| Some((check, check.op()?)));
        for (check, op) in plain.step_by(5).filter(|(_, op)| is_small(op)) {
            let subject = Subject {
                scenario,
                check: Some(check),
                seed: 1,
            };
            let text = reproducer(&subject, &Notes::default()).unwrap();
            assert!(
                text.contains(&format!("dist.{}", function(op.op.name()))),
                "{}",
                check.id
            );
            let code = text.splitn(3, "\"\"\"").nth(2).unwrap();
            assert!(
                !code.contains("allranks") && !code.contains("%%"),
                "{}",
                check.id
            );
        }
    }
}

/// Returns true if its data are quickly written. Very large tensors are made while a step runs, and have no script.
fn is_small(op: &OpCheck) -> bool {
    op.extent.numel() < 5000
}

/// Returns true if the oracle can be content: with what must be refused it never is, and of random reals a platform may promise
/// another rounding than the one that expected tensors have.
fn can_pass(check: &Check, op: &OpCheck) -> bool {
    check.declared == Declared::Supported && op.values != Values::Random
}

#[test]
fn every_script_of_moves_is_written() {
    let plan = whole(&[2]);
    let mut scripts = 0;
    for scenario in &plan.scenarios {
        for check in scenario
            .checks
            .iter()
            .filter(|check| check.script().is_some())
        {
            // The random sequences are long.
            if check.id.as_str().contains("random") {
                continue;
            }
            let smaller = with_numel(check, 3);
            let subject = Subject {
                scenario,
                check: Some(smaller.as_ref().unwrap_or(check)),
                seed: 1,
            };
            let text = reproducer(&subject, &Notes::default()).unwrap();
            assert!(text.contains("\ntry:\n    "), "{}", check.id);
            assert!(!text.contains("%%"), "{}", check.id);
            scripts += 1;
        }
    }
    assert!(scripts > 100, "only {scripts}");
}

/// The function behind an op's name.
fn function(op: &str) -> &str {
    match op {
        "all_reduce_sparse" => "all_reduce",
        "send_recv" => "send",
        "isend_irecv" => "isend",
        _ if op.starts_with("coalesced_") => "_coalescing_manager",
        _ => op,
    }
}
