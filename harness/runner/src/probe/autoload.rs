//! Packages that torch loads when it is imported: the entry points of the group `torch.backends`. One that is installed
//! and does not work makes `import torch` raise, end the interpreter, or never return.

use std::env;
use std::ffi::OsStr;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The variable that keeps torch from loading such packages if it is `0`.
pub const AUTOLOAD: &str = "TORCH_DEVICE_BACKEND_AUTOLOAD";

/// An entry point, of the group `torch.backends` or of another group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryPoint {
    /// Its name in the group.
    pub name: String,
    /// The object it loads, `module:function`.
    pub value: String,
    /// The package that has it; none if that is not known.
    pub package: Option<String>,
}

impl EntryPoint {
    /// Returns what must be uninstalled: the package, or the entry point's name if the package is not known.
    #[must_use]
    pub fn culprit(&self) -> &str {
        self.package.as_deref().unwrap_or(&self.name)
    }
}

/// Returns two remedies for a package that torch loads by itself: one for this run, and a permanent one.
#[must_use]
pub fn remedy(package: &str, python: &str) -> [String; 2] {
    [
        format!("{AUTOLOAD}=0 lets torch be imported without it"),
        format!("{python} -m pip uninstall {package}"),
    ]
}

/// Returns true if torch is kept from loading such packages: by the platform's own environment (`own`), or else by that
/// of this process.
pub(super) fn is_off(own: Option<&String>) -> bool {
    match own {
        Some(value) => value == "0",
        None => env::var_os(AUTOLOAD).as_deref() == Some(OsStr::new("0")),
    }
}

/// Returns a sentence about the entry points at fault, with the remedies. Several points are at fault if each works alone.
pub(super) fn blame(points: &[&EntryPoint], python: &Path) -> String {
    let shown = python.display().to_string();
    let point = |point: &&EntryPoint| {
        format!(
            "{} (entry point {} = {} of torch.backends)",
            point.culprit(),
            point.name,
            point.value
        )
    };
    let described: Vec<_> = points.iter().map(point).collect();
    let packages: Vec<_> = points.iter().map(|point| point.culprit()).collect();
    let [now, for_good] = remedy(&packages.join(" "), &shown);
    format!(
        "torch loads {} by itself: {now}, and {for_good} is for good",
        described.join(" and ")
    )
}
