//! Merges what torch's flight recorder knows of a rank with what its call trace saw.
//!
//! | module | holds |
//! |---|---|
//! | `issued` | the collectives that backends issued, by the recorder |
//! | `trust` | decides how far the recorder is believed |
//! | `merged_trace` | puts the recorded collectives into the call trace |
//! | `device_messages` | finds the messages that a rank's device has not carried out |
//! | `device_order` | what the device carries out before what was issued later |

pub(super) mod device_messages;
pub(super) mod device_order;
pub(super) mod issued;
pub(super) mod merged_trace;
pub(super) mod trust;
