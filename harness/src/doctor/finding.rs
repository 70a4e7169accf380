//! Findings of the doctor.

use serde::Serialize;

/// How severe a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Severity {
    /// Something that is needed does not work. Only this severity makes the exit code 1.
    Fault,
    /// It works now, but may fail under load or on several machines, or is probably not what was intended.
    Warning,
    /// A remark that needs no action.
    Note,
}

impl Severity {
    /// Returns the severity as a word.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// One thing that is wrong, or may be, on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its stable id, such as `master-port-busy`.
    pub id: &'static str,
    /// How severe it is.
    pub severity: Severity,
    /// What is so: `MASTER_PORT=29500 is taken by python`.
    pub what: String,
    /// Why it matters, or how it is known.
    pub why: String,
    /// How to fix it.
    pub fix: String,
}

impl Finding {
    /// Makes a finding.
    #[must_use]
    pub fn new(
        severity: Severity,
        id: &'static str,
        what: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self {
            id,
            severity,
            what: what.into(),
            why: why.into(),
            fix: fix.into(),
        }
    }
}
