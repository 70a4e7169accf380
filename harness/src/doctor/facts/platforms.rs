//! Probes platforms, and records why one cannot be used.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::{Facts, FactsQuery};
use allranks_model::evidence::Evidence;
use allranks_runner::probe::{AUTOLOAD, ProbeResult, probe_all};
use allranks_suite::platform::Platform;

/// A platform that was probed, and what it offers here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PlatformFacts {
    /// The platform's name.
    pub name: String,
    /// True if it was named on the command line.
    pub is_wanted: bool,
    /// True if its tensors lie on devices and not in the host's memory.
    pub has_devices: bool,
    /// Why it cannot be used; `None` if it can. In JSON the field is `trouble`.
    #[serde(rename = "trouble")]
    pub unusable_because: Option<String>,
    /// The number of its devices; `None` if that is not known.
    pub devices: Option<u64>,
    /// Its backends, each with whether this torch has it; empty if torch could not be asked.
    pub backends: BTreeMap<String, bool>,
    /// The environment variable that hides devices from a process; `None` if there is none.
    pub mask: Option<String>,
    /// The name of the vendor's tool; `None` if its file names none.
    pub tool: Option<String>,
    /// True if the tool is installed.
    pub has_tool: bool,
}

/// Probes platforms with the interpreter of the query. If torch can be imported only without the packages that it loads by
/// itself, they are probed without those packages.
#[must_use]
pub fn platforms(
    wanted: &[(Arc<Platform>, bool)],
    facts: &Facts,
    query: &FactsQuery,
) -> Vec<PlatformFacts> {
    let Some(python) = &query.python else {
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
            query.patience,
            query.forked.as_ref(),
        ),
        false => vec![ProbeResult::unusable("torch cannot be imported".to_owned()); wanted.len()],
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
                unusable_because: observed.usable.err(),
                devices: observed.count,
                backends: observed.backends,
                mask: platform.visible_devices.clone(),
                tool: tool.cloned(),
                has_tool: tool
                    .and_then(|tool| tool.split_whitespace().next())
                    .is_some_and(|tool| query.program(tool).is_some()),
            }
        })
        .collect()
}
