//! Conformance claims: what a vendor states of a backend and the evidence for it, in one file, and the verification of such
//! files.
//!
//! [`submit`] writes a package from two runs. [`verify`] needs neither torch nor a device: it plans again from the suite that the
//! binary carries and the platform file in the package, and judges every recorded outcome again by the suite's expectations and
//! the package's waivers. It can tell that a package contradicts itself or the suite. It cannot tell whether the outcomes were
//! made up consistently: for that a claim has a vendor's name, logs, and a signature.
//!
//! ```text
//! manifest.json            digest and size of every other file; which suite, which driver
//! product.yaml             vendor, package, version, wheel, devices, and the claim
//! platforms/ expectations/ waivers/      the files that were given to both runs
//! runs/1/ runs/2/          the folders of two complete runs: results, environment, reports, logs
//! repro/                   a Python file for each failure that is known or waived
//! ```

mod agreement;
mod archive;
mod coverage;
mod manifest;
mod product;
mod reason;
mod record_review;
mod replan;
mod run;
mod run_review;
mod scenario_review;
mod signature;
mod submit;
mod unpacked;
mod verify;
mod waivers;

pub use coverage::Coverage;
pub use manifest::{FileDigest, Manifest};
pub use product::{Claim, Device, Product, Wheel, product_schema};
pub use reason::{Reason, Rejection, Rejections};
pub use run_review::evidence;
pub use signature::{SignatureError, sign, signature_path, verify as verify_signature};
pub use submit::{Submission, SubmitError, submit};
pub use unpacked::{OpenError, UnpackedPackage, is_package, open};
pub use verify::{Review, verify};
pub use waivers::WaiverUse;
