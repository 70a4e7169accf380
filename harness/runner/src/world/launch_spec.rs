//! What a launcher is asked to start.

use std::collections::BTreeMap;
use std::path::PathBuf;

use allranks_model::names::Rank;
use allranks_suite::platform::Start;

/// A world to be started.
#[derive(Clone, Debug)]
pub struct LaunchSpec {
    /// How its processes are started.
    pub start: Start,
    /// Python modules besides torch that take its ranks long to import: they are forked from a process that has them.
    pub modules: &'static [&'static str],
    /// One for each rank to start, in rank order.
    pub ranks: Vec<RankLaunchSpec>,
}

/// A rank to be started.
#[derive(Clone, Debug)]
pub struct RankLaunchSpec {
    /// The rank.
    pub rank: Rank,
    /// Its whole environment, without the control address and the token.
    pub env: BTreeMap<String, String>,
    /// Where its standard output and error go; its folder exists.
    pub log: PathBuf,
}

/// Puts `folder` in front of `PYTHONPATH`.
pub fn prepend_path(env: &mut BTreeMap<String, String>, folder: &str) {
    let path = env.entry("PYTHONPATH".into()).or_default();
    *path = if path.is_empty() {
        folder.to_owned()
    } else {
        format!("{folder}:{path}")
    };
}

/// Returns this process's own environment without the variables that describe another world.
#[must_use]
pub fn base_environment() -> BTreeMap<String, String> {
    std::env::vars()
        .filter(|(name, _)| {
            !(name.starts_with("TORCHELASTIC_")
                || name.starts_with("ALLRANKS_")
                || [
                    "GROUP_RANK",
                    "ROLE_RANK",
                    "ROLE_WORLD_SIZE",
                    "TORCH_DISTRIBUTED_DEBUG",
                ]
                .contains(&name.as_str()))
        })
        .collect()
}
