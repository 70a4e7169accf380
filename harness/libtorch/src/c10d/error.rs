//! What went wrong in libtorch, or in the driver's part of the library, as Python would name it.

use std::ffi::{CStr, c_char};

use allranks_protocol::CallError;
use tch::TchError;

use super::sys;

/// The class of an error, in the shim's order (`enum ar_kind`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Runtime,
    Value,
    Type,
    Index,
    NotImplemented,
    Memory,
    Dist,
    DistBackend,
    DistNetwork,
    DistStore,
    DistQueueEmpty,
    /// Something that is no `std::exception`.
    Unknown,
    /// What the driver itself looks up, and does not find.
    Lookup,
}

impl Kind {
    /// The number is the shim's.
    fn of(number: i32) -> Self {
        match number {
            0 => Self::Runtime,
            1 => Self::Value,
            2 => Self::Type,
            3 => Self::Index,
            4 => Self::NotImplemented,
            5 => Self::Memory,
            6 => Self::Dist,
            7 => Self::DistBackend,
            8 => Self::DistNetwork,
            9 => Self::DistStore,
            10 => Self::DistQueueEmpty,
            _ => Self::Unknown,
        }
    }

    /// The exception's class name in Python.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Runtime => "RuntimeError",
            Self::Value => "ValueError",
            Self::Type => "TypeError",
            Self::Index => "IndexError",
            Self::NotImplemented => "NotImplementedError",
            Self::Memory => "MemoryError",
            Self::Dist => "DistError",
            Self::DistBackend => "DistBackendError",
            Self::DistNetwork => "DistNetworkError",
            Self::DistStore => "DistStoreError",
            Self::DistQueueEmpty => "DistQueueEmptyError",
            Self::Unknown => "UnknownError",
            Self::Lookup => "LookupError",
        }
    }
}

/// An error of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Its class.
    pub kind: Kind,
    /// Its whole text.
    pub message: String,
}

impl Error {
    /// An error of the driver's own part of the library.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// As the protocol says it.
    #[must_use]
    pub fn describe(&self) -> CallError {
        CallError {
            kind: self.kind.name().to_owned(),
            message: self.message.clone(),
        }
        .cut()
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.message)
    }
}

impl std::error::Error for Error {}

/// tch keeps the text of an exception, with the C++ backtrace, and not its class.
impl From<TchError> for Error {
    fn from(error: TchError) -> Self {
        let text = match error {
            TchError::Torch(text) => text,
            other => other.to_string(),
        };
        let message = text.split("\nException raised from").next().unwrap_or("");
        Self::new(Kind::Runtime, message)
    }
}

/// A result of the library.
pub type Result<T> = std::result::Result<T, Error>;

/// Takes what a function of the shim returned.
#[expect(unsafe_code, reason = "an error of the shim is read and freed here")]
pub(super) fn check(error: *mut sys::ArError) -> Result<()> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: an error that is not null is valid and ours until it is freed, which is done here, once, after its text
    // has been copied.
    let taken = unsafe {
        let kind = Kind::of(sys::ar_error_kind(error));
        let message = text(sys::ar_error_message(error));
        sys::ar_error_free(error);
        Error { kind, message }
    };
    Err(taken)
}

/// A C string of the shim, copied. Must point to one.
#[expect(unsafe_code, reason = "C strings are read here")]
pub(super) unsafe fn text(string: *const c_char) -> String {
    // SAFETY: the caller says that it points to a string.
    unsafe { CStr::from_ptr(string) }
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backtraces_are_no_part_of_a_message() {
        let error = TchError::Torch("shape is wrong\nException raised from f at x.cpp:1".into());
        assert_eq!(Error::from(error).message, "shape is wrong");
    }
}
