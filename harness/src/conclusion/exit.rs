//! Exit codes.

/// Exit codes of the process. The numbers are a contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Everything is as expected.
    AsExpected = 0,
    /// At least one result is unexpected.
    Unexpected = 1,
    /// The command line or a file is wrong.
    Usage = 2,
    /// Nothing was selected.
    Nothing = 3,
    /// A required check was not run.
    Incomplete = 4,
    /// The harness or the machine failed.
    HarnessFailed = 10,
}
