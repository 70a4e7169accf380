//! What is wrong, as people are told.

use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something that somebody wants does not work. The only one that makes the exit code 1.
    Fault,
    /// It works until it does not: under load, on several machines, or not as somebody seems to believe.
    Warning,
    /// Good to know.
    Note,
}

impl Severity {
    /// The word for it.
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
    /// Its kind, for programs: `master-port-busy`.
    pub id: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What is so.
    pub what: String,
    /// What comes of it, or how it is known.
    pub why: String,
    /// What to do.
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
