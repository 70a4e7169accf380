//! Reports the incomplete ops of torch's flight recorder when a call takes long, while the rank is still in it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use allranks_protocol::FromRank;
use tch::Device;

use crate::c10d;
use crate::clock;
use crate::wire::Sender;

/// The time after which a call counts as slow, and the flight recorder is read. It must not be read while a communicator of a
/// device is being set up, which takes longer.
const SLOW: Duration = Duration::from_millis(300);
const SLOW_ON_A_DEVICE: Duration = Duration::from_secs(3);

/// The call that a rank is in; shared with the watching thread.
#[derive(Clone, Debug, Default)]
pub struct CurrentCall(Arc<Mutex<Option<Call>>>);

/// A call that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call {
    step: u32,
    /// The time at which it becomes slow, by [`clock::now`].
    slow_at: u64,
}

impl CurrentCall {
    /// Notes that the rank enters a call of a step, at the time `since` by [`clock::now`], with tensors on that device.
    pub fn enter(&self, step: u32, since: u64, device: Device) {
        let slow = match device {
            Device::Cpu => SLOW,
            _ => SLOW_ON_A_DEVICE,
        };
        let slow_at = since + slow.as_nanos() as u64;
        self.set(Some(Call { step, slow_at }));
    }

    /// Notes that the rank is in no call.
    pub fn leave(&self) {
        self.set(None);
    }

    fn set(&self, call: Option<Call>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = call;
    }

    fn get(&self) -> Option<Call> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a function for another thread to call from time to time. It sends one report for each call that takes long;
    /// reports that cannot be made or sent are dropped.
    pub fn reporter(self, to: Sender) -> impl FnMut() + Send + 'static {
        let mut reported = None;
        move || {
            let call = self.get();
            let Some(slow) =
                call.filter(|call| reported != Some(*call) && clock::now() >= call.slow_at)
            else {
                return;
            };
            reported = call;
            let step = slow.step;
            let ops = c10d::under_way().unwrap_or_default();
            if !ops.is_empty()
                && let Ok(header) = serde_json::to_vec(&FromRank::Recorder { step, ops })
            {
                let _ = to.send(&header, std::iter::empty());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_takes_long_on_the_host_sooner_than_on_a_device() {
        let current = CurrentCall::default();
        current.enter(4, 1_000, Device::Cpu);
        assert_eq!(current.get().unwrap().slow_at, 300_001_000);
        current.enter(5, 1_000, Device::Cuda(0));
        assert_eq!(current.get().unwrap().slow_at, 3_000_001_000);
        current.leave();
        assert_eq!(current.get(), None);
    }
}
