//! Errors of libtorch and of the driver's own library, with the names of the exceptions that Python would raise.

use std::ffi::{CStr, c_char};

use allranks_protocol::CallError;
use tch::TchError;

use super::sys;

/// The class of an error, in the order of `enum ar_kind` in the C++ shim.
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
    /// Something was thrown that is no `std::exception`.
    Unknown,
    /// The driver itself did not find something, such as a group of that name.
    Lookup,
}

impl Kind {
    /// Returns the class with this number in the shim.
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

    /// Returns the name of the exception that PyTorch's Python layer raises for this class.
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
    /// The class of the error.
    pub kind: Kind,
    /// The full text of the error.
    pub message: String,
}

impl Error {
    /// Makes an error that the driver itself reports, not c10d.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// Returns the error as the rank protocol has it.
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

/// Finds the class by the text: tch keeps the text of an exception, with the C++ backtrace, and not its class.
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

/// The result of a call of torch or c10d.
pub type Result<T> = std::result::Result<T, Error>;

/// Turns what a function of the shim returned into a result, and frees it. A null pointer is success.
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

/// Copies a C string of the shim. `string` must point to one.
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
