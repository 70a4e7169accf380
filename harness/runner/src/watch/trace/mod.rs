//! What a Python process writes of its calls: the call trace, and what torch's flight recorder knows besides.
//!
//! | module | holds |
//! |---|---|
//! | `call_trace` | reads what a Python process writes of its calls |
//! | `record` | reads what torch's flight recorder writes |
//! | `recorder` | puts the recorded collectives into the call trace |
//! | `device_messages` | finds the messages that a rank's device has not carried out |
//! | `own_wait` | what a rank's own code waits in, and for how long it may |

pub(super) mod call_trace;
pub(super) mod device_messages;
pub(super) mod own_wait;
pub(super) mod record;
pub(super) mod recorder;
