//! `manifest.json`: what is in a package, and from which suite it comes.

use std::collections::BTreeMap;
use std::io::{self, Read};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

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

/// The digest and the size of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDigest {
    /// SHA-256 of its bytes, in hexadecimal.
    pub sha256: String,
    /// The size of the file in bytes.
    pub size: u64,
}

impl FileDigest {
    /// Reads a file to its end, passes its bytes on in pieces, and returns their digest.
    ///
    /// # Errors
    /// `failed` converts an error of reading; an error of `pass_on` is returned as it is.
    pub fn of<E>(
        source: &mut impl Read,
        failed: impl Fn(io::Error) -> E,
        mut pass_on: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut hash = Sha256::new();
        let mut size = 0;
        let mut buffer = vec![0; 64 << 10];
        loop {
            let count = source.read(&mut buffer).map_err(&failed)?;
            if count == 0 {
                break;
            }
            hash.update(&buffer[..count]);
            pass_on(&buffer[..count])?;
            size += count as u64;
        }
        Ok(Self {
            sha256: format!("{:x}", hash.finalize()),
            size,
        })
    }
}
