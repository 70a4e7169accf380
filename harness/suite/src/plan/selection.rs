//! What is planned: which backends, and what the command line selects of them.

use std::sync::Arc;

use super::{Filter, Share};
use crate::case::Profile;
use crate::platform::Platform;
use allranks_model::launcher::Launcher;

/// A backend to test, on a platform that was found.
#[derive(Clone, Debug)]
pub struct Target {
    /// The platform that its ranks run on.
    pub platform: Arc<Platform>,
    /// The name of the backend, a key of the platform's `backends`.
    pub backend: String,
    /// Number of devices that were found. `None`: worlds of any size fit, as on the host.
    pub devices: Option<u32>,
}

/// What the command line selects. The default selects everything.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// `--profile`. `None`: cases and steps of all profiles.
    pub profile: Option<Profile>,
    /// `--world-size`. Empty: all sizes.
    pub world_sizes: Vec<u32>,
    /// `--filter`: every one must match.
    pub filters: Vec<Filter>,
    /// `--shard I/N`. `None`: all scenarios.
    pub shard: Option<Share>,
    /// `--launcher`. `None`: every launcher that a case names.
    pub launcher: Option<Launcher>,
    /// Whether the plan is for another machine: that has what cases need.
    pub is_elsewhere: bool,
    /// `--nodes`: number of nodes of each world, if a launcher has node agents. `None`: worlds are on this machine.
    pub nodes: Option<u32>,
    /// `--driver`: `Some(true)` plans only cases with a program, `Some(false)` only the others. `None`: both.
    pub programs: Option<bool>,
}
