//! The rank's side of the rank protocol: `hello`, then one step after another, then `bye`.

use std::env;
use std::io;

use allranks_model::dtype::DType;
use allranks_model::names;
use allranks_protocol::{
    CallResult, CallStatus, FromRank, Hello, Step, StepResult, ToRank, VERSION,
};
use serde::Serialize;
use serde_json::Value;
use tch::{Device, Tensor};

use crate::c10d::{self, Error, Kind, Result};
use crate::clock;
use crate::library::{self, CALLS, Library, not_reached};
use crate::process_exit::HangupWatch;
use crate::slow::CurrentCall;
use crate::storages::Storages;
use crate::wire::{Wire, garbage};

/// How a rank is to end its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Now, with this code: groups that have not been destroyed stay as they are.
    AtOnce(i32),
    /// Through destructors and the shutdown of libtorch.
    Shutdown(i32),
}

/// Runs one rank from its connection to its `bye`. The environment names harness, token and rank.
///
/// # Errors
/// The connection is closed, or the harness breaks the protocol.
pub fn run() -> io::Result<Ending> {
    let variable = |name: &str| {
        env::var(name).map_err(|error| garbage(format!("the environment has no {name}: {error}")))
    };
    let token = variable("ALLRANKS_TOKEN")?;
    let rank: u32 = variable("RANK")?
        .parse()
        .map_err(|error| garbage(format!("RANK is no number: {error}")))?;
    let mut wire = Wire::connect(&variable("ALLRANKS_CONTROL")?)?;
    let current = CurrentCall::default();
    let watch = HangupWatch::start(wire.watched()?, current.clone().reporter(wire.sender()))?;
    send(
        &mut wire,
        &FromRank::Hello(Hello {
            version: VERSION,
            token: token.clone(),
            rank: names::Rank(rank),
            pid: std::process::id(),
            driver: "libtorch".to_owned(),
            torch: c10d::torch_version().to_owned(),
            clock: clock::name(),
            calls: CALLS.iter().map(|&name| name.to_owned()).collect(),
        }),
    )?;
    let mut library = Library::default();
    let mut steps = 0;
    loop {
        let (header, length) = wire.receive()?;
        match parse(&header)? {
            ToRank::Step(step) => {
                if length != step.storages.iter().sum::<u64>() {
                    return Err(garbage(format!(
                        "payload of {length} bytes for storages {:?}",
                        step.storages
                    )));
                }
                run_step(&mut wire, &mut library, &current, &step)?;
                current.leave();
                if let Some(code) = library.leaving {
                    return Ok(Ending::Shutdown(code));
                }
                steps += 1;
            }
            ToRank::Finish => break,
            ToRank::Go => return Err(garbage("a frame `go` where none was due")),
        }
    }
    watch.stop();
    send(&mut wire, &FromRank::Bye { steps, token })?;
    if env::var_os("ALLRANKS_EXIT").is_some_and(|how| how == "interpreter") {
        return Ok(Ending::Shutdown(0));
    }
    // Teardown is a step of its own: what it has left must not hold up the end.
    std::mem::forget(library);
    Ok(Ending::AtOnce(0))
}

fn parse(header: &[u8]) -> io::Result<ToRank> {
    serde_json::from_slice(header).map_err(|error| garbage(format!("unknown frame: {error}")))
}

fn send(wire: &mut Wire, frame: &impl Serialize) -> io::Result<()> {
    wire.send(&serde_json::to_vec(frame)?, std::iter::empty())
}

/// Reads a step's payload, makes its calls, and sends how they went and every byte of every storage.
fn run_step(
    wire: &mut Wire,
    library: &mut Library,
    current: &CurrentCall,
    step: &Step,
) -> io::Result<()> {
    let mut storages = Storages::new(&step.storages).map_err(io::Error::other)?;
    for index in 0..storages.count() {
        wire.read_into(storages.bytes_mut(index).map_err(io::Error::other)?)?;
    }
    let mut results: Vec<CallResult> = Vec::with_capacity(step.calls.len());
    let mut has_failed = false;
    match storages.tensors(&step.tensors, library.device(), false) {
        Ok(tensors) => {
            let dtypes: Vec<DType> = step.tensors.iter().map(|spec| spec.dtype).collect();
            library.begin_step(tensors, dtypes);
        }
        Err(error) => {
            // Nothing was called, so it is the first call that could not be made.
            has_failed = true;
            results.push(CallResult {
                status: CallStatus::Error,
                error: Some(error.describe()),
                ..not_reached()
            });
        }
    }
    for (index, call) in step.calls.iter().enumerate().skip(results.len()) {
        if has_failed {
            results.push(not_reached());
            continue;
        }
        let ns = clock::now();
        current.enter(step.step, ns, library.device());
        send(
            wire,
            &FromRank::Enter {
                step: step.step,
                call: index,
                ns,
            },
        )?;
        let mut running = RunningStep {
            wire,
            storages: &mut storages,
            step,
            broken: None,
        };
        let result = library.try_call(&mut running, call, index);
        if let Some(error) = running.broken {
            return Err(error);
        }
        if library.leaving.is_some() {
            return Ok(());
        }
        has_failed = result.status == CallStatus::Error;
        results.push(result);
    }
    let settled = library
        .wait_for_device()
        .and_then(|()| storages.read_back());
    if let (Err(error), false, Some(last)) = (settled, has_failed, results.last_mut()) {
        // A late error belongs to the last call that was made.
        last.status = CallStatus::Error;
        last.value = Value::Null;
        last.error = Some(error.describe());
    }
    results.truncate(step.calls.len());
    let header = FromRank::Result(StepResult {
        step: step.step,
        calls: results,
        storages: step.storages.clone(),
    });
    let payload = (0..storages.count())
        .map(|index| storages.bytes(index))
        .collect::<Result<Vec<_>>>()
        .map_err(io::Error::other)?;
    wire.send(&serde_json::to_vec(&header)?, payload.into_iter())?;
    library.end_step();
    Ok(())
}

/// The rank as a call in the middle of a step sees it.
struct RunningStep<'a> {
    wire: &'a mut Wire,
    storages: &'a mut Storages,
    step: &'a Step,
    /// The error after which the conversation cannot go on; `None` if there was none.
    broken: Option<io::Error>,
}

impl library::Rank for RunningStep<'_> {
    fn wait_for_go(&mut self) -> Result<()> {
        let frame = self.wire.receive().and_then(|(header, _)| parse(&header));
        let broken = match frame {
            Ok(ToRank::Go) => return Ok(()),
            Ok(ToRank::Step(_) | ToRank::Finish) => garbage("another frame where `go` was due"),
            Err(error) => error,
        };
        let error = Error::new(Kind::Runtime, broken.to_string());
        self.broken = Some(broken);
        Err(error)
    }

    fn remake(&mut self, device: Device, is_pinned: bool) -> Result<Vec<Tensor>> {
        self.storages.tensors(&self.step.tensors, device, is_pinned)
    }
}
