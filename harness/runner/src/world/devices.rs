//! Leases accelerators, so that worlds that run at the same time, in this process or another, use different devices, or
//! share one with no more worlds than all of them allow.

use std::fs::File;
use std::io;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::port::{holders, lock_folder, try_lock, try_share};

/// Leased devices: no other world has them, or only as many as share them, while this lives.
#[derive(Debug)]
pub struct DeviceLease {
    /// Private, because devices are leased only while the locks are held.
    devices: Vec<Device>,
    _locks: Vec<File>,
}

/// A device of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its index among the devices that this process sees.
    pub index: u32,
    /// Its name in the variable that hides devices from a process: `2`, `GPU-be34df87`.
    pub name: String,
}

/// Returns the devices that this process sees. `count`: their number; `mask`: the value of the variable that hides
/// devices, if it is set.
#[must_use]
pub fn devices(count: u32, mask: Option<&str>) -> Vec<Device> {
    let names: Vec<&str> = mask.map_or_else(Vec::new, |mask| mask.split(',').collect());
    let name = |index: u32| match names.get(index as usize) {
        Some(name) => name.trim().to_owned(),
        None => index.to_string(),
    };
    (0..count)
        .map(|index| Device {
            index,
            name: name(index),
        })
        .collect()
}

impl DeviceLease {
    /// Returns the devices, in order; none for a world on the host.
    #[must_use]
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Makes an empty lease, for a world on the host.
    #[must_use]
    pub fn none() -> Self {
        Self {
            devices: Vec::new(),
            _locks: Vec::new(),
        }
    }
}

/// Leases `wanted` of the `present` devices of a type, each for one of `worlds` that may share it, and waits until they
/// are free. The devices with the fewest worlds are taken first.
///
/// It takes all or none: a world that held some devices while it waits for more could wait for ever for another world
/// that does the same.
///
/// # Errors
/// Fails if the folder of locks cannot be written. Waits for ever if there are fewer than `wanted`: the plan leaves
/// such worlds out.
pub async fn lease_devices(
    device_type: &str,
    present: &[Device],
    wanted: u32,
    worlds: NonZeroU32,
) -> io::Result<DeviceLease> {
    let folder = lock_folder()?;
    loop {
        let mut lease = DeviceLease::none();
        let places =
            (0..worlds.get()).flat_map(|place| present.iter().map(move |one| (place, one)));
        for (place, device) in places {
            if lease.devices.len() as u32 == wanted {
                break;
            }
            if lease.devices.contains(device) {
                continue;
            }
            if let Some(locks) = take(&lock_of(&folder, device_type, device), place, worlds)? {
                lease.devices.push(device.clone());
                lease._locks.extend(locks);
            }
        }
        if lease.devices.len() as u32 == wanted {
            lease.devices.sort_by_key(|device| device.index);
            return Ok(lease);
        }
        drop(lease);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Returns the devices that other allranks processes hold or share, each with the ids of these processes if known: `0 (pid
/// 4711)`. Devices that only this process holds are left out.
///
/// # Errors
/// Fails if the folder of locks cannot be written.
pub fn held_devices(device_type: &str, present: &[Device]) -> io::Result<Vec<String>> {
    let folder = lock_folder()?;
    let mut held = Vec::new();
    for device in present {
        let path = lock_of(&folder, device_type, device);
        if try_lock(&path)?.is_some() {
            continue;
        }
        let holders = holders(&path)?;
        let others: Vec<String> = holders
            .iter()
            .filter(|pid| **pid != std::process::id())
            .map(|pid| format!("pid {pid}"))
            .collect();
        match others.is_empty() {
            true if holders.is_empty() => held.push(device.name.clone()),
            true => {}
            false => held.push(format!("{} ({})", device.name, others.join(", "))),
        }
    }
    Ok(held)
}

fn lock_of(folder: &Path, device_type: &str, device: &Device) -> PathBuf {
    let name = device.name.replace('/', "-");
    folder.join(format!("device-{device_type}-{name}"))
}

/// Takes the locks of one place on a device; none if it is not free. A world that does not share locks the device
/// itself exclusively; one that shares takes a shared lock on the device, and the lock of one place.
fn take(device: &Path, place: u32, worlds: NonZeroU32) -> io::Result<Option<Vec<File>>> {
    if worlds == NonZeroU32::MIN {
        return Ok(try_lock(device)?.map(|alone| vec![alone]));
    }
    let Some(shared) = try_share(device)? else {
        return Ok(None);
    };
    let mut name = device.as_os_str().to_owned();
    name.push(format!(".{place}"));
    Ok(try_lock(Path::new(&name))?.map(|place| vec![shared, place]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Devices that no other test leases.
    struct Machine {
        kind: String,
        all: Vec<Device>,
    }

    impl Machine {
        fn new(test: &str, count: u32) -> Self {
            Self {
                kind: format!("{test}{}", std::process::id()),
                all: devices(count, None),
            }
        }

        /// Leases devices; none if it has to wait.
        async fn lease(&self, wanted: u32, worlds: u32) -> Option<DeviceLease> {
            let worlds = NonZeroU32::new(worlds).unwrap();
            let lease = lease_devices(&self.kind, &self.all, wanted, worlds);
            let lease = tokio::time::timeout(Duration::from_millis(200), lease).await;
            lease.ok().map(Result::unwrap)
        }
    }

    fn indices(lease: &Option<DeviceLease>) -> Vec<u32> {
        let lease = lease.as_ref().expect("devices were free");
        lease.devices().iter().map(|one| one.index).collect()
    }

    #[tokio::test]
    async fn worlds_side_by_side_have_different_devices() {
        let machine = Machine::new("apart", 4);
        let one = machine.lease(2, 1).await;
        let two = machine.lease(2, 1).await;
        assert_eq!((indices(&one), indices(&two)), (vec![0, 1], vec![2, 3]));
        let third = machine.lease(1, 1).await;
        assert!(third.is_none(), "a fifth device came from nowhere");
        drop(one);
        assert_eq!(indices(&machine.lease(2, 1).await), [0, 1]);
    }

    #[tokio::test]
    async fn worlds_that_share_devices_spread_and_each_has_different_ones() {
        let machine = Machine::new("shared", 3);
        let two = machine.lease(2, 2).await;
        let also = machine.lease(2, 2).await;
        assert_eq!((indices(&two), indices(&also)), (vec![0, 1], vec![0, 2]));
        assert!(machine.lease(3, 2).await.is_none(), "device 0 is full");
        let last = machine.lease(2, 2).await;
        assert_eq!(indices(&last), [1, 2]);
        assert!(machine.lease(1, 2).await.is_none(), "all are full");
    }

    #[tokio::test]
    async fn a_world_that_shares_no_device_is_alone() {
        let machine = Machine::new("alone", 1);
        let shared = machine.lease(1, 2).await;
        assert!(machine.lease(1, 1).await.is_none(), "a world is there");
        drop(shared);
        let alone = machine.lease(1, 1).await;
        assert!(alone.is_some() && machine.lease(1, 2).await.is_none());
    }

    #[tokio::test]
    async fn what_this_process_has_is_held_by_no_other() {
        let machine = Machine::new("own", 2);
        let lease = machine.lease(1, 1).await;
        assert_eq!(indices(&lease), [0]);
        let held = held_devices(&machine.kind, &machine.all).unwrap();
        // Where the kernel does not report the holder of a lock, another process may have it.
        let is_told = !holders(&lock_of(
            &lock_folder().unwrap(),
            &machine.kind,
            &machine.all[0],
        ))
        .unwrap()
        .is_empty();
        assert_eq!(held.len(), usize::from(!is_told), "{held:?}");
    }

    #[test]
    fn a_device_keeps_its_name_where_only_some_are_seen() {
        let seen = devices(2, Some("3, GPU-be34df87"));
        let named: Vec<_> = seen
            .iter()
            .map(|one| (one.index, one.name.as_str()))
            .collect();
        assert_eq!(named, [(0, "3"), (1, "GPU-be34df87")]);
    }
}
