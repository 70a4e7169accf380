//! The arguments of `submit` and `verify`.

use std::path::PathBuf;

use clap::Args;

pub const SUBMIT_HELP: &str = "\
Exit codes:
  0   written, and `allranks verify` accepts it
  1   not written: `allranks verify` would reject it, for the reasons given
  2   usage, a bad product file, or no such run
  10  the harness or the machine failed

Example, with a backend that a vendor ships:
  allranks run --platforms example.yaml --platform example --profile core --out run1
  allranks run --platforms example.yaml --platform example --profile core --out run2
  allranks submit run1 run2 --product product.yaml --out example-1.4.0.tar.zst
  allranks verify example-1.4.0.tar.zst

The product file:
  vendor: Example Devices
  package: torch-example                 # as `pip list` shows it
  version: 1.4.0
  wheel: {file: torch_example-1.4.0-cp312-cp312-linux_x86_64.whl, sha256: 64 DIGITS}
  devices: [{model: Example 200, count: 8}]
  driver: 5.2.1
  claim: {platform: example, backend: excl, profile: core, evidence: hardware}";

pub const VERIFY_HELP: &str = "\
Exit codes:
  0   accepted: the package is what it claims to be
  1   rejected, with a line `rejected REASON: ...` for each reason
  2   usage, or the package cannot be opened
  10  the harness or the machine failed

Examples:
  allranks verify example-1.4.0.tar.zst
  allranks verify example-1.4.0.tar.zst --json
  allranks verify example-1.4.0.tar.zst --allowed-signers vendors --signer conformance@example.org";

/// The arguments of `submit`.
#[derive(Debug, Args)]
pub struct SubmitArguments {
    /// The folder of a complete run of the claim's platform, backend and profile.
    pub run1: PathBuf,
    /// The folder of a second one.
    pub run2: PathBuf,
    /// The product file: what was tested and what is claimed. `allranks schema product` prints its schema.
    #[arg(long, value_name = "FILE")]
    pub product: PathBuf,
    /// The package to write.
    #[arg(long, value_name = "FILE.tar.zst")]
    pub out: PathBuf,
    /// Sign it with this SSH key: writes FILE.tar.zst.sig beside it (ssh-keygen -Y sign, namespace `allranks`).
    #[arg(long, value_name = "KEY")]
    pub sign: Option<PathBuf>,
}

/// The arguments of `verify`.
#[derive(Debug, Args)]
pub struct VerifyArguments {
    /// The package.
    pub package: PathBuf,
    /// Print the review as JSON.
    #[arg(long)]
    pub json: bool,
    /// A file of signers in the form of ssh-keygen(1), "ALLOWED SIGNERS": the package must be signed by one of them.
    #[arg(long, value_name = "FILE")]
    pub allowed_signers: Option<PathBuf>,
    /// The signer who must have signed it. Default: any signer in the file.
    #[arg(long, value_name = "IDENTITY", requires = "allowed_signers")]
    pub signer: Option<String>,
    /// The signature. Default: PACKAGE.sig.
    #[arg(long, value_name = "FILE", requires = "allowed_signers")]
    pub signature: Option<PathBuf>,
}
