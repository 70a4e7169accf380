//! Judges one mutant by its records: whether it is killed, by which check, and what else detected it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::index::Mutant;
use allranks_model::names::{CheckId, RequirementId};
use allranks_model::outcome::{Outcome, Verdict};
use allranks_model::rank_line::RankLine;
use allranks_model::record::{CheckRecord, Difference, FORMAT};

/// The outcome of a mutant.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum MutantOutcome {
    /// A check of the requirement that it breaks failed as the index says.
    Killed,
    /// A check of that requirement failed, but with another outcome or class.
    Misnamed,
    /// Only checks of other requirements failed.
    #[strum(serialize = "killed incidentally only")]
    Incidental,
    /// No check failed.
    Survived,
    /// Its checks were not run, or there are none.
    #[strum(serialize = "not tried")]
    Untried,
}

impl MutantOutcome {
    /// Returns its name in reports.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// What the checks of one requirement reported of a mutant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequirementReport {
    /// The number of checks that ran and cover it.
    pub checks: u64,
    /// The number of these checks that failed.
    pub failed: u64,
    /// What these checks reported (`mismatch no-op`), each with its count.
    pub findings: BTreeMap<String, u64>,
}

/// A check that failed on a mutant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillingCheck {
    /// The id of the check.
    pub check: CheckId,
    /// The outcome and class that it reported: `mismatch no-op`.
    pub finding: String,
    /// The summary that it reported.
    pub summary: String,
    /// The first element that was wrong; `None` if none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
    /// What it reported of each rank, such as where each rank of a hanging world is. May be empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<RankLine>,
}

/// The result of one mutant: a line of `kills.jsonl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kill {
    /// The version of this format: [`FORMAT`].
    pub format: u32,
    /// The mutant's name.
    pub name: String,
    /// A description of the bug.
    pub about: String,
    /// The requirement it breaks.
    pub breaks: RequirementId,
    /// What its checks must report, written as in [`KillingCheck::finding`].
    pub expected: String,
    /// The URL of a public report of such a bug; `None` if none is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Its outcome. In JSON the field is `fate`.
    #[serde(rename = "fate")]
    pub outcome: MutantOutcome,
    /// True if every check that failed covers the requirement it breaks, and the shared checks were not stopped early.
    pub alone: bool,
    /// The check that killed it or, if none did, the first that failed; `None` if no check failed.
    /// In JSON the field is `witness`.
    #[serde(rename = "witness", default, skip_serializing_if = "Option::is_none")]
    pub killing_check: Option<KillingCheck>,
    /// What was reported of each requirement that a check which ran covers.
    pub requirements: BTreeMap<RequirementId, RequirementReport>,
    /// The number of its own checks that ran.
    pub own_checks: u64,
    /// The number of shared checks that ran. In JSON the field is `panel_checks`.
    #[serde(rename = "panel_checks")]
    pub shared_checks: u64,
    /// Why the shared checks were stopped early; `None` if they were not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// Failures of the harness or the machine: the mutant must be tried again.
    /// In JSON the field is `troubles`.
    #[serde(rename = "troubles", default, skip_serializing_if = "Vec::is_empty")]
    pub issues: Vec<String>,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
}

/// Returns true if a check with this verdict makes a run fail. A check that did not run does not.
#[must_use]
pub fn is_unexpected(verdict: Verdict) -> bool {
    match verdict {
        Verdict::Regression | Verdict::UnexpectedPass => true,
        Verdict::Expected | Verdict::KnownFailure | Verdict::Waived | Verdict::NotRun => false,
    }
}

/// Returns what a check reported as text: outcome and class, or an unexpected pass.
fn called(verdict: Verdict, outcome: Outcome, class: Option<&str>) -> String {
    match (verdict, class) {
        (Verdict::UnexpectedPass, _) => "unexpected-pass".to_owned(),
        // The class may be the same word as the outcome.
        (_, Some(class)) if class != outcome.name() => format!("{outcome} {class}"),
        _ => outcome.to_string(),
    }
}

fn called_of(check: &CheckRecord) -> String {
    called(check.verdict, check.outcome, check.class.as_deref())
}

impl Kill {
    /// Judges a mutant by the records of its own checks and of the shared ones. `about` describes the bug.
    #[must_use]
    pub fn of(
        mutant: &Mutant,
        about: String,
        own: &[CheckRecord],
        shared: &[CheckRecord],
        stopped: Option<String>,
        duration_ms: u64,
    ) -> Self {
        let ran = |check: &&CheckRecord| check.outcome != Outcome::NotRun;
        let is_right = |check: &&CheckRecord| {
            check.verdict == mutant.verdict
                && check.outcome == mutant.outcome
                && check.class == mutant.class
                && check.covers.contains(&mutant.breaks)
        };
        // If a check is in both sets, its own result counts.
        let mut ids = BTreeSet::new();
        let all: Vec<&CheckRecord> = own
            .iter()
            .chain(shared)
            .filter(ran)
            .filter(|check| ids.insert(&check.id))
            .collect();
        let mut requirements: BTreeMap<RequirementId, RequirementReport> = BTreeMap::new();
        for check in &all {
            for id in &check.covers {
                let seen = requirements.entry(id.clone()).or_default();
                seen.checks += 1;
                if is_unexpected(check.verdict) {
                    seen.failed += 1;
                    *seen.findings.entry(called_of(check)).or_default() += 1;
                }
            }
        }
        let failed: Vec<&CheckRecord> = all
            .iter()
            .copied()
            .filter(|check| is_unexpected(check.verdict))
            .collect();
        let covers = |check: &&&CheckRecord| check.covers.contains(&mutant.breaks);
        let killer = own.iter().find(is_right);
        let first = failed.iter().find(covers).or(failed.first()).copied();
        let outcome = if killer.is_some() {
            MutantOutcome::Killed
        } else if !own.iter().any(|check| ran(&check)) {
            MutantOutcome::Untried
        } else if failed.iter().any(|check| covers(&check)) {
            MutantOutcome::Misnamed
        } else if failed.is_empty() {
            MutantOutcome::Survived
        } else {
            MutantOutcome::Incidental
        };
        let issues = own.iter().chain(shared);
        let issues = issues.filter(|check| check.outcome == Outcome::HarnessError);
        Self {
            format: FORMAT,
            name: mutant.name.clone(),
            about,
            breaks: mutant.breaks.clone(),
            expected: called(mutant.verdict, mutant.outcome, mutant.class.as_deref()),
            source: mutant.source.clone(),
            outcome,
            alone: outcome == MutantOutcome::Killed
                && stopped.is_none()
                && failed.iter().all(|check| covers(&check)),
            killing_check: killer.or(first).map(|check| KillingCheck {
                check: check.id.clone(),
                finding: called_of(check),
                summary: check.summary.clone(),
                difference: check.difference.clone(),
                ranks: match &check.diagnosis {
                    Some(diagnosis) => diagnosis.places.clone(),
                    None => check.ranks.clone(),
                },
            }),
            requirements,
            own_checks: own.iter().filter(ran).count() as u64,
            shared_checks: shared.iter().filter(ran).count() as u64,
            stopped,
            issues: issues
                .map(|check| format!("{}: {}", check.id, check.summary))
                .collect(),
            duration_ms,
        }
    }

    /// Returns the requirements other than the one it breaks whose checks failed too.
    pub fn elsewhere(&self) -> impl Iterator<Item = &RequirementId> {
        self.requirements
            .iter()
            .filter(|(id, seen)| seen.failed > 0 && **id != self.breaks)
            .map(|(id, _)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allranks_model::evidence::Evidence;
    use allranks_model::names::WorldSize;
    use allranks_model::record::Column;

    fn mutant() -> Mutant {
        Mutant {
            name: "m".into(),
            breaks: "COLL-002".into(),
            filter: "x".into(),
            size: 2,
            case: None,
            platform: None,
            outcome: Outcome::Mismatch,
            class: Some("no-op".into()),
            verdict: Verdict::Regression,
            shrinks_to: None,
            above_c10d: false,
            source: None,
        }
    }

    fn check(id: &str, covers: &[&str], verdict: Verdict, class: Option<&str>) -> CheckRecord {
        let outcome = match verdict {
            Verdict::Regression => Outcome::Mismatch,
            Verdict::NotRun => Outcome::NotRun,
            _ => Outcome::Pass,
        };
        CheckRecord {
            format: FORMAT,
            id: id.into(),
            scenario: "s".into(),
            case: "c".into(),
            column: Column {
                platform: "cpu".into(),
                backend: "gloo".into(),
                world_size: WorldSize(2),
                nodes: 1,
                driver: "python".into(),
                launcher: "local".into(),
                evidence: Evidence::Host,
                torch: String::new(),
                label: String::new(),
            },
            covers: covers.iter().map(|id| RequirementId::from(*id)).collect(),
            params: BTreeMap::new(),
            at: String::new(),
            outcome,
            verdict,
            summary: String::new(),
            remark: None,
            class: class.map(str::to_owned),
            difference: None,
            ranks: Vec::new(),
            diagnosis: None,
            expectation: None,
            checked: Vec::new(),
            duration_us: 0,
            observations: BTreeMap::new(),
        }
    }

    fn kill(own: &[CheckRecord], shared: &[CheckRecord]) -> Kill {
        Kill::of(&mutant(), String::new(), own, shared, None, 0)
    }

    #[test]
    fn a_mutant_is_killed_by_its_requirement_under_its_name_only() {
        let bad = |id, covers: &[&str], class| check(id, covers, Verdict::Regression, Some(class));
        let good = |id| check(id, &["COLL-002"], Verdict::Expected, None);
        let killed = kill(
            &[good("a"), bad("b", &["COLL-001", "COLL-002"], "no-op")],
            &[],
        );
        assert_eq!(killed.outcome, MutantOutcome::Killed);
        assert!(killed.alone, "the check covers COLL-001 too, and COLL-002");
        assert_eq!(killed.killing_check.unwrap().check.as_str(), "b");
        assert_eq!(killed.requirements[&"COLL-002".into()].checks, 2);
        assert_eq!(killed.requirements[&"COLL-001".into()].failed, 1);

        let misnamed = kill(&[bad("b", &["COLL-002"], "unclassified")], &[]);
        assert_eq!(misnamed.outcome, MutantOutcome::Misnamed);
        let incidental = kill(&[bad("b", &["COLL-001"], "no-op"), good("a")], &[]);
        assert_eq!(incidental.outcome, MutantOutcome::Incidental);
        assert_eq!(kill(&[good("a")], &[]).outcome, MutantOutcome::Survived);
        let not_run = check("a", &["COLL-002"], Verdict::NotRun, None);
        assert_eq!(kill(&[not_run], &[]).outcome, MutantOutcome::Untried);
        assert_eq!(kill(&[], &[]).outcome, MutantOutcome::Untried);
    }

    #[test]
    fn shared_checks_show_what_else_sees_it_and_never_kill() {
        let own = [check(
            "a",
            &["COLL-002"],
            Verdict::Regression,
            Some("no-op"),
        )];
        let shared = [
            check("a", &["COLL-002"], Verdict::Regression, Some("no-op")),
            check("b", &["GRP-001"], Verdict::Regression, Some("zero-output")),
        ];
        let seen = kill(&own, &shared);
        assert_eq!((seen.outcome, seen.alone), (MutantOutcome::Killed, false));
        assert_eq!(seen.requirements[&"COLL-002".into()].checks, 1);
        let elsewhere: Vec<_> = seen.elsewhere().map(RequirementId::as_str).collect();
        assert_eq!(elsewhere, ["GRP-001"]);
        let by_shared = kill(
            &[check("c", &["COLL-002"], Verdict::Expected, None)],
            &shared,
        );
        assert_eq!(by_shared.outcome, MutantOutcome::Misnamed);
    }

    #[test]
    fn a_class_that_repeats_the_outcome_is_said_once() {
        assert_eq!(
            called(Verdict::Regression, Outcome::Hang, Some("hang")),
            "hang"
        );
        assert_eq!(
            called(Verdict::Regression, Outcome::Crash, Some("bad-end")),
            "crash bad-end"
        );
        assert_eq!(
            called(Verdict::UnexpectedPass, Outcome::Pass, None),
            "unexpected-pass"
        );
    }
}
