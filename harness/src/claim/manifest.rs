//! `manifest.json`: what is in a package, and from which suite it comes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use allranks_model::record::SuiteIdentity;

/// Path of the manifest in a package.
pub const MANIFEST: &str = "manifest.json";
/// The format of manifests.
pub const FORMAT: u32 = 1;

/// The contents of `manifest.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The format number.
    pub format: u32,
    /// Version of allranks that wrote the package.
    pub allranks: String,
    /// When it was written, in seconds since the Unix epoch.
    pub created: u64,
    /// The suite and the driver of both runs.
    pub suite: SuiteIdentity,
    /// Every file but this one, by path.
    pub files: BTreeMap<String, FileDigest>,
}

/// What a file is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDigest {
    /// SHA-256 of its bytes, in hexadecimal.
    pub sha256: String,
    /// Number of bytes.
    pub size: u64,
}
