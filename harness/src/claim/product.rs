//! Reads `product.yaml`: the product that was tested, and the claim about it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use allranks_model::evidence::Evidence;
use allranks_yaml as yaml;
use allranks_yaml::{Diagnostic, Document, Focus, Source, way};

/// A product, and the claim about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "allranks product")]
pub struct Product {
    /// The vendor who makes the claim.
    pub vendor: String,
    /// The Python package that has the backend, as `pip list` shows it: `torch` for what torch has built in.
    pub package: String,
    /// Its version, as `pip list` shows it.
    pub version: String,
    /// The file that was installed.
    pub wheel: Wheel,
    /// The devices of the runs, each model once. Absent: the backend runs on the host.
    #[serde(default)]
    pub devices: Vec<Device>,
    /// The version of the devices' driver. Absent: there is none.
    #[serde(default)]
    pub driver: Option<String>,
    /// What is claimed.
    pub claim: Claim,
}

/// The file that was installed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Wheel {
    /// Its name: `torch_example-1.4.0-cp312-cp312-linux_x86_64.whl`.
    pub file: String,
    /// SHA-256 of its bytes: 64 hexadecimal digits.
    pub sha256: String,
}

/// Devices of one model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// The name of the model.
    pub model: String,
    /// Number of them.
    pub count: u32,
}

/// What is claimed: that the backend meets every MUST that the profile's cases cover, except for what is declared as unsupported,
/// known or waived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The platform, by its file's name.
    pub platform: String,
    /// The backend, by c10d's name.
    pub backend: String,
    /// The part of the suite: `core`, `full`.
    pub profile: String,
    /// What the runs prove: `hardware`, `host` or `simulated`.
    pub evidence: Evidence,
}

impl Product {
    /// Parses a product file.
    ///
    /// # Errors
    /// All problems of the file.
    pub fn parse(source: Source) -> Result<Self, Vec<Diagnostic>> {
        let (product, document): (Self, _) = yaml::decode(source)?;
        let problems = product.problems(&document);
        match problems.is_empty() {
            true => Ok(product),
            false => Err(problems),
        }
    }

    /// Returns the number of devices.
    #[must_use]
    pub fn device_count(&self) -> u32 {
        self.devices.iter().map(|device| device.count).sum()
    }

    fn problems(&self, document: &Document) -> Vec<Diagnostic> {
        let mut problems = Vec::new();
        let texts = [
            ("vendor", &self.vendor),
            ("package", &self.package),
            ("version", &self.version),
        ];
        for (field, text) in texts {
            if text.trim().is_empty() {
                let message = format!("no {field}");
                problems.push(
                    document
                        .problem(way![field], Focus::Value, message)
                        .hint("as `pip list` shows it"),
                );
            }
        }
        let digits = self.wheel.sha256.as_str();
        if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            let path = way!["wheel", "sha256"];
            problems.push(
                document
                    .problem(path, Focus::Value, "not a SHA-256")
                    .hint("64 hexadecimal digits: `sha256sum FILE.whl`"),
            );
        }
        let is_on_devices = self.claim.evidence == Evidence::Hardware;
        if is_on_devices && self.device_count() == 0 {
            problems.push(
                document
                    .problem(
                        way!["claim", "evidence"],
                        Focus::Value,
                        "a claim about hardware without `devices`",
                    )
                    .hint("devices: [{model: Example 200, count: 2}]"),
            );
        }
        problems
    }
}

/// Returns the JSON schema of product files, draft 2020-12.
#[must_use]
pub fn product_schema() -> serde_json::Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12();
    let generator = settings.into_generator();
    generator.into_root_schema_for::<Product>().to_value()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "vendor: Example\npackage: torch-example\nversion: 1.4.0\n\
        wheel: {file: x.whl, sha256: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef}\n\
        devices: [{model: Example 200, count: 2}]\n\
        claim: {platform: example, backend: excl, profile: core, evidence: hardware}\n";

    fn parse(text: &str) -> Result<Product, String> {
        Product::parse(Source::new("product.yaml", text))
            .map_err(|problems| problems[0].message.clone())
    }

    #[test]
    fn a_product_is_complete_or_refused() {
        assert_eq!(parse(GOOD).unwrap().device_count(), 2);
        let cases = [
            ("sha256: 0123", "sha256: 012", "not a SHA-256"),
            ("vendor: Example", "vendor: \" \"", "no vendor"),
            (
                "devices: [{model: Example 200, count: 2}]\n",
                "",
                "a claim about hardware without `devices`",
            ),
            ("version: 1.4.0", "versoin: 1.4.0", "`version` is missing"),
            (
                "version: 1.4.0",
                "version: 1.4.0\ncolour: red",
                "unknown field",
            ),
            ("evidence: hardware", "evidence: real", "unknown"),
        ];
        for (from, to, message) in cases {
            let said = parse(&GOOD.replace(from, to)).unwrap_err();
            assert!(said.contains(message), "{said}");
        }
    }
}
