//! Leases of accelerators, so that worlds side by side, in this process or another, never share a device.

use std::fs::File;
use std::io;
use std::time::Duration;

use super::port::{lock_folder, try_lock};

/// Devices nobody else has, for as long as this lives.
#[derive(Debug)]
pub struct DeviceLease {
    /// Not to be taken out: without the locks they are anybody's.
    devices: Vec<Device>,
    _locks: Vec<File>,
}

/// A device of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its index among those that this process sees.
    pub index: u32,
    /// What it is called in the variable that hides devices from a process: `2`, `GPU-be34df87`.
    pub name: String,
}

/// The devices that this process sees, when it sees so many and `mask` is what the variable that hides some says.
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
    /// One for each rank, in order; none on a host.
    #[must_use]
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// A lease of nothing, for a world of the host.
    #[must_use]
    pub fn none() -> Self {
        Self {
            devices: Vec::new(),
            _locks: Vec::new(),
        }
    }
}

/// Leases `wanted` of the `present` devices of a type, waiting for others to give theirs back.
///
/// All or none: a world that held some while waiting for more could wait for ever for one that does the same.
///
/// # Errors
/// Fails if the folder of locks cannot be written. Never succeeds if there are fewer than `wanted`: the plan leaves such
/// worlds out.
pub async fn lease_devices(
    device_type: &str,
    present: &[Device],
    wanted: u32,
) -> io::Result<DeviceLease> {
    let folder = lock_folder()?;
    loop {
        let mut lease = DeviceLease::none();
        for device in present {
            if lease.devices.len() as u32 == wanted {
                break;
            }
            let file = format!("device-{device_type}-{}", device.name.replace('/', "-"));
            if let Some(lock) = try_lock(&folder.join(file))? {
                lease.devices.push(device.clone());
                lease._locks.push(lock);
            }
        }
        if lease.devices.len() as u32 == wanted {
            return Ok(lease);
        }
        drop(lease);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn worlds_side_by_side_have_different_devices() {
        let kind = format!("test{}", std::process::id());
        let all = devices(4, None);
        let one = lease_devices(&kind, &all, 2).await.unwrap();
        let two = lease_devices(&kind, &all, 2).await.unwrap();
        assert_eq!((one.devices(), two.devices()), (&all[..2], &all[2..]));
        let third = tokio::time::timeout(Duration::from_millis(200), lease_devices(&kind, &all, 1));
        assert!(third.await.is_err(), "a fifth device came from nowhere");
        drop(one);
        let again = lease_devices(&kind, &all, 2).await.unwrap();
        assert_eq!(again.devices(), &all[..2]);
    }

    #[test]
    fn a_device_keeps_its_name_where_only_some_are_seen() {
        let seen = devices(2, Some("3, GPU-be34df87"));
        let told: Vec<_> = seen
            .iter()
            .map(|one| (one.index, one.name.as_str()))
            .collect();
        assert_eq!(told, [(0, "3"), (1, "GPU-be34df87")]);
    }
}
