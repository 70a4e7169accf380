//! Packages that torch loads by itself when it is imported: the entry points of the group `torch.backends`. One that is
//! installed and unusable makes `import torch` raise, end the interpreter, or never return.

use std::env;
use std::ffi::OsStr;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The variable that keeps torch from loading them, if it is `0`.
pub const AUTOLOAD: &str = "TORCH_DEVICE_BACKEND_AUTOLOAD";

/// An entry point of the group `torch.backends`, or of another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryPoint {
    /// Its name.
    pub name: String,
    /// `module:function`.
    pub value: String,
    /// Its package, if known.
    pub package: Option<String>,
}

impl EntryPoint {
    /// What to uninstall: the package, or the entry point's name where that is not known.
    #[must_use]
    pub fn culprit(&self) -> &str {
        self.package.as_deref().unwrap_or(&self.name)
    }
}

/// How to get past a package that torch loads by itself, at once and for good.
#[must_use]
pub fn remedy(package: &str, python: &str) -> [String; 2] {
    [
        format!("{AUTOLOAD}=0 lets torch be imported without it"),
        format!("{python} -m pip uninstall {package}"),
    ]
}

/// Whether torch is kept from it: by the platform's own environment, or else by this process's.
pub(super) fn is_off(own: Option<&String>) -> bool {
    match own {
        Some(value) => value == "0",
        None => env::var_os(AUTOLOAD).as_deref() == Some(OsStr::new("0")),
    }
}

/// Whose fault it is, and how to get past it: one entry point, or several that can be loaded and not together.
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
    let whose: Vec<_> = points.iter().map(point).collect();
    let packages: Vec<_> = points.iter().map(|point| point.culprit()).collect();
    let [now, for_good] = remedy(&packages.join(" "), &shown);
    format!(
        "torch loads {} by itself: {now}, and {for_good} is for good",
        whose.join(" and ")
    )
}
