//! From diaries to verdicts, without a process.
