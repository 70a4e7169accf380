//! Reads one run of a package.

use std::collections::BTreeSet;
use std::path::Path;

use super::reason::{Reason, Rejections};
use allranks_model::record::{Origin, STOPPED, SuiteIdentity};
use allranks_report::{Results, jsonl};

/// A run as it was read.
#[derive(Debug)]
pub struct Run {
    /// Its name in messages: `run 1`.
    pub name: String,
    /// The records of the run.
    pub results: Results,
    /// The digests of its inputs.
    pub origin: Box<Origin>,
    /// The suite and driver that it used.
    pub identity: SuiteIdentity,
}

impl Run {
    /// Reads a run of a package. Returns `None` if it cannot be reviewed, after adding the rejection.
    pub fn read(folder: &Path, number: usize, rejections: &mut Rejections) -> Option<Self> {
        let name = format!("run {number}");
        let results = match jsonl::read(&folder.join(format!("runs/{number}"))) {
            Ok(results) => results,
            Err(error) => {
                rejections.add(Reason::RunUnreadable, format!("{name}: {error}"));
                return None;
            }
        };
        let is_stopped = results
            .end
            .as_ref()
            .is_none_or(|end| end.issues.iter().any(|issue| issue == STOPPED));
        if is_stopped {
            rejections.add(
                Reason::RunCutOff,
                format!("{name} was cut off before its end"),
            );
            return None;
        }
        if let Some(remark) = results.remarks.first() {
            rejections.add(Reason::RunUnreadable, format!("{name}: {remark}"));
            return None;
        }
        let origin = results.run.origin.clone();
        let identity = origin.as_ref().and_then(|origin| origin.identity.clone());
        let (Some(origin), Some(identity)) = (origin, identity) else {
            let text = format!(
                "{name} was not made by `allranks run` of this version: its origin is not recorded"
            );
            rejections.add(Reason::RunDerived, text);
            return None;
        };
        Some(Self {
            name,
            results,
            origin,
            identity,
        })
    }

    /// Returns the driver of the run, leaving out the programs of cases.
    pub fn driver(&self) -> &str {
        let columns = self.results.checks.iter().map(|check| &check.column);
        let mut drivers = columns.map(|column| column.driver.as_str());
        drivers
            .find(|driver| *driver != "program")
            .unwrap_or("program")
    }

    /// Returns the versions of torch in the run, leaving out the programs of cases, which may use their own.
    pub fn torch(&self) -> BTreeSet<&str> {
        let columns = self.results.checks.iter().map(|check| &check.column);
        let own = columns.filter(|column| column.driver != "program");
        own.map(|column| column.torch.as_str()).collect()
    }

    /// Returns when the run began and when it ended, in milliseconds since the Unix epoch.
    pub fn period_ms(&self) -> (u64, u64) {
        let began = self.results.run.started.saturating_mul(1000);
        let took = self.results.end.as_ref().map_or(0, |end| end.duration_ms);
        (began, began.saturating_add(took))
    }
}
