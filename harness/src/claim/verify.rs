//! `allranks verify`: verifies a package against the suite that the binary carries.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::agreement;
use super::archive::{self, LIMITS, ReadError};
use super::coverage::{Coverage, is_must};
use super::manifest::{FORMAT, FileDigest, MANIFEST, Manifest};
use super::product::Product;
use super::reason::{Reason, Rejection, Rejections};
use super::replan::{Machine, Replan};
use super::run::Run;
use super::waivers::{WaiverUse, check_rules, first_problem};
use crate::suite::{Request, Suite, SuiteError};
use allranks_model::evidence::Evidence;
use allranks_model::names::RequirementId;
use allranks_model::outcome::Verdict;
use allranks_model::record::{InputFile, SuiteIdentity};
use allranks_suite::expectation::Entry;
use allranks_suite::plan::Scenario;
use allranks_yaml::Source;

/// Path of the product file in a package.
pub const PRODUCT: &str = "product.yaml";
/// Folders of the files that the runs were given.
pub const INPUTS: &[&str] = &["platforms", "expectations", "waivers"];

/// The length of a day.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The result of verifying a package.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Review {
    /// The reasons why it is rejected; empty if it is accepted.
    pub rejections: Vec<Rejection>,
    /// The product. `None`: the package was rejected before it was read.
    pub product: Option<Product>,
    /// The suite of the runs.
    pub suite: Option<SuiteIdentity>,
    /// The driver of the runs: `python`, `libtorch`, or `command` for a program that is not part of the suite.
    pub driver: Option<String>,
    /// The version of torch; empty if the runs used none.
    pub torch: Option<String>,
    /// The requirements and checks that the claim covers.
    pub coverage: Option<Coverage>,
    /// Scenarios that needed more devices, or something that the machine lacked.
    pub left_out: Vec<String>,
    /// The waivers, each with the number of checks that it excuses.
    pub waivers: Vec<WaiverUse>,
    /// The signer; `None` if the signature was not verified.
    pub signer: Option<String>,
}

impl Review {
    /// Returns true if there is no reason to reject the package.
    #[must_use]
    pub fn is_accepted(&self) -> bool {
        self.rejections.is_empty()
    }
}

/// Verifies a package. `now` decides which waivers have expired.
///
/// # Errors
/// The package cannot be opened, or this machine has no space to unpack it.
pub fn verify(package: &Path, now: SystemTime) -> io::Result<Review> {
    let mut review = Review::default();
    let mut rejections = Rejections::default();
    let scratch = tempfile::tempdir()?;
    examine(package, scratch.path(), now, &mut review, &mut rejections)?;
    review.rejections = rejections.into_list();
    // Messages name files by their path in the package.
    let here = format!("{}/", scratch.path().join(UNPACKED).display());
    for one in &mut review.rejections {
        one.text = one.text.replace(&here, "");
    }
    Ok(review)
}

/// The folder of the unpacked package in the scratch folder.
const UNPACKED: &str = "package";

/// Unpacks a package into an empty scratch folder, and reviews it step by step. Stops at the first step whose failure makes the
/// next ones meaningless.
fn examine(
    package: &Path,
    scratch: &Path,
    now: SystemTime,
    review: &mut Review,
    rejections: &mut Rejections,
) -> io::Result<()> {
    let folder = &scratch.join(UNPACKED);
    let Some((found, manifest)) = unpack(package, folder, rejections)? else {
        return Ok(());
    };
    let product = Source::read(&folder.join(PRODUCT)).and_then(Product::parse);
    let product = match product {
        Ok(product) => review.product.insert(product).clone(),
        Err(problems) => {
            rejections.add(Reason::BadProduct, first_problem(&problems));
            return Ok(());
        }
    };
    let Some(runs) = read_runs(folder, &product, rejections) else {
        return Ok(());
    };
    if manifest.suite != runs[0].identity || manifest.allranks != runs[0].results.run.allranks {
        let text = format!("{MANIFEST} names a suite that differs from that of the runs");
        rejections.add(Reason::BadManifest, text);
    }
    check_written(&manifest, &runs, now, rejections);
    review.suite = Some(manifest.suite);
    review.driver = Some(runs[0].driver().to_owned());
    let torch = runs[0].torch().first().copied().unwrap_or_default();
    review.torch = Some(torch.to_owned());
    let is_pair = agreement::check_pair(folder, &runs, rejections);
    check_inputs(&found, &runs[0].origin.inputs, rejections);
    let paths = |kind: &str| -> Vec<PathBuf> {
        let inputs = runs[0].origin.inputs.iter();
        let of_kind = inputs.filter(|input| input.path.starts_with(&format!("{kind}/")));
        of_kind.map(|input| folder.join(&input.path)).collect()
    };
    let mut rules = Rejections::default();
    check_rules(&paths("waivers"), &product.claim, now, &mut rules);
    let breaks_rules = !rules.is_empty();
    for one in rules.into_list() {
        rejections.add(one.reason, one.text);
    }
    // Records of another suite are not judged: all of them would be wrong.
    let is_other = [Reason::OtherSuite, Reason::OtherClaim].map(|reason| rejections.has(reason));
    if !is_pair || breaks_rules || is_other.contains(&true) {
        return Ok(());
    }
    let request = Request {
        platforms: paths("platforms"),
        expectations: paths("expectations"),
        waivers: paths("waivers"),
        ..Request::default()
    };
    let suite = match Suite::load_embedded(&request, scratch) {
        Ok(suite) => suite,
        Err(SuiteError::Invalid(problems)) => {
            rejections.add(
                Reason::BadInput,
                without_folder(&first_problem(&problems), folder),
            );
            return Ok(());
        }
        Err(SuiteError::Io(error)) => return Err(error),
    };
    let own_root = scratch.join("suite").display().to_string();
    let is_own = |entry: &Entry| entry.at.starts_with(&own_root);
    judge(
        folder,
        &suite,
        &is_own,
        (&product, &runs),
        review,
        rejections,
    );
    Ok(())
}

/// Unpacks a package into a folder, which is made, and compares its files with its manifest. Returns the digests of the files and
/// the manifest; `None` if there is a reason to reject the package.
fn unpack(
    package: &Path,
    folder: &Path,
    rejections: &mut Rejections,
) -> io::Result<Option<(BTreeMap<String, FileDigest>, Manifest)>> {
    std::fs::create_dir(folder)?;
    let found = match archive::unpack(package, folder, LIMITS) {
        Ok(found) => found,
        Err(ReadError::Rejected(reason, text)) => {
            rejections.add(reason, text);
            return Ok(None);
        }
        Err(ReadError::Io(error)) => return Err(error),
    };
    let manifest = check_manifest(folder, &found, rejections);
    Ok(manifest
        .filter(|_| rejections.is_empty())
        .map(|manifest| (found, manifest)))
}

/// Reads both runs and reviews their statements. Returns `None` if one of them cannot be reviewed.
fn read_runs(folder: &Path, product: &Product, rejections: &mut Rejections) -> Option<[Run; 2]> {
    let runs = [1, 2].map(|number| {
        let run = Run::read(folder, number, rejections)?;
        run.check_statements(folder, number, product, rejections);
        Some(run)
    });
    let [one, two] = runs;
    Some([one?, two?])
}

/// Judges the records of both runs by the suite and the package's files. `is_own` returns true for an expectation of the suite
/// itself.
fn judge(
    folder: &Path,
    suite: &Suite,
    is_own: &dyn Fn(&Entry) -> bool,
    (product, runs): (&Product, &[Run; 2]),
    review: &mut Review,
    rejections: &mut Rejections,
) {
    let Some(plan) = replan(suite, product, runs, rejections) else {
        return;
    };
    for (number, run) in (1..).zip(runs) {
        let own = folder.join(format!("runs/{number}"));
        run.check_records(&own, &plan, suite, is_own, rejections);
    }
    agreement::check_results(runs, &plan, suite, rejections);
    let checks = &runs[0].results.checks;
    check_left_out(&plan, suite, rejections);
    review.coverage = Some(Coverage::of(checks, &suite.requirements));
    let ids = plan.left_out.iter().map(|scenario| scenario.id.to_string());
    review.left_out = ids.collect();
    review.waivers = waiver_uses(runs, suite, folder);
    for waiver in review.waivers.iter().filter(|waiver| waiver.checks == 0) {
        let text = format!(
            "{}: the waiver of {} excuses nothing",
            waiver.at, waiver.requirement
        );
        rejections.add(Reason::WaiverUnused, text);
    }
}

/// Compares the manifest with the unpacked files. Returns `None` if it cannot be read.
pub fn check_manifest(
    folder: &Path,
    found: &BTreeMap<String, FileDigest>,
    rejections: &mut Rejections,
) -> Option<Manifest> {
    let Ok(bytes) = std::fs::read(folder.join(MANIFEST)) else {
        rejections.add(Reason::BadManifest, format!("there is no {MANIFEST}"));
        return None;
    };
    let manifest: Manifest = match serde_json::from_slice(&bytes) {
        Ok(manifest) => manifest,
        Err(error) => {
            rejections.add(Reason::BadManifest, format!("{MANIFEST}: {error}"));
            return None;
        }
    };
    if manifest.format != FORMAT {
        let found = manifest.format;
        let text = format!("{MANIFEST} has format {found}, this allranks reads {FORMAT}");
        rejections.add(Reason::BadManifest, text);
        return None;
    }
    for (path, listed) in &manifest.files {
        match found.get(path) {
            None => rejections.add(Reason::MissingFile, format!("{path} is not there")),
            Some(there) if there != listed => {
                rejections.add(
                    Reason::DigestMismatch,
                    format!("{path} differs from its entry in the manifest"),
                );
            }
            Some(_) => {}
        }
    }
    let is_listed = |path: &&String| *path == MANIFEST || manifest.files.contains_key(*path);
    for path in found.keys().filter(|path| !is_listed(path)) {
        rejections.add(
            Reason::UnlistedFile,
            format!("{path} is not in the manifest"),
        );
    }
    Some(manifest)
}

/// Reviews that a package was written after its runs had ended, and not in the future.
fn check_written(
    manifest: &Manifest,
    runs: &[Run; 2],
    now: SystemTime,
    rejections: &mut Rejections,
) {
    let mut ends = runs.iter().map(|run| run.period_ms().1 / 1000);
    if ends.any(|end| manifest.created < end) {
        let text = format!("{MANIFEST} was written before the runs had ended");
        rejections.add(Reason::BadManifest, text);
    }
    // Clocks may differ by hours, but not by days.
    let latest = (now + DAY).duration_since(SystemTime::UNIX_EPOCH);
    if latest.is_ok_and(|latest| manifest.created > latest.as_secs()) {
        let text = format!("{MANIFEST} is dated in the future");
        rejections.add(Reason::BadManifest, text);
    }
}

/// Compares the platform, expectation and waiver files of a package with the input files of the runs, by their digests.
fn check_inputs(
    found: &BTreeMap<String, FileDigest>,
    inputs: &[InputFile],
    rejections: &mut Rejections,
) {
    let is_input = |path: &str| {
        INPUTS
            .iter()
            .any(|kind| path.starts_with(&format!("{kind}/")))
    };
    let mut given = BTreeSet::new();
    for input in inputs {
        given.insert(input.path.as_str());
        let is_known = is_input(&input.path);
        let digest = found.get(&input.path);
        let is_same = digest.is_some_and(|digest| digest.sha256 == input.sha256);
        if !is_known || !is_same {
            let text = format!(
                "{} differs from the file that the runs were given",
                input.path
            );
            rejections.add(Reason::EditedInput, text);
        }
    }
    for path in found.keys().filter(|path| is_input(path)) {
        if !given.contains(path.as_str()) {
            rejections.add(
                Reason::EditedInput,
                format!("{path} was not given to the runs"),
            );
        }
    }
}

fn replan(
    suite: &Suite,
    product: &Product,
    runs: &[Run; 2],
    rejections: &mut Rejections,
) -> Option<Replan> {
    let claim = &product.claim;
    let run = &runs[0];
    let mut columns = run.results.checks.iter().map(|check| &check.column);
    let platform = suite
        .platforms
        .iter()
        .find(|one| one.name == claim.platform);
    let declared = platform.map(|platform| platform.evidence);
    if declared == Some(Evidence::Simulated) && claim.evidence != Evidence::Simulated {
        let text = format!(
            "the file of platform {} says that it is simulated",
            claim.platform
        );
        rejections.add(Reason::SimulatedEvidence, text);
        return None;
    }
    let machine = Machine {
        torch: run.torch().first().copied().unwrap_or_default(),
        devices: run.origin.devices.get(&claim.platform).copied(),
        is_simulated: columns.any(|column| column.evidence == Evidence::Simulated),
        too_large: &run.origin.too_large,
    };
    match Replan::new(suite, claim, machine) {
        Ok(plan) => Some(plan),
        Err(why) => {
            rejections.add(Reason::OtherClaim, why);
            None
        }
    }
}

/// Rejects MUSTs that are covered only by scenarios for which the machine was too small.
fn check_left_out(plan: &Replan, suite: &Suite, rejections: &mut Rejections) {
    fn covered(scenarios: &[Scenario]) -> BTreeSet<&RequirementId> {
        let checks = scenarios.iter().flat_map(|scenario| &scenario.checks);
        checks.flat_map(|check| check.covers.iter()).collect()
    }
    let there = covered(&plan.scenarios);
    for id in covered(&plan.left_out) {
        let is_must = is_must(&suite.requirements, std::slice::from_ref(id));
        if is_must && !there.contains(id) {
            let text = format!("no check of {id} fits the devices of the runs");
            rejections.add(Reason::MustMissing, text);
        }
    }
}

/// The waivers of the package, each with the number of checks that it excuses in a run.
fn waiver_uses(runs: &[Run; 2], suite: &Suite, folder: &Path) -> Vec<WaiverUse> {
    let waived = runs[0].results.checks.iter().chain(&runs[1].results.checks);
    let texts: Vec<&str> = waived
        .filter(|check| check.verdict == Verdict::Waived)
        .filter_map(|check| Some(check.expectation.as_ref()?.text.as_str()))
        .collect();
    let entries = suite.expectations.iter();
    let used = entries.filter_map(|entry| {
        let waiver = entry.waiver()?;
        let why = entry.why();
        Some(WaiverUse {
            at: without_folder(&entry.at, folder),
            requirement: waiver.requirement.clone(),
            expiry: waiver.expiry.clone(),
            approver: waiver.approver.clone(),
            reason: entry.reason.clone(),
            url: entry.url.clone().unwrap_or_default(),
            checks: texts
                .iter()
                .filter(|text| **text == why)
                .count()
                .div_ceil(2),
        })
    });
    used.collect()
}

/// Returns a text without the path of the folder that the package was unpacked in.
fn without_folder(text: &str, folder: &Path) -> String {
    text.replace(&format!("{}/", folder.display()), "")
}
