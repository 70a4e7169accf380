//! Limits how many ranks run at once, and on accelerators how many worlds share the devices.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::load::Load;

/// How many ranks may run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Ranks that compute: each keeps a core busy for much of its time.
    pub computing: usize,
    /// Charges of scenarios that mostly wait, beside those that compute; see [`Load`]. None: both kinds share `computing`, and
    /// every rank counts as one.
    pub waiting: Option<usize>,
}

impl Capacity {
    /// Makes a capacity of that many ranks, of whatever kind.
    #[must_use]
    pub fn of(ranks: usize) -> Self {
        Self {
            computing: ranks,
            waiting: None,
        }
    }

    /// Returns this capacity or, where it is for more than `most` ranks in all, one of `most` ranks of whatever kind.
    #[must_use]
    pub fn within(self, most: usize) -> Self {
        // A scenario that waits is charged at least one for each rank.
        let all = self.computing.saturating_add(self.waiting.unwrap_or(0));
        match all <= most {
            true => self,
            false => Self::of(self.computing.min(most)),
        }
    }
}

/// The ranks and devices that the scenarios of a run, or of several sessions, share. They are given out in the order of
/// the requests: small worlds do not overtake a large world that waits. Scenarios that wait and those that compute do not wait
/// for each other.
#[derive(Debug)]
pub struct Budget {
    computing: Pool,
    waiting: Option<Pool>,
    /// Devices by device type, added when a scenario first wants that type. Platforms of one type may see different
    /// numbers of the same devices; the largest number counts.
    devices: Mutex<BTreeMap<String, Devices>>,
}

/// What scenarios of one kind share.
#[derive(Debug)]
struct Pool {
    free: Arc<Semaphore>,
    all: usize,
}

impl Pool {
    fn new(all: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(all)),
            all,
        }
    }

    /// Waits for a part of the pool and takes it; takes the whole pool if the part is larger.
    async fn acquire(&self, part: usize) -> OwnedSemaphorePermit {
        acquire(Arc::clone(&self.free), part.min(self.all)).await
    }
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
    /// Makes a budget. A world that is larger than what it gives to worlds of its kind waits for all of that.
    #[must_use]
    pub fn new(capacity: Capacity) -> Self {
        Self {
            computing: Pool::new(capacity.computing),
            waiting: capacity.waiting.map(Pool::new),
            devices: Mutex::default(),
        }
    }

    /// Waits until a world with this load and its `devices` fit into the budget. Devices are taken before ranks, so that
    /// a world that holds ranks waits for nothing more.
    pub async fn admit(&self, load: Load, devices: Option<Wanted<'_>>) -> Permit {
        let devices = match devices {
            Some(wanted) => {
                let all = self.devices_of(wanted.kind, wanted.present);
                Some(acquire(all, wanted.count.min(wanted.present) as usize).await)
            }
            None => None,
        };
        let ranks = match (&self.waiting, load.waiting_charge()) {
            (Some(waiting), Some(charge)) => waiting.acquire(charge).await,
            (None, _) | (_, None) => self.computing.acquire(load.ranks()).await,
        };
        Permit {
            _devices: devices,
            _ranks: ranks,
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

async fn acquire(semaphore: Arc<Semaphore>, count: usize) -> OwnedSemaphorePermit {
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

    #[test]
    fn a_capacity_within_a_limit_is_for_no_more_ranks() {
        let both = Capacity {
            computing: 16,
            waiting: Some(24),
        };
        assert_eq!(both.within(40), both);
        assert_eq!(both.within(39), Capacity::of(16));
        assert_eq!(both.within(4), Capacity::of(4));
        assert_eq!(Capacity::of(8).within(40), Capacity::of(8));
    }

    #[tokio::test]
    async fn platforms_of_one_type_may_see_different_numbers_of_devices() {
        let soon = Duration::from_secs(30);
        for counts in [[2, 4], [4, 2]] {
            let budget = Budget::new(Capacity::of(64));
            for count in counts {
                let wanted = Wanted {
                    kind: "test",
                    present: count,
                    count,
                };
                let permit = budget.admit(Load::Computes(count as usize), Some(wanted));
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
        let budget = Arc::new(Budget::new(Capacity::of(64)));
        let wait = Duration::from_millis(50);
        let devices = |count| {
            Some(Wanted {
                kind: "test",
                present: 4,
                count,
            })
        };
        let three = budget.admit(Load::Computes(3), devices(3)).await;
        let large = tokio::spawn({
            let budget = Arc::clone(&budget);
            async move { budget.admit(Load::Computes(4), devices(4)).await }
        });
        tokio::time::sleep(wait).await;
        let small = tokio::time::timeout(wait, budget.admit(Load::Computes(1), devices(1)));
        assert!(small.await.is_err(), "it passed the large one");
        assert!(!large.is_finished(), "there are not seven devices");
        budget.admit(Load::Computes(8), None).await;
        drop(three);
        drop(large.await.unwrap());
        budget.admit(Load::Computes(1), devices(1)).await;
    }

    #[tokio::test]
    async fn what_waits_and_what_computes_do_not_wait_for_each_other() {
        let wait = Duration::from_millis(50);
        let soon = Duration::from_secs(30);
        let of = |waiting| {
            Budget::new(Capacity {
                computing: 4,
                waiting,
            })
        };
        let waits = |ranks| Load::Waits {
            ranks,
            imports: false,
        };
        for waiting in [None, Some(4)] {
            let budget = of(waiting);
            let _computes = budget.admit(Load::Computes(4), None).await;
            let admitted = tokio::time::timeout(wait, budget.admit(Load::Computes(1), None)).await;
            assert!(admitted.is_err(), "{waiting:?}: five of four");
            let limit = if waiting.is_some() { soon } else { wait };
            let admitted = tokio::time::timeout(limit, budget.admit(waits(4), None)).await;
            assert_eq!(admitted.is_ok(), waiting.is_some(), "{waiting:?}");
        }
        // Larger than all there is: alone.
        let budget = of(Some(4));
        let large = tokio::time::timeout(soon, budget.admit(waits(64), None)).await;
        assert!(large.is_ok());
        assert!(
            tokio::time::timeout(wait, budget.admit(waits(1), None))
                .await
                .is_err()
        );
    }
}
