//! What one look sees of a world.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::watch::endpoints::hosts::Hosts;
use crate::watch::ranks::rank_process::RankProcess;
use allranks_model::names::Rank;

/// The ranks of one world.
pub type Ranks<'a> = [(Rank, &'a RankProcess)];

/// A world as one look sees it, and what is needed to judge it.
pub struct WorldView<'a> {
    pub ranks: &'a Ranks<'a>,
    /// Returns true for the id of a process of the same program.
    pub is_ours: &'a dyn Fn(u32) -> bool,
    /// Which addresses name the same host.
    pub hosts: &'a mut Hosts,
    /// For how long nothing has moved.
    pub still: Duration,
    /// Ranks to whose main threads data has come of late, at connections of the program's own.
    pub receiving: BTreeSet<Rank>,
}
