//! Builds the kill matrix: the results of all mutants, and what they prove about each requirement.

use std::collections::{BTreeMap, BTreeSet};

use super::kill::{Kill, MutantOutcome};
use super::record::{Head, MutantCounts};
use allranks_model::names::RequirementId;
use allranks_model::outcome::Outcome;

/// The class of wrong values that no bug model explains.
const UNCLASSIFIED: &str = "unclassified";

/// What is proved about a requirement's checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MatrixStatus {
    /// These mutants break it and are killed, and only its checks detect them.
    Alone(Vec<String>),
    /// Killed mutants break it, but other checks detect each of them too; the reason in the index.
    Shared(String),
    /// Killed mutants break it, other checks detect each of them too, and the index gives no reason.
    Together,
    /// The backend of the mutants cannot be checked for it; the reason, and the cases that check other backends.
    Elsewhere(String),
    /// No mutant that breaks it was killed.
    Unproven,
}

/// The kill matrix: what is proved about each requirement, and by which mutants.
#[derive(Clone, Debug)]
pub struct Matrix<'a> {
    /// The results of the mutants, in the order of the index.
    pub kills: &'a [Kill],
    /// All requirements that are known, covered or broken, in order, with what is proved about them.
    pub requirements: BTreeMap<RequirementId, MatrixStatus>,
}

/// The numbers of mutants and checks with wrong values, and of those without a class, among checks of the broken requirements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WrongValues {
    /// The number of mutants with wrong values.
    pub mutants: u64,
    /// The number of these mutants with a wrong value that got no class.
    pub unclassified_mutants: u64,
    /// The number of checks that failed with wrong values, over all mutants.
    pub checks: u64,
    /// The number of these checks whose wrong values got no class.
    pub unclassified_checks: u64,
}

impl<'a> Matrix<'a> {
    /// Builds the matrix of these mutants.
    #[must_use]
    pub fn of(head: &Head, kills: &'a [Kill]) -> Self {
        let known = head.requirements.keys();
        let covered = kills.iter().flat_map(|kill| kill.requirements.keys());
        let broken = kills.iter().map(|kill| &kill.breaks);
        let ids: BTreeSet<&RequirementId> = known.chain(covered).chain(broken).collect();
        let status = |id: &RequirementId| {
            let mut killed = kills
                .iter()
                .filter(|kill| kill.breaks == *id && kill.outcome == MutantOutcome::Killed)
                .peekable();
            if killed.peek().is_none() {
                let why = head.elsewhere.get(id);
                return why.map_or(MatrixStatus::Unproven, |why| {
                    MatrixStatus::Elsewhere(why.clone())
                });
            }
            let alone: Vec<String> = killed
                .filter(|kill| kill.alone)
                .map(|kill| kill.name.clone())
                .collect();
            match (alone.is_empty(), head.shared.get(id)) {
                (false, _) => MatrixStatus::Alone(alone),
                (true, Some(why)) => MatrixStatus::Shared(why.clone()),
                (true, None) => MatrixStatus::Together,
            }
        };
        Self {
            kills,
            requirements: ids.into_iter().map(|id| (id.clone(), status(id))).collect(),
        }
    }

    /// Returns the requirements whose status passes this test.
    pub fn with(
        &self,
        is_it: impl Fn(&MatrixStatus) -> bool + Copy,
    ) -> impl Iterator<Item = &RequirementId> {
        self.requirements
            .iter()
            .filter(move |(_, status)| is_it(status))
            .map(|(id, _)| id)
    }

    /// Returns the requirements whose reason for sharing mutants is out of date: they have a mutant of their own, or do not
    /// exist.
    #[must_use]
    pub fn stale<'h>(&self, head: &'h Head) -> Vec<&'h RequirementId> {
        let is_stale = |id: &&RequirementId| {
            !head.requirements.contains_key(*id)
                || matches!(self.requirements.get(*id), Some(MatrixStatus::Alone(_)))
        };
        head.shared.keys().filter(is_stale).collect()
    }

    /// Counts wrong values, and those without a class.
    #[must_use]
    pub fn wrong_values(&self) -> WrongValues {
        let mut counts = WrongValues::default();
        for kill in self.kills {
            let Some(seen) = kill.requirements.get(&kill.breaks) else {
                continue;
            };
            let mismatch = Outcome::Mismatch.name();
            let wrong = seen.findings.iter();
            let wrong = wrong.filter(|(finding, _)| finding.starts_with(mismatch));
            let checks: u64 = wrong.map(|(_, count)| count).sum();
            let unclassified = seen.findings.get(&format!("{mismatch} {UNCLASSIFIED}"));
            counts.mutants += u64::from(checks > 0);
            counts.unclassified_mutants += u64::from(unclassified.is_some());
            counts.checks += checks;
            counts.unclassified_checks += unclassified.copied().unwrap_or_default();
        }
        counts
    }

    /// Counts the mutants by outcome; `planned` is the number of mutants that were to be tried.
    #[must_use]
    pub fn counts(&self, planned: u64) -> MutantCounts {
        let count = |outcome| {
            self.kills
                .iter()
                .filter(|kill| kill.outcome == outcome)
                .count() as u64
        };
        let never_begun = planned.saturating_sub(self.kills.len() as u64);
        MutantCounts {
            killed: count(MutantOutcome::Killed),
            misnamed: count(MutantOutcome::Misnamed),
            incidental: count(MutantOutcome::Incidental),
            survived: count(MutantOutcome::Survived),
            untried: count(MutantOutcome::Untried) + never_begun,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::prove::kill::{KillingCheck, RequirementReport};
    use crate::prove::shared_checks::SharedChecks;
    use allranks_model::record::FORMAT;

    pub fn head(requirements: &[&str], shared: &[(&str, &str)]) -> Head {
        Head {
            format: FORMAT,
            allranks: "0.1.0".into(),
            started: 0,
            platform: "cpu".into(),
            backend: "gloo".into(),
            seed: 1,
            shared_checks: SharedChecks::Quick,
            mutants: 3,
            requirements: requirements
                .iter()
                .map(|id| (RequirementId::from(*id), format!("{id} MUST hold.")))
                .collect(),
            shared: shared
                .iter()
                .map(|(id, why)| (RequirementId::from(*id), (*why).to_owned()))
                .collect(),
            elsewhere: BTreeMap::new(),
        }
    }

    pub fn kill(name: &str, breaks: &str, outcome: MutantOutcome, alone: bool) -> Kill {
        let failed = u64::from(outcome != MutantOutcome::Survived);
        let finding = "mismatch no-op".to_owned();
        let seen = RequirementReport {
            checks: 2,
            failed,
            findings: BTreeMap::from([(finding.clone(), failed)]),
        };
        Kill {
            format: FORMAT,
            name: name.into(),
            about: format!("{name} is <wrong>"),
            breaks: breaks.into(),
            expected: finding.clone(),
            source: None,
            outcome,
            alone,
            killing_check: (failed > 0).then(|| KillingCheck {
                check: format!("{name}#0").as_str().into(),
                finding,
                summary: "a \u{1b}[31m<b>rank</b>".into(),
                difference: None,
                ranks: Vec::new(),
            }),
            requirements: BTreeMap::from([(breaks.into(), seen)]),
            own_checks: 2,
            shared_checks: 0,
            stopped: None,
            issues: Vec::new(),
            duration_ms: 1,
        }
    }

    #[test]
    fn wrong_values_without_a_class_are_counted_in_checks_of_the_broken_requirement() {
        let head = head(&["A-001"], &[]);
        let of = |findings: &[(&str, u64)]| {
            let mut kill = kill("a", "A-001", MutantOutcome::Killed, true);
            let counted = findings
                .iter()
                .map(|(name, count)| ((*name).to_owned(), *count));
            let elsewhere = RequirementReport {
                findings: BTreeMap::from([("mismatch unclassified".to_owned(), 9)]),
                ..RequirementReport::default()
            };
            kill.requirements = BTreeMap::from([
                (
                    "A-001".into(),
                    RequirementReport {
                        findings: counted.collect(),
                        ..RequirementReport::default()
                    },
                ),
                ("B-001".into(), elsewhere),
            ]);
            kill
        };
        let kills = [
            of(&[("mismatch no-op", 3), ("mismatch unclassified", 1)]),
            of(&[("mismatch no-op", 2), ("hang", 5)]),
            of(&[("hang", 5)]),
        ];
        let counts = Matrix::of(&head, &kills).wrong_values();
        assert_eq!((counts.mutants, counts.unclassified_mutants), (2, 1));
        assert_eq!((counts.checks, counts.unclassified_checks), (6, 1));
    }

    #[test]
    fn a_requirement_is_proved_by_a_mutant_of_its_own_or_by_a_reason() {
        let mut head = head(
            &["A-001", "B-001", "C-001", "D-001", "E-001", "F-001"],
            &[("A-001", "old"), ("B-001", "why"), ("X-001", "gone")],
        );
        // A reason why there is none is no reason once there is one.
        for id in ["A-001", "F-001"] {
            head.elsewhere.insert(id.into(), "no stream".to_owned());
        }
        let kills = [
            kill("a", "A-001", MutantOutcome::Killed, true),
            kill("b", "B-001", MutantOutcome::Killed, false),
            kill("c", "C-001", MutantOutcome::Killed, false),
            kill("d", "D-001", MutantOutcome::Misnamed, false),
        ];
        let matrix = Matrix::of(&head, &kills);
        let statuses: Vec<&MatrixStatus> = matrix.requirements.values().collect();
        let expected = [
            &MatrixStatus::Alone(vec!["a".to_owned()]),
            &MatrixStatus::Shared("why".to_owned()),
            &MatrixStatus::Together,
            &MatrixStatus::Unproven,
            &MatrixStatus::Unproven,
            &MatrixStatus::Elsewhere("no stream".to_owned()),
        ];
        assert_eq!(statuses, expected);
        let stale: Vec<&str> = matrix.stale(&head).iter().map(|id| id.as_str()).collect();
        assert_eq!(stale, ["A-001", "X-001"]);
        let counts = matrix.counts(6);
        assert_eq!((counts.killed, counts.misnamed, counts.untried), (3, 1, 2));
    }
}
