//! Findings of the doctor.

use serde::Serialize;

/// How severe a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
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
        match self {
            Self::Fault => "fault",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its stable id, such as `master-port-busy`.
    pub id: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// The state that was found.
    pub what: String,
    /// Its consequence, or how it is known.
    pub why: String,
    /// What to do about it.
    pub fix: String,
}

impl Finding {
    /// A finding.
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
