//! c10d in Rust: stores, groups, works. Safe wrappers over the shim's C interface (`shim/c10d.h`), one call each.
//!
//! In: [`tch::Tensor`]s, shared with libtorch and never copied. Out: [`Work`]s and typed [`Error`]s. No C++ exception
//! comes out of the shim and no Rust code runs inside it, so nothing unwinds over the boundary either way. All unsafe
//! code of the driver is in here and in [`crate::process`].

mod device;
mod error;
mod group;
mod ops;
mod recorder;
mod store;
mod sys;
mod tensor;
mod work;

pub use device::{count_devices, set_device, synchronize};
pub use error::{Error, Kind, Result};
pub use group::{BackendArguments, Group, has_nccl};
pub use ops::ReduceOp;
pub use recorder::under_way;
pub use store::Store;
pub use tensor::{InferenceMode, bytes, bytes_mut, view};
pub use work::Work;

use std::ffi::CString;

/// Converts a string for C. Fails if it has a zero byte.
fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::new(Kind::Value, "embedded null character"))
}

/// Returns the version of the libtorch that this was built with, as its own files have it: `2.11.0+cu130`.
#[must_use]
pub fn torch_version() -> &'static str {
    env!("ALLRANKS_TORCH_VERSION")
}

/// Returns the version in the headers that the shim was compiled with: `2.11.0`.
#[must_use]
#[expect(unsafe_code, reason = "a function of the shim")]
pub fn header_version() -> String {
    // SAFETY: it returns a string that is part of the program.
    unsafe { error::text(sys::ar_torch_version()) }
}

/// Reads `TORCH_DISTRIBUTED_DEBUG` again, in a process that was forked with another environment.
///
/// # Errors
/// The variable has a value that torch does not know.
#[expect(unsafe_code, reason = "a function of the shim")]
pub fn read_debug_level() -> Result<()> {
    // SAFETY: it takes nothing.
    error::check(unsafe { sys::ar_read_debug_level() })
}

/// Returns true if `TORCH_DISTRIBUTED_DEBUG` is `DETAIL`.
#[must_use]
#[expect(unsafe_code, reason = "a function of the shim")]
pub fn debug_is_detail() -> bool {
    // SAFETY: it takes nothing.
    unsafe { sys::ar_debug_is_detail() != 0 }
}
