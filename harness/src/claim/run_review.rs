//! Reviews one run of a package: whether it is a whole run of this suite, and whether its records match the plan.

use std::collections::BTreeSet;
use std::path::Path;

use super::product::{Claim, Product};
use super::reason::{Reason, Rejections};
use super::record_review;
use super::replan::Replan;
use super::run::Run;
use super::scenario_review;
use crate::conclusion::{Exit, end_record};
use crate::suite::{self, Suite};
use allranks_model::evidence::Evidence;
use allranks_model::names::RequirementId;
use allranks_runner::world::python_files;
use allranks_suite::expectation::Entry;

impl Run {
    /// Reviews what a run states about itself: suite, claim, totals, environment and requirements.
    pub fn check_statements(
        &self,
        folder: &Path,
        number: usize,
        product: &Product,
        rejections: &mut Rejections,
    ) {
        self.check_suite(rejections);
        self.check_claim(&product.claim, rejections);
        self.check_totals(rejections);
        self.check_environment(&folder.join(format!("runs/{number}")), product, rejections);
    }

    fn check_suite(&self, rejections: &mut Rejections) {
        let own = suite::own_identity();
        let name = &self.name;
        let version = env!("CARGO_PKG_VERSION");
        let theirs = &self.results.run.allranks;
        let parts = [
            ("version", theirs.as_str(), version),
            ("cases", &self.identity.cases, &own.cases),
            (
                "requirements",
                &self.identity.requirements,
                &own.requirements,
            ),
            ("platforms", &self.identity.platforms, &own.platforms),
            (
                "expectations",
                &self.identity.expectations,
                &own.expectations,
            ),
        ];
        if let Some((what, _, _)) = parts.into_iter().find(|(_, theirs, own)| theirs != own) {
            let text = format!(
                "{name} was made with another suite: its {what} is not that of this allranks {version}"
            );
            rejections.add(Reason::OtherSuite, text);
        }
        let driver = suite::driver_digest(&python_files());
        if self.driver() == "python" && self.identity.driver != driver {
            let text = format!("{name}: the Python driver was changed, or is of another version");
            rejections.add(Reason::OtherDriver, text);
        }
    }

    fn check_claim(&self, claim: &Claim, rejections: &mut Rejections) {
        let name = &self.name;
        let profile = self.results.run.profile.as_deref().unwrap_or("none");
        if profile != claim.profile {
            let text = format!(
                "{name} has profile {profile}; the claim names {}",
                claim.profile
            );
            rejections.add(Reason::OtherClaim, text);
        }
        let columns = self.results.columns();
        let is_claimed =
            |platform: &str, backend: &str| platform == claim.platform && backend == claim.backend;
        let mut columns_of_others = columns
            .iter()
            .filter(|column| !is_claimed(&column.platform, &column.backend));
        if let Some(other) = columns_of_others.next() {
            let text = format!(
                "{name} ran {}/{}; the claim names {}/{}",
                other.platform, other.backend, claim.platform, claim.backend
            );
            rejections.add(Reason::OtherClaim, text);
        }
        let kinds: BTreeSet<Evidence> = columns.iter().map(|column| column.evidence).collect();
        for kind in kinds.into_iter().filter(|kind| *kind != claim.evidence) {
            let (kind, claimed) = (evidence(kind), evidence(claim.evidence));
            let (reason, text) = match kind {
                "simulated" => (
                    Reason::SimulatedEvidence,
                    format!("{name} used a simulated device; the claim names {claimed}"),
                ),
                _ => (
                    Reason::OtherEvidence,
                    format!("{name} has evidence {kind}; the claim names {claimed}"),
                ),
            };
            rejections.add(reason, text);
        }
    }

    /// Counts the records, and compares the totals with those of the end record.
    fn check_totals(&self, rejections: &mut Rejections) {
        let results = &self.results;
        let name = &self.name;
        let Some(end) = &results.end else {
            return;
        };
        if results.run.planned.checks != results.checks.len() as u64
            || results.run.planned.scenarios != results.scenarios.len() as u64
        {
            let text = format!(
                "{name} planned {} checks of {} scenarios, and records {} of {}",
                results.run.planned.checks,
                results.run.planned.scenarios,
                results.checks.len(),
                results.scenarios.len()
            );
            rejections.add(Reason::RunPartial, text);
        }
        let again = end_record(results, &[]);
        if again.verdicts != end.verdicts || again.outcomes != end.outcomes {
            let text = format!("{name}: the totals at its end are not those of its records");
            rejections.add(Reason::EditedTotals, text);
        }
        if again.duration_ms != end.duration_ms {
            let text = format!(
                "{name} took {} ms, its scenarios {} ms",
                end.duration_ms, again.duration_ms
            );
            rejections.add(Reason::EditedTotals, text);
        }
        // A run with a problem cannot end with exit code 0.
        let is_good = end.exit_code == Exit::AsExpected as u8;
        if end.exit_code == again.exit_code && (end.issues.is_empty() || !is_good) {
            return;
        }
        let name = format!("{name} ended with {}", end.exit_code);
        // Problems that belong to no check may give a run a worse exit code than its records.
        let (reason, text) = match end.issues.first() {
            Some(_) if end.exit_code == Exit::Unexpected as u8 => return,
            Some(issue) if end.exit_code == Exit::HarnessFailed as u8 => {
                (Reason::HarnessFailed, format!("{name}: {issue}"))
            }
            Some(issue) if end.exit_code == Exit::Incomplete as u8 => {
                (Reason::RunPartial, format!("{name}: {issue}"))
            }
            Some(issue) => {
                let text = format!("{name}, although it records a problem: {issue}");
                (Reason::EditedTotals, text)
            }
            None => {
                let text = format!("{name}; its records give {}", again.exit_code);
                (Reason::EditedTotals, text)
            }
        };
        rejections.add(reason, text);
    }

    /// Compares the product file with the recorded environment.
    fn check_environment(&self, folder: &Path, product: &Product, rejections: &mut Rejections) {
        let name = &self.name;
        let text = std::fs::read(folder.join("environment.json")).unwrap_or_default();
        let environment = serde_json::from_slice::<serde_json::Value>(&text);
        let environment = environment.ok().filter(|one| one["system"].is_string());
        let Some(environment) = environment else {
            let text = format!("{name} has no record of its environment");
            rejections.add(Reason::MissingEnvironment, text);
            return;
        };
        let devices = self.origin.devices.get(&product.claim.platform);
        let claimed = product.device_count();
        if devices.is_some_and(|found| *found != claimed) {
            let found = devices.copied().unwrap_or_default();
            let text = format!("{name} found {found} devices; the product file names {claimed}");
            rejections.add(Reason::OtherProduct, text);
        }
        // With a `command:` driver no Python was asked for its packages.
        if self.driver() == "command" {
            return;
        }
        let installed = environment["torch"]["installed"].as_object();
        let Some(installed) = installed.filter(|packages| !packages.is_empty()) else {
            let text = format!("{name} does not record which packages were installed");
            rejections.add(Reason::MissingEnvironment, text);
            return;
        };
        let wanted = normalized_name(&product.package);
        let found = installed
            .iter()
            .find(|(package, _)| normalized_name(package) == wanted);
        let version = found.and_then(|(_, version)| version.as_str());
        if version != Some(product.version.as_str()) {
            let found = version.map_or("not installed".to_owned(), |version| {
                format!("version {version}")
            });
            let text = format!(
                "{name}: the product file names {} {}; the run found {found}",
                product.package, product.version
            );
            rejections.add(Reason::OtherProduct, text);
        }
    }

    /// Compares the sentences of the requirements, which reports show, with the suite's.
    fn check_requirements(&self, suite: &Suite, rejections: &mut Rejections) {
        let is_own = |(id, text): &(&RequirementId, &String)| {
            let own = suite.requirements.get(id);
            own.is_some_and(|own| own.text == **text)
        };
        let mut sentences = self.results.run.requirements.iter();
        if let Some((id, _)) = sentences.find(|one| !is_own(one)) {
            let text = format!(
                "{}: the sentence of {id} differs from the suite's",
                self.name
            );
            rejections.add(Reason::EditedRecord, text);
        }
    }

    /// Reviews every record against the plan.
    pub fn check_records(
        &self,
        folder: &Path,
        plan: &Replan,
        suite: &Suite,
        is_own: &dyn Fn(&Entry) -> bool,
        rejections: &mut Rejections,
    ) {
        let name = &self.name;
        let seed = self.results.run.seed;
        let mut planned = plan.checks();
        let mut seen = BTreeSet::new();
        for record in &self.results.checks {
            if !seen.insert(&record.id) {
                rejections.add(
                    Reason::EditedRecord,
                    format!("{name}: {} is recorded twice", record.id),
                );
                continue;
            }
            match planned.remove(&record.id) {
                Some(point) => {
                    record_review::review(record, &point, seed, suite, is_own, rejections);
                }
                None => {
                    let text = format!("{name}: {} is not in the plan of the claim", record.id);
                    rejections.add(Reason::UnplannedCheck, text);
                }
            }
        }
        if let Some((first, _)) = planned.first_key_value() {
            let count = planned.len();
            let text = format!(
                "{name} lacks the records of {count} checks of the claim's plan, such as {first}"
            );
            rejections.add(Reason::RunPartial, text);
        }
        self.check_requirements(suite, rejections);
        scenario_review::review(self, folder, plan, rejections);
    }
}

/// Returns the normalised name of a Python package: `torch-example` for `Torch_Example`.
fn normalized_name(package: &str) -> String {
    let lower = package.to_lowercase();
    let parts: Vec<&str> = lower
        .split(['-', '_', '.'])
        .filter(|part| !part.is_empty())
        .collect();
    parts.join("-")
}

/// Returns the word for a kind of evidence.
pub fn evidence(kind: Evidence) -> &'static str {
    match kind {
        Evidence::Hardware => "hardware",
        Evidence::Host => "host",
        Evidence::Simulated => "simulated",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_packages_are_compared_as_indexes_do() {
        assert_eq!(
            normalized_name("Torch_Example"),
            normalized_name("torch-example")
        );
        assert_ne!(
            normalized_name("torchexample"),
            normalized_name("torch-example")
        );
    }
}
