//! Finds the dump that torch's flight recorder has written for a process.

use std::fs;
use std::path::Path;

use allranks_model::flight_recorder::RecorderDump;

/// Seconds by which the times of a dump and of the call trace may differ; both come from the machine's clock.
pub const CLOCK: f64 = 0.000_01;

/// Reads the dump that a process has written beside its call trace; none if there is none.
#[must_use]
pub fn read_dump(folder: &Path, pid: u32) -> Option<RecorderDump> {
    let text = fs::read(folder.join(format!("{pid}.json.recorder"))).ok()?;
    serde_json::from_slice(&text).ok()
}
