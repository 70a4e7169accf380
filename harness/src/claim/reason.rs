//! Why a package is rejected.

use std::fmt;

use serde::Serialize;
use strum::{EnumIter, IntoEnumIterator};

/// A reason to reject a package. The ids are a contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, EnumIter)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The file is not a tar archive in Zstandard frames, or ends early.
    NotAnArchive,
    /// A path in the archive leads out of it, or is not plain.
    UnsafePath,
    /// An entry is neither a plain file nor a folder: a link, a device.
    UnsafeEntry,
    /// Two entries have one path.
    DuplicateEntry,
    /// The archive holds more bytes, files or folders than a package may.
    TooLarge,
    /// The manifest is missing or cannot be read.
    BadManifest,
    /// A file of the manifest is missing.
    MissingFile,
    /// A file is not in the manifest.
    UnlistedFile,
    /// A file differs from its entry in the manifest.
    DigestMismatch,
    /// The product file is missing or wrong.
    BadProduct,
    /// Another version of allranks, or other cases, requirements, platforms or expectations.
    OtherSuite,
    /// The Python driver is not the one of this version.
    OtherDriver,
    /// A results file cannot be read, or a line of it is no record.
    RunUnreadable,
    /// A run has no end, or was interrupted.
    RunCutOff,
    /// Results that `allranks run` did not make: merged or judged again.
    RunDerived,
    /// Checks or scenarios of the plan have no record.
    RunPartial,
    /// A failed check was run again until it passed.
    RunRetried,
    /// A record of a check or scenario that is not in the plan.
    UnplannedCheck,
    /// A record contradicts the plan, or occurs twice.
    EditedRecord,
    /// A verdict does not follow from outcome, expectations and waivers.
    EditedVerdict,
    /// The totals of a run do not follow from its records.
    EditedTotals,
    /// A pass with values that no run records.
    ImplausiblePass,
    /// The log of a rank is not there, or is that of another rank.
    MissingLog,
    /// The record of a run's environment is missing, or lacks the system or the packages.
    MissingEnvironment,
    /// A platform, expectation or waiver file differs from the one that the runs were given.
    EditedInput,
    /// The claim names another platform, backend or profile than the runs have.
    OtherClaim,
    /// The product is not what was installed or found in the runs.
    OtherProduct,
    /// A simulated device cannot carry a claim of another kind.
    SimulatedEvidence,
    /// The runs have another kind of evidence than the claim names.
    OtherEvidence,
    /// Both folders hold the same run.
    RunReused,
    /// A run began before the other had ended.
    RunsOverlap,
    /// The runs have different inputs.
    RunsDiffer,
    /// A check has different outcomes in the two runs.
    RunsDisagree,
    /// A check of a MUST failed, and nothing excuses it.
    MustFailed,
    /// A check of a MUST was not run.
    MustNotRun,
    /// No check of a MUST fits the devices.
    MustMissing,
    /// An op works that is not declared as supported.
    UndeclaredSupport,
    /// The harness or the machine failed.
    HarnessFailed,
    /// An expectation of the package excuses a failure of a MUST: only a waiver may.
    ExcusedByExpectation,
    /// A file of waivers, expectations or platforms is wrong.
    BadInput,
    /// A waiver's term is over.
    WaiverExpired,
    /// A waiver matches too much.
    WaiverTooBroad,
    /// A waiver is for a failure that may not be excused.
    WaiverForbidden,
    /// A waiver excuses nothing in the runs, or names another backend.
    WaiverUnused,
    /// The package is not signed by an allowed signer.
    BadSignature,
}

impl Reason {
    /// Returns all reasons.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::iter()
    }

    /// Returns the stable id: `must-not-run`.
    #[must_use]
    pub fn id(self) -> String {
        let json = serde_json::to_value(self).unwrap_or_default();
        json.as_str().unwrap_or_default().to_owned()
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.id())
    }
}

/// A reason, with its first occurrence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rejection {
    /// The reason.
    pub reason: Reason,
    /// What is wrong, in one line; the first, if there are several with this reason.
    pub text: String,
    /// The number of occurrences.
    pub count: usize,
}

/// The reasons why a package is rejected, each once, in the order in which they were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rejections {
    list: Vec<Rejection>,
}

impl Rejections {
    /// Adds an occurrence of a reason.
    pub fn add(&mut self, reason: Reason, text: impl Into<String>) {
        match self.list.iter_mut().find(|one| one.reason == reason) {
            Some(known) => known.count += 1,
            None => self.list.push(Rejection {
                reason,
                text: text.into(),
                count: 1,
            }),
        }
    }

    /// Returns true if the package is rejected for this reason.
    #[must_use]
    pub fn has(&self, reason: Reason) -> bool {
        self.list.iter().any(|one| one.reason == reason)
    }

    /// Returns true if there is no rejection.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns all rejections.
    #[must_use]
    pub fn into_list(self) -> Vec<Rejection> {
        self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_stable() {
        assert_eq!(Reason::MustNotRun.id(), "must-not-run");
        assert_eq!(Reason::NotAnArchive.to_string(), "not-an-archive");
    }

    #[test]
    fn a_reason_is_told_once_with_its_number() {
        let mut all = Rejections::default();
        all.add(Reason::EditedRecord, "first");
        all.add(Reason::RunCutOff, "other");
        all.add(Reason::EditedRecord, "second");
        let list = all.into_list();
        assert_eq!(list.len(), 2);
        assert_eq!((list[0].count, list[0].text.as_str()), (2, "first"));
    }
}
