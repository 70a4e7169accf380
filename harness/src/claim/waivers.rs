//! Reviews the waivers of a package.

use std::path::PathBuf;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::product::Claim;
use super::reason::{Reason, Rejections};
use allranks_model::names::RequirementId;
use allranks_model::outcome::Outcome;
use allranks_suite::case::OneOrMany;
use allranks_suite::expectation::{Match, end_of_day, is_forbidden, is_too_broad};
use allranks_yaml::{Diagnostic, Source};

/// A waiver, and the number of checks that it excuses in a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WaiverUse {
    /// The file of the package and the line where it is written.
    pub at: String,
    /// The requirement.
    pub requirement: RequirementId,
    /// The last day on which it holds.
    pub expiry: String,
    /// The person or team that approves of it.
    pub approver: String,
    /// The reason that the waiver gives.
    pub reason: String,
    /// The public issue.
    pub url: String,
    /// Number of checks that it excuses.
    pub checks: usize,
}

/// The fields of a waiver that the rules of packages are about. Other fields are checked when the file is loaded.
#[derive(Deserialize)]
struct WaiverFields {
    requirement: RequirementId,
    #[serde(rename = "match")]
    matches: Match,
    outcome: OneOrMany<Outcome>,
    expiry: String,
}

/// Adds a rejection for each rule of packages that a waiver breaks. Other errors are reported when the files are loaded.
pub fn check_rules(files: &[PathBuf], claim: &Claim, now: SystemTime, rejections: &mut Rejections) {
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let Ok(source) = Source::read(file) else {
            continue;
        };
        // Syntax errors and unknown fields are reported when the file is loaded.
        let list: Vec<serde_yaml::Value> = serde_yaml::from_str(&source.text).unwrap_or_default();
        for (index, value) in list.into_iter().enumerate() {
            if let Ok(waiver) = serde_yaml::from_value::<WaiverFields>(value) {
                waiver.check(
                    &format!("{name}, entry {}", index + 1),
                    claim,
                    now,
                    rejections,
                );
            }
        }
    }
}

impl WaiverFields {
    fn check(&self, at: &str, claim: &Claim, now: SystemTime, rejections: &mut Rejections) {
        let id = &self.requirement;
        let mut outcomes = self.outcome.as_slice().iter();
        if let Some(outcome) = outcomes.find(|outcome| is_forbidden(id, **outcome)) {
            let text = format!("{at}: a {outcome} of {id} is never excused");
            rejections.add(Reason::WaiverForbidden, text);
        }
        if is_too_broad(&self.matches) {
            let text = format!("{at}: it must name the backend, and at least a case or an op");
            rejections.add(Reason::WaiverTooBroad, text);
        }
        if let Some(end) = end_of_day(&self.expiry)
            && now >= end
        {
            let text = format!("{at}: the waiver of {id} expired on {}", self.expiry);
            rejections.add(Reason::WaiverExpired, text);
        }
        let backends = self.matches.backend.as_ref().map(OneOrMany::as_slice);
        if backends.is_some_and(|names| !names.contains(&claim.backend)) {
            let text = format!("{at}: it is about another backend than {}", claim.backend);
            rejections.add(Reason::WaiverUnused, text);
        }
    }
}

/// Returns the first of several problems of files, in one line.
#[must_use]
pub fn first_problem(problems: &[Diagnostic]) -> String {
    let told = |one: &Diagnostic| format!("{}:{}: {}", one.path, one.line, one.message);
    problems.first().map_or_else(String::new, told)
}
