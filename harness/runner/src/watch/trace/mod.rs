//! What a Python process writes of its calls, and torch's flight recorder in it beside them.
//!
//! | module | holds |
//! |---|---|
//! | `call_trace` | reads what a Python process writes of its calls |
//! | `recorder_dump` | finds the dump of a process's flight recorder |
//! | `own_wait` | what a rank's own code waits in |
//! | `call` | one call of a process |
//! | `recorder_counts` | the numbers of collectives that the recorder has counted |

pub(super) mod call;
pub(super) mod call_trace;
pub(super) mod own_wait;
pub(super) mod recorder_counts;
pub(super) mod recorder_dump;
