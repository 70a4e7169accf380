//! Signs packages and verifies signatures with SSH keys, by `ssh-keygen -Y` of OpenSSH 8.2 or later. A vendor can use an existing
//! key, and allranks needs no cryptography of its own.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The namespace of the signatures. A signature with another namespace is not accepted.
const NAMESPACE: &str = "allranks";
/// The program that signs and verifies.
const PROGRAM: &str = "ssh-keygen";

/// Why a signature is invalid, or could not be made.
#[derive(Debug)]
pub enum SignatureError {
    /// The program rejects key, signature or signer; its message.
    Refused(String),
    /// The program cannot be run, or a file not be opened.
    Io(io::Error),
}

/// Returns the path of a package's signature.
#[must_use]
pub fn signature_path(package: &Path) -> PathBuf {
    let mut name = package.as_os_str().to_owned();
    name.push(".sig");
    PathBuf::from(name)
}

/// Signs a package with the key in a file. Writes the signature beside the package, and replaces an older one.
///
/// # Errors
/// The file is not a key, or the program cannot be run.
pub fn sign(package: &Path, key: &Path) -> Result<(), SignatureError> {
    match std::fs::remove_file(signature_path(package)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(SignatureError::Io(error));
        }
        Ok(()) | Err(_) => {}
    }
    let arguments = [
        "-Y".as_ref(),
        "sign".as_ref(),
        "-n".as_ref(),
        NAMESPACE.as_ref(),
        "-f".as_ref(),
        key.as_os_str(),
        package.as_os_str(),
    ];
    output_text(run(&arguments, Stdio::null())?).map(|_| ())
}

/// Verifies the signature of a package by the allowed signers of a file. Returns the signer.
///
/// # Errors
/// The package is not signed by the signer, or by any of the file if none is named; or the program cannot be run.
pub fn verify(
    package: &Path,
    signature: &Path,
    allowed: &Path,
    signer: Option<&str>,
) -> Result<String, SignatureError> {
    if !signature.is_file() {
        let text = format!("there is no signature {}", signature.display());
        return Err(SignatureError::Refused(text));
    }
    let open = || File::open(package).map_err(SignatureError::Io);
    let signer = match signer {
        Some(signer) => signer.to_owned(),
        None => {
            let arguments = [
                "-Y".as_ref(),
                "find-principals".as_ref(),
                "-s".as_ref(),
                signature.as_os_str(),
                "-f".as_ref(),
                allowed.as_os_str(),
            ];
            let found = output_text(run(&arguments, Stdio::from(open()?))?)?;
            found.lines().next().unwrap_or_default().to_owned()
        }
    };
    let arguments = [
        "-Y".as_ref(),
        "verify".as_ref(),
        "-n".as_ref(),
        NAMESPACE.as_ref(),
        "-f".as_ref(),
        allowed.as_os_str(),
        "-I".as_ref(),
        OsStr::new(&signer),
        "-s".as_ref(),
        signature.as_os_str(),
    ];
    output_text(run(&arguments, Stdio::from(open()?))?)?;
    Ok(signer)
}

fn run(arguments: &[&OsStr], input: Stdio) -> Result<Output, SignatureError> {
    let output = Command::new(PROGRAM).args(arguments).stdin(input).output();
    output.map_err(|error| {
        let text = format!("{PROGRAM} cannot be run: {error}");
        SignatureError::Io(io::Error::new(error.kind(), text))
    })
}

/// Returns the standard output of the program; if it failed, its message as an error.
fn output_text(output: Output) -> Result<String, SignatureError> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => {
            let words = [text(&output.stderr), text(&output.stdout)].join(" ");
            let words: Vec<&str> = words.split_whitespace().collect();
            Err(SignatureError::Refused(words.join(" ")))
        }
    }
}
