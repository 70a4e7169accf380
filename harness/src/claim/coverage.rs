//! What a claim covers: how far the MUSTs of the plan were met, declared as unsupported, known or waived.

use std::collections::BTreeMap;

use serde::Serialize;

use allranks_model::names::RequirementId;
use allranks_model::outcome::{Outcome, Verdict};
use allranks_model::record::CheckRecord;
use allranks_suite::case::{Level, Requirements};

/// The number of requirements and of checks with each result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Coverage {
    /// MUSTs of the plan.
    pub musts: usize,
    /// MUSTs of which every check that is declared as supported passed, and at least one is.
    pub met: usize,
    /// MUSTs of which checks pass, and others fail as known or waived, or not at all.
    pub met_in_part: Vec<RequirementId>,
    /// MUSTs of which every check is declared as unsupported, and was refused.
    pub unsupported: Vec<RequirementId>,
    /// MUSTs of which no check passes.
    pub unmet: Vec<RequirementId>,
    /// Checks of one run.
    pub checks: usize,
    /// The number of checks that passed.
    pub passed: usize,
    /// Checks that were refused, as declared.
    pub refused: usize,
    /// Checks with a known failure.
    pub known: usize,
    /// Checks with a waived failure.
    pub waived: usize,
    /// Checks of SHOULDs alone that failed.
    pub should_failed: usize,
    /// Checks of SHOULDs alone that were not run.
    pub should_not_run: usize,
}

/// Returns true if a check covers a MUST, or only requirements that are not known.
pub fn is_must(requirements: &Requirements, covers: &[RequirementId]) -> bool {
    let is = |id: &RequirementId| {
        requirements
            .get(id)
            .is_none_or(|requirement| requirement.level == Level::Must)
    };
    covers.iter().any(is)
}

impl Coverage {
    /// Counts the checks of one run.
    #[must_use]
    pub fn of(checks: &[CheckRecord], requirements: &Requirements) -> Self {
        let mut counts = Self {
            checks: checks.len(),
            ..Self::default()
        };
        let mut musts = BTreeMap::<&RequirementId, RequirementResult>::new();
        for check in checks {
            let kind = Kind::of(check);
            match kind {
                Kind::Passed => counts.passed += 1,
                Kind::Refused => counts.refused += 1,
                Kind::Known => counts.known += 1,
                Kind::Waived => counts.waived += 1,
                Kind::Failed | Kind::NotRun => {
                    let is_must = is_must(requirements, &check.covers);
                    counts.should_failed += usize::from(!is_must && kind == Kind::Failed);
                    counts.should_not_run += usize::from(!is_must && kind == Kind::NotRun);
                }
            }
            for id in &check.covers {
                let is_must = requirements
                    .get(id)
                    .is_some_and(|requirement| requirement.level == Level::Must);
                if is_must {
                    musts.entry(id).or_default().add(kind);
                }
            }
        }
        counts.musts = musts.len();
        for (id, result) in musts {
            match result {
                RequirementResult {
                    passed: true,
                    failed: false,
                    ..
                } => counts.met += 1,
                RequirementResult { passed: true, .. } => counts.met_in_part.push(id.clone()),
                RequirementResult {
                    refused: true,
                    failed: false,
                    ..
                } => counts.unsupported.push(id.clone()),
                RequirementResult { .. } => counts.unmet.push(id.clone()),
            }
        }
        counts
    }

    /// Returns the share of checks that are declared as unsupported, in percent.
    #[must_use]
    pub fn unsupported_share(&self) -> f64 {
        match self.checks {
            0 => 0.0,
            all => 100.0 * self.refused as f64 / all as f64,
        }
    }
}

/// The result of one requirement over all its checks.
#[derive(Default)]
struct RequirementResult {
    passed: bool,
    refused: bool,
    failed: bool,
}

impl RequirementResult {
    fn add(&mut self, kind: Kind) {
        match kind {
            Kind::Passed => self.passed = true,
            Kind::Refused => self.refused = true,
            Kind::Known | Kind::Waived | Kind::Failed | Kind::NotRun => self.failed = true,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Passed,
    Refused,
    Known,
    Waived,
    Failed,
    NotRun,
}

impl Kind {
    fn of(check: &CheckRecord) -> Self {
        match (check.verdict, check.outcome) {
            (Verdict::Expected, Outcome::Pass) => Self::Passed,
            (Verdict::Expected, _) => Self::Refused,
            (Verdict::KnownFailure, _) => Self::Known,
            (Verdict::Waived, _) => Self::Waived,
            (Verdict::NotRun, _) => Self::NotRun,
            (Verdict::Regression | Verdict::UnexpectedPass, _) => Self::Failed,
        }
    }
}
