//! `allranks submit` and `allranks verify`.

use std::io::{self, Write};
use std::time::SystemTime;

use super::claim_arguments::{SubmitArguments, VerifyArguments};
use super::read_run::read;
use super::{Exit, Failure, repro};
use crate::claim::{
    self, Coverage, Reason, Rejection, Review, SignatureError, Submission, SubmitError,
};
use allranks_model::names::RequirementId;

/// How many ids a line names.
const NAMED: usize = 12;

/// Writes a package.
pub fn submit(arguments: &SubmitArguments, out: &mut impl Write) -> Result<Exit, Failure> {
    let scratch = tempfile::tempdir()?;
    let reproducers = scratch.path().join("repro");
    let count = repro::write_excused(&read(&arguments.run1)?, &reproducers)?;
    let submission = Submission {
        runs: [arguments.run1.clone(), arguments.run2.clone()],
        product: arguments.product.clone(),
        repro: Some(reproducers),
    };
    let review = claim::submit(&submission, &arguments.out, SystemTime::now());
    let review = review.map_err(|error| match error {
        SubmitError::Wrong(text) => Failure::Usage(
            text,
            "`allranks submit --help` shows a product file and the commands that lead to a package"
                .to_owned(),
        ),
        SubmitError::Io(error) => Failure::Io(error),
    })?;
    write_review(&review, out)?;
    if !review.is_accepted() {
        writeln!(out, "{} was not written", arguments.out.display())?;
        return Ok(Exit::Unexpected);
    }
    let out_file = arguments.out.display();
    writeln!(out, "wrote {out_file}, with {count} reproductions")?;
    if let Some(key) = &arguments.sign {
        claim::sign(&arguments.out, key).map_err(|error| match error {
            SignatureError::Refused(text) => Failure::Usage(
                format!("the package was written but not signed: {text}"),
                "--sign names the file of an SSH key".to_owned(),
            ),
            SignatureError::Io(error) => Failure::Io(error),
        })?;
        writeln!(
            out,
            "wrote {}",
            claim::signature_path(&arguments.out).display()
        )?;
    }
    Ok(Exit::AsExpected)
}

/// Verifies a package.
pub fn verify(arguments: &VerifyArguments, out: &mut impl Write) -> Result<Exit, Failure> {
    let package = &arguments.package;
    if !package.is_file() {
        return Err(Failure::Usage(
            format!("there is no package {}", package.display()),
            "name the file that `allranks submit` wrote".to_owned(),
        ));
    }
    let mut review = claim::verify(package, SystemTime::now())?;
    if let Some(allowed) = &arguments.allowed_signers {
        let beside = claim::signature_path(package);
        let signature = arguments.signature.as_ref().unwrap_or(&beside);
        let signer = arguments.signer.as_deref();
        match claim::verify_signature(package, signature, allowed, signer) {
            Ok(signer) => review.signer = Some(signer),
            Err(SignatureError::Refused(text)) => review.rejections.push(Rejection {
                reason: Reason::BadSignature,
                text,
                count: 1,
            }),
            Err(SignatureError::Io(error)) => return Err(Failure::Io(error)),
        }
    }
    if arguments.json {
        serde_json::to_writer_pretty(&mut *out, &review).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        write_review(&review, out)?;
    }
    Ok(match review.is_accepted() {
        true => Exit::AsExpected,
        false => Exit::Unexpected,
    })
}

/// Writes what a package claims, what it covers, and the reasons for which it is rejected.
fn write_review(review: &Review, out: &mut impl Write) -> io::Result<()> {
    if let Some(product) = &review.product {
        let claim = &product.claim;
        writeln!(
            out,
            "product    {} {} of {}",
            product.package, product.version, product.vendor
        )?;
        writeln!(
            out,
            "wheel      {} sha256:{}",
            product.wheel.file, product.wheel.sha256
        )?;
        for device in &product.devices {
            writeln!(out, "devices    {} x {}", device.count, device.model)?;
        }
        if let Some(driver) = &product.driver {
            writeln!(out, "driver     {driver}")?;
        }
        writeln!(
            out,
            "claim      {}/{}, profile {}, evidence: {}",
            claim.platform,
            claim.backend,
            claim.profile,
            claim::evidence(claim.evidence)
        )?;
    }
    if let Some(suite) = &review.suite {
        let commit = suite.commit.as_deref().unwrap_or("unknown");
        let cases = suite.cases.get(..16).unwrap_or_default();
        let torch = review.torch.as_deref().filter(|torch| !torch.is_empty());
        writeln!(
            out,
            "made with  allranks {}, commit {commit}, cases {cases}, torch {}",
            env!("CARGO_PKG_VERSION"),
            torch.unwrap_or("unknown")
        )?;
    }
    match review.driver.as_deref() {
        None | Some("python") => {}
        Some(driver) => writeln!(
            out,
            "note       the ranks ran the driver `{driver}`, which is not the suite's own Python driver"
        )?,
    }
    if let Some(coverage) = &review.coverage {
        write_coverage(coverage, out)?;
    }
    if !review.left_out.is_empty() {
        writeln!(
            out,
            "left out   {} scenarios need more devices, or what the machine lacked, such as {}",
            review.left_out.len(),
            review.left_out[0]
        )?;
    }
    for waiver in &review.waivers {
        writeln!(
            out,
            "waiver     {} until {}, approved by {}: {} checks; {} ({})",
            waiver.requirement,
            waiver.expiry,
            waiver.approver,
            waiver.checks,
            waiver.reason,
            waiver.url
        )?;
    }
    if let Some(signer) = &review.signer {
        writeln!(out, "signed     by {signer}")?;
    }
    for one in &review.rejections {
        write!(out, "rejected   {}: {}", one.reason, one.text)?;
        if one.count > 1 {
            write!(out, " (and {} more)", one.count - 1)?;
        }
        writeln!(out)?;
    }
    if review.is_accepted() {
        writeln!(out, "accepted")?;
    }
    Ok(())
}

fn write_coverage(coverage: &Coverage, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "MUSTs      {} of {} met, {} met in part, {} declared unsupported, {} unmet",
        coverage.met,
        coverage.musts,
        coverage.met_in_part.len(),
        coverage.unsupported.len(),
        coverage.unmet.len()
    )?;
    let lists = [
        ("in part", &coverage.met_in_part),
        ("refused", &coverage.unsupported),
        ("unmet", &coverage.unmet),
    ];
    for (word, ids) in lists.into_iter().filter(|(_, ids)| !ids.is_empty()) {
        writeln!(out, "  {word:<8} {}", id_list(ids))?;
    }
    writeln!(
        out,
        "checks     {}: {} passed, {} declared unsupported and refused ({:.1} %), {} known failures, {} waived",
        coverage.checks,
        coverage.passed,
        coverage.refused,
        coverage.unsupported_share(),
        coverage.known,
        coverage.waived
    )?;
    if coverage.should_failed + coverage.should_not_run > 0 {
        writeln!(
            out,
            "SHOULDs    {} checks failed, {} were not run",
            coverage.should_failed, coverage.should_not_run
        )?;
    }
    Ok(())
}

fn id_list(ids: &[RequirementId]) -> String {
    let first: Vec<&str> = ids.iter().take(NAMED).map(RequirementId::as_str).collect();
    match ids.len().saturating_sub(NAMED) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}
