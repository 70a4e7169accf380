//! Limits how many ranks run at once, and on accelerators how many worlds share the devices.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use allranks_model::names::WorldSize;

/// The ranks and devices that the scenarios of a run, or of several sessions, share. They are given out in the order of
/// the requests: small worlds do not overtake a large world that waits.
#[derive(Debug)]
pub struct Budget {
    ranks: Arc<Semaphore>,
    ranks_at_once: usize,
    /// Devices by device type, added when a scenario first wants that type. Platforms of one type may see different
    /// numbers of the same devices; the largest number counts.
    devices: Mutex<BTreeMap<String, Devices>>,
}

/// The devices of one device type.
#[derive(Debug)]
struct Devices {
    free: Arc<Semaphore>,
    /// Number of devices of this type, free or not.
    all: u32,
}

/// The devices that one world needs.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The device type, such as `cuda`.
    pub kind: &'a str,
    /// Number of devices of this type, times the number of worlds that may share one device.
    pub present: u32,
    /// Number of devices that the world needs.
    pub count: u32,
}

/// The right to run a scenario's ranks on its devices, if it needs any. Dropping it gives both back.
#[derive(Debug)]
pub struct Permit {
    _devices: Option<OwnedSemaphorePermit>,
    _ranks: OwnedSemaphorePermit,
}

impl Budget {
    /// Makes a budget of `ranks_at_once` ranks. A larger world waits for all of them and runs alone.
    #[must_use]
    pub fn new(ranks_at_once: usize) -> Self {
        Self {
            ranks: Arc::new(Semaphore::new(ranks_at_once)),
            ranks_at_once,
            devices: Mutex::default(),
        }
    }

    /// Waits until a world of this size and its `devices` fit into the budget. Devices are taken before ranks, so that
    /// a world that holds ranks waits for nothing more.
    pub async fn admit(&self, size: WorldSize, devices: Option<Wanted<'_>>) -> Permit {
        let ranks = size.count();
        let devices = match devices {
            Some(wanted) => {
                let all = self.devices_of(wanted.kind, wanted.present);
                Some(take(all, wanted.count.min(wanted.present) as usize).await)
            }
            None => None,
        };
        Permit {
            _devices: devices,
            _ranks: take(Arc::clone(&self.ranks), ranks.min(self.ranks_at_once)).await,
        }
    }

    fn devices_of(&self, device_type: &str, present: u32) -> Arc<Semaphore> {
        let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        let devices = devices.entry(device_type.to_owned()).or_insert(Devices {
            free: Arc::new(Semaphore::new(0)),
            all: 0,
        });
        let more = present.saturating_sub(devices.all);
        devices.free.add_permits(more as usize);
        devices.all += more;
        Arc::clone(&devices.free)
    }
}

async fn take(semaphore: Arc<Semaphore>, count: usize) -> OwnedSemaphorePermit {
    let Ok(permit) = semaphore.acquire_many_owned(count as u32).await else {
        unreachable!("a budget is never closed");
    };
    permit
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn platforms_of_one_type_may_see_different_numbers_of_devices() {
        let soon = Duration::from_secs(30);
        for counts in [[2, 4], [4, 2]] {
            let budget = Budget::new(64);
            for count in counts {
                let wanted = Wanted {
                    kind: "test",
                    present: count,
                    count,
                };
                let permit = budget.admit(WorldSize(count), Some(wanted));
                let permit = tokio::time::timeout(soon, permit).await;
                assert!(
                    permit.is_ok(),
                    "{count} of {counts:?} devices are never free"
                );
            }
        }
    }

    #[tokio::test]
    async fn no_more_than_there_are_devices_and_no_world_passes_one_that_waits() {
        let budget = Arc::new(Budget::new(64));
        let wait = Duration::from_millis(50);
        let devices = |count| {
            Some(Wanted {
                kind: "test",
                present: 4,
                count,
            })
        };
        let three = budget.admit(WorldSize(3), devices(3)).await;
        let large = tokio::spawn({
            let budget = Arc::clone(&budget);
            async move { budget.admit(WorldSize(4), devices(4)).await }
        });
        tokio::time::sleep(wait).await;
        let small = tokio::time::timeout(wait, budget.admit(WorldSize(1), devices(1)));
        assert!(small.await.is_err(), "it passed the large one");
        assert!(!large.is_finished(), "there are not seven devices");
        budget.admit(WorldSize(8), None).await;
        drop(three);
        drop(large.await.unwrap());
        budget.admit(WorldSize(1), devices(1)).await;
    }
}
