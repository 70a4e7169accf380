//! Leases of accelerators, so that worlds side by side, in this process or another, never share a device.

use std::fs::File;
use std::io;
use std::time::Duration;

use super::port::{lock_folder, try_lock};

/// Device indices nobody else has, for as long as this lives.
#[derive(Debug)]
pub struct DeviceLease {
    /// Not to be taken out: without the locks they are anybody's.
    indices: Vec<u32>,
    _locks: Vec<File>,
}

impl DeviceLease {
    /// One index for each rank, ascending; none on a host.
    #[must_use]
    pub fn indices(&self) -> &[u32] {
        &self.indices
    }

    /// A lease of nothing, for a world of the host.
    #[must_use]
    pub fn none() -> Self {
        Self {
            indices: Vec::new(),
            _locks: Vec::new(),
        }
    }
}

/// Leases `wanted` of the `present` devices of a type, waiting for others to give theirs back.
///
/// All or none: a world that held some while waiting for more could wait for ever for one that does the same.
///
/// # Errors
/// Fails if the folder of locks cannot be written. Never succeeds if `wanted` exceeds `present`: the plan leaves
/// such worlds out.
pub async fn lease_devices(
    device_type: &str,
    present: u32,
    wanted: u32,
) -> io::Result<DeviceLease> {
    let folder = lock_folder()?;
    loop {
        let mut lease = DeviceLease::none();
        for index in 0..present {
            if lease.indices.len() as u32 == wanted {
                break;
            }
            if let Some(lock) = try_lock(&folder.join(format!("device-{device_type}-{index}")))? {
                lease.indices.push(index);
                lease._locks.push(lock);
            }
        }
        if lease.indices.len() as u32 == wanted {
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
        let one = lease_devices(&kind, 4, 2).await.unwrap();
        let two = lease_devices(&kind, 4, 2).await.unwrap();
        assert_eq!((one.indices(), two.indices()), (&[0, 1][..], &[2, 3][..]));
        let third = tokio::time::timeout(Duration::from_millis(200), lease_devices(&kind, 4, 1));
        assert!(third.await.is_err(), "a fifth device came from nowhere");
        drop(one);
        assert_eq!(lease_devices(&kind, 4, 2).await.unwrap().indices(), [0, 1]);
    }
}
