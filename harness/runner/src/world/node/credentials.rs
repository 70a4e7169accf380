//! What an agent must have to be admitted by a run: where the run listens, the fingerprint of its key, and its token.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::engine::Engine;

/// The variable that holds credentials as JSON, where there is no file that all hosts can read. It is kept from ranks.
pub const CREDENTIALS: &str = "ALLRANKS_CREDENTIALS";
/// The longest credentials, in bytes.
const LONGEST: u64 = 64 << 10;

/// The credentials of a run's node agents. They are written to a file that only its owner can read, never to a command line.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credentials {
    /// The name of the run, which agents send back.
    pub run: String,
    /// What starts the agents.
    pub engine: Engine,
    /// Addresses of the run, `host:port`, most suitable first.
    pub addresses: Vec<String>,
    /// SHA-256 of the run's certificate, in hexadecimal.
    pub fingerprint: String,
    /// The secret that the run shares with its agents.
    pub token: String,
}

/// Leaves the token out.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("run", &self.run)
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}

impl Credentials {
    /// Writes them to a new file of mode 0600.
    ///
    /// # Errors
    /// Fails if the file exists or cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)
    }

    /// Reads them from a file.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is another user's, can be read by other users, or holds something else.
    pub fn read(path: &Path) -> io::Result<Self> {
        let refused = |what: String| {
            let text = format!("{} {what}", path.display());
            io::Error::new(io::ErrorKind::PermissionDenied, text)
        };
        let file = File::open(path).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })?;
        let found = file.metadata()?;
        let user = rustix::process::geteuid().as_raw();
        if found.uid() != user && found.uid() != 0 {
            return Err(refused(format!(
                "holds a secret and belongs to user {}",
                found.uid()
            )));
        }
        if found.mode() & 0o077 != 0 {
            return Err(refused(format!(
                "holds a secret, and others can read or write it (mode {:o}); hint: chmod 600, and start the run again, for the secret may be known",
                found.mode() & 0o777
            )));
        }
        let mut text = String::new();
        file.take(LONGEST).read_to_string(&mut text)?;
        Self::parse(&text)
    }

    /// Reads them from the text of a file or of [`CREDENTIALS`].
    ///
    /// # Errors
    /// Fails if it is no such text. The error does not repeat it.
    pub fn parse(text: &str) -> io::Result<Self> {
        serde_json::from_str(text).map_err(|error| {
            let at = format!("line {}, column {}", error.line(), error.column());
            let text = format!("these are no credentials of a run ({at}); hint: `allranks run --launcher attached` writes them");
            io::Error::new(io::ErrorKind::InvalidData, text)
        })
    }
}

/// Returns the proof of having `token` on the connection whose challenge is `nonce`.
pub(super) fn proof(token: &str, nonce: &str) -> String {
    format!("{:x}", code(token, nonce).finalize().into_bytes())
}

/// Returns true if this is the proof. Takes the same time for every wrong one.
pub(super) fn is_proof(claimed: &str, token: &str, nonce: &str) -> bool {
    let Some(bytes) = bytes(claimed) else {
        return false;
    };
    code(token, nonce).verify_slice(&bytes).is_ok()
}

fn code(token: &str, nonce: &str) -> Hmac<Sha256> {
    let mut code = Hmac::<Sha256>::new_from_slice(token.as_bytes())
        .unwrap_or_else(|_| unreachable!("a key of this code may have any length"));
    code.update(nonce.as_bytes());
    code
}

fn bytes(hexadecimal: &str) -> Option<Vec<u8>> {
    if !hexadecimal.is_ascii() || !hexadecimal.len().is_multiple_of(2) {
        return None;
    }
    (0..hexadecimal.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hexadecimal[at..at + 2], 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn example() -> Credentials {
        Credentials {
            run: "r".to_owned(),
            engine: Engine::Attached,
            addresses: vec!["10.0.0.1:5".to_owned()],
            fingerprint: "f".to_owned(),
            token: "geheim".to_owned(),
        }
    }

    #[test]
    fn the_file_is_its_owner_s_alone_and_is_refused_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c");
        example().write(&path).unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        assert_eq!(Credentials::read(&path).unwrap(), example());
        assert!(example().write(&path).is_err(), "it was overwritten");
        for mode in [0o640, 0o604, 0o620] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let said = Credentials::read(&path).unwrap_err().to_string();
            assert!(said.contains(&format!("mode {mode:o}")), "{said}");
        }
    }

    #[test]
    fn the_secret_is_in_no_error_and_no_debug_text() {
        let said = Credentials::parse("{\"token\": \"geheim\"").unwrap_err();
        let texts = [format!("{:?}", example()), said.to_string()];
        assert!(!texts.concat().contains("geheim"), "{texts:?}");
    }

    #[test]
    fn a_proof_is_for_one_token_and_one_connection() {
        let good = proof("token", "nonce");
        assert!(is_proof(&good, "token", "nonce"));
        for (claimed, token, nonce) in [
            (good.as_str(), "token", "another"),
            (good.as_str(), "other", "nonce"),
            (&good[2..], "token", "nonce"),
            ("", "token", "nonce"),
            ("zz", "token", "nonce"),
            ("ü1", "token", "nonce"),
        ] {
            assert!(
                !is_proof(claimed, token, nonce),
                "{claimed} {token} {nonce}"
            );
        }
    }
}
