//! The first record of a run, for unit tests.

use allranks_model::record::{Counts, RunRecord};

/// Returns the record of a run with seed 7 that planned nothing and was given no arguments.
pub fn sample_run() -> RunRecord {
    RunRecord {
        format: 1,
        allranks: "0.1.0".into(),
        name: "run".into(),
        started: 0,
        seed: 7,
        profile: None,
        arguments: Vec::new(),
        planned: Counts::default(),
        requirements: Default::default(),
        absent: Vec::new(),
        origin: None,
    }
}
