//! Key-value stores through which ranks find each other: `TCPStore`, `FileStore` and `PrefixStore`.

use std::path::Path;
use std::ptr::{self, NonNull};
use std::time::Duration;

use super::error::check;
use super::{Error, Kind, Result, c_string, sys};

/// A key-value store: owns a `c10d::Store`.
#[derive(Debug)]
pub struct Store(NonNull<sys::ArStore>);

#[expect(
    unsafe_code,
    reason = "it holds a reference-counted c10d::Store, which any thread may use and release"
)]
// SAFETY: the count is atomic, and c10d's stores lock themselves.
unsafe impl Send for Store {}
#[expect(unsafe_code, reason = "as above")]
// SAFETY: as above.
unsafe impl Sync for Store {}

/// Returns a time in milliseconds, as c10d takes it.
pub(super) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[expect(
    unsafe_code,
    reason = "calls of the shim: a store's pointer is valid from its making to its drop, strings outlive their call, and \
              results are written to variables of ours"
)]
impl Store {
    /// Makes a `TCPStore`, which waits for `world_size` clients. With `is_master` it is also the server.
    ///
    /// # Errors
    /// c10d's: the address is in use, no store answers in time, ...
    pub fn tcp(
        host: &str,
        port: u16,
        world_size: u32,
        is_master: bool,
        timeout: Duration,
        multi_tenant: bool,
    ) -> Result<Self> {
        let host = c_string(host)?;
        let mut made = ptr::null_mut();
        // SAFETY: see the reason above.
        check(unsafe {
            sys::ar_store_tcp(
                host.as_ptr(),
                port,
                i64::from(world_size),
                i32::from(is_master),
                millis(timeout),
                i32::from(multi_tenant),
                &raw mut made,
            )
        })?;
        Self::own(made)
    }

    /// Makes a `FileStore` for `world_size` ranks.
    ///
    /// # Errors
    /// c10d's: the file cannot be opened.
    pub fn file(path: &Path, world_size: u32) -> Result<Self> {
        let path = c_string(&path.to_string_lossy())?;
        let mut made = ptr::null_mut();
        // SAFETY: see the reason above.
        check(unsafe { sys::ar_store_file(path.as_ptr(), world_size as i32, &raw mut made) })?;
        Self::own(made)
    }

    /// Makes a `PrefixStore` on this one: the same store, with a prefix before each key.
    ///
    /// # Errors
    /// The prefix has a zero byte.
    pub fn prefix(&self, prefix: &str) -> Result<Self> {
        let prefix = c_string(prefix)?;
        let mut made = ptr::null_mut();
        // SAFETY: see the reason above.
        check(unsafe { sys::ar_store_prefix(prefix.as_ptr(), self.as_ptr(), &raw mut made) })?;
        Self::own(made)
    }

    /// Sets the timeout of the calls of this store that wait.
    ///
    /// # Errors
    /// c10d's.
    pub fn set_timeout(&self, timeout: Duration) -> Result<()> {
        // SAFETY: see the reason above.
        check(unsafe { sys::ar_store_set_timeout(self.as_ptr(), millis(timeout)) })
    }

    /// Adds to the number at a key, which is 0 if it is not set. Returns the sum.
    ///
    /// # Errors
    /// c10d's.
    pub fn add(&self, key: &str, value: i64) -> Result<i64> {
        let key = c_string(key)?;
        let mut sum = 0;
        // SAFETY: see the reason above.
        check(unsafe { sys::ar_store_add(self.as_ptr(), key.as_ptr(), value, &raw mut sum) })?;
        Ok(sum)
    }

    /// Sets a key.
    ///
    /// # Errors
    /// c10d's.
    pub fn set(&self, key: &str, value: &str) -> Result<()> {
        let (key, value) = (c_string(key)?, c_string(value)?);
        // SAFETY: see the reason above.
        check(unsafe { sys::ar_store_set(self.as_ptr(), key.as_ptr(), value.as_ptr()) })
    }

    /// Waits until a key is set.
    ///
    /// # Errors
    /// It is not set in time.
    pub fn wait(&self, key: &str, timeout: Duration) -> Result<()> {
        let key = c_string(key)?;
        // SAFETY: see the reason above.
        check(unsafe { sys::ar_store_wait(self.as_ptr(), key.as_ptr(), millis(timeout)) })
    }

    pub(super) fn as_ptr(&self) -> *const sys::ArStore {
        self.0.as_ptr()
    }

    fn own(made: *mut sys::ArStore) -> Result<Self> {
        let made =
            NonNull::new(made).ok_or_else(|| Error::new(Kind::Runtime, "no store was made"))?;
        Ok(Self(made))
    }
}

impl Drop for Store {
    #[expect(unsafe_code, reason = "the store is released once, here")]
    fn drop(&mut self) {
        // SAFETY: the pointer is valid, and is not used after this.
        unsafe { sys::ar_store_free(self.0.as_ptr()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_keeps_keys_apart() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::file(&folder.path().join("store"), 1).unwrap();
        let side = store.prefix("side").unwrap();
        assert_eq!(store.add("count", 2).unwrap(), 2);
        assert_eq!(side.add("count", 5).unwrap(), 5);
        assert_eq!(store.add("count", 1).unwrap(), 3);
    }

    #[test]
    fn waiting_in_vain_is_an_error_of_the_store() {
        let store = Store::tcp("127.0.0.1", 0, 1, true, Duration::from_secs(5), false).unwrap();
        store.set("there", "1").unwrap();
        store.wait("there", Duration::from_secs(5)).unwrap();
        let error = store.wait("never", Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.kind, Kind::DistStore, "{error}");
    }

    #[test]
    fn an_address_in_use_is_an_error_of_the_network() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let refused = Store::tcp("127.0.0.1", port, 1, true, Duration::from_secs(1), false);
        assert_eq!(refused.unwrap_err().kind, Kind::DistNetwork);
    }

    #[test]
    fn a_zero_byte_in_a_key_never_reaches_c() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::file(&folder.path().join("store"), 1).unwrap();
        assert_eq!(store.add("a\0b", 1).unwrap_err().kind, Kind::Value);
    }
}
