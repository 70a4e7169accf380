//! Asynchronous calls of c10d (`c10d::Work`).

use std::ptr::NonNull;
use std::time::Duration;

use super::error::check;
use super::store::millis;
use super::{Result, sys};

/// An asynchronous call: owns a `c10d::Work`.
#[derive(Debug)]
pub struct Work(NonNull<sys::ArWork>);

#[expect(
    unsafe_code,
    reason = "it holds a reference-counted c10d::Work, which any thread may wait for and release"
)]
// SAFETY: the count is atomic, and works lock themselves.
unsafe impl Send for Work {}

#[expect(
    unsafe_code,
    reason = "calls of the shim: a work's pointer is valid from its making to its drop, and results are written to \
              variables of ours"
)]
impl Work {
    /// Takes ownership of a work that the shim made; `None` if it made none.
    pub(super) fn own(made: *mut sys::ArWork) -> Option<Self> {
        NonNull::new(made).map(Self)
    }

    /// Waits until the op is over, for at most `timeout`; with `None`, the group's timeout.
    ///
    /// # Errors
    /// What went wrong with the op, or that it did not end in time.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<()> {
        let timeout = timeout.map_or(0, millis);
        // SAFETY: see the reason above.
        check(unsafe { sys::ar_work_wait(self.0.as_ptr(), timeout) })
    }

    /// Returns true if the op is over.
    ///
    /// # Errors
    /// c10d's.
    pub fn is_completed(&self) -> Result<bool> {
        let mut answer = 0;
        // SAFETY: see the reason above.
        check(unsafe { sys::ar_work_is_completed(self.0.as_ptr(), &raw mut answer) })?;
        Ok(answer != 0)
    }

    /// Returns the group rank that a message came from.
    ///
    /// # Errors
    /// It is not a message received.
    pub fn source(&self) -> Result<u32> {
        let mut rank = 0;
        // SAFETY: see the reason above.
        check(unsafe { sys::ar_work_source(self.0.as_ptr(), &raw mut rank) })?;
        Ok(rank as u32)
    }

    /// Waits for the work's future. Returns true if it is done then.
    ///
    /// # Errors
    /// What went wrong with the op, or that it has no future.
    pub fn future(&self) -> Result<bool> {
        let mut done = 0;
        // SAFETY: see the reason above.
        check(unsafe { sys::ar_work_future(self.0.as_ptr(), &raw mut done) })?;
        Ok(done != 0)
    }
}

impl Drop for Work {
    #[expect(unsafe_code, reason = "the work is released once, here")]
    fn drop(&mut self) {
        // SAFETY: the pointer is valid, and is not used after this.
        unsafe { sys::ar_work_free(self.0.as_ptr()) }
    }
}
