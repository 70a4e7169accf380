//! Makes the calls that are neither collectives nor messages: setup, groups, works, and what a script does to its own process.

use std::ffi::OsStr;
use std::thread;
use std::time::Duration;

use allranks_model::axes::TensorKind;
use allranks_protocol::{Call, CallResult, CallStatus};
use rustix::process::{Signal, getpid, kill_process};
use serde_json::{Value, json};
use tch::{Device, Tensor};

use super::groups::{InitArguments, NewGroupArguments};
use super::{Factor, Library, Rank, Works};
use crate::c10d::{self, Error, InferenceMode, Kind, Result};
use crate::held_resources::count_held_resources;
use crate::process::set_variable;

/// The number of times that a rank signals itself before it concludes that the signal does not end it.
const ATTEMPTS: u32 = 200;
/// The time from one attempt to the next.
const RETRY_PERIOD: Duration = Duration::from_millis(10);
/// The one Python module for which this driver has an equivalent.
const TORCH: &str = "torch";

impl Library {
    /// Makes one call that is neither a collective nor a message.
    pub(super) fn other_call(
        &mut self,
        rank: &mut dyn Rank,
        call: &Call,
        index: usize,
    ) -> Result<Value> {
        match call {
            Call::Prepare {
                import,
                device,
                set_device,
                synchronize,
                ..
            } => {
                if let Some(module) = import.iter().find(|module| *module != TORCH) {
                    return Err(Error::new(
                        Kind::NotImplemented,
                        format!("the libtorch driver cannot import the Python module {module}"),
                    ));
                }
                self.device = device_of(device)?;
                if set_device.is_some() {
                    c10d::set_device(device)?;
                }
                self.synchronize = synchronize.as_ref().map(|_| device.clone());
                Ok(Value::Null)
            }
            Call::InitProcessGroup {
                backend,
                method,
                url,
                rank,
                world_size,
                timeout_s,
                hosts,
                device_id,
            } => self.groups.init(&InitArguments {
                backend,
                method: *method,
                url: url.as_deref(),
                rank: *rank,
                world_size: *world_size,
                timeout: seconds(*timeout_s)?,
                hosts: *hosts,
                device_id: device_id.as_ref(),
            }),
            Call::NewGroup {
                name,
                ranks,
                backend,
                timeout_s,
                local_sync,
            } => self.groups.new_group(&NewGroupArguments {
                name,
                ranks,
                backend: backend.as_deref(),
                timeout: seconds(*timeout_s)?,
                local_sync: *local_sync,
            }),
            Call::DestroyProcessGroup { group } => nothing(self.groups.destroy(group)),
            Call::WhoAmI { group } => self.groups.who_am_i(group),
            Call::Abort { group } => match self.membership(group)? {
                Some(member) => nothing(member.group.abort()),
                None => Err(Error::new(
                    Kind::Type,
                    "a rank that is no member has no group to abort",
                )),
            },
            Call::TensorsAs { kind, tensors } => nothing(self.tensors_as(rank, *kind, tensors)),
            Call::Grow { tensor, times } => {
                let grown = self.tensor(*tensor)?.f_repeat([*times as i64])?;
                self.tensors[*tensor] = grown;
                Ok(Value::Null)
            }
            Call::Windows {
                tensor,
                starts,
                len,
                output,
            } => {
                let (from, to) = (self.tensor(*tensor)?, self.tensor(*output)?);
                let length = *len as i64;
                for (number, start) in (0..).zip(starts) {
                    to.f_narrow(0, number * length, length)?
                        .f_copy_(&from.f_narrow(0, *start as i64, length)?)?;
                }
                Ok(Value::Null)
            }
            Call::Sleep { ms } => {
                thread::sleep(Duration::from_millis(*ms));
                Ok(Value::Null)
            }
            Call::PremulFactor { factor, tensor } => {
                self.factor = match (factor, tensor) {
                    (Some(factor), _) => Factor::Number(*factor),
                    (None, Some(tensor)) => Factor::Tensor(*tensor),
                    (None, None) => return Err(Error::new(Kind::Value, "no factor is given")),
                };
                Ok(Value::Null)
            }
            Call::Wait { work, timeout_ms } => {
                let timeout = timeout_ms.map(Duration::from_millis);
                let works = self.works(*work)?;
                nothing(works.0.iter().try_for_each(|work| work.wait(timeout)))
            }
            Call::IsCompleted { work } => self.one_work(*work)?.is_completed().map(Value::from),
            Call::Future { work } => self.one_work(*work)?.future().map(Value::from),
            Call::Drop { work } => {
                self.works(*work)?;
                self.works.remove(work);
                Ok(Value::Null)
            }
            Call::Attempt { inner } => Ok(match self.make(rank, inner, index) {
                Ok(value) => json!({"raised": null, "value": value}),
                Err(error) => json!({"raised": error.describe()}),
            }),
            Call::Together { threads } => self.together(threads),
            Call::Mark { .. } => Ok(Value::Null),
            Call::Hold { .. } => nothing(rank.wait_for_go()),
            Call::Pause => signal_self(Signal::STOP),
            Call::Die { signal } => {
                let named = Signal::from_named_raw(*signal).ok_or_else(|| {
                    Error::new(Kind::Value, format!("there is no signal {signal}"))
                })?;
                // More than once: Rust's own handler of SIGSEGV and SIGBUS takes the first, and the default comes after it.
                for _ in 0..ATTEMPTS {
                    signal_self(named)?;
                    thread::sleep(RETRY_PERIOD);
                }
                Ok(Value::Null)
            }
            Call::Exit { code } => {
                self.leaving = Some(*code);
                Ok(Value::Null)
            }
            Call::Census => Ok(count_held_resources()),
            Call::Setenv { name, value } => {
                set_variable(OsStr::new(name), value.as_deref().map(OsStr::new));
                Ok(Value::Null)
            }
            _ => Err(Error::new(
                Kind::NotImplemented,
                format!("the libtorch driver has no call `{}`", call.name()),
            )),
        }
    }

    fn tensors_as(
        &mut self,
        rank: &mut dyn Rank,
        kind: TensorKind,
        chosen: &[usize],
    ) -> Result<()> {
        match kind {
            TensorKind::Plain => {}
            TensorKind::RequiresGrad => {
                for index in chosen {
                    let leaf = self.tensor(*index)?.f_set_requires_grad(true)?;
                    self.tensors[*index] = leaf;
                }
            }
            TensorKind::Inference => {
                self.mode = Some(InferenceMode::enter()?);
                self.tensors = rank.remake(self.device, false)?;
            }
            TensorKind::Pinned => self.tensors = rank.remake(self.device, true)?,
        }
        Ok(())
    }

    fn works(&self, index: usize) -> Result<&Works> {
        self.works
            .get(&index)
            .ok_or_else(|| Error::new(Kind::Lookup, format!("call {index} left no work")))
    }

    fn one_work(&self, index: usize) -> Result<&c10d::Work> {
        let works = self.works(index)?;
        works.0.first().ok_or_else(|| {
            Error::new(
                Kind::Lookup,
                format!("call {index} left nothing to wait for"),
            )
        })
    }

    /// Runs each list on a thread of its own, all at once.
    fn together(&self, threads: &[Vec<Call>]) -> Result<Value> {
        let results: Vec<Vec<CallResult>> = thread::scope(|scope| {
            let running: Vec<_> = threads
                .iter()
                .map(|calls| {
                    let seed = self.seed();
                    scope.spawn(move || {
                        let mut own = Self::on_thread(seed);
                        let mut results: Vec<CallResult> = Vec::new();
                        for (index, call) in calls.iter().enumerate() {
                            results.push(own.try_call(&mut ThreadRank, call, index));
                            if results[index].status == CallStatus::Error {
                                break;
                            }
                        }
                        results.resize_with(calls.len(), not_reached);
                        results
                    })
                })
                .collect();
            running
                .into_iter()
                .map(|thread| thread.join().unwrap_or_default())
                .collect()
        });
        serde_json::to_value(results).map_err(|error| Error::new(Kind::Runtime, error.to_string()))
    }
}

/// The rank as a thread of a script sees it: every request fails.
struct ThreadRank;

impl Rank for ThreadRank {
    fn wait_for_go(&mut self) -> Result<()> {
        Err(Error::new(
            Kind::Runtime,
            "a thread cannot wait for the harness",
        ))
    }

    fn remake(&mut self, _: Device, _: bool) -> Result<Vec<Tensor>> {
        Err(Error::new(
            Kind::Runtime,
            "a thread cannot make the step's tensors anew",
        ))
    }
}

/// Returns the result of a call that was not made because an earlier one failed.
pub fn not_reached() -> CallResult {
    CallResult {
        status: CallStatus::NotReached,
        enter: 0,
        leave: 0,
        value: Value::Null,
        error: None,
    }
}

fn nothing(result: Result<()>) -> Result<Value> {
    result.map(|()| Value::Null)
}

fn signal_self(signal: Signal) -> Result<Value> {
    kill_process(getpid(), signal)
        .map(|()| Value::Null)
        .map_err(|error| Error::new(Kind::Runtime, error.to_string()))
}

fn seconds(number: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(number)
        .map_err(|error| Error::new(Kind::Value, format!("timeout of {number} s: {error}")))
}

/// Parses a device: `cpu`, `cuda:1`.
fn device_of(text: &str) -> Result<Device> {
    let (kind, index) = text.split_once(':').unwrap_or((text, "0"));
    match (kind, index.parse()) {
        ("cpu", _) => Ok(Device::Cpu),
        ("cuda", Ok(index)) => Ok(Device::Cuda(index)),
        _ => Err(Error::new(
            Kind::Value,
            format!("the libtorch driver makes no tensors on {text}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_by_name() {
        assert_eq!(device_of("cpu").unwrap(), Device::Cpu);
        assert_eq!(device_of("cuda:3").unwrap(), Device::Cuda(3));
        assert!(device_of("xpu:0").is_err());
    }
}
