//! Makes devices current, waits for them and counts them. They are named as in torch: `cuda:1`.

use super::error::check;
use super::{Result, c_string, sys};

/// Makes a device, such as `cuda:1`, the current one of this thread.
///
/// # Errors
/// torch's: there is no such device.
#[expect(unsafe_code, reason = "a function of the shim")]
pub fn set_device(device: &str) -> Result<()> {
    let device = c_string(device)?;
    // SAFETY: the string outlives the call.
    check(unsafe { sys::ar_device_set(device.as_ptr()) })
}

/// Waits until a device has done everything that was queued on it.
///
/// # Errors
/// torch's, and those of what the device did.
#[expect(unsafe_code, reason = "a function of the shim")]
pub fn synchronize(device: &str) -> Result<()> {
    let device = c_string(device)?;
    // SAFETY: the string outlives the call.
    check(unsafe { sys::ar_device_synchronize(device.as_ptr()) })
}

/// Returns the number of devices of a type, such as `cuda`.
///
/// # Errors
/// torch's: it knows no such type, or has nothing loaded for it.
#[expect(unsafe_code, reason = "a function of the shim")]
pub fn count_devices(kind: &str) -> Result<u32> {
    let kind = c_string(kind)?;
    let mut count = 0;
    // SAFETY: the string outlives the call, and the result is written to a variable of ours.
    check(unsafe { sys::ar_device_count(kind.as_ptr(), &raw mut count) })?;
    Ok(count.unsigned_abs())
}
