//! Platforms: found, or why not.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::{Facts, Question};
use allranks_model::evidence::Evidence;
use allranks_runner::probe::{AUTOLOAD, Observed, probe_all};
use allranks_suite::platform::Platform;

/// A platform that was looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PlatformFacts {
    /// The platform's name.
    pub name: String,
    /// True if it was named on the command line.
    pub is_wanted: bool,
    /// True if it has devices of its own, and is not the host.
    pub has_devices: bool,
    /// Why it cannot be used; none if it can.
    pub trouble: Option<String>,
    /// Number of devices, if known.
    pub devices: Option<u64>,
    /// Its backends, and whether this torch has them; empty if that could not be asked.
    pub backends: BTreeMap<String, bool>,
    /// The variable that hides devices from a process.
    pub mask: Option<String>,
    /// The vendor's tool.
    pub tool: Option<String>,
    /// Whether that is installed.
    pub has_tool: bool,
}

/// Looks for platforms, in the interpreter of the question. Where torch can be imported only without the packages that load
/// themselves, they are looked for without.
#[must_use]
pub fn platforms(
    wanted: &[(Arc<Platform>, bool)],
    facts: &Facts,
    question: &Question,
) -> Vec<PlatformFacts> {
    let Some(python) = &question.python else {
        return Vec::new();
    };
    let torch = facts.torch.as_ref();
    let without = torch.and_then(|torch| torch.without_autoload.as_ref());
    let is_alone = without.is_some_and(|import| import.build().is_some());
    let is_there = torch.is_some_and(|torch| torch.build().is_some());
    let mut asked: Vec<Platform> = wanted
        .iter()
        .map(|(platform, _)| Platform::clone(platform))
        .collect();
    if is_alone {
        for platform in &mut asked {
            platform.env.insert(AUTOLOAD.to_owned(), "0".to_owned());
        }
    }
    let observed = match is_there {
        true => probe_all(
            &python.path,
            &asked.iter().collect::<Vec<_>>(),
            question.patience,
            question.imported.as_ref(),
        ),
        false => vec![Observed::unusable("torch cannot be imported".to_owned()); wanted.len()],
    };
    wanted
        .iter()
        .zip(observed)
        .map(|((platform, is_wanted), observed)| {
            let tool = platform.tool.as_ref();
            PlatformFacts {
                name: platform.name.clone(),
                is_wanted: *is_wanted,
                has_devices: match platform.evidence {
                    Evidence::Hardware => !observed.is_simulated,
                    Evidence::Host | Evidence::Simulated => false,
                },
                trouble: observed.usable.err(),
                devices: observed.count,
                backends: observed.backends,
                mask: platform.visible_devices.clone(),
                tool: tool.cloned(),
                has_tool: tool
                    .and_then(|tool| tool.split_whitespace().next())
                    .is_some_and(|tool| question.program(tool).is_some()),
            }
        })
        .collect()
}
