//! Packages: honest ones, and many that are damaged or dishonest, each rejected for its reason.
//!
//! The base is a real package of two runs of a driver without torch. Each dishonest one is made from it by one change, and is
//! otherwise as consistent as its author could make it: the manifest is written anew, and where records change, totals follow.

mod dishonest;
mod package;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use super::stage::{Ran, Stage};
use super::{Test, computing, plain};
use package::Package;

/// What runs the ranks: a library of its own, without torch.
pub const DRIVER: &str = "command:python3 harness/tests/blackbox/drivers/refuses.py";

/// A platform file of a pretended vendor.
pub const PLATFORM: &str = "\
name: pretend
device_type: cpu
evidence: host
backends:
  gloo:
    supports:
      - {ops: all_reduce, dtypes: float32, reduce: sum, modes: sync}
      - {ops: barrier, modes: sync}
      - {ops: all_gather_into_tensor, modes: sync}
";

/// Returns every trial of this file.
pub fn tests() -> Vec<Test> {
    let mut tests = vec![
        plain("claims::of_a_pretended_vendor", accept_vendor),
        plain("claims::two_packages_side_by_side", side_by_side),
        plain("claims::damaged_files_are_not_unpacked", damaged_files),
        plain("claims::runs_that_are_no_claim_are_not_packed", refuse),
        plain("claims::with_a_waiver", accept_with_waiver),
        computing("claims::of_gloo", accept_gloo),
        computing("claims::of_a_simulated_device", accept_simulated),
    ];
    tests.extend(dishonest::tests());
    tests
}

/// A product file.
pub fn product(package: &str, version: &str, lines: &str) -> String {
    let digits = "ab".repeat(32);
    format!(
        "vendor: Pretended Devices\npackage: {package}\nversion: \"{version}\"\n\
         wheel: {{file: {package}.whl, sha256: {digits}}}\n{lines}\n"
    )
}

/// The claim of the base.
pub const CLAIM: &str = "claim: {platform: pretend, backend: gloo, profile: smoke, evidence: host}";

/// Runs twice and packs; the arguments select what runs. Returns the package.
fn pack(stage: &Stage, arguments: &[&str], product: &str) -> (Ran, String) {
    for name in ["one", "two"] {
        let out = stage.path(name).display().to_string();
        let mut all = vec!["run"];
        all.extend(arguments);
        all.extend(["--out", &out]);
        stage.run(&all).assert_code(0);
    }
    let product = stage.write("product.yaml", product);
    let [one, two] = ["one", "two"].map(|name| stage.path(name).display().to_string());
    let out = stage.path("p.tar.zst").display().to_string();
    let ran = stage.run(&["submit", &one, &two, "--product", &product, "--out", &out]);
    (ran, out)
}

/// The arguments of a smoke run of the pretended vendor, whose platform file this is.
fn smoke(platform: &str) -> [&str; 8] {
    [
        "--platforms",
        platform,
        "--platform",
        "pretend",
        "--profile",
        "smoke",
        "--driver",
        DRIVER,
    ]
}

/// The honest package that all dishonest ones are made from, made once.
pub fn base() -> &'static Package {
    static BASE: OnceLock<Package> = OnceLock::new();
    BASE.get_or_init(|| {
        let stage = Stage::new("claim-base");
        let platform = stage.write("pretend.yaml", PLATFORM);
        let (ran, path) = pack(
            &stage,
            &smoke(&platform),
            &product("pretended", "1.0", CLAIM),
        );
        ran.assert_code(0);
        Package::read(&PathBuf::from(path))
    })
}

/// Verifies a package of the stage.
pub fn verify(stage: &Stage, path: &str) -> Ran {
    stage.run(&["verify", path])
}

/// Packages of two versions of a backend, compared and put side by side.
fn side_by_side() {
    let stage = Stage::new("claim-sides");
    let old = base().write(&stage, "old.tar.zst");
    let mut package = base().clone();
    package.replace("product.yaml", "version: \"1.0\"", "version: \"2.0\"");
    package.change_check(
        |check| check["verdict"] == "expected" && check["outcome"] == "pass",
        |check| {
            check["verdict"] = "regression".into();
            check["outcome"] = "mismatch".into();
        },
    );
    package.relist();
    let new = package.write(&stage, "new.tar.zst");
    let ran = stage.run(&["diff", &old, &new]);
    ran.assert_code(1);
    let merged = stage.path("merged").display().to_string();
    let ran = stage.run(&["merge", &old, &format!("next={new}"), "--out", &merged]);
    ran.assert_code(0);
    let results = stage.results("merged");
    assert_eq!(results.checks.len(), 280);
    let labels: BTreeSet<&str> = (results.checks.iter())
        .map(|check| check.column.label.as_str())
        .collect();
    assert_eq!(labels, BTreeSet::from(["next", "pretended-1.0"]));
    let summary = fs::read_to_string(stage.path("merged/summary.md")).unwrap();
    for name in ["pretend/gloo pretended-1.0", "pretend/gloo next"] {
        assert!(summary.contains(name), "`{name}` is not in:\n{summary}");
    }
    // Logs are where the results say.
    let logs = results.scenarios.iter().flat_map(|one| &one.ranks);
    for rank in logs {
        assert!(
            stage.path("merged").join(&rank.log).exists(),
            "{}",
            rank.log
        );
    }
    // A damaged package leaves nothing.
    let mut bytes = fs::read(&new).unwrap();
    bytes.truncate(bytes.len() / 2);
    fs::write(&new, bytes).unwrap();
    let none = stage.path("none").display().to_string();
    let ran = stage.run(&["merge", &old, &new, "--out", &none]);
    ran.assert_code(2).assert_says("allranks verify");
    assert!(!stage.path("none").exists());
}

fn accept_vendor() {
    let stage = Stage::new("claim-vendor");
    let path = base().write(&stage, "p.tar.zst");
    let ran = verify(&stage, &path);
    ran.assert_code(0);
    for line in [
        "product    pretended 1.0 of Pretended Devices",
        "claim      pretend/gloo, profile smoke, evidence: host",
        "the driver `command`",
        "declared unsupported and refused (47.1 %)",
        "accepted",
    ] {
        assert!(
            ran.stdout.contains(line),
            "`{line}` is not in:\n{}",
            ran.stdout
        );
    }
    // From a folder that is no checkout, by the suite that the binary carries.
    let mut command = stage.command(&["verify", &path, "--json"]);
    command.current_dir(stage.path(""));
    let ran = stage.start(command).end();
    ran.assert_code(0);
    let review: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(review["rejections"].as_array().unwrap().len(), 0);
    assert_eq!(review["coverage"]["checks"], 140);
    // What is in it can be read with other tools.
    let packed = base();
    for name in [
        "product.yaml",
        "platforms/01-pretend.yaml",
        "runs/2/environment.json",
    ] {
        assert!(packed.files.contains_key(name), "{name}");
    }
    assert!(
        packed
            .files
            .keys()
            .any(|name| name.starts_with("runs/1/logs/"))
    );
    assert!(!packed.files.keys().any(|name| name.contains("/inputs/")));
}

fn damaged_files() {
    let stage = Stage::new("claim-damaged");
    let whole = fs::read(base().write(&stage, "p.tar.zst")).unwrap();
    let half = stage.path("half.tar.zst");
    fs::write(&half, &whole[..whole.len() / 2]).unwrap();
    let mut flipped = whole.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0x10;
    let bad = stage.path("flipped.tar.zst");
    fs::write(&bad, flipped).unwrap();
    for path in [half, bad] {
        let ran = verify(&stage, &path.display().to_string());
        ran.assert_code(1);
        assert!(ran.stdout.contains("rejected"), "{}", ran.stdout);
    }
    let text = stage.write("text.tar.zst", "no package");
    let ran = verify(&stage, &text);
    ran.assert_code(1);
    assert!(
        ran.stdout.starts_with("rejected   not-an-archive: "),
        "{}",
        ran.stdout
    );
    let ran = verify(&stage, &stage.path("none.tar.zst").display().to_string());
    ran.assert_code(2).assert_says("there is no package");
}

fn refuse() {
    let stage = Stage::new("claim-refused");
    let platform = stage.write("pretend.yaml", PLATFORM);
    let out = stage.path("one").display().to_string();
    let narrow = ["--filter", "op=sum", "--out", &out];
    stage
        .run(&[&["run"], &smoke(&platform)[..], &narrow].concat())
        .assert_code(0);
    let good = stage.write("product.yaml", &product("pretended", "1.0", CLAIM));
    let package = stage.path("p.tar.zst").display().to_string();
    let submit = |one: &str, two: &str, product: &str| {
        stage.run(&["submit", one, two, "--product", product, "--out", &package])
    };
    let ran = submit(&out, &out, &good);
    ran.assert_code(1);
    assert!(
        ran.stdout.contains("rejected   run-reused"),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.contains("was not written"), "{}", ran.stdout);
    assert!(!stage.path("p.tar.zst").exists());
    let merged = stage.path("merged").display().to_string();
    stage.run(&["merge", &out, "--out", &merged]).assert_code(0);
    submit(&merged, &out, &good)
        .assert_code(2)
        .assert_says("merged or judged");
    let missing = stage.path("none").display().to_string();
    submit(&missing, &out, &good)
        .assert_code(2)
        .assert_says("cannot read");
    let bad = stage.write(
        "bad.yaml",
        &product("pretended", "1.0", CLAIM).replace("abab", "ab"),
    );
    submit(&out, &out, &bad)
        .assert_code(2)
        .assert_says("not a SHA-256");
    // Nothing is left beside the package that was not written.
    let names = fs::read_dir(stage.path("")).unwrap().flatten();
    let left: Vec<_> = names
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    assert!(
        !left.iter().any(|name| name.starts_with(".tmp")),
        "{left:?}"
    );
}

/// A run with a waived failure, from the files that a vendor writes to the package.
fn accept_with_waiver() {
    let stage = Stage::new("claim-waiver");
    let platform = stage.write("pretend.yaml", PLATFORM);
    let waivers = stage.write(
        "waivers.yml",
        "- requirement: COLL-001\n  match: {backend: gloo, op: all_reduce, reduce: sum, world_size: 1}\n  \
         outcome: mismatch\n  reason: The last element is dropped.\n  url: https://example.org/1\n  \
         expiry: 2099-12-31\n  approver: numerics team\n\
         - requirement: INIT-001\n  match: {backend: gloo, op: all_reduce, world_size: 1, case: rendezvous/methods}\n  \
         outcome: mismatch\n  reason: The last element is dropped here too.\n  url: https://example.org/1\n  \
         expiry: 2099-12-31\n  approver: numerics team\n",
    );
    let driver = "command:python3 harness/tests/blackbox/drivers/drops_one.py";
    let run = [
        "--platforms",
        &platform,
        "--waivers",
        &waivers,
        "--platform",
        "pretend",
        "--profile",
        "smoke",
        "--driver",
        driver,
    ];
    let (ran, path) = pack(&stage, &run, &product("pretended", "1.0", CLAIM));
    ran.assert_code(0);
    assert!(
        ran.stdout.contains("with 2 reproductions"),
        "{}",
        ran.stdout
    );
    let ran = verify(&stage, &path);
    ran.assert_code(0);
    let line = "waiver     COLL-001 until 2099-12-31, approved by numerics team: 1 checks";
    assert!(ran.stdout.contains(line), "{}", ran.stdout);
    let packed = Package::read(&PathBuf::from(path));
    let mut names = packed.files.keys();
    let script = names.find(|name| name.starts_with("repro/")).unwrap();
    let text = packed.text(script);
    assert!(
        text.contains("import torch") && text.contains("https://example.org/1"),
        "{text}"
    );
    assert!(packed.files.contains_key("waivers/01-waivers.yml.yaml"));
}

fn torch_version(stage: &Stage, run: &str) -> String {
    let text = fs::read(stage.path(run).join("environment.json")).unwrap();
    let environment: serde_json::Value = serde_json::from_slice(&text).unwrap();
    environment["torch"]["installed"]["torch"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Runs twice, and packs with the version of torch that the runs record.
fn packed_with_torch(name: &str, arguments: &[&str], lines: &str) -> Ran {
    let stage = Stage::new(name);
    let (ran, out) = pack(&stage, arguments, &product("torch", "0", lines));
    ran.assert_code(1);
    let reason = "rejected   other-product";
    assert!(ran.stdout.contains(reason), "{}", ran.stdout);
    let version = torch_version(&stage, "one");
    let product = stage.write("product.yaml", &product("torch", &version, lines));
    let [one, two] = ["one", "two"].map(|name| stage.path(name).display().to_string());
    let key = stage.path("key").display().to_string();
    let mut keygen = Command::new("ssh-keygen");
    keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f", &key]);
    assert!(stage.marked(keygen).status().unwrap().success());
    let submit = [
        "submit",
        &one,
        &two,
        "--product",
        &product,
        "--out",
        &out,
        "--sign",
        &key,
    ];
    stage.run(&submit).assert_code(0);
    assert_signed(&stage, &out);
    let ran = verify(&stage, &out);
    ran.assert_code(0);
    ran
}

/// The package is accepted from its signer alone, and only as it was signed.
fn assert_signed(stage: &Stage, out: &str) {
    let public = fs::read_to_string(stage.path("key.pub")).unwrap();
    let signers = stage.write("signers", &format!("claims@example.org {public}"));
    let other = stage.write("nobody", "");
    let with = |signers: &str, more: &[&str]| {
        let verify = ["verify", out, "--allowed-signers", signers];
        stage.run(&[&verify[..], more].concat())
    };
    let ran = with(&signers, &[]);
    ran.assert_code(0);
    let line = "signed     by claims@example.org";
    assert!(ran.stdout.contains(line), "{}", ran.stdout);
    let unsigned = stage.path("none.sig").display().to_string();
    for ran in [
        with(&other, &[]),
        with(&signers, &["--signer", "other@example.org"]),
        with(&signers, &["--signature", &unsigned]),
    ] {
        ran.assert_code(1);
        assert!(
            ran.stdout.contains("rejected   bad-signature: "),
            "{}",
            ran.stdout
        );
    }
    // The same package, packed at another moment.
    let again = base().write(stage, "again.tar.zst");
    fs::copy(format!("{out}.sig"), format!("{again}.sig")).unwrap();
    let ran = stage.run(&["verify", &again, "--allowed-signers", &signers]);
    ran.assert_code(1);
    assert!(
        ran.stdout.contains("rejected   bad-signature: "),
        "{}",
        ran.stdout
    );
}

fn accept_gloo() {
    let run = ["--platform", "cpu", "--profile", "smoke"];
    let claim = "claim: {platform: cpu, backend: gloo, profile: smoke, evidence: host}";
    let ran = packed_with_torch("claim-gloo", &run, claim);
    let line = "cpu/gloo, profile smoke, evidence: host";
    assert!(ran.stdout.contains(line), "{}", ran.stdout);
    assert!(!ran.stdout.contains("note"), "{}", ran.stdout);
}

fn accept_simulated() {
    let run = ["--platform", "simxpu", "--profile", "smoke"];
    let lines = "devices: [{model: simulated, count: 8}]\n\
        claim: {platform: simxpu, backend: simxccl, profile: smoke, evidence: simulated}";
    let ran = packed_with_torch("claim-simulated", &run, lines);
    assert!(ran.stdout.contains("evidence: simulated"), "{}", ran.stdout);
}
