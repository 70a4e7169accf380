//! Process groups, and the creation of their backends.

use std::ffi::{CString, c_char};
use std::ptr::{self, NonNull};
use std::time::Duration;

use tch::Tensor;

use super::error::check;
use super::store::millis;
use super::tensor::pointer;
use super::{Error, Kind, Result, Store, Work, c_string, sys};

/// A process group: owns a `c10d::ProcessGroup`.
#[derive(Debug)]
pub struct Group(NonNull<sys::ArGroup>);

#[expect(
    unsafe_code,
    reason = "it holds a reference-counted c10d::ProcessGroup; scripts call it from several threads at once, as Python \
              programs do, which is the backend's to bear"
)]
// SAFETY: the count is atomic, and the object is neither moved nor changed by us.
unsafe impl Send for Group {}
#[expect(unsafe_code, reason = "as above")]
// SAFETY: as above.
unsafe impl Sync for Group {}

/// The arguments with which a backend is added to a group.
#[derive(Debug)]
pub struct BackendArguments<'a> {
    /// The device types that the backend serves: `cpu`, `cuda`.
    pub devices: &'a [&'a str],
    /// The store through which the ranks find each other.
    pub store: &'a Store,
    /// The timeout of the backend's calls.
    pub timeout: Duration,
    /// The global ranks of the group's members; empty for the world.
    pub global_ranks: &'a [u64],
    /// The name of the group.
    pub name: &'a str,
    /// Whether the backend is wrapped in one that compares the ranks' calls (`TORCH_DISTRIBUTED_DEBUG=DETAIL`).
    pub wrapped: bool,
    /// The device that the group is bound to; `None` if it is bound to none.
    pub bound: Option<&'a str>,
}

/// Returns true if the driver was built with NCCL.
#[must_use]
#[expect(unsafe_code, reason = "a function of the shim")]
pub fn has_nccl() -> bool {
    // SAFETY: it takes nothing.
    unsafe { sys::ar_has_nccl() != 0 }
}

#[expect(
    unsafe_code,
    reason = "calls of the shim: a group's pointer is valid from its making to its drop, strings, lists and tensors \
              outlive their call, and results are written to variables of ours"
)]
impl Group {
    /// Makes a group without backends. `default_backend` is the name of the one that will be added first.
    ///
    /// # Errors
    /// c10d's.
    pub fn new(store: &Store, rank: u32, size: u32, default_backend: &str) -> Result<Self> {
        let backend = c_string(default_backend)?;
        let mut made = ptr::null_mut();
        // SAFETY: see the reason above.
        check(unsafe {
            sys::ar_group_new(
                store.as_ptr(),
                rank as i32,
                size as i32,
                backend.as_ptr(),
                &raw mut made,
            )
        })?;
        let made =
            NonNull::new(made).ok_or_else(|| Error::new(Kind::Runtime, "no group was made"))?;
        Ok(Self(made))
    }

    /// Adds a Gloo backend.
    ///
    /// # Errors
    /// c10d's and Gloo's.
    pub fn add_gloo(&self, how: &BackendArguments<'_>) -> Result<()> {
        let (_kept, devices) = c_strings(how.devices)?;
        let name = c_string(how.name)?;
        // SAFETY: see the reason above.
        check(unsafe {
            sys::ar_group_add_gloo(
                self.as_ptr(),
                devices.as_ptr(),
                devices.len(),
                how.store.as_ptr(),
                millis(how.timeout),
                how.global_ranks.as_ptr(),
                how.global_ranks.len(),
                name.as_ptr(),
                i32::from(how.wrapped),
            )
        })
    }

    /// Adds an NCCL backend.
    ///
    /// # Errors
    /// c10d's and NCCL's, or that it was not built in.
    pub fn add_nccl(&self, how: &BackendArguments<'_>) -> Result<()> {
        let (_kept, devices) = c_strings(how.devices)?;
        let name = c_string(how.name)?;
        let bound = how.bound.map(c_string).transpose()?;
        // SAFETY: see the reason above.
        check(unsafe {
            sys::ar_group_add_nccl(
                self.as_ptr(),
                devices.as_ptr(),
                devices.len(),
                how.store.as_ptr(),
                millis(how.timeout),
                how.global_ranks.as_ptr(),
                how.global_ranks.len(),
                name.as_ptr(),
                i32::from(how.wrapped),
                bound.as_ref().map_or(ptr::null(), |bound| bound.as_ptr()),
            )
        })
    }

    /// Sets the name and the description of the group and of its backends.
    ///
    /// # Errors
    /// c10d's.
    pub fn set_name(&self, name: &str, description: &str) -> Result<()> {
        let (name, description) = (c_string(name)?, c_string(description)?);
        // SAFETY: see the reason above.
        check(unsafe { sys::ar_group_name(self.as_ptr(), name.as_ptr(), description.as_ptr()) })
    }

    /// Binds the group to a device, such as `cuda:1`.
    ///
    /// # Errors
    /// The device has no index.
    pub fn bind(&self, device: &str) -> Result<()> {
        let device = c_string(device)?;
        // SAFETY: see the reason above.
        check(unsafe { sys::ar_group_bind(self.as_ptr(), device.as_ptr()) })
    }

    /// Returns true if the backend for a tensor's device can make several calls as one.
    ///
    /// # Errors
    /// It has no backend for that device.
    pub fn supports_coalescing(&self, tensor: &Tensor) -> Result<bool> {
        let mut answer = 0;
        // SAFETY: see the reason above.
        check(unsafe {
            sys::ar_group_supports_coalescing(self.as_ptr(), pointer(tensor), &raw mut answer)
        })?;
        Ok(answer != 0)
    }

    /// Begins to gather the calls on a tensor's device, instead of making them.
    ///
    /// # Errors
    /// c10d's.
    pub fn start_coalescing(&self, tensor: &Tensor) -> Result<()> {
        // SAFETY: see the reason above.
        check(unsafe { sys::ar_group_start_coalescing(self.as_ptr(), pointer(tensor)) })
    }

    /// Makes the gathered calls as one. Returns its work; `None` if the backend gives none.
    ///
    /// # Errors
    /// c10d's.
    pub fn end_coalescing(&self, tensor: &Tensor) -> Result<Option<Work>> {
        let mut made = ptr::null_mut();
        // SAFETY: see the reason above.
        check(unsafe {
            sys::ar_group_end_coalescing(self.as_ptr(), pointer(tensor), &raw mut made)
        })?;
        Ok(Work::own(made))
    }

    /// Returns the timeout of the backend for a device type.
    ///
    /// # Errors
    /// It has no such backend, or that one does not tell.
    pub fn timeout(&self, device: &str) -> Result<Duration> {
        let device = c_string(device)?;
        let mut timeout = 0;
        // SAFETY: see the reason above.
        check(unsafe { sys::ar_group_timeout(self.as_ptr(), device.as_ptr(), &raw mut timeout) })?;
        Ok(Duration::from_millis(timeout.unsigned_abs()))
    }

    /// Shuts its backends down.
    ///
    /// # Errors
    /// c10d's.
    pub fn shutdown(&self) -> Result<()> {
        // SAFETY: see the reason above.
        check(unsafe { sys::ar_group_shutdown(self.as_ptr()) })
    }

    /// Aborts what its backends have under way.
    ///
    /// # Errors
    /// c10d's, for backends that cannot.
    pub fn abort(&self) -> Result<()> {
        // SAFETY: see the reason above.
        check(unsafe { sys::ar_group_abort(self.as_ptr()) })
    }

    pub(super) fn as_ptr(&self) -> *const sys::ArGroup {
        self.0.as_ptr()
    }
}

impl Drop for Group {
    #[expect(unsafe_code, reason = "the group is released once, here")]
    fn drop(&mut self) {
        // SAFETY: the pointer is valid, and is not used after this.
        unsafe { sys::ar_group_free(self.0.as_ptr()) }
    }
}

/// Returns strings for C, and pointers to them, which are valid as long as the strings are kept.
fn c_strings(texts: &[&str]) -> Result<(Vec<CString>, Vec<*const c_char>)> {
    let kept = texts
        .iter()
        .map(|text| c_string(text))
        .collect::<Result<Vec<_>>>()?;
    let pointers = kept.iter().map(|text| text.as_ptr()).collect();
    Ok((kept, pointers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::c10d::ReduceOp;

    /// Makes a Gloo group of one rank.
    fn alone(folder: &std::path::Path) -> Group {
        let store = Store::file(&folder.join("store"), 1).unwrap();
        let group = Group::new(&store, 0, 1, "gloo").unwrap();
        group
            .add_gloo(&BackendArguments {
                devices: &["cpu"],
                store: &store,
                timeout: Duration::from_secs(5),
                global_ranks: &[],
                name: "0",
                wrapped: false,
                bound: None,
            })
            .unwrap();
        group
    }

    /// Asserts that an all_gather writes into the caller's own tensor.
    fn assert_gathers(group: &Group) {
        let input = Tensor::from_slice(&[1.0_f32, 2.0]);
        let output = Tensor::zeros([2], (tch::Kind::Float, tch::Device::Cpu));
        let work = group.all_gather(&[output.shallow_clone()], &input, true);
        work.unwrap().unwrap().wait(None).unwrap();
        assert_eq!(Vec::<f32>::try_from(&output).unwrap(), [1.0, 2.0]);
    }

    #[test]
    fn tensors_are_shared_and_not_copied() {
        let folder = tempfile::tempdir().unwrap();
        let group = alone(folder.path());
        assert_eq!(group.timeout("cpu").unwrap(), Duration::from_secs(5));
        assert_gathers(&group);
    }

    #[test]
    fn a_refusal_of_the_backend_is_typed_and_the_group_lives_on() {
        let folder = tempfile::tempdir().unwrap();
        let group = alone(folder.path());
        let tensor = Tensor::from_slice(&[1_i16]);
        let op = ReduceOp {
            op: allranks_model::dtype::ReduceOp::Sum,
            factor: 1.0,
            tensor: None,
        };
        let refused = group
            .all_reduce(&[tensor], &op, false)
            .and_then(|work| work.map_or(Ok(()), |work| work.wait(None)))
            .unwrap_err();
        assert_eq!(refused.kind, Kind::Runtime);
        assert!(refused.message.contains("Invalid scalar type"), "{refused}");
        // A barrier would wait for the refused work too, if Gloo has not put it away yet, and raise its error once more.
        assert_gathers(&group);
    }

    #[test]
    fn a_device_without_backend_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let group = alone(folder.path());
        let error = group.timeout("meta").unwrap_err();
        assert!(error.message.contains("meta"), "{error}");
        assert!(
            group
                .add_nccl(&BackendArguments {
                    devices: &["cuda"],
                    store: &Store::file(&folder.path().join("other"), 1).unwrap(),
                    timeout: Duration::from_secs(5),
                    global_ranks: &[],
                    name: "1",
                    wrapped: false,
                    bound: None,
                })
                .is_err()
        );
    }
}
